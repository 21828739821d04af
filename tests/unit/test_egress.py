"""The egress proxy against servers of the test: what it passes on, pins, counts and bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from sandboxd.access.shares import Places, Share
from sandboxd.doors import relay
from sandboxd.doors.addresses import AddressRules, PrivateNetwork, Resolver
from sandboxd.doors.client_hello import ALERT_DENIED, Need, NotTls, parse_client_hello
from sandboxd.doors.egress import Egress, EgressLimits
from sandboxd.doors.egress_ledger import WINDOW_SECONDS, EgressLedger, Kind
from sandboxd.doors.egress_rules import parse_rules
from sandboxd.doors.listening_ports import ListeningPort, merged, parse_tcp_table
from sandboxd.doors.relay import reset
from sandboxd.doors.upstreams import Upstreams
from tests.fuzz.targets.doors import _hello

WAIT_SECONDS = 30


class ChangingNames(Resolver):
    """Answers with another address each time, as a hostile name server does."""

    def __init__(self, *answers: Sequence[str]) -> None:
        super().__init__()
        self.answers = list(answers)
        self.asked = 0

    async def find(self, host: str, turns: asyncio.Semaphore | None = None) -> Sequence[str]:
        self.asked += 1
        return self.answers.pop(0)


class Rig:
    """A proxy on loopback, and a server that repeats what it is sent."""

    def __init__(self) -> None:
        self.port = 0
        self.server_port = 0
        self.tasks: set[asyncio.Task[Any]] = set()
        self.received: list[bytes] = []
        self.recorded: list[tuple[str, Mapping[str, Any]]] = []
        self.egress: Egress
        self.ledger: EgressLedger

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.served(self.serve(reader, writer), writer)

    async def served(self, work: Coroutine[Any, Any, None], writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        try:
            await work
        except (OSError, EOFError):
            reset(writer)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = await reader.read(1 << 20) if b"chunked" in head else b""
        self.received.append(head + body)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
        await writer.drain()
        await reader.read()  # as a server that keeps the connection open

    async def ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(request)
        async with asyncio.timeout(WAIT_SECONDS):
            answer = await reader.read()
        writer.close()
        return answer

    def get(self, host: str = "a.test") -> bytes:
        place = f"{host}:{self.server_port}"
        return f"GET http://{place}/x HTTP/1.1\r\nHost: {place}\r\n\r\n".encode()


@asynccontextmanager
async def rig(
    resolver: Resolver | None = None,
    *,
    rules: Sequence[str] = (),
    limits: EgressLimits | None = None,
) -> AsyncIterator[Rig]:
    made = Rig()
    server = await asyncio.start_server(made.connected, "127.0.0.1", 0)
    made.server_port = server.sockets[0].getsockname()[1]
    limits = limits or EgressLimits()
    made.ledger = EgressLedger(
        max_bytes=limits.max_bytes,
        record=lambda action, details: made.recorded.append((action, details)),
    )
    made.egress = Egress(
        parse_rules(rules or [f"a.test:{made.server_port}"]),
        made.ledger,
        limits,
        addresses=AddressRules([PrivateNetwork.parse(f"127.0.0.1:{made.server_port}")]),
        resolver=resolver or Resolver({"a.test": "127.0.0.1"}),
        upstreams=Upstreams(),
        user_id="ada",
        places=Places(Share(name="connections", total=4, per_user=2)),
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await made.served(made.egress.serve(reader, writer), writer)

    proxy = await asyncio.start_server(serve, "127.0.0.1", 0)
    made.port = proxy.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        made.ledger.flush()
        proxy.close()
        server.close()
        async with asyncio.timeout(WAIT_SECONDS):
            while made.tasks:
                await asyncio.wait(made.tasks)


async def test_a_request_is_written_anew_and_the_connection_ends() -> None:
    """Fields between neighbours are gone; a server that keeps the connection delays nobody."""
    async with rig() as made:
        extra = b"Proxy-Authorization: x\r\nConnection: X-Drop\r\nX-Drop: 1\r\nX-Keep: 1\r\n\r\n"
        answer = await made.ask(made.get().removesuffix(b"\r\n") + extra)
    assert answer == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    head = made.received[0].decode()
    assert head.startswith(f"GET /x HTTP/1.1\r\nHost: a.test:{made.server_port}\r\n")
    assert "X-Keep: 1" in head
    assert "Proxy" not in head
    assert "Drop" not in head
    assert made.recorded[-1][0] == "egress.used"


@pytest.mark.parametrize(
    ("version", "answer", "expected"),
    [
        ("1.1", b"5;a=b\r\nhello\r\n0\r\nX: y\r\n\r\n", b"5\r\nhello\r\n0\r\n\r\n"),
        ("1.0", b"5\r\nhello\r\n1 \r\n!\r\n0\r\n\r\n", b"hello!"),
        ("1.0", b"5\r\nhello\r\nnonsense\r\n", None),
        ("1.1", b"5\r\nhello!!", None),
    ],
)
async def test_an_answer_in_chunks_ends_with_its_last_chunk(
    version: str, answer: bytes, expected: bytes | None
) -> None:
    """Also if the server keeps the connection open. One that is malformed breaks off, and is not
    taken for a whole one."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 7\r\n\r\n"
        writer.write(head + answer)
        await reader.read()

    async with rig() as made:
        made.serve = serve  # type: ignore[method-assign]
        request = made.get().replace(b"HTTP/1.1", b"HTTP/" + version.encode())
        if expected is None:
            with pytest.raises(ConnectionResetError):
                await made.ask(request)
            return
        head, _, body = (await made.ask(request)).partition(b"\r\n\r\n")
        assert body == expected
        assert b"Content-Length" not in head


