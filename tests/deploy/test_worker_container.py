"""A daemon in a container with the rights that the compose file gives it, on a real engine.

The program is this checkout's, on the host's system: what is tested are the rights and the mounts.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import yaml

from sandboxd_proto.v1 import session_service_pb2
from tests.deploy.tools import BASE, DEPLOY, ROOT, program_directories
from tests.docker.commands import run
from tests.docker.daemon_process import RUNTIME, DaemonProcess, running_daemon, served

PARTS = yaml.safe_load((DEPLOY / "compose" / "parts.yml").read_text())
WORKER: dict[str, Any] = PARTS["services"]["worker"]
SETTINGS = {"SANDBOXD_EXAMINE": "true", "SANDBOXD_KEEP_SESSIONS": "true", "POOL_SIZE": "1"}


def rights() -> Iterator[str]:
    """What the files of compose say, as arguments of `docker run`."""
    yield from ("--pid", WORKER["pid"])
    for option in ("cap_drop", "cap_add", "security_opt", "device_cgroup_rules"):
        flag = "--" + option.replace("_", "-").removesuffix("s")
        for value in WORKER[option]:
            yield from (flag, value)
    for mount in WORKER["volumes"]:
        yield from ("--volume", mount)


class ContainedDaemon(DaemonProcess):
    """The daemon as the first process of a container. A second start is a second container."""

    start_seconds = 90.0

    def __init__(self, **settings: str) -> None:
        super().__init__(**settings)
        variables = [name for name in self.environment if name not in os.environ]
        seen = program_directories() | {str(RUNTIME.parent)}
        mounts = [f"type=bind,source={path},target={path},readonly" for path in seen]
        shared = f"type=bind,source={self.directory},target={self.directory}"
        mounts.append(f"{shared},bind-propagation=rshared")
        self.program = [
            *("docker", "run", "--rm", "--name", f"sandboxd-test-{secrets.token_hex(6)}"),
            *("--network", "host", "--workdir", str(ROOT)),
            *rights(),
            *(part for mount in mounts for part in ("--mount", mount)),
            *(part for name in variables for part in ("--env", name)),
            *("--env", f"PYTHONPATH={ROOT}:{ROOT}/client_py:{ROOT}/protos"),
            *("--env", "PYTHONDONTWRITEBYTECODE=1", BASE),
            *(str(DEPLOY / "worker_entrypoint"), sys.executable, "-m", "sandboxd", "serve"),
        ]


@contextmanager
def shared_mount(directory: Path) -> Iterator[None]:
    """What is mounted below it in a container appears outside; systemd makes / such a mount."""
    subprocess.run(["mount", "--bind", directory, directory], check=True)
    try:
        subprocess.run(["mount", "--make-rshared", directory], check=True)
        yield
    finally:
        subprocess.run(["umount", "--recursive", directory], check=True)


@asynccontextmanager
async def contained_daemon() -> AsyncIterator[ContainedDaemon]:
    daemon = ContainedDaemon(**SETTINGS)
    try:
        with shared_mount(daemon.directory):
            async with served(daemon):
                yield daemon
    finally:
        daemon.remove_directory()


def test_a_worker_sees_the_cgroups_of_the_host() -> None:
    """Where the engine gives it its own, as with cgroups version 2. Another container stands for
    the host, whose first process the worker sees."""
    host = f"sandboxd-test-{secrets.token_hex(6)}"
    show = ("readlink", "/proc/self/ns/cgroup")
    run = ("docker", "run", "--rm", "--volume", f"{DEPLOY}:{DEPLOY}:ro", "--network", "none")
    its_own = (*run, *rights(), "--pid", f"container:{host}", "--cgroupns", "private", BASE)
    stay = ("--detach", "--name", host, "--cgroupns", "host", BASE, "sleep", "300")
    subprocess.run((*run, *stay), check=True, capture_output=True)
    try:
        of_host, hidden, seen = (
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
            for command in (
                ("docker", "exec", host, *show),
                (*its_own, *show),
                (*its_own, str(DEPLOY / "worker_entrypoint"), *show),
            )
        )
    finally:
        subprocess.run(("docker", "rm", "--force", host), check=True, capture_output=True)

    assert hidden != of_host
    assert seen == of_host


async def protections(daemon: DaemonProcess) -> dict[str, int]:
    """Name and state of each, once the daemon has attacked a sandbox."""
    await daemon.wait_until_warm()
    async with daemon.api() as api:
        return {one.name: one.state for one in (await api.status()).protections}


async def test_a_worker_in_a_container_protects_as_one_on_the_host() -> None:
    """All protections have the same state: disks, cgroups, attaching, doors, kills by pid."""
    async with running_daemon(**SETTINGS) as outside:
        expected = await protections(outside)
    async with contained_daemon() as inside:
        found = await protections(inside)

    assert len(expected) > 15
    assert found == expected


async def test_a_session_outlives_the_container_of_its_worker() -> None:
    """The next container of the same worker has it, with its files and its process."""
    async with contained_daemon() as daemon:
        async with daemon.api() as api:
            opening = session_service_pb2.OpenSessionRequest(user_id="ada", thread_id="1")
            session_id = (await api.sessions.OpenSession(opening)).session.session_id
            await run(api, session_id, "echo kept > file")
        await daemon.stop()
        await daemon.start()
        async with daemon.api() as api:
            again = await api.sessions.OpenSession(opening)
            assert again.session.session_id == session_id
            assert again.session.incarnation == 1
            answer = await run(api, session_id, "cat file")
            assert b"kept" in answer.SerializeToString()
            await api.sessions.CloseSession(
                session_service_pb2.CloseSessionRequest(session_id=session_id)
            )
