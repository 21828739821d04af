"""A door: a listener inside a sandbox that the daemon serves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import structlog

from sandboxd.doors.relay import finish, reset
from sandboxd.lost_connections import closed_as_lost

log = structlog.get_logger()

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
"""Serves one connection from inside. The connection is closed when it returns or raises; it is
cancelled when the door closes."""

BACKLOG = 64
READ_LIMIT = 64 << 10
"""Bytes that are read ahead of a handler: the most that one connection holds in memory."""


class Abstract(NamedTuple):
    """An abstract name of a unix socket, which only processes of the sandbox can reach."""

    name: str

    def __str__(self) -> str:
        return f"unix:@{self.name}"

    def listen(self) -> socket.socket:
        """In the network namespace of the sandbox."""
        return _listening(socket.AF_UNIX, f"\0{self.name}")


class Loopback(NamedTuple):
    """A port on the sandbox's 127.0.0.1."""

    port: int

    def __str__(self) -> str:
        return f"127.0.0.1:{self.port}"

    def listen(self) -> socket.socket:
        """In the network namespace of the sandbox."""
        return _listening(socket.AF_INET, ("127.0.0.1", self.port))


@dataclass(frozen=True, kw_only=True)
class Door:
    """What a session gets: where it is inside, and who serves it."""

    name: str
    """Unique within a session."""
    address: Abstract | Loopback
    serve: Serve
    max_connections: int = 64
    """Connections at the same time; a further one is closed at once."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the session's commands, unless session or command set them."""
    on_opened: Callable[[], None] = lambda: None
    """Called once when it is served."""
    on_closed: Callable[[], None] = lambda: None
    """Called once when it is no longer served."""


class OpenDoor:
    """A door that is served until `close`."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.refused = 0
        """Connections beyond the limit."""
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, listener: socket.socket) -> None:
        """Serve a listener, which now belongs to the door."""
        is_unix = listener.family == socket.AF_UNIX
        start = asyncio.start_unix_server if is_unix else asyncio.start_server
        try:
            self._server = await start(self._on_connected, sock=listener, limit=READ_LIMIT)
        except BaseException:
            listener.close()
            raise

    def close(self) -> None:
        """Stop listening, and end all connections."""
        if self._server is not None:
            self.discard()
            self.door.on_closed()

    def discard(self) -> None:
        """The same for a door that was never in use."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in self._connections:
            connection.cancel()

    def _on_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None or len(self._connections) >= self.door.max_connections:
            self.refused += 1
            writer.transport.abort()
            return
        # In an empty context: what a sandbox does is not part of the call that opened the door.
        connection = asyncio.get_running_loop().create_task(
            self._serve(reader, writer), name=f"door-{self.door.name}", context=Context()
        )
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with closed_as_lost():
                await self.door.serve(reader, writer)
            await finish(writer)
        except (OSError, EOFError):
            reset(writer)
        except asyncio.CancelledError:
            reset(writer)
            raise
        except Exception as error:
            # A bug of a handler ends the connection, never the door.
            log.error("door.failed", door=self.door.name, exc_info=error)
            reset(writer)


def _listening(family: socket.AddressFamily, address: str | tuple[str, int]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        if family == socket.AF_INET:
            # Connections of an earlier daemon may still be in TIME_WAIT.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener
