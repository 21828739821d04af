"""Bytes between two connections, in both directions, with limits."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple, TypeAlias

CHUNK = 64 << 10
DROP_SECONDS = 5.0
"""How long what a peer sends is read although nobody wants it."""
FINISH_SECONDS = 30.0
"""How long a peer may take to read the end of what it was sent."""

Count: TypeAlias = Callable[[int], None]
"""Gets the number of bytes that are about to be passed on, and may raise."""


class Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def reset(writer: asyncio.StreamWriter) -> None:
    """End a connection at once, and so that the other side takes nothing for whole that it got:
    an answer without a length ends with its connection."""
    peer = writer.get_extra_info("socket")
    if peer is not None and peer.family != socket.AF_UNIX:
        with suppress(OSError):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def drop_rest(connection: Connection) -> None:
    """Read what a peer still sends after its answer, for a moment: a connection that is closed with
    unread bytes is reset by the kernel, and the peer would not see the answer."""
    if connection.writer.can_write_eof():
        connection.writer.write_eof()
    with suppress(TimeoutError):
        async with asyncio.timeout(DROP_SECONDS):
            while await connection.reader.read(CHUNK):
                pass


async def finish(writer: asyncio.StreamWriter) -> None:
    """Close a connection once the other side has taken what was written; TimeoutError if it does
    not, and then the caller ends it. Otherwise a peer that does not read would keep it for ever."""
    writer.close()
    async with asyncio.timeout(FINISH_SECONDS):
        await writer.wait_closed()


@asynccontextmanager
async def idle_limit(seconds: float) -> AsyncIterator[Callable[[], None]]:
    """TimeoutError after so many seconds in which the yielded function was not called."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(seconds) as limit:

        def mark() -> None:
            if not limit.expired():
                limit.reschedule(loop.time() + seconds)

        yield mark


async def pump(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    count: Count,
    *,
    limit: int | None = None,
) -> None:
    """Move bytes until the end of the stream, or as many as the limit says.

    EOFError if the stream ends before the limit.
    """
    left = limit
    while left is None or left > 0:
        data = await reader.read(CHUNK if left is None else min(CHUNK, left))
        if not data:
            if left is not None:
                raise EOFError
            return
        count(len(data))
        writer.write(data)
        await writer.drain()
        if left is not None:
            left -= len(data)


async def join(
    one: Connection, other: Connection, *, on_sent: Count, on_received: Count, idle_seconds: float
) -> None:
    """Connect two streams until both have ended; TimeoutError if nothing moves, and what the
    counters raise.

    What the one sends to the other is counted as sent. The end of one direction is passed on, and
    the other direction goes on.
    """
    async with idle_limit(idle_seconds) as mark:

        async def move(source: Connection, target: Connection, count: Count) -> None:
            def marked(number: int) -> None:
                mark()
                count(number)

            await pump(source.reader, target.writer, marked)
            if target.writer.can_write_eof():
                target.writer.write_eof()

        await both(move(one, other, on_sent), move(other, one, on_received))


async def both(*works: Coroutine[Any, Any, None]) -> None:
    """Do them at the same time; the first failure ends the others, and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