async def test_an_answer_that_stops_is_not_taken_for_a_whole_one() -> None:
    """When nothing moves for too long, the connection is reset."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nhalf of it")
        await reader.read()

    async with rig(limits=EgressLimits(idle_seconds=0.5)) as made:
        made.serve = serve  # type: ignore[method-assign]
        with pytest.raises(ConnectionResetError):
            await made.ask(made.get())


async def test_a_name_is_looked_up_once_and_pinned() -> None:
    """Rebinding: the second answer, which leads to loopback, is never used for the first request;
    and addresses that are not allowed are left out of an answer that has both."""
    names = ChangingNames(["127.0.0.1"], ["10.0.0.1", "169.254.169.254"], ["10.0.0.1", "127.0.0.1"])
    async with rig(names) as made:
        assert b"200 OK" in await made.ask(made.get())
        assert names.asked == 1
        denied = await made.ask(made.get())
        assert b"403" in denied
        assert b"10.0.0.1 is not a public address" in denied
        assert b"200 OK" in await made.ask(made.get())
    assert made.ledger.denials == {Kind.ADDRESS: 1}


@pytest.mark.parametrize(
    ("host", "name", "is_passed_on"),
    [
        ("a.test", b"a.test", True),
        ("a.test", b"A.Test", True),
        ("a.test", b"b.test", False),
        ("a.test", None, False),
        ("a.test", b"", False),
        ("127.0.0.1", None, True),
        ("127.0.0.1", b"127.0.0.1", True),
        ("127.0.0.1", b"a.test", False),
        ("127.0.0.1", b"not a name", False),
        ("127.0.0.1", b"", False),
    ],
)
async def test_tls_asks_for_the_host_of_its_connection(
    host: str, name: bytes | None, is_passed_on: bool
) -> None:
    """By its name; to an address of a rule by none, since TLS has no names for addresses."""
    received = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.set_result(await reader.read(1 << 16))
        writer.write(b"from the server")

    async with rig() as made:
        made.serve = serve  # type: ignore[method-assign]
        place = f"{host}:{made.server_port}"
        made.egress.change(parse_rules([place]))
        answer = await made.ask(f"CONNECT {place} HTTP/1.1\r\n\r\n".encode() + _hello(name))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert answer.endswith(b"from the server" if is_passed_on else ALERT_DENIED)
        assert await received == (_hello(name) if is_passed_on else b"")


async def test_bytes_and_connections_are_limited() -> None:
    async with rig(limits=EgressLimits(max_bytes=100)) as made:
        with pytest.raises(ConnectionResetError):
            await made.ask(made.get())
        assert made.ledger.denials == {Kind.LIMIT: 1}
        assert b"429 sandboxd: this session has moved as many bytes" in await made.ask(made.get())
    async with rig() as made:
        idle = [await asyncio.open_connection("127.0.0.1", made.port) for _ in range(2)]
        for _, writer in idle:
            place = f"a.test:{made.server_port}"
            writer.write(f"CONNECT {place} HTTP/1.1\r\n\r\n".encode())
        for reader, _ in idle:
            assert b"200" in await reader.readline()
        assert b"429 sandboxd: too many connections of this user" in await made.ask(made.get())
        for _, writer in idle:
            writer.close()


async def test_a_denial_of_a_large_request_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a client that sends all of it before it looks for an answer; one that never stops sending
    is cut off."""
    async with rig() as made:
        head = b"POST http://evil.test/ HTTP/1.1\r\nContent-Length: %d\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(head % (32 << 20) + bytes(32 << 20))
        async with asyncio.timeout(WAIT_SECONDS):
            await writer.drain()
            assert b"evil.test is not on the list" in await reader.read()
        writer.close()
        await writer.wait_closed()
        monkeypatch.setattr(relay, "DROP_SECONDS", 0.3)
        _, writer = await asyncio.open_connection("127.0.0.1", made.port)
        writer.write(head % (1 << 50))
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    writer.write(bytes(1 << 16))
                    await writer.drain()
        writer.transport.abort()
        with suppress(OSError):
            await writer.wait_closed()


