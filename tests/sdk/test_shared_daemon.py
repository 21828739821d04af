"""Local mode in several processes: one of them runs the daemon, and the others call it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandboxd.config import Config
from sandboxd.daemon.composition import running
from sandboxd_client import AsyncSandboxClient
from sandboxd_client.connection import Connection
from sandboxd_client.errors import InvalidRequestError, LocalModeError
from sandboxd_client.local import local_config
from sandboxd_client.settings import Timeouts
from sandboxd_client.shared_daemon import SharedTransport
from tests.docker.daemon_process import RUNTIME, first_uid
from tests.fakes.engine import FakeEngine, LastingEngine
from tests.fakes.guest import FakeGuests

OF_A_SERVICE = {
    "HOST": "0.0.0.0",
    "PORT": "5000",
    "WORKER_ID": "worker1",
    "POOL_SIZE": "10",
    "MIN_POOL_SIZE": "3",
    "MAX_POOL_SIZE": "80",
    "AGGRESSIVE_CLEANUP": "true",
    "SESSION_TIMEOUT_MINUTES": "30",
    "CONTAINER_IDLE_TIMEOUT_MINUTES": "5",
    "CLEANUP_INTERVAL_SECONDS": "300",
    "MAX_FILE_SIZE_MB": "100",
    "MAX_TOTAL_FILES": "1000",
    "MAX_WORKSPACE_SIZE_MB": "500",
    "CONTAINER_IMAGE": "sandbox-secure:latest",
    "MEMORY_LIMIT": "256m",
    "CPU_QUOTA": "25000",
    "SANDBOX_USER": "sandboxuser",
    "WORKSPACE_DIR": "/workspace",
    "REDIS_HOST": "redis",
    "REDIS_PORT": "6379",
    "DOCKER_NETWORK_MODE": "none",
    "SANDBOXD_TLS_CERT": "/nowhere/cert.pem",
    "SANDBOXD_CONSOLE_HOST": "0.0.0.0",
    "SANDBOXD_METRICS_PORT": "9090",
    "SANDBOXD_HTTP_ADDRESS": "0.0.0.0:8080",
    "SANDBOXD_TOKENS_FILE": "/nowhere/tokens",
}
"""What the environment of a web service may have, for the service itself and for sandboxes."""
LIMIT = 90


def test_environment_of_a_service_is_no_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is about sandboxes holds; what is about a server is not read, even if it contradicts."""
    for name, value in OF_A_SERVICE.items():
        monkeypatch.setenv(name, value)

    config = local_config({"pool_size": 4})

    assert (config.pool_size, config.cpu_quota_us, config.session_timeout_minutes) == (
        4,
        25_000,
        30,
    )
    assert (config.host, config.http_address, config.console_port) == ("", "", 0)
    assert config.metrics_port == 0
    assert not config.is_worker
    assert config.tokens_file is None
    assert config.tls_cert is None


@pytest.mark.parametrize("name", ["host", "PORT", "console_port", "redis_host"])
def test_settings_of_a_server_are_refused_as_local_settings(name: str) -> None:
    """Who gives them expects something that does not come."""
    with pytest.raises(InvalidRequestError, match=rf"{name} means nothing.*sandboxd serve"):
        local_config({name: 1})


class Member:
    """A process of a program: a transport of its own over the same directories."""

    def __init__(self, config: Config, engine: FakeEngine, guests: FakeGuests) -> None:
        self.transport = SharedTransport(
            config, lambda: running(config, engine=engine, maker=guests.maker, listen=False)
        )
        self.client = AsyncSandboxClient(mode="local")
        self.client._connection = Connection(self.transport, Timeouts())


