"""The doors of one sandbox, and connections to ports inside it."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

import structlog

from sandboxd.doors.door import Door, OpenDoor
from sandboxd.doors.relay import CHUNK, Connection

log = structlog.get_logger()

MAX_DIALLED = 64
"""Connections to ports of one sandbox at the same time."""
DIAL_SECONDS = 5.0
"""How long a listener inside may take to accept a connection."""


class Inside(Protocol):
    """Makes sockets in the network namespace of a sandbox."""

    def __call__(self, make: Callable[[], socket.socket]) -> Awaitable[socket.socket]:
        """DoorFailed if the daemon may not, or the sandbox is gone; OSError of `make`."""
        ...


class TooManyConnections(Exception):
    """A sandbox has as many connections to its ports as it may have."""


class DoorFailed(Exception):
    """A door is not open; the text says why."""


class SandboxDoors:
    """Opens doors in one sandbox, and closes all of them with it."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._open: dict[str, OpenDoor] = {}
        self._dialled: set[asyncio.StreamWriter] = set()
        self._dialling = 0
        self._is_closed = False
        self.problems: dict[str, str] = {}
        """Why doors that were asked for are not open, by name."""

    @property
    def open_doors(self) -> Mapping[str, OpenDoor]:
        return self._open

    @property
    def env(self) -> Mapping[str, str]:
        """Variables that the open doors give to commands."""
        return {
            name: value for opened in self._open.values() for name, value in opened.door.env.items()
        }

    async def open(self, door: Door) -> bool:
        """Open it, unless one of its name is open. False, with the reason in `problems`, if that
        fails: the session goes on without it."""
        if door.name in self._open:
            return True
        try:
            await self._open_now(door)
        except (OSError, DoorFailed) as error:
            self.problems[door.name] = _reason(door, error)
            log.warning("door.not_opened", door=door.name, problem=self.problems[door.name])
            return False
        self.problems.pop(door.name, None)
        return True

    async def _open_now(self, door: Door) -> None:
        listener = await self._inside(door.address.listen)
        opened = OpenDoor(door)
        await opened.start(listener)
        if self._is_closed or door.name in self._open:
            opened.discard()
            return
        self._open[door.name] = opened
        door.on_opened()

    def shut(self, name: str) -> None:
        """Close one door, with its connections."""
        self.problems.pop(name, None)
        if (opened := self._open.pop(name, None)) is not None:
            opened.close()

    @asynccontextmanager
    async def connection(self, port: int) -> AsyncIterator[Connection]:
        """A connection to a TCP port on the sandbox's loopback, which ends with the block or with
        the sandbox. OSError if nothing listens there, or it does not answer; DoorFailed;
        TooManyConnections."""
        if len(self._dialled) + self._dialling >= MAX_DIALLED:
            raise TooManyConnections
        self._dialling += 1
        try:
            dialled = await self.dial(port)
            connection = Connection(*await asyncio.open_connection(sock=dialled, limit=CHUNK))
        finally:
            self._dialling -= 1
        self._dialled.add(connection.writer)
        try:
            if self._is_closed:
                raise DoorFailed("the sandbox is gone")
            yield connection
        finally:
            self._dialled.discard(connection.writer)
            connection.writer.transport.abort()

    async def dial(self, port: int) -> socket.socket:
        """The socket of such a connection, which the caller closes."""
        try:
            return await self._dial(socket.AF_INET, ("127.0.0.1", port))
        except ConnectionRefusedError:
            return await self._dial(socket.AF_INET6, ("::1", port))

    async def _dial(self, family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
        def make() -> socket.socket:
            made = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
            made.setblocking(False)
            return made

        dialled = await self._inside(make)
        try:
            # A socket stays in the namespace that it was made in.
            async with asyncio.timeout(DIAL_SECONDS):
                await asyncio.get_running_loop().sock_connect(dialled, address)
            dialled.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except BaseException:
            dialled.close()
            raise
        return dialled

    def close(self) -> None:
        self._is_closed = True
        for name in tuple(self._open):
            self.shut(name)
        for writer in self._dialled:
            writer.transport.abort()


def _reason(door: Door, error: OSError | DoorFailed) -> str:
    if isinstance(error, DoorFailed):
        return str(error)
    if error.errno == errno.EADDRINUSE:
        return (
            f"a command of the session has taken {door.address}; end it, and ask again, or reset "
            "the session"
        )
    return f"{door.address}: {error.strerror}"
