"""A daemon in the process: the same handlers as behind a server, and nothing of it afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxd.config import Config
from sandboxd.daemon.composition import running
from sandboxd_client import AsyncSandboxClient, NoSessionError, SessionNotFoundError
from sandboxd_client.connection import Connection, acquire, release
from sandboxd_client.errors import CallTimeoutError, InternalError, LocalModeError
from sandboxd_client.local import LocalTransport
from sandboxd_client.methods.execs import RUN
from sandboxd_client.methods.sessions import OPEN_SESSION
from sandboxd_client.settings import Timeouts, resolve
from sandboxd_proto.v1 import session_service_pb2
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests


@pytest.fixture
async def transport(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> AsyncIterator[LocalTransport]:
    transport = LocalTransport(
        lambda: running(config, engine=engine, maker=guests.maker, listen=False)
    )
    await transport.start()
    yield transport
    await transport.aclose()


@pytest.fixture
def client(transport: LocalTransport) -> AsyncSandboxClient:
    client = AsyncSandboxClient(mode="local")
    client._connection = Connection(transport, Timeouts())
    return client


async def test_there_is_no_socket(client: AsyncSandboxClient, config: Config) -> None:
    """Commands run, and nothing listens."""
    await client.get_or_create_session("ada", "42")

    assert (await client.execute("echo hi")).stdout == "hi\n"
    assert not config.api_socket.exists()


async def test_refusals_come_out_as_over_a_channel(client: AsyncSandboxClient) -> None:
    """Through the same guard, with reason and metadata."""
    with pytest.raises(SessionNotFoundError) as caught:
        await client.get_session("ses_none")

    assert caught.value.metadata == {"sessionId": "ses_none"}


async def test_fault_of_the_daemon_tells_nothing_but_its_id(
    client: AsyncSandboxClient, transport: LocalTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of an unexpected exception stays in the log, as over a channel."""
    monkeypatch.setattr("sandboxd.sessions.sessions.Sessions.get", lambda *_: 1 / 0)

    with pytest.raises(InternalError, match="error id") as caught:
        await client.get_session("ses_1")

    assert "division" not in str(caught.value)


async def test_deadline_is_kept(client: AsyncSandboxClient, transport: LocalTransport) -> None:
    """A call that takes too long is an error here too, and its handler is cancelled."""
    info = await client.get_or_create_session("ada", "42")
    request = RUN.request(session_id=info.session_id, shell="sleep", exec_id="e1")

    with pytest.raises(CallTimeoutError):
        await transport.call(RUN, request, timeout=0.05)

    async with asyncio.timeout(5):
        while (await client.get_session(info.session_id)).running_execs:
            await asyncio.sleep(0.01)


async def test_closed_session_is_forgotten_before_the_daemon_has_ended(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """Nor is anything left to be deleted later."""
    transport = LocalTransport(
        lambda: running(config, engine=engine, maker=guests.maker, listen=False)
    )
    await transport.start()
    client = AsyncSandboxClient(mode="local")
    client._connection = Connection(transport, Timeouts())
    await client.get_or_create_session("ada", "42")
    await client.execute("echo hi")
    await client.close_session()

    await transport.aclose()

    assert list((config.state_dir / "execs").iterdir()) == []


async def test_what_has_ended_is_written_down_before_the_daemon_has(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """Nothing is left to be written later, where the process goes on."""
    transport = LocalTransport(
        lambda: running(config, engine=engine, maker=guests.maker, listen=False)
    )
    await transport.start()
    connection = Connection(transport, Timeouts())
    request = session_service_pb2.OpenSessionRequest(user_id="ada", thread_id="42")
    session = (await connection.call(OPEN_SESSION, request)).session
    run = RUN.request(session_id=session.session_id, shell="echo hi", exec_id="chosen")
    await connection.call(RUN, run)

    await transport.aclose()

    assert len(list((config.state_dir / "execs").glob("*chosen*"))) == 1


async def test_clients_of_a_loop_share_the_daemon(short_dir: Path) -> None:
    """Those with the same settings; the last one ends it, and a failed start is tried anew."""
    directories = {"state_dir": short_dir / "state", "run_dir": short_dir / "run"}
    settings = resolve("local", None, local_settings=directories)
    for _ in range(2):
        with pytest.raises(LocalModeError):
            await acquire(settings, Timeouts())
    remote = resolve("remote", "unix:/nowhere")
    first, second = await asyncio.gather(
        acquire(remote, Timeouts()), acquire(remote, Timeouts(call=1))
    )
    assert first._transport is second._transport
    assert second.timeouts.call == 1

    await release(first)
    await release(second)

    third = await acquire(remote, Timeouts())
    assert third._transport is not first._transport
    await release(third)


async def test_session_that_another_task_chose_is_not_taken(client: AsyncSandboxClient) -> None:
    """With one open session there is nothing to choose; with several, each task has to."""
    await asyncio.create_task(client.get_or_create_session("ada", "one"))
    assert client.thread_id == "one"
    await asyncio.create_task(client.get_or_create_session("ada", "two"))

    with pytest.raises(NoSessionError, match="task or thread"):
        await client.execute("true")

    client.thread_id = "two"
    assert client.thread_id == "two"
    assert (client.user_id, client.mode) == ("ada", "local")


async def test_a_port_is_forwarded_without_a_channel(client: AsyncSandboxClient) -> None:
    """Both directions flow; the fake sandbox shares the network of the test."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read()).upper())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await client.get_or_create_session("ada", "42")

    async with asyncio.timeout(30), await client.sandbox.ports.forward(port) as forward:
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.local_port)
        writer.write(b"hello")
        writer.write_eof()
        assert await reader.read() == b"HELLO"
        writer.close()
        await writer.wait_closed()

    server.close()