async def test_many_denials_make_few_lines() -> None:
    """The first of a kind at once, the others of the window as a number, hosts beyond a limit
    together."""
    async with rig() as made:
        for _ in range(5):
            await made.ask(b"GET http://evil.test/ HTTP/1.1\r\n\r\n")
        assert [details["times"] for _, details in made.recorded] == [1]
        for number in range(100):
            made.ledger.on_denied(Kind.HOST, f"h{number}.test", 80, "no")
        assert made.ledger.denied == 105
        made.ledger.flush()
        assert len(made.recorded) < 75
        assert sum(details["times"] for _, details in made.recorded) == 105
    assert WINDOW_SECONDS == 60


def test_the_name_in_a_client_hello_is_read() -> None:
    """From one record or many, and from no other bytes."""
    hello = _hello(b"example.com")
    found = parse_client_hello(hello)
    assert not isinstance(found, Need)
    assert found.server_name == "example.com"
    assert all(parse_client_hello(hello[:size]) is Need.MORE for size in range(len(hello)))
    for bad in (
        b"GET / HTTP/1.1\r\n",
        b"\x16\x02\x01",
        b"\x15\x03\x01\x00\x02",
        hello[:5] + b"\x02",
    ):
        with pytest.raises(NotTls):
            parse_client_hello(bad + bytes(8))
    twice = _hello(b"a.b", b"\x00\x00\x00\x08\x00\x06\x00\x00\x03c.d")
    with pytest.raises(NotTls, match="twice"):
        parse_client_hello(twice)


def test_listening_ports_are_read_from_the_kernels_table() -> None:
    tcp = b"  sl  local\n   0: 0100007F:1F90 00000000:0000 0A 0\n   1: 0100007F:0016 0:0 01 0\n"
    tcp6 = b"  sl\n   0: 00000000000000000000000000000000:0050 0:0 0A 0\n   x: zz:1 0 0A\n"
    found = [*parse_tcp_table(tcp), *parse_tcp_table(tcp6)]
    assert found == [ListeningPort(8080, "127.0.0.1"), ListeningPort(80, "::")]
    assert merged(found, without=[8080]) == [ListeningPort(80, "::")]
