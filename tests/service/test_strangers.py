"""What callers without credentials can make the daemon hold: next to nothing."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sandboxd.access import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from sandboxd.daemon.composition import Daemon
from sandboxd.service.transport import health, server
from sandboxd_proto.v1 import exec_service_pb2_grpc, file_service_pb2, file_service_pb2_grpc
from tests.fakes.waiting import eventually
from tests.service.client import Api, exec_request, refused

StartDaemon = Callable[..., Awaitable[Daemon]]

MIB = 1 << 20
START_SECONDS = 60.0
CALL_SECONDS = 60.0
STRANGERS = 40
LARGE = 8 * MIB
"""Just below the largest message that the daemon accepts from anyone."""
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]


@pytest.fixture
def tokens_file(short_dir: Path) -> Path:
    file = short_dir / "tokens"
    file.touch(mode=0o600)
    file.write_text(line(Caller(name="ops", scope=Scope.ADMIN), hash_of(new_token())))
    return file


# --- memory, of a daemon in a process of its own ---


@dataclass
class DaemonProcess:
    pid: int
    port: int

    def memory(self, figure: str) -> int:
        """Bytes in this line of the kernel's account: VmRSS now, VmHWM at most so far."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"{figure}:\s+(\d+) kB", status)
        assert found
        return int(found[1]) * 1024


@pytest.fixture
async def process(short_dir: Path, tokens_file: Path) -> AsyncIterator[DaemonProcess]:
    """A daemon that asks for tokens over TCP; it has no engine, which strangers never reach."""
    runtime = short_dir / "runtime" / "bin"
    runtime.mkdir(parents=True)
    (runtime / "python3.11").touch()
    flags = {
        "state-dir": short_dir / "state",
        "run-dir": short_dir / "run",
        "guest-runtime": runtime.parent,
        "docker-url": "unix:///nobody/listens.sock",
        "host": "127.0.0.1",
        "port": 0,
        "console-port": 0,
        "pool-size": 0,
        "min-pool-size": 0,
        "workspace-backend": "memory",
        "tokens-file": tokens_file,
    }
    words = [word for name, value in flags.items() for word in (f"--{name}", str(value))]
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandboxd", "serve", "--no-examine", *words),
        env={**os.environ, "SANDBOXD_CONFIG": os.devnull, "SANDBOXD_HTTP_ADDRESS": ""},
        stderr=asyncio.subprocess.PIPE,
    )
    assert running.stderr is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            seen = b""
            while not (port := re.search(rb"127\.0\.0\.1:(\d+)", seen)):
                text = await running.stderr.readline()
                assert text, f"it ended: {seen.decode()}"
                seen += text
        yield DaemonProcess(running.pid, int(port[1]))
    finally:
        running.terminate()
        await running.communicate()


async def strangers(
    process: DaemonProcess, act: Callable[[aio.Channel], Awaitable[None]]
) -> tuple[int, int]:
    """Let strangers act at once, a connection each; bytes that the daemon grew by at most, and
    while they are still connected."""
    before = process.memory("VmRSS")
    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(
                aio.insecure_channel(f"127.0.0.1:{process.port}", options=OWN_CONNECTION)
            )
            for _ in range(STRANGERS)
        ]
        await asyncio.gather(*(act(channel) for channel in channels))
        return process.memory("VmHWM") - before, process.memory("VmRSS") - before


def report(what: str, peak: int, after: int) -> None:
    sent = STRANGERS * LARGE
    print(f"{what}: {sent // MIB} MiB sent, {peak // MIB} MiB at most, {after // MIB} MiB after")


async def test_health_keeps_nothing_of_a_large_name(process: DaemonProcess) -> None:
    """Watches of services that do not exist are refused, and what was sent is not held."""

    async def watch(channel: aio.Channel) -> None:
        request = health_pb2.HealthCheckRequest(service="x" * LARGE)
        call = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=CALL_SECONDS)
        with pytest.raises(aio.AioRpcError) as caught:
            await call.read()
        codes = (grpc.StatusCode.NOT_FOUND, grpc.StatusCode.RESOURCE_EXHAUSTED)
        assert caught.value.code() in codes

    peak, after = await strangers(process, watch)
    report("watches of strangers", peak, after)
    assert peak < STRANGERS * LARGE / 2


