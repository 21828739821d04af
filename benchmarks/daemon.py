"""A daemon for the benchmark, in a separate process and directories."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from grpc import aio

from benchmarks.client import Client
from benchmarks.engine import Engine

ROOT = Path(__file__).resolve().parent.parent
INSTANCE_LABEL = "sandboxd.instance"
START_SECONDS = 30.0
STOP_SECONDS = 60.0
WARM_SECONDS = 180.0
AFTERMATH_SECONDS = 0.15
"""Time for sandboxes to be destroyed after their sessions; the status does not show it."""


class DaemonFailed(Exception):
    """The daemon failed; the message says how and ends with its log."""


class Daemon:
    """A running daemon. `client` uses its unix socket."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        directory: Path,
        port: int,
        client: Client,
        environment: Mapping[str, str],
        source: Path,
    ) -> None:
        self.client = client
        self.site_port = port + 1
        """A port of this host that its sandboxes may be allowed to reach."""
        self.process = process
        self.unix_target = _unix_target(directory)
        self.tcp_target = f"127.0.0.1:{port}"
        self._directory = directory
        self._environment = environment
        self._source = source

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def state_directory(self) -> Path:
        return self._directory / "state"

    @property
    def log(self) -> str:
        return (self._directory / "log").read_text(errors="replace")

    async def kill(self) -> None:
        """End the process without a word to it; its sandboxes run on."""
        self.process.kill()
        await self.process.wait()

    async def start_again(self) -> None:
        """Return once the next process on the same directories serves."""
        self.process = await _spawn(self._directory, self._environment, self._source)
        await _wait_until_up(self.process, self.client, self._directory)

    @property
    def instance(self) -> str:
        return (self._directory / "state" / "instance").read_text()

    @property
    def container_label(self) -> str:
        return f"{INSTANCE_LABEL}={self.instance}"

    async def wait_until_warm(self) -> None:
        """Return once the pool is full and nothing is being started or destroyed."""
        give_up_at = time.monotonic() + WARM_SECONDS
        while time.monotonic() < give_up_at:
            pool = (await self.client.status()).pool
            if pool.warm >= pool.target and not pool.starting:
                await asyncio.sleep(AFTERMATH_SECONDS)
                return
            await asyncio.sleep(0.05)
        raise DaemonFailed(f"the pool is not warm after {WARM_SECONDS:g} s: {pool.last_error}")


@asynccontextmanager
async def running(
    *,
    pool_size: int,
    max_pool_size: int,
    engine: Engine,
    settings: Mapping[str, str] | None = None,
    source: Path = ROOT,
    stop_seconds: float = STOP_SECONDS,
) -> AsyncIterator[Daemon]:
    """A daemon of the code in `source` for the block; no container of it may be left afterwards."""
    with tempfile.TemporaryDirectory(prefix="sandboxd-bench-", dir="/tmp") as name:
        directory = Path(name)
        port = free_port()
        environment = _environment(directory, port, pool_size, max_pool_size)
        environment.update(settings or {})
        if source != ROOT:
            # Before the packages that are installed.
            packages = (source, source / "protos", source / "client_py")
            environment["PYTHONPATH"] = os.pathsep.join(map(str, packages))
        process = await _spawn(directory, environment, source)
        client = Client(_unix_target(directory))
        daemon = Daemon(process, directory, port, client, environment, source)
        try:
            await _wait_until_up(process, client, directory)
            yield daemon
        finally:
            await client.close()
            await asyncio.shield(_stop(daemon.process, stop_seconds))
        _check_nothing_left(daemon, engine)


async def _spawn(
    directory: Path, environment: Mapping[str, str], source: Path
) -> asyncio.subprocess.Process:
    with (directory / "log").open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sandboxd", "serve"),
            cwd=source,
            env=environment,
            stdout=log,
            stderr=log,
            # Ctrl-C is for us; we stop the daemon.
            start_new_session=True,
        )


def _environment(directory: Path, port: int, pool_size: int, max_pool_size: int) -> dict[str, str]:
    shared_state = Path(os.environ.get("SANDBOXD_STATE_DIR", "/var/lib/sandboxd"))
    runtime = os.environ.get("SANDBOXD_GUEST_RUNTIME") or shared_state / "runtime" / "current"
    # With the prefix, which overrides a plain name that the caller may have set.
    environment = {
        **os.environ,
        "SANDBOXD_STATE_DIR": str(directory / "state"),
        "SANDBOXD_RUN_DIR": str(directory / "run"),
        "SANDBOXD_GUEST_RUNTIME": str(runtime),
        "SANDBOXD_HOST": "127.0.0.1",
        "SANDBOXD_PORT": str(port),
        "SANDBOXD_EGRESS_PRIVATE": f"127.0.0.1:{port + 1}",
        "SANDBOXD_EGRESS_MB": "100000",
        "SANDBOXD_POOL_SIZE": str(pool_size),
        # A pool that is not used shrinks to this, and a burst would find too few.
        "SANDBOXD_MIN_POOL_SIZE": str(pool_size),
        "SANDBOXD_MAX_POOL_SIZE": str(max_pool_size),
    }
    environment.pop("SANDBOXD_SOCKET", None)
    return environment


def _unix_target(directory: Path) -> str:
    return f"unix:{directory}/run/sandboxd.sock"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _wait_until_up(
    process: asyncio.subprocess.Process, client: Client, directory: Path
) -> None:
    give_up_at = time.monotonic() + START_SECONDS
    while process.returncode is None and time.monotonic() < give_up_at:
        try:
            await client.status()
            return
        except aio.AioRpcError:
            await asyncio.sleep(0.1)
    log = (directory / "log").read_text(errors="replace")
    raise DaemonFailed(f"the daemon did not start; its log:\n{log[-4000:]}")


async def _stop(process: asyncio.subprocess.Process, seconds: float) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        process.kill()
        raise DaemonFailed(f"the daemon did not stop within {seconds:g} s") from None


def _check_nothing_left(daemon: Daemon, engine: Engine) -> None:
    left = engine.containers(daemon.container_label)
    if left:
        raise DaemonFailed(f"the daemon left {len(left)} containers behind")
