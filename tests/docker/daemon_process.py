"""A real daemon in a process of its own, with directories of its own."""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc
from grpc import aio

from sandboxd_proto.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    code_service_pb2_grpc,
    environment_service_pb2_grpc,
    exec_service_pb2_grpc,
    file_service_pb2_grpc,
    project_service_pb2_grpc,
    session_service_pb2_grpc,
)
from tests import daemon_logs
from tests.docker.forked_daemons import ForkedDaemon, start_forked

RUNTIME = Path(os.environ.get("SANDBOXD_STATE_DIR", "/var/lib/sandboxd")) / "runtime" / "current"

PROGRAM = [sys.executable, "-m", "sandboxd", "serve"]
OF_THE_LOADER = {"LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "MALLOC_ARENA_MAX"}
"""Variables that mean something only when a program is loaded."""

_FIRST_UID = 1_000_000
_UIDS_OF_A_DAEMON = 4096
_DAEMONS_OF_A_WORKER = 4096
_WORKERS_OF_A_RUN = 16
_daemons = itertools.count()


def first_uid() -> int:
    """The first uid for a daemon. Its sandboxes share none with those of others, which the kernel
    would count together: watches, memory of pipes, keys. TEST_RUN (0 to 7) keeps runs apart that
    are under way at once."""
    run = int(os.environ.get("TEST_RUN", "0")) * _WORKERS_OF_A_RUN
    worker = run + int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    daemon = worker * _DAEMONS_OF_A_WORKER + next(_daemons) % _DAEMONS_OF_A_WORKER
    return _FIRST_UID + daemon * _UIDS_OF_A_DAEMON


class Api:
    """A channel to a daemon and its stubs."""

    def __init__(self, target: str) -> None:
        self.channel = aio.insecure_channel(
            target,
            options=[
                ("grpc.max_receive_message_length", 16 << 20),
                # A daemon that is just starting should not be waited for longer than it takes.
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.min_reconnect_backoff_ms", 5_000),
                ("grpc.max_reconnect_backoff_ms", 200),
            ],
        )
        self.sessions = session_service_pb2_grpc.SessionServiceStub(self.channel)
        self.execs = exec_service_pb2_grpc.ExecServiceStub(self.channel)
        self.code = code_service_pb2_grpc.CodeServiceStub(self.channel)
        self.files = file_service_pb2_grpc.FileServiceStub(self.channel)
        self.environments = environment_service_pb2_grpc.EnvironmentServiceStub(self.channel)
        self.projects = project_service_pb2_grpc.ProjectServiceStub(self.channel)
        self.environments = environment_service_pb2_grpc.EnvironmentServiceStub(self.channel)
        self.admin = admin_service_pb2_grpc.AdminServiceStub(self.channel)

    async def status(self) -> admin_service_pb2.GetStatusResponse:
        return await self.admin.GetStatus(admin_service_pb2.GetStatusRequest(), timeout=10)


class DaemonProcess:
    """Starts `sandboxd serve`; a second start uses the same directories."""

    start_seconds = 90.0
    """Until the API answers."""
    is_forked = True
    """Whether a process that has imported everything starts it, if that makes no difference but in
    time."""

    def __init__(self, **settings: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="sbx-"))
        self.socket = self.directory / "run" / "sandboxd.sock"
        self.log = self.directory / "daemon.log"
        self.environment = {
            **os.environ,
            "SANDBOXD_STATE_DIR": str(self.directory / "state"),
            "SANDBOXD_RUN_DIR": str(self.directory / "run"),
            "SANDBOXD_GUEST_RUNTIME": str(RUNTIME),
            "SANDBOXD_UID_START": str(first_uid()),
            "HOST": "",
            "POOL_SIZE": "2",
            "MIN_POOL_SIZE": "0",
            # Small, so that many daemons of tests fit on a small disk.
            "MAX_WORKSPACE_SIZE_MB": "64",
            "SANDBOXD_EXAMINE": "false",
            "SANDBOXD_CONSOLE_PORT": "0",
            "SANDBOXD_HTTP_ADDRESS": "",
            "SANDBOXD_COMMAND_POLICY": "open",
            **settings,
        }
        self.program = list(PROGRAM)
        self.process: asyncio.subprocess.Process | ForkedDaemon | None = None

    @property
    def instance(self) -> str:
        return (self.directory / "state" / "instance").read_text()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    async def start(self) -> None:
        """Start it and wait until the API answers."""
        daemon_logs.watch(self.log)
        if self.is_forked and self.program == PROGRAM and not OF_THE_LOADER & {*self.environment}:
            self.process = await start_forked(self.environment, self.log)
        else:
            with self.log.open("ab") as log:
                self.process = await asyncio.create_subprocess_exec(
                    *self.program, env=self.environment, stderr=log
                )
        await self._wait_until_it_answers(self.start_seconds)

    async def _wait_until_it_answers(self, seconds: float) -> None:
        assert self.process is not None
        async with self.api() as api, asyncio.timeout(seconds):
            while True:
                try:
                    await api.status()
                    return
                except grpc.RpcError:
                    if self.process.returncode is not None:
                        raise AssertionError(self.log.read_text()) from None
                    await asyncio.sleep(0.05)

    async def signal(self, number: signal.Signals) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(90):
            return await self.process.wait()

    async def stop(self) -> int:
        return await self.signal(signal.SIGTERM)

    @asynccontextmanager
    async def api(self, target: str | None = None) -> AsyncIterator[Api]:
        api = Api(target or f"unix:{self.socket}")
        try:
            yield api
        finally:
            await api.channel.close()

    async def wait_until_warm(self) -> None:
        async with self.api() as api, asyncio.timeout(120):
            while True:
                pool = (await api.status()).pool
                if pool.warm >= pool.target:
                    return
                await asyncio.sleep(0.05)

    def held_by_the_host(self) -> list[str]:
        """Loop devices and mounts of this daemon's disks, on the host and in containers."""
        found = []
        for file in Path("/sys/block").glob("loop*/loop/backing_file"):
            with suppress(OSError):  # it went away meanwhile
                if file.read_text().startswith(str(self.directory)):
                    found.append(file.parts[3])
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return found + [line for line in mounts if f" {self.directory}/" in line]

    def remove_directory(self) -> None:
        daemon_logs.forget(self.log)
        shutil.rmtree(self.directory, ignore_errors=True)


