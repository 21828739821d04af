"""`docker build -f Dockerfile.secure`, by hand: the image, and a daemon that is started with it."""

from __future__ import annotations

import asyncio
import re
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd_proto.v1 import session_service_pb2
from tests.deploy.tools import BASE, ROOT
from tests.docker.commands import run
from tests.docker.daemon_process import DaemonProcess, running_daemon

RECIPE = "Dockerfile.secure"
MADE_OF = "{{json .Config}} {{json .RootFS}}"


def docker(*arguments: str) -> str:
    command = ("docker", *arguments)
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=ROOT)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    return ended.stdout


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """Built by the command of the file, on a Debian that needs no registry."""
    name = f"sandboxd/test-secure:{secrets.token_hex(6)}"
    without_registry = ("--network", "host", "--build-arg", f"BASE={BASE}")
    docker("build", *without_registry, "-f", RECIPE, "-t", name, ".")
    yield name
    docker("rmi", name)


def test_the_base_is_one_that_registries_have() -> None:
    """A name of Docker's own images, and the one that the daemon asks for: Debian 12."""
    (base,) = re.findall("^ARG BASE=(.*)$", (ROOT / RECIPE).read_text(), re.MULTILINE)
    assert base == "debian:bookworm-slim"


def test_the_command_builds_what_the_script_builds(image: str) -> None:
    assert docker("image", "inspect", "--format", MADE_OF, image) == docker(
        "image", "inspect", "--format", MADE_OF, "sandbox-secure:latest"
    )


async def test_a_daemon_without_a_guest_runtime_says_the_command(
    image: str, tmp_path: Path
) -> None:
    """It does not start, and the same daemon does with the runtime."""
    lacking = DaemonProcess(CONTAINER_IMAGE=image, SANDBOXD_GUEST_RUNTIME=str(tmp_path))
    try:
        with pytest.raises(AssertionError, match=r"no guest runtime in .* ./scripts/build_images"):
            await lacking.start()
        assert lacking.process is not None
        async with asyncio.timeout(60):
            assert await lacking.process.wait() != 0
    finally:
        lacking.remove_directory()

    async with running_daemon(CONTAINER_IMAGE=image) as daemon, daemon.api() as api:
        opening = session_service_pb2.OpenSessionRequest(user_id="ada", thread_id="1")
        session_id = (await api.sessions.OpenSession(opening)).session.session_id
        answer = await run(api, session_id, "jq -n 1+1")
        assert b"2" in answer.SerializeToString()
        await api.sessions.CloseSession(
            session_service_pb2.CloseSessionRequest(session_id=session_id)
        )