async def test_request_of_a_stranger_is_not_read(process: DaemonProcess) -> None:
    """However large it is, it takes no memory beyond the window of its connection."""

    async def run(channel: aio.Channel) -> None:
        stub = exec_service_pb2_grpc.ExecServiceStub(channel)
        with refused(grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED"):
            await stub.Run(exec_request("s", "x" * LARGE), timeout=CALL_SECONDS)

    peak, after = await strangers(process, run)
    report("requests of strangers", peak, after)
    assert peak < STRANGERS * LARGE / 2


async def test_upload_of_a_stranger_is_not_kept(process: DaemonProcess) -> None:
    """Its chunks are refused with the first one, and few are read at once to say so."""

    async def upload(channel: aio.Channel) -> None:
        stub = file_service_pb2_grpc.FileServiceStub(channel)
        call = stub.UploadFile(
            iter([file_service_pb2.UploadFileRequest(chunk=bytes(LARGE))]), timeout=CALL_SECONDS
        )
        with pytest.raises(aio.AioRpcError) as caught:
            await call
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED

    peak, after = await strangers(process, upload)
    report("uploads of strangers", peak, after)
    assert peak < STRANGERS * LARGE / 2


# --- the health service ---


async def silent_call(channel: aio.Channel, method: str) -> aio.StreamStreamCall:
    """A call that has begun and sends nothing."""
    call = channel.stream_stream(f"/{health.SERVICE}/{method}")(timeout=CALL_SECONDS)
    await call.wait_for_connection()
    return call


async def refused_with(watch: Any) -> grpc.StatusCode | None:
    """The code with which a watch is refused; None if it is served."""
    try:
        await watch.read()
    except aio.AioRpcError as error:
        return error.code()
    return None


async def test_watches_are_bounded(api: Api) -> None:
    """One too many is refused, and one that ends makes room; Check answers regardless."""
    stub, request = health_pb2_grpc.HealthStub(api.channel), health_pb2.HealthCheckRequest()
    watches = [stub.Watch(request) for _ in range(health.MAX_WATCHES)]
    for watch in watches:
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
    assert await refused_with(stub.Watch(request)) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await stub.Check(request)).status == health_pb2.HealthCheckResponse.SERVING

    watches.pop().cancel()
    async with asyncio.timeout(CALL_SECONDS):
        while await refused_with(stub.Watch(request)) is not None:
            pass  # the daemon has not noticed yet
    for watch in watches:
        watch.cancel()


async def test_slow_strangers_do_not_make_the_daemon_look_ill(api: Api) -> None:
    """While all reads of the health service are taken, Check still gives the truth."""
    silent = [await silent_call(api.channel, "Check") for _ in range(2 * health.MAX_READS)]
    stub = health_pb2_grpc.HealthStub(api.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=CALL_SECONDS)

    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    for call in silent:
        call.cancel()


@pytest.mark.parametrize("method", ["Check", "Watch"])
async def test_silent_health_call_ends(
    method: str, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A caller who does not say what it asks about is answered after a while."""
    monkeypatch.setattr(health, "READ_SECONDS", 0.05)
    call = await silent_call(api.channel, method)

    assert await call.code() is grpc.StatusCode.NOT_FOUND


# --- connections ---


@asynccontextmanager
async def silent_connections(port: int, count: int) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Connections that send nothing; each task ends once the daemon has closed its connection."""
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    ends = [asyncio.create_task(_until_closed(reader)) for reader, _ in opened]
    try:
        yield ends
    finally:
        for end, (_, writer) in zip(ends, opened, strict=True):
            end.cancel()
            writer.transport.abort()


async def _until_closed(connection: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while await connection.read(4096):
            pass


async def test_connections_of_a_listener_are_bounded(start_daemon: StartDaemon) -> None:
    """Those beyond the limit are closed at once, and the socket has a limit of its own."""
    daemon = await start_daemon(host="127.0.0.1", port=0, max_connections=4)
    async with silent_connections(daemon.server.port, 20) as ends:
        await eventually(lambda: sum(end.done() for end in ends) == 16)
        async with Api(daemon.config.api_socket) as api:
            assert (await api.status()).version


async def test_connection_that_stays_silent_is_closed(
    start_daemon: StartDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that never speaks HTTP/2 makes room for another."""
    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 1)
    daemon = await start_daemon(host="127.0.0.1", port=0)
    async with silent_connections(daemon.server.port, 8) as ends:
        await asyncio.wait_for(asyncio.gather(*ends), CALL_SECONDS)