@asynccontextmanager
async def running_daemon(**settings: str) -> AsyncIterator[DaemonProcess]:
    """A daemon with these settings; stopped and removed afterwards."""
    async with served(DaemonProcess(**settings)) as daemon:
        yield daemon


@asynccontextmanager
async def served(daemon: DaemonProcess) -> AsyncIterator[DaemonProcess]:
    """The same for one that was prepared by hand."""
    try:
        await daemon.start()
        yield daemon
    except BaseException:
        # What a failed test has left is removed and not looked at: that would hide the failure.
        with suppress(Exception):
            await daemon.stop()
        await asyncio.to_thread(_remove_containers, daemon)
        daemon.remove_directory()
        raise
    await daemon.stop()
    await _nothing_is_left(daemon)
    daemon.remove_directory()


def _remove_containers(daemon: DaemonProcess) -> None:
    with suppress(OSError, subprocess.SubprocessError):
        label = f"label=sandboxd.instance={daemon.instance}"
        command = ["docker", "ps", "--all", "--quiet", "--filter", label]
        found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
        if ids := found.stdout.split():
            subprocess.run(["docker", "rm", "--force", *ids], capture_output=True, timeout=120)


async def _nothing_is_left(daemon: DaemonProcess) -> None:
    """No disk of a stopped daemon is mounted or has a device, whatever the test did to it."""
    async with asyncio.timeout(60):
        while daemon.held_by_the_host():
            await asyncio.sleep(0.05)
