"""One plain HTTP request to a server, and its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

from sandboxd.doors import http_head
from sandboxd.doors.egress_rules import HTTP_PORT
from sandboxd.doors.http_head import BadMessage, Fields, RequestHead, ResponseHead
from sandboxd.doors.relay import CHUNK, Connection, Count, idle_limit, join, pump

MAX_INTERIM = 8
"""Answers such as 103 before the real one."""
MAX_TRAILERS = 64
_BODILESS = (204, 304)
_SWITCHED = 101
_UPGRADE = (("Connection", "Upgrade"), ("Upgrade", "websocket"))
_HANDSHAKE = frozenset(
    {"sec-websocket-accept", "sec-websocket-extensions", "sec-websocket-protocol"}
)
"""Fields of an answer that accepts a WebSocket, beside those of every upgrade."""


class BadAnswer(Exception):
    """A server gives no answer that can be passed on; the text says why."""


async def forward(
    head: RequestHead,
    client: Connection,
    server: Connection,
    *,
    on_sent: Count,
    on_received: Count,
    idle_seconds: float,
    edit: Callable[[Fields], Fields] = lambda fields: fields,
    is_websocket: bool = False,
) -> None:
    """Pass on exactly one request and one answer; BadMessage, BadAnswer, TimeoutError, and what
    the counters raise.

    Both are written anew, with one way to read them. The connection ends afterwards, so nothing
    that follows a request can be taken for another one. `edit` may change fields of the answer.
    With `is_websocket` the request asks for one, and if the server accepts it, every byte that
    follows is passed on in both directions.
    """
    async with idle_limit(idle_seconds) as mark:

        def marked(count: Count) -> Count:
            def on_bytes(number: int) -> None:
                mark()
                count(number)

            return on_bytes

        last = _UPGRADE if is_websocket else (("Connection", "close"),)
        sending = asyncio.ensure_future(_send(head, last, client, server, marked(on_sent)))
        try:
            answer = await _head_of_answer(server, sending, is_websocket=is_websocket)
            if answer.status == _SWITCHED:
                await _accept(answer, client, marked(on_received))
            else:
                answer = replace(answer, fields=edit(answer.fields))
                await _receive(head, answer, client, server, marked(on_received))
        finally:
            sending.cancel()
            await asyncio.wait([sending])
            if not sending.cancelled():
                sending.exception()
    if answer.status == _SWITCHED:
        await join(
            client, server, on_sent=on_sent, on_received=on_received, idle_seconds=idle_seconds
        )


async def _accept(answer: ResponseHead, client: Connection, count: Count) -> None:
    """The handshake, and no other field: a browser would obey those here as well."""
    fields = [field for field in answer.fields if field[0].lower() in _HANDSHAKE]
    start = http_head.encode("HTTP/1.1 101 Switching Protocols", [*_UPGRADE, *fields])
    count(len(start))
    client.writer.write(start)
    await client.writer.drain()


async def _send(
    head: RequestHead, last: Fields, client: Connection, server: Connection, count: Count
) -> None:
    authority = f"[{head.host}]" if ":" in head.host else head.host
    if head.port != HTTP_PORT:
        authority += f":{head.port}"
    length = [("Transfer-Encoding", "chunked")]
    if head.length is not None:
        has_length = head.length or head.method in ("POST", "PUT", "PATCH")
        length = [("Content-Length", str(head.length))] if has_length else []
    fields = [("Host", authority), *head.fields, *length, *last]
    first = http_head.encode(f"{head.method} {head.path} HTTP/1.1", fields)
    count(len(first))
    server.writer.write(first)
    await continue_if_asked(head, client)
    if head.length is not None:
        await pump(client.reader, server.writer, count, limit=head.length)
        return
    async for chunk in chunks(client.reader):
        count(len(chunk))
        server.writer.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        await server.writer.drain()
    server.writer.write(b"0\r\n\r\n")
    await server.writer.drain()


async def continue_if_asked(head: RequestHead, client: Connection) -> None:
    """Let a client send its body that waits to be asked for it."""
    if head.expects_continue and head.length != 0:
        client.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await client.writer.drain()


async def chunks(reader: asyncio.StreamReader, *, is_answer: bool = False) -> AsyncIterator[bytes]:
    """The parts of a body in chunks, without extensions and trailers; BadMessage, EOFError."""
    while True:
        left = http_head.chunk_size(await _line(reader), is_answer=is_answer)
        if not left:
            break
        while left:
            data = await reader.read(min(CHUNK, left))
            if not data:
                raise EOFError
            left -= len(data)
            yield data
        if await reader.readexactly(2) != b"\r\n":
            raise BadMessage("a chunk is longer than it says")
    for _ in range(MAX_TRAILERS):
        if await _line(reader) == b"\r\n":
            return
    raise BadMessage("too many fields follow the body")


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError:
        raise BadMessage("a line is too long") from None


async def _receive(
    head: RequestHead,
    answer: ResponseHead,
    client: Connection,
    server: Connection,
    count: Count,
) -> None:
    is_empty = head.method == "HEAD" or answer.status in _BODILESS
    is_rechunked = answer.is_chunked and head.is_newer
    framing = [("Transfer-Encoding", "chunked")] if is_rechunked else []
    start = http_head.encode(
        f"HTTP/1.1 {answer.status} {answer.reason}",
        [*answer.fields, *framing, ("Connection", "close")],
    )
    count(len(start))
    client.writer.write(start)
    if is_empty or not answer.is_chunked:
        await pump(server.reader, client.writer, count, limit=0 if is_empty else answer.length)
        return
    # Read to the last chunk, and not to the end of the connection, which a server may keep open.
    try:
        async for part in chunks(server.reader, is_answer=True):
            count(len(part))
            client.writer.write(b"%x\r\n%b\r\n" % (len(part), part) if is_rechunked else part)
            await client.writer.drain()
    except BadMessage:
        raise EOFError from None  # nothing may follow what was passed on
    if is_rechunked:
        client.writer.write(b"0\r\n\r\n")
    await client.writer.drain()


async def _head_of_answer(
    server: Connection, sending: asyncio.Future[None], *, is_websocket: bool
) -> ResponseHead:
    """The head of the answer, which may come before the whole request is sent."""
    for _ in range(MAX_INTERIM):
        reading = asyncio.ensure_future(server.reader.readuntil(http_head.HEAD_END))
        try:
            either: list[asyncio.Future[Any]] = [reading, sending]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and not reading.done():
                sending.result()  # a request that is not passed on to its end gets no answer
            data = await reading
        except asyncio.LimitOverrunError:
            raise BadAnswer("its head is too long") from None
        except asyncio.IncompleteReadError:
            raise BadAnswer("it closed the connection") from None
        finally:
            reading.cancel()
        answer = _parsed(data)
        if answer.status >= 200 or (is_websocket and answer.status == _SWITCHED):
            return answer
    raise BadAnswer("it does not come to its answer")


def _parsed(data: bytes) -> ResponseHead:
    try:
        return http_head.parse_response(data)
    except BadMessage as error:
        raise BadAnswer(str(error)) from None
