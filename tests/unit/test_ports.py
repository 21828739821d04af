"""Previews of sessions: how many the daemon keeps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from sandboxd.doors.previews import MAX_OF_A_SESSION
from sandboxd.errors import PortLimitReached
from sandboxd.sessions.journal import Journal
from sandboxd.sessions.opening import OpenRequest
from sandboxd.sessions.ports import SessionPorts
from sandboxd.sessions.sessions import Sessions

StartSessions = Callable[..., Awaitable[Sessions]]


@asynccontextmanager
async def ports_of(sessions: Sessions) -> AsyncIterator[SessionPorts]:
    ports = SessionPorts(sessions, Journal())
    try:
        yield ports
    finally:
        await ports.aclose()


async def test_previews_of_ended_sessions_are_forgotten(start_sessions: StartSessions) -> None:
    """However long they would have lasted."""
    sessions = await start_sessions()
    async with ports_of(sessions) as ports:
        for number in range(5):
            session, _ = await sessions.open("ada", str(number), OpenRequest())
            await ports.create_preview(session.id, 8080, seconds=86_400)
            if number:
                sessions.close(session.id)
        first, _ = await sessions.open("ada", "0", OpenRequest())
        await ports.create_preview(first.id, 8080, seconds=86_400)
        assert len(ports.previews) == 2


async def test_a_session_has_a_limited_number_of_previews(start_sessions: StartSessions) -> None:
    """Those that have expired do not count."""
    sessions = await start_sessions()
    async with ports_of(sessions) as ports:
        session, _ = await sessions.open("ada", "0", OpenRequest())
        await ports.create_preview(session.id, 8080, seconds=0)
        for _ in range(MAX_OF_A_SESSION):
            await ports.create_preview(session.id, 8080, seconds=3600)
        with pytest.raises(PortLimitReached):
            await ports.create_preview(session.id, 8080, seconds=3600)
        assert await ports.delete_previews(session.id, 0) == MAX_OF_A_SESSION
