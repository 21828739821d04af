"""Ports of sessions: which programs listen inside, connections to them, and previews."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from sandboxd.doors.door import Loopback
from sandboxd.doors.listening_ports import MAX_BYTES, ListeningPort, merged, parse_tcp_table
from sandboxd.doors.previews import (
    CreatedPreview,
    ListenerFailed,
    NotReached,
    PortUse,
    Previews,
    TooManyPreviews,
)
from sandboxd.doors.sandbox_doors import DoorFailed, TooManyConnections
from sandboxd.errors import (
    DoorsOff,
    InvalidRequest,
    PortLimitReached,
    PortNotListening,
    PreviewsUnavailable,
    SandboxdError,
    SandboxLost,
    SessionNotFound,
)
from sandboxd.registry.contract import SessionState
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sessions.journal import Journal
from sandboxd.sessions.session import Session
from sandboxd.sessions.sessions import Sessions

_TABLES = ("net/tcp", "net/tcp6")


class SessionPorts:
    """Ports of all sessions. Bytes that move count as use of a session; an open connection on
    which none move does not."""

    def __init__(self, sessions: Sessions, journal: Journal, *, preview_port: int = 0) -> None:
        self._sessions = sessions
        self._journal = journal
        self.previews = Previews(
            self._reach_for_preview, port=preview_port, has_ended=self._has_ended
        )

    async def list(self, session_id: str, *, incarnation: int = 0) -> Sequence[ListeningPort]:
        """Ports that programs inside listen on, without the daemon's doors."""
        session, sandbox = await self._active(session_id, incarnation)
        session.touch()
        process = sandbox.process
        if process is None:
            raise SandboxLost("it has no process")

        def read() -> Sequence[bytes]:
            return [process.read_proc(name, MAX_BYTES) for name in _TABLES]

        try:
            tables = await asyncio.to_thread(read)
        except OSError as error:
            raise DoorsOff(f"cannot read the sockets of a sandbox: {error.strerror}") from error
        doors = [
            door.door.address.port
            for door in sandbox.doors.open_doors.values()
            if isinstance(door.door.address, Loopback)
        ]
        found = [port for table in tables for port in parse_tcp_table(table)]
        return merged(found, without=doors)

    @asynccontextmanager
    async def reach(
        self, session_id: str, port: int, *, incarnation: int = 0
    ) -> AsyncIterator[PortUse]:
        """A connection to a port inside, which ends with the block or with the sandbox.

        PortNotListening, PortLimitReached, DoorsOff.
        """
        async with self._reached(session_id, port, incarnation) as (session, use):
            self._journal.on_door(session.record, "port.forwarded", {"port": port})
            yield use

    @asynccontextmanager
    async def _reached(
        self, session_id: str, port: int, incarnation: int
    ) -> AsyncIterator[tuple[Session, PortUse]]:
        session, sandbox = await self._active(session_id, incarnation)
        _check(port)
        connection = sandbox.doors.connection(port)
        try:
            opened = await connection.__aenter__()
        except TooManyConnections:
            raise PortLimitReached from None
        except DoorFailed as error:
            session.check_active()
            raise DoorsOff(str(error)) from error
        except OSError:
            session.check_active()
            raise PortNotListening(port) from None
        try:
            session.touch()
            yield session, PortUse(opened, session.touch)
        finally:
            await connection.__aexit__(None, None, None)

    async def create_preview(
        self, session_id: str, port: int, *, seconds: float, incarnation: int = 0
    ) -> CreatedPreview:
        """PreviewsUnavailable, PortLimitReached. The program need not listen yet."""
        session, _ = await self._active(session_id, incarnation)
        _check(port)
        session.touch()
        try:
            created = await self.previews.create(
                session_id,
                session.record.incarnation,
                port,
                seconds=seconds,
                user_id=session.record.user_id,
            )
        except ListenerFailed as error:
            raise PreviewsUnavailable(str(error)) from None
        except TooManyPreviews:
            raise PortLimitReached from None
        details = {"port": port, "seconds": seconds}
        self._journal.on_door(session.record, "preview.created", details)
        return created

    async def delete_previews(self, session_id: str, port: int) -> int:
        """Of one port, or of all if it is 0; returns how many."""
        self._sessions.get(session_id)
        return self.previews.delete_of(session_id, port)

    @asynccontextmanager
    async def _reach_for_preview(
        self, session_id: str, incarnation: int, port: int
    ) -> AsyncIterator[PortUse]:
        try:
            async with self._reached(session_id, port, incarnation) as (_, use):
                yield use
        except SandboxdError as error:
            raise NotReached(error.message) from None

    def _has_ended(self, session_id: str) -> bool:
        try:
            state = self._sessions.get(session_id).record.state
        except SessionNotFound:
            return True
        return state in (SessionState.CLOSED, SessionState.EXPIRED)

    async def _active(self, session_id: str, incarnation: int) -> tuple[Session, Sandbox]:
        await self._sessions.wait_until_back(session_id)
        session = self._sessions.get(session_id)
        session.check_active()
        session.check_incarnation(incarnation)
        assert session.sandbox is not None
        return session, session.sandbox

    async def aclose(self) -> None:
        await self.previews.aclose()


def _check(port: int) -> None:
    if not 1 <= port <= 65535:
        raise InvalidRequest("port", "must be from 1 to 65535")
