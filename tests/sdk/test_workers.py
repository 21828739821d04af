"""Redirects of a cluster: who is called, with which metadata, and who never gets the token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sandboxd_client.call_metadata import Metadata
from sandboxd_client.connection import Connection
from sandboxd_client.errors import (
    ConnectionLostError,
    OwnedElsewhereError,
    OwnershipUnknownError,
    SandboxError,
    UnauthenticatedError,
)
from sandboxd_client.methods.execs import ATTACH_EXEC, RUN
from sandboxd_client.methods.files import UPLOAD_FILE
from sandboxd_client.methods.sessions import LIST_SESSIONS, RESET_SESSION
from sandboxd_client.remote import RemoteTransport
from sandboxd_client.settings import Settings
from sandboxd_client.workers import (
    FOLLOWS,
    MAX_FOLLOWED,
    MAX_WORKERS,
    ClusterTransport,
    may_follow,
)
from sandboxd_proto.v1 import exec_service_pb2, file_service_pb2, session_service_pb2
from tests.ports import free_port
from tests.sdk.scripted import TIMEOUTS, Answer, Scripted, batch, exited

FIRST, OTHER, THIRD = "127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"
PLAIN = Settings("remote", FIRST, token="secret")
DONE = exec_service_pb2.RunResponse(exec_id="e1", exit=exited().exited)
TOUCHED = session_service_pb2.TouchSessionResponse()
UPLOADED = file_service_pb2.UploadFileResponse()


def elsewhere(address: str) -> OwnedElsewhereError:
    return OwnedElsewhereError("elsewhere", metadata={"worker": "w", "address": address})


@dataclass
class Worker(Scripted):
    """A scripted transport to one address."""

    is_reached: bool = True
    is_closed: bool = False

    async def reaches(self, timeout: float) -> bool:
        return self.is_reached

    async def aclose(self) -> None:
        self.is_closed = True


@dataclass
class Net:
    """Workers by address; one that is not listed answers `Run`."""

    workers: dict[str, Worker]
    connected: list[Settings] = field(default_factory=list)

    def connect(self, settings: Settings) -> Worker:
        self.connected.append(settings)
        return self.workers.setdefault(settings.target, worker(DONE))

    def transport(self, settings: Settings = PLAIN) -> ClusterTransport:
        return ClusterTransport(settings, self.connect)

    def runs(self) -> dict[str, list[Metadata]]:
        """Metadata of the runs at each address."""
        return {
            address: [told for name, told in one.metadata if name == "Run"]
            for address, one in self.workers.items()
        }


def worker(*runs: Answer, **others: list[Answer]) -> Worker:
    return Worker({"Run": list(runs), **others})


async def run(connection: Connection, session_id: str = "ses_1") -> Any:
    return await connection.call(RUN, exec_service_pb2.ExecRequest(session_id=session_id))


async def test_session_of_another_worker_is_called_there_from_then_on() -> None:
    """One refusal, and no call of that session passes through the first worker again."""
    net = Net({FIRST: worker(elsewhere(OTHER)), OTHER: worker(DONE)})
    connection = Connection(net.transport(), TIMEOUTS)

    for _ in range(3):
        assert await run(connection) == DONE

    assert net.runs() == {FIRST: [FOLLOWS], OTHER: [FOLLOWS] * 3}
    assert net.connected == [PLAIN, replace(PLAIN, target=OTHER)]


async def test_daemon_alone_is_asked_once() -> None:
    """Its clients pay with one entry of metadata, and only where a session is named."""
    net = Net({FIRST: worker(DONE, ListSessions=[session_service_pb2.ListSessionsResponse()])})
    connection = Connection(net.transport(), TIMEOUTS)

    await run(connection)
    await connection.call(LIST_SESSIONS, session_service_pb2.ListSessionsRequest())

    assert net.workers[FIRST].metadata == [("Run", FOLLOWS), ("ListSessions", ())]
    assert net.connected == [PLAIN]


@pytest.mark.parametrize(
    ("settings", "address", "is_followed"),
    [
        (PLAIN, "127.0.0.2:5000", True),
        (PLAIN, "[::1]:5000", True),
        (PLAIN, "localhost:5000", True),
        (PLAIN, "10.0.0.1:5000", False),
        (PLAIN, "worker.example:5000", False),
        (PLAIN, "127.0.0.1.example:5000", False),
        (PLAIN, "0.0.0.0:5000", False),
        (PLAIN, "unix:/tmp/x", False),
        (PLAIN, "dns:127.0.0.1:5000", False),
        (PLAIN, "127.0.0.1:5000/x", False),
        (PLAIN, "127.0.0.1:5000\n", False),
        (PLAIN, "", False),
        (replace(PLAIN, target="10.0.0.1:5000"), "10.0.0.2:5000", False),
        (replace(PLAIN, target="10.0.0.1:5000"), "127.0.0.1:5000", False),
        (replace(PLAIN, target="unix:/run/x.sock"), "127.0.0.1:5000", True),
        (replace(PLAIN, target="unix:/run/x.sock", token=None), "127.0.0.1:5000", False),
        (replace(PLAIN, is_secure=True, ca_file="ca.pem"), "10.0.0.2:5000", True),
        (replace(PLAIN, is_secure=True, ca_file="ca.pem"), "unix:/tmp/x", False),
        (replace(PLAIN, is_secure=True), "10.0.0.2:5000", False),
    ],
)
def test_token_goes_only_where_it_is_safe(
    settings: Settings, address: str, is_followed: bool
) -> None:
    """To peers whose certificate the given CA vouches for, or to the same host."""
    assert may_follow(settings, address) is is_followed


async def test_address_that_is_not_followed_is_not_called() -> None:
    """The call is repeated so that the worker passes it on; the next ones are not refused."""
    net = Net({FIRST: worker(elsewhere("10.0.0.1:5000"), DONE)})
    connection = Connection(net.transport(), TIMEOUTS)

    for _ in range(3):
        assert await run(connection) == DONE

    assert net.runs() == {FIRST: [FOLLOWS, (), (), ()]}
    assert net.connected == [PLAIN]


async def test_connection_that_can_follow_nothing_does_not_ask_for_it() -> None:
    """Every call would be refused once for nothing."""
    settings = replace(PLAIN, target="10.0.0.1:5000")
    net = Net({settings.target: worker(DONE)})

    await run(Connection(net.transport(settings), TIMEOUTS))

    assert net.runs() == {settings.target: [()]}


async def test_worker_that_cannot_be_reached_is_not_waited_for() -> None:
    """Nothing was sent to it, so any call goes back to the first worker, which passes it on."""
    net = Net(
        {
            FIRST: worker(elsewhere(OTHER), DONE),
            OTHER: Worker({"Run": [DONE]}, is_reached=False),
        }
    )
    connection = Connection(net.transport(), TIMEOUTS)

    for _ in range(2):
        assert await run(connection) == DONE

    assert net.runs() == {FIRST: [FOLLOWS, (), ()], OTHER: []}


@pytest.mark.parametrize(
    "error", [ConnectionLostError("cut"), OwnershipUnknownError("cut off from the others")]
)
async def test_lost_worker_is_forgotten(error: SandboxError) -> None:
    """The repeated call asks the first worker, which knows the next one."""
    net = Net(
        {
            FIRST: worker(elsewhere(OTHER), elsewhere(THIRD)),
            OTHER: worker(DONE, error),
            THIRD: worker(DONE),
        }
    )
    connection = Connection(net.transport(), TIMEOUTS)

    for _ in range(2):
        assert await run(connection) == DONE

    assert [len(runs) for runs in net.runs().values()] == [2, 2, 1]


async def test_call_that_may_have_begun_is_not_repeated() -> None:
    """A redirect changes nothing about which calls are safe to repeat."""
    net = Net(
        {
            FIRST: worker(ResetSession=[elsewhere(OTHER)]),
            OTHER: worker(ResetSession=[ConnectionLostError("cut")]),
        }
    )
    request = session_service_pb2.ResetSessionRequest(session_id="ses_1")

    with pytest.raises(ConnectionLostError):
        await Connection(net.transport(), TIMEOUTS).call(RESET_SESSION, request)

    assert len(net.workers[OTHER].asked) == 1


async def test_worker_that_does_not_know_the_token_is_not_asked_again() -> None:
    """Each host may have a file of tokens of its own; calls are then passed on."""
    net = Net(
        {FIRST: worker(elsewhere(OTHER), DONE), OTHER: worker(UnauthenticatedError("unknown"))}
    )
    connection = Connection(net.transport(), TIMEOUTS)

    for _ in range(2):
        assert await run(connection) == DONE

    assert [len(runs) for runs in net.runs().values()] == [3, 1]


async def test_moved_session_is_followed() -> None:
    """The worker that had it knows who has it now."""
    net = Net(
        {
            FIRST: worker(elsewhere(OTHER)),
            OTHER: worker(DONE, elsewhere(THIRD)),
            THIRD: worker(DONE),
        }
    )
    connection = Connection(net.transport(), TIMEOUTS)

    for _ in range(3):
        assert await run(connection) == DONE

    assert [len(runs) for runs in net.runs().values()] == [1, 2, 2]


async def test_workers_that_name_each_other_are_left() -> None:
    """After a few the call is one that the first worker has to pass on."""
    net = Net({FIRST: worker(elsewhere(OTHER), DONE), OTHER: worker(elsewhere(OTHER))})

    assert await run(Connection(net.transport(), TIMEOUTS)) == DONE

    assert net.runs() == {FIRST: [FOLLOWS, ()], OTHER: [FOLLOWS] * MAX_FOLLOWED}


async def test_stream_is_followed_before_it_begins() -> None:
    """Its events come from the worker that has the session, each once."""
    net = Net(
        {
            FIRST: worker(AttachExec=[[elsewhere(OTHER)]]),
            OTHER: worker(AttachExec=[[batch(exited())]]),
        }
    )
    transport = net.transport()
    request = exec_service_pb2.AttachExecRequest(session_id="ses_1", exec_id="e1")
    for _ in range(2):
        stream = Connection(transport, TIMEOUTS).stream(ATTACH_EXEC, request)
        async with aclosing(stream):
            assert [response async for response in stream] == [batch(exited())]

    assert len(net.workers[FIRST].asked) == 1
    assert len(net.workers[OTHER].asked) == 2


async def test_upload_goes_to_a_known_worker_only() -> None:
    """What is sent cannot be sent again, so it asks for no redirect; a known worker gets it."""
    net = Net(
        {
            FIRST: worker(elsewhere(OTHER), UploadFile=[UPLOADED]),
            OTHER: worker(DONE, UploadFile=[UPLOADED]),
        }
    )
    connection = Connection(net.transport(), TIMEOUTS)

    async def upload() -> None:
        async def parts() -> AsyncIterator[file_service_pb2.UploadFileRequest]:
            yield file_service_pb2.UploadFileRequest(chunk=b"x")

        await connection.send(UPLOAD_FILE, parts(), session_id="ses_1")

    await upload()
    await run(connection)
    await upload()

    assert [name for name, _ in net.workers[FIRST].metadata] == ["UploadFile", "Run"]
    assert net.workers[OTHER].metadata == [("Run", FOLLOWS), ("UploadFile", ())]


async def test_connections_are_bounded() -> None:
    """The least recently used one is closed for another, never one with a call under way."""
    held = asyncio.Event()
    addresses = [f"127.0.0.1:{1000 + number}" for number in range(MAX_WORKERS + 1)]
    net = Net({FIRST: worker(*map(elsewhere, addresses))})

    @dataclass
    class Slow(Worker):
        async def call(self, *_: Any, **__: Any) -> Any:
            await held.wait()
            return DONE

    net.workers[addresses[0]] = Slow({})
    transport = net.transport()
    connection = Connection(transport, TIMEOUTS)
    slow = asyncio.create_task(run(connection, "ses_0"))
    while addresses[0] not in [settings.target for settings in net.connected]:
        await asyncio.sleep(0)

    for number in range(1, MAX_WORKERS + 1):
        await run(connection, f"ses_{number}")

    is_closed = {address: net.workers[address].is_closed for address in addresses}
    assert [address for address, closed in is_closed.items() if closed] == [addresses[1]]
    held.set()
    assert await slow == DONE
    await transport.aclose()
    assert all(one.is_closed for one in net.workers.values())


async def test_channel_tells_whether_its_worker_is_there() -> None:
    """Without a call; at once if nobody listens."""
    transport = RemoteTransport(replace(PLAIN, target=f"127.0.0.1:{free_port()}"))
    await transport.start()
    try:
        assert not await transport.reaches(60)
    finally:
        await transport.aclose()
