"""The server around the services: listeners, health, reflection, draining, second instances."""

from __future__ import annotations

import asyncio
import socket
import stat
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2

from sandboxd.config import Config
from sandboxd.daemon.composition import Daemon, running
from sandboxd.daemon.instance import StartRefused
from sandboxd.guest.frames import Ending
from sandboxd.service.transport.server import AddressInUse
from sandboxd_proto.v1 import exec_pb2
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.service.client import Api, events, refused

StartDaemon = Callable[..., Awaitable[Daemon]]
SERVICES = [
    "sandboxd.v1.AdminService",
    "sandboxd.v1.ExecService",
    "sandboxd.v1.SessionService",
    "grpc.health.v1.Health",
]


async def test_unix_socket_is_for_owner_and_group(daemon: Daemon) -> None:
    """Others on the host cannot open the API."""
    mode = daemon.config.api_socket.stat().st_mode

    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o660


async def test_tcp_listener_serves_on_loopback(start_daemon: StartDaemon) -> None:
    """With a host the same API answers over TCP."""
    daemon = await start_daemon(host="127.0.0.1", port=0)
    async with aio.insecure_channel(f"127.0.0.1:{daemon.server.port}") as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


@pytest.mark.parametrize("service", ["", *SERVICES[:3]])
async def test_health_is_serving(service: str, api: Api) -> None:
    """The standard health service knows the daemon and each of its services."""
    stub = health_pb2_grpc.HealthStub(api.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))

    assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_health_of_an_unknown_service_is_not_found(api: Api) -> None:
    """Errors of services that are not ours keep their own status."""
    stub = health_pb2_grpc.HealthStub(api.channel)
    with pytest.raises(aio.AioRpcError) as caught:
        await stub.Check(health_pb2.HealthCheckRequest(service="nobody"))

    assert caught.value.code() == grpc.StatusCode.NOT_FOUND


async def reflected(api: Api, version: str, **question: Any) -> Any:
    call = api.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )()
    await call.write(reflection_pb2.ServerReflectionRequest(**question))
    answer = await call.read()
    await call.done_writing()
    assert await call.read() is aio.EOF
    return answer


versions = pytest.mark.parametrize("version", ["v1", "v1alpha"])


@versions
async def test_reflection_lists_the_services(version: str, api: Api) -> None:
    """Tools find every service under both names of reflection."""
    answer = await reflected(api, version, list_services="")

    assert set(SERVICES) <= {one.name for one in answer.list_services_response.service}


@versions
@pytest.mark.parametrize(
    "symbol",
    [
        "sandboxd.v1.ExecService",
        "sandboxd.v1.ExecService.Exec",
        "sandboxd.v1.SessionService.OpenSession",
        "sandboxd.v1.ExecRequest",
        "sandboxd.v1.SessionState",
    ],
)
async def test_reflection_describes_symbols(symbol: str, version: str, api: Api) -> None:
    """Services, methods, messages and enums can be described."""
    answer = await reflected(api, version, file_containing_symbol=symbol)
    files = [
        descriptor_pb2.FileDescriptorProto.FromString(packed)
        for packed in answer.file_descriptor_response.file_descriptor_proto
    ]

    assert "sandboxd.v1" in {file.package for file in files}


@versions
@pytest.mark.parametrize("symbol", ["sandboxd.v1.Nobody", "nobody", "sandboxd.v1.ExecService.No.x"])
async def test_reflection_of_an_unknown_symbol_is_an_error(
    symbol: str, version: str, api: Api
) -> None:
    """What does not exist is not described."""
    answer = await reflected(api, version, file_containing_symbol=symbol)

    assert answer.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


FIND_EVERY_FILE = """
from pathlib import Path
import sandboxd.daemon.composition, sandboxd_proto.v1
from google.protobuf import descriptor_pool
for file in Path(sandboxd_proto.v1.__file__).parent.glob("*.proto"):
    descriptor_pool.Default().FindFileByName(f"sandboxd_proto/v1/{file.name}")
"""


async def test_reflection_knows_every_proto_of_ours() -> None:
    """The daemon by itself, without what else a test has imported, can describe the whole API."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", FIND_EVERY_FILE), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()

    assert process.returncode == 0, errors.decode()


async def test_second_daemon_on_the_same_state_is_refused(
    daemon: Daemon, config: Config, guests: FakeGuests, api: Api
) -> None:
    """Two daemons never share a directory; the second is told, the first serves on."""
    second = running(config, engine=FakeEngine(), maker=guests.maker)
    with pytest.raises(StartRefused, match=r"another sandboxd.*SANDBOXD_STATE_DIR"):
        await second.__aenter__()

    assert (await api.run(await api.open_id(), "true")).exit.code == 0


async def test_second_daemon_on_the_same_sockets_is_refused(
    daemon: Daemon, config: Config, guests: FakeGuests, api: Api
) -> None:
    """A state of its own does not let a second daemon take the first one's sockets away."""
    asked = config.model_copy(update={"state_dir": config.state_dir.with_name("other")})
    second = running(asked, engine=FakeEngine(), maker=guests.maker)
    with pytest.raises(StartRefused, match="SANDBOXD_RUN_DIR"):
        async with second:
            pass

    async with Api(config.api_socket) as another:
        assert (await another.run(await another.open_id(), "true")).exit.code == 0


