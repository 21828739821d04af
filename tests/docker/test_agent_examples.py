"""The examples for agents do what they say."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import os
import re
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

from sandboxd_client.integrations import BashTool, FilesInMemory
from sandboxd_client.integrations.postgres_files import PostgresStore
from tests.docker.daemon_process import DaemonProcess, running_daemon
from tests.fakes.chat_model import ScriptedModel, calls, says
from tests.integrations.postgres_cluster import running_cluster

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "agents"
PAGE = ROOT / "docs" / "agents.md"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon() -> AsyncIterator[DaemonProcess]:
    """As it is by default, with its strict policy."""
    async with running_daemon(SANDBOXD_COMMAND_POLICY="strict") as daemon:
        yield daemon


async def test_the_bash_tool_example(daemon: DaemonProcess) -> None:
    """As a program of its own, with nothing but the address of a daemon."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        EXAMPLES / "bash_tool.py",
        env={**os.environ, "SANDBOXD_URL": f"unix:{daemon.socket}"},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        stdout, _ = await program.communicate()

    assert program.returncode == 0
    assert stdout.decode().splitlines() == [
        "exit code 0 - spent 142.5",
        "downloaded /data-exports/report.csv 22 bytes",
        '"books",45.5',
        '"tea",97',
    ]


async def test_the_bash_tool_of_the_agents_page(daemon: DaemonProcess) -> None:
    """The snippet runs unchanged, and prints what its comment promises."""
    match = re.search(
        r"<!-- snippet: bash tool -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
    assert match
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        match[1],
        env={**os.environ, "SANDBOXD_URL": f"unix:{daemon.socket}"},
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        stdout, _ = await program.communicate()

    assert program.returncode == 0
    assert stdout.decode().splitlines() == re.findall(r"print\(.*\)  # (.*)", match[1])


async def test_the_langchain_example(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent of the example, with a model that follows a script."""
    monkeypatch.setenv("SANDBOXD_URL", f"unix:{daemon.socket}")
    example = loaded("langchain_agent")
    model = ScriptedModel(
        steps=[
            calls("execute_bash_command", command="wc -l notes.txt", file_paths=["/notes.txt"]),
            says(lambda answer: f"{answer['stdout'].split()[0]} lines"),
        ]
    )
    with running_cluster() as database:
        async with PostgresStore(database) as store:
            await store.setup()
            await store.files("ada").write("/notes.txt", b"one\ntwo\nthree\n")
        context = example.AgentContext(user_id="ada", thread_id="example-langchain")
        told = await example.answer_with_database(
            model, database, "How long are my notes?", context
        )

    assert told == "3 lines"


@pytest.mark.parametrize(
    ("name", "answer"), [("langchain_agent", "142.5"), ("deep_agent", "2 3 5 7")]
)
async def test_an_example_without_a_model_follows_a_script(
    daemon: DaemonProcess, name: str, answer: str
) -> None:
    """As a program of its own that is given nothing; it says what it needs for more."""
    environment = {k: v for k, v in os.environ.items() if k not in ("MODEL", "DATABASE")}
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        EXAMPLES / f"{name}.py",
        env={**environment, "SANDBOXD_URL": f"unix:{daemon.socket}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        stdout, stderr = await program.communicate()

    assert (program.returncode, answer in stdout.decode()) == (0, True), stderr.decode()
    assert "MODEL" in stderr.decode()


def test_the_deep_agent_example(daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent of the example writes a program, runs it, and says what it printed."""
    monkeypatch.setenv("SANDBOXD_URL", f"unix:{daemon.socket}")
    model = ScriptedModel(
        steps=[
            calls("write_file", file_path="/workspace/a.py", content="print(2, 3, 5)"),
            calls("execute", command="python3 a.py"),
            says(lambda answer: str(answer["text"].splitlines()[0])),
        ]
    )

    said = loaded("deep_agent").answer(model, "Primes, please.", "ada", "example-deep-agent")

    assert said == "2 3 5"


def loaded(name: str) -> ModuleType:
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))  # as it is for a program that runs there
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there for their module
    spec.loader.exec_module(module)
    return module


def examples_of_the_tool() -> Iterator[Any]:
    """The class and each of its methods; every one has to have one."""
    for name, member in {"BashTool": BashTool, **vars(BashTool)}.items():
        if not name.startswith("_"):
            _, _, example = (inspect.getdoc(member) or "").partition("Example:\n")
            yield pytest.param(textwrap.dedent(example), id=name)


@pytest.mark.parametrize("example", list(examples_of_the_tool()))
def test_an_example_of_the_documentation_runs(
    example: str,
    daemon: DaemonProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As it stands there, in a conversation that has what it names."""
    assert example.strip()
    monkeypatch.setenv("SANDBOXD_URL", f"unix:{daemon.socket}")
    monkeypatch.chdir(tmp_path)
    Path("report.csv").write_text("a,b\n")
    with BashTool(files=FilesInMemory({"/logs/log.txt": "one\n"}), max_output_bytes=100) as bash:
        result = bash.execute_bash_command(
            "echo a,b > report.csv; seq 1000", user_id="ada", thread_id="42"
        )
        names = {"BashTool": BashTool, "FilesInMemory": FilesInMemory}
        exec(compile(example, "example", "exec"), {**names, "bash": bash, "result": result})