async def test_second_process_has_the_session_of_the_first(config: Config) -> None:
    """A conversation is one session wherever its requests arrive; when the process with the daemon
    ends, another one has the daemon, the session and its files."""
    engine = LastingEngine()
    guests = FakeGuests(engine)
    first, second, third = (Member(config, engine, guests) for _ in range(3))
    await first.transport.start()
    assert not config.api_socket.exists()  # while it is alone
    assert (config.run_dir / "local.sock").stat().st_mode & 0o777 == 0o600
    await asyncio.gather(second.transport.start(), third.transport.start())
    opened = await first.client.get_or_create_session("ada", "42")

    attached = await second.client.get_or_create_session("ada", "42")
    await third.client.get_or_create_session("ada", "42")
    assert attached.session_id == opened.session_id
    assert (await second.client.execute("echo hi")).stdout == "hi\n"
    assert not first.transport.can_come_back
    assert second.transport.can_come_back

    await first.transport.aclose()
    results = await asyncio.gather(*(one.client.execute("echo again") for one in (second, third)))
    assert [result.stdout for result in results] == ["again\n", "again\n"]
    assert {second.transport.can_come_back, third.transport.can_come_back} == {False, True}
    await second.transport.aclose()
    await third.transport.aclose()
    assert not (config.run_dir / "local.sock").exists()


async def test_other_settings_are_named(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """A process does not get a daemon with other limits than it asked for."""
    first = Member(config, engine, guests)
    await first.transport.start()
    other = SharedTransport(config.model_copy(update={"memory_limit_bytes": 64 << 20}))

    with pytest.raises(LocalModeError, match=r"another memory_limit_bytes\..*state_dir"):
        await other.start()

    await first.transport.aclose()


PROGRAM = """
import sys
from sandboxd_client import SandboxClient

client = SandboxClient(mode="local")
session_id = ""
for line in sys.stdin:
    session_id = session_id or client.get_or_create_session("ada", "42").session_id
    print(session_id, client.execute(line.strip())["stdout"].strip(), flush=True)
"""


class Process:
    """A process of a program, which runs each line that it is given in the conversation."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, **environment},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, command: str) -> list[str]:
        """The id of the session, and what the command printed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        return self._process.stdout.readline().split()

    def kill(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait(LIMIT)
        self._process.stdin.close()
        self._process.stdout.close()

    def end(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(LIMIT)


def test_processes_of_a_service_share_the_conversation(short_dir: Path) -> None:
    """As the workers of a web server do that is started with variables of its own: a
    request may arrive at each of them. One that has the daemon may be killed; at the end nothing is
    left."""
    environment = OF_A_SERVICE | {
        "SANDBOXD_STATE_DIR": f"{short_dir}/state",
        "SANDBOXD_RUN_DIR": f"{short_dir}/run",
        "SANDBOXD_GUEST_RUNTIME": str(RUNTIME),
        "SANDBOXD_UID_START": str(first_uid()),
        "MAX_WORKSPACE_SIZE_MB": "16",
        "POOL_SIZE": "1",
        "MIN_POOL_SIZE": "0",
    }
    processes = [Process(environment) for _ in range(4)]
    try:
        with ThreadPoolExecutor() as pool:  # all of them start at once
            begun = list(pool.map(lambda one: one.run(f"echo {one.pid} >> log"), processes))
        assert len({session_id for (session_id,) in begun}) == 1
        first, *_ = processes
        _, *pids = first.run("sort log | xargs")
        assert pids == sorted(str(one.pid) for one in processes)

        leading = int((short_dir / "state" / "local.lock").read_text())
        killed = next(one for one in processes if one.pid == leading)
        killed.kill()
        others = [one for one in processes if one is not killed]
        with ThreadPoolExecutor() as pool:
            after = list(pool.map(lambda one: one.run("sort log | xargs"), others))
        assert after == [[begun[0][0], *pids]] * 3
        assert [one.end() for one in others] == [0, 0, 0]
    finally:
        for one in processes:
            one.kill()

    instance = (short_dir / "state" / "instance").read_text()
    listed = ["docker", "ps", "-aq", "--filter", f"label=sandboxd.instance={instance}"]
    assert subprocess.run(listed, capture_output=True, text=True, check=True).stdout == ""