async def test_port_in_use_is_told_and_leaves_nothing(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """A start that fails at its listener says how to help, and removes what it had started."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        asked = config.model_copy(update={"host": "127.0.0.1", "port": port})
        starting = running(asked, engine=engine, maker=guests.maker)
        with pytest.raises(AddressInUse, match=rf"127\.0\.0\.1:{port} is in use.*PORT"):
            await starting.__aenter__()
    assert engine.live == set()

    async with running(config, engine=FakeEngine(), maker=guests.maker):
        pass  # the lock is free again


async def test_missing_guest_runtime_is_told(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """A daemon without a runtime for its guests says how to get one."""
    asked = config.model_copy(update={"guest_runtime": config.state_dir / "nowhere"})
    with pytest.raises(StartRefused, match="build_images"):
        await running(asked, engine=engine, maker=guests.maker).__aenter__()


async def test_runtime_that_the_engine_lacks_is_refused(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """Whoever asked for a stronger runtime never gets the default one instead, nor a late error."""
    asked = config.model_copy(update={"container_runtime": "runsc"})
    with pytest.raises(StartRefused, match="no runtime runsc, only fake"):
        async with running(asked, engine=engine, maker=guests.maker):
            pass
    assert engine.live == set()

    known = config.model_copy(update={"container_runtime": "fake"})
    async with running(known, engine=FakeEngine(), maker=guests.maker) as daemon:
        assert daemon.config.container_runtime == "fake"


@pytest.mark.parametrize("length", [80, 95, 200])
async def test_run_directory_too_long_for_a_socket_is_told(
    length: int, config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """Where no guest could connect, the daemon does not start, and says which setting to change."""
    prefix = f"{config.run_dir}/"
    asked = config.model_copy(update={"run_dir": Path(prefix + "x" * (length - len(prefix)))})
    with pytest.raises(StartRefused, match="SANDBOXD_RUN_DIR"):
        async with running(asked, engine=engine, maker=guests.maker):
            pass


async def test_empty_name_of_an_instance_is_replaced(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """A first start cut short does not leave a daemon that takes others' containers for its own."""
    config.state_dir.mkdir()
    (config.state_dir / "instance").touch()
    async with running(config, engine=engine, maker=guests.maker) as daemon:
        await daemon.pools.default.wait_until_warm()

    (spec,) = engine.specs.values()
    assert all(spec.labels.values())


async def test_draining_refuses_what_is_new(daemon: Daemon, api: Api, guests: FakeGuests) -> None:
    """While the daemon leaves, running commands end in peace and new ones go elsewhere."""
    session_id = await api.open_id()
    call = api.exec(session_id, "sleep", timeout=0.2)
    await call.read()
    daemon.sessions.drain()
    for use in (api.open(thread="t2"), api.open(), api.run(session_id, "true")):
        with refused(grpc.StatusCode.UNAVAILABLE, "DRAINING") as refusal:
            await use
        assert "try again" in refusal.message

    assert (await api.status()).draining
    last = [event async for event in events(call)][-1]
    assert last.exited.reason == exec_pb2.EXIT_REASON_TIMED_OUT


async def test_stop_tells_running_commands_how_they_ended(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """A stop in the middle of a command is told to its caller, and leaves nothing behind."""
    async with Api(config.api_socket) as api:
        async with running(config, engine=engine, maker=guests.maker):
            call = api.exec(await api.open_id(), "echo so far; sleep")
            first = await call.read()
        last = [event async for event in events(call)][-1]

    assert first.events[0].WhichOneof("event") == "started"
    assert last.exited.reason == exec_pb2.EXIT_REASON_SESSION_CLOSED
    assert "daemon was stopped" in last.exited.hint
    assert engine.live == set()
    assert not config.api_socket.exists()
    assert list((config.run_dir / "links").iterdir()) == []


async def test_stop_waits_for_commands_that_end_in_time(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """A command that ends while the daemon drains ends as it would have."""
    patient = config.model_copy(update={"drain_seconds": 20.0})
    async with Api(config.api_socket) as api:
        async with running(patient, engine=engine, maker=guests.maker) as daemon:
            answer = asyncio.ensure_future(api.run(await api.open_id(), "stubborn"))
            command = await guests.wait_for("stubborn")

            async def end_once_draining() -> None:
                await eventually(lambda: daemon.sessions.is_draining)
                command.guest.exit(command, Ending.CODE, 5)

            ending = asyncio.ensure_future(end_once_draining())
        await ending

        assert (await answer).exit.code == 5


async def test_stop_tells_whoever_is_opening(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """An opener whose sandbox is not ready yet when the daemon leaves is sent elsewhere."""
    engine.gates["start"] = asyncio.Event()
    async with Api(config.api_socket) as api:
        async with running(config, engine=engine, maker=guests.maker) as daemon:
            opening = [asyncio.ensure_future(api.open(thread=f"t{n}")) for n in range(2)]
            await eventually(lambda: daemon.pools.default.figures.misses == 2)
        for call in opening:
            with refused(grpc.StatusCode.UNAVAILABLE, "DRAINING"):
                await call
    assert engine.live == set()
