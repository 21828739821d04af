"""inspect_ai runs its evaluations in sandboxes of a real daemon."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sandboxd_client import AsyncSandbox
from tests.docker.daemon_process import DaemonProcess, running_daemon
from tests.vendors.frameworks import PROGRAM_SECONDS, ROOM, output_of, program

FRAMEWORK = "inspect-ai"
EVALUATION = "tests.vendors.programs.inspect_eval"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon() -> AsyncIterator[DaemonProcess]:
    async with running_daemon(**ROOM) as daemon:
        yield daemon


@pytest.fixture
def url(daemon: DaemonProcess) -> str:
    return f"unix:{daemon.socket}"


async def active(url: str) -> int:
    return len(await AsyncSandbox.list(server_url=url))


def logs_in(directory: Path) -> list[Any]:
    return [json.loads(path.read_text()) for path in directory.glob("*.json")]


async def test_twenty_samples_at_once_have_their_own_sandboxes(url: str, tmp_path: Path) -> None:
    """Each sample finds its own file and no other; afterwards no session is left."""
    done = await output_of(FRAMEWORK, EVALUATION, "twenty", str(tmp_path), SANDBOXD_URL=url)

    assert done["status"] == "success", done
    assert done["scores"] == [True] * 20
    assert await active(url) == 0


async def test_an_agent_uses_the_tools_of_inspect(url: str, tmp_path: Path) -> None:
    """bash and python work, and so do the editor and the shell that inspect installs there."""
    done = await output_of(FRAMEWORK, EVALUATION, "agent", str(tmp_path), SANDBOXD_URL=url)

    assert done["status"] == "success", done
    first, second, editor, _, shell = done["tools"]
    assert first.strip() == "40"
    assert second.strip() == "42"
    assert "40" in editor
    assert "/workspace/data has 42" in shell
    assert done["scores"] == ["C"]


async def test_the_example(url: str, tmp_path: Path) -> None:
    """The task of the examples runs as inspect's command line runs it."""
    arguments = ("-m", "inspect_ai", "eval", "examples/agents/inspect_task.py")
    options = ("--model", "mockllm/model", "--log-format", "json", "--log-dir", str(tmp_path))
    async with program(FRAMEWORK, *arguments, *options, SANDBOXD_URL=url) as process:
        async with asyncio.timeout(PROGRAM_SECONDS):
            printed, _ = await process.communicate()

    assert process.returncode == 0, printed.decode()
    (log,) = logs_in(tmp_path)
    assert log["status"] == "success"
    assert log["results"]["scores"][0]["metrics"]["accuracy"]["value"] == 1.0


async def test_samples_that_fail_leave_nothing(url: str, tmp_path: Path) -> None:
    """Neither an exception nor a time limit of inspect leaves a session behind."""
    done = await output_of(FRAMEWORK, EVALUATION, "failures", str(tmp_path), SANDBOXD_URL=url)

    assert done["errors"] == ["RuntimeError('as it should')"]
    assert done["limits"] == ["time"]
    assert await active(url) == 0


async def test_an_interrupted_evaluation_leaves_nothing(url: str, tmp_path: Path) -> None:
    """Ctrl-C ends the sandboxes of the samples that were running."""
    arguments = ("-m", EVALUATION, "endless", str(tmp_path))
    async with program(FRAMEWORK, *arguments, SANDBOXD_URL=url) as process:
        async with asyncio.timeout(PROGRAM_SECONDS):
            while await active(url) < 3:
                assert process.returncode is None
                await asyncio.sleep(0.1)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PROGRAM_SECONDS):
            await process.wait()

    assert await active(url) == 0


async def test_the_checks_of_inspect(url: str) -> None:
    """The provider passes inspect's own conformance checks, but for what it does not offer."""
    arguments = ("-m", "pytest", "-q", "-c", "/dev/null", "--rootdir", ".", "-o")
    checks = "tests/vendors/programs/inspect_self_check.py"
    async with program(
        FRAMEWORK,
        *arguments,
        "asyncio_mode=auto",
        "-p",
        "no:cacheprovider",
        checks,
        SANDBOXD_URL=url,
    ) as process:
        async with asyncio.timeout(PROGRAM_SECONDS):
            printed, _ = await process.communicate()

    assert process.returncode == 0, printed.decode()
    assert "1 xfailed" in printed.decode()
