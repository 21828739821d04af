"""Previews against programs of the test: what of their answers reaches a browser."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from sandboxd.doors.previews import PortUse, Previews
from sandboxd.doors.relay import Connection
from tests.fakes.waiting import eventually

WAIT_SECONDS = 60
ACTING = (
    "Clear-Site-Data",
    "NEL",
    "Report-To",
    "Reporting-Endpoints",
    "Alt-Svc",
    "Strict-Transport-Security",
    "Accept-CH",
    "Critical-CH",
    "Set-Login",
    "Public-Key-Pins",
    "Attribution-Reporting-Register-Source",
    "Some-Field-Of-Tomorrow",
)
"""Fields by which a browser does something beyond the page, or may one day."""
OF_THE_PAGE = (
    "Content-Type",
    "Cache-Control",
    "ETag",
    "Content-Security-Policy",
    "Access-Control-Allow-Origin",
    "Content-Disposition",
    "X-Total-Count",
    "HX-Redirect",
    "Mcp-Session-Id",
    "Vary",
)
WEBSOCKET = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n"


class Program:
    """A program in a sandbox that answers with bytes of the test, and then repeats what it gets."""

    def __init__(self) -> None:
        self.answer = b""
        self.request = b""
        self.serving = 0

    async def on_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serving += 1
        try:
            with suppress(OSError, EOFError):
                self.request = await reader.readuntil(b"\r\n\r\n")
                writer.write(self.answer)
                while data := await reader.read(1 << 16):
                    writer.write(data)
        finally:
            self.serving -= 1
            writer.close()


class Rig:
    def __init__(self, program: Program, previews: Previews) -> None:
        self.program = program
        self.previews = previews

    @asynccontextmanager
    async def asked(self, more: str, *, has_own: bool) -> AsyncIterator[Connection]:
        """A connection of a browser that has asked for a page, of an origin of its own or not."""
        made = await self.previews.create("ses_1", 1, 8080, seconds=600, user_id="ada")
        host = f"{made.token}.localhost" if has_own else "127.0.0.1"
        path = "/" if has_own else f"/{made.token}/"
        reader, writer = await asyncio.open_connection("127.0.0.1", self.previews.port)
        head = f"GET {path} HTTP/1.1\r\nHost: {host}:{self.previews.port}\r\n{more}\r\n"
        writer.write(head.encode())
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                yield Connection(reader, writer)
        finally:
            writer.close()

    async def answer_to(self, more: str = "", *, has_own: bool) -> bytes:
        async with self.asked(more, has_own=has_own) as browser:
            return await browser.reader.read()


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    program = Program()
    server = await asyncio.start_server(program.on_request, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    @asynccontextmanager
    async def reach(session_id: str, incarnation: int, asked: int) -> AsyncIterator[PortUse]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            yield PortUse(Connection(reader, writer), lambda: None)
        finally:
            writer.close()

    previews = Previews(reach)
    try:
        yield Rig(program, previews)
    finally:
        await previews.aclose()
        server.close()
        await eventually(lambda: not program.serving, timeout_seconds=WAIT_SECONDS)


def answered(first: str, *fields: str, body: str = "") -> bytes:
    lines = [f"HTTP/1.1 {first}", *fields, f"Content-Length: {len(body)}"]
    return ("\r\n".join([*lines, "", ""]) + body).encode()


def names(answer: bytes) -> list[str]:
    head = answer.partition(b"\r\n\r\n")[0].decode()
    return [line.partition(":")[0].lower() for line in head.split("\r\n")[1:]]


HOSTILE = answered(
    "200 OK",
    *(f"{name}: x" for name in (*ACTING, *OF_THE_PAGE)),
    "Set-Cookie: a=1",
    "Set-Cookie: b=2; Domain=localhost",
    body="page",
)


@pytest.mark.parametrize("has_own", [True, False], ids=["own origin", "path"])
@pytest.mark.parametrize("more", ["", WEBSOCKET], ids=["request", "upgrade"])
async def test_an_answer_acts_on_its_page_only(rig: Rig, more: str, has_own: bool) -> None:
    """Whatever was asked for: a program may answer a request for a WebSocket with a page."""
    rig.program.answer = HOSTILE
    answer = await rig.answer_to(more, has_own=has_own)
    found = names(answer)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\npage")
    assert [name for name in ACTING if name.lower() in found] == []
    assert [name for name in OF_THE_PAGE if name.lower() not in found] == []
    assert found.count("set-cookie") == (1 if has_own else 0)
    assert b"Domain" not in answer
    assert (b"Content-Security-Policy: sandbox " in answer) is not has_own


@pytest.mark.parametrize("has_own", [True, False], ids=["own origin", "path"])
async def test_a_websocket_is_accepted_with_its_handshake_only(rig: Rig, has_own: bool) -> None:
    """And then every byte passes, also what came with the answer."""
    rig.program.answer = (
        b"HTTP/1.1 103 Early Hints\r\nSet-Cookie: a=1\r\n\r\n"
        b"HTTP/1.1 101 Fine\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSet-Cookie: a=1\r\n"
        b'Sec-WebSocket-Accept: b\r\nSec-WebSocket-Protocol: c\r\nClear-Site-Data: "*"\r\n\r\nfirst'
    )
    async with rig.asked(WEBSOCKET, has_own=has_own) as browser:
        head = await browser.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        assert sorted(names(head[:-4])) == [
            "connection",
            "sec-websocket-accept",
            "sec-websocket-protocol",
            "upgrade",
        ]
        assert await browser.reader.readexactly(5) == b"first"
        browser.writer.write(b"more")
        assert await browser.reader.readexactly(4) == b"more"
        browser.writer.write_eof()
        assert await browser.reader.read() == b""
    assert b"\r\nUpgrade: websocket\r\n" in rig.program.request
    assert b"\r\nSec-WebSocket-Key: a\r\n" in rig.program.request


@pytest.mark.parametrize("answer", [b"hello\r\n\r\n", b"HTTP/1.1 101 Fine\r\nno field\r\n\r\n"])
async def test_an_answer_to_an_upgrade_that_is_none_is_refused(rig: Rig, answer: bytes) -> None:
    rig.program.answer = answer
    assert (await rig.answer_to(WEBSOCKET, has_own=True)).startswith(b"HTTP/1.1 502 ")


async def test_a_switch_that_was_not_asked_for_is_refused(rig: Rig) -> None:
    rig.program.answer = b"HTTP/1.1 101 Fine\r\nUpgrade: websocket\r\n\r\n" * 8
    assert (await rig.answer_to(has_own=True)).startswith(b"HTTP/1.1 502 ")
