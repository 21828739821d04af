"""Sessions that end without being asked: expiry, loss, restart and faults of the registry."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace

import pytest

from sandboxd.errors import (
    EngineFailed,
    SandboxdError,
    SandboxLost,
    SessionExpired,
    SessionNotFound,
)
from sandboxd.pool import WarmPool
from sandboxd.registry.contract import Registry, SessionRecord, SessionState
from sandboxd.sessions import Outcome, Sessions
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.unit.test_sessions import a_command, opened

StartSessions = Callable[..., Awaitable[Sessions]]
StartPool = Callable[..., Awaitable[WarmPool]]
BRIEF = 0.06


class FaultyRegistry:
    """A registry that can be slow and can fail."""

    def __init__(self) -> None:
        self.records: dict[str, SessionRecord] = {}
        self.gate: asyncio.Event | None = None
        self.is_saving = asyncio.Event()
        self.save_errors: list[Exception] = []
        self.forget_errors: list[Exception] = []

    async def load(self) -> Sequence[SessionRecord]:
        return list(self.records.values())

    async def save(self, record: SessionRecord) -> None:
        self.is_saving.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.save_errors:
            raise self.save_errors.pop(0)
        self.records[record.session_id] = record

    async def forget(self, session_ids: Collection[str]) -> None:
        if self.forget_errors:
            raise self.forget_errors.pop(0)
        for session_id in session_ids:
            self.records.pop(session_id, None)

    async def aclose(self) -> None: ...


def disk_full() -> Exception:
    return sqlite3.OperationalError("database or disk is full")


async def test_idle_session_expires_and_says_so(
    start_sessions: StartSessions, engine: FakeEngine
) -> None:
    """After its idle time a session's sandbox goes, and its next use is told why."""
    sessions = await start_sessions(idle_seconds=BRIEF)
    session, _ = await opened(sessions)
    await eventually(lambda: session.record.state == SessionState.EXPIRED)

    for use in (sessions.touch, lambda one: sessions.start_exec(one, a_command())):
        with pytest.raises(SessionExpired, match=r"was not used for 0\.06 s.*OpenSession"):
            use(session.id)
    await engine.wait_until(lambda: not engine.live)


async def test_expired_session_is_recreated_under_its_id(
    start_sessions: StartSessions, engine: FakeEngine
) -> None:
    """The next open says that the workspace is new, and counts the incarnations."""
    sessions = await start_sessions(idle_seconds=BRIEF)
    first, _ = await opened(sessions, metadata={"a": "1"})
    await eventually(lambda: not first.is_active)
    second, outcome = await opened(sessions, idle_seconds=60.0)

    assert (outcome, second.id) == (Outcome.RECREATED, first.id)
    assert second.record.incarnation == 2
    assert second.record.created_at == first.record.created_at
    assert second.record.metadata == {"a": "1"}
    assert sessions.get(first.id) is second


async def test_use_keeps_a_session(start_sessions: StartSessions, guests: FakeGuests) -> None:
    """Touching, attaching and a running command each hold off the expiry."""
    sessions = await start_sessions(idle_seconds=0.3)
    unused, _ = await opened(sessions, "unused")
    touched, _ = await opened(sessions, "touched")
    attached, _ = await opened(sessions, "attached")
    running, _ = await opened(sessions, "running")
    sessions.start_exec(running.id, a_command())
    while unused.is_active:
        sessions.touch(touched.id)
        await opened(sessions, "attached")
        await asyncio.sleep(0.01)

    assert (touched.is_active, attached.is_active, running.is_active) == (True, True, True)


async def test_shorter_idle_time_counts_at_once(start_sessions: StartSessions) -> None:
    """An attach that shortens the idle time does not wait for the longer one."""
    sessions = await start_sessions(idle_seconds=3600.0)
    session, _ = await opened(sessions)
    await opened(sessions, idle_seconds=BRIEF)

    await eventually(lambda: session.record.state == SessionState.EXPIRED)


async def test_lost_sandbox_ends_its_session_truthfully(
    start_sessions: StartSessions, guests: FakeGuests, engine: FakeEngine
) -> None:
    """A session whose guest died is lost, says so, and comes back under its id."""
    sessions = await start_sessions()
    session, _ = await opened(sessions)
    (container,) = engine.live
    guests.lose(container)
    await eventually(lambda: session.record.state == SessionState.LOST)

    with pytest.raises(SandboxLost, match="the guest went away"):
        sessions.start_exec(session.id, a_command())
    again, outcome = await opened(sessions)
    assert (outcome, again.id, again.record.incarnation) == (Outcome.RECREATED, session.id, 2)
    await engine.wait_until(lambda: container not in engine.live)


@pytest.mark.parametrize("state", [SessionState.EXPIRED, SessionState.LOST])
async def test_ended_session_can_still_be_closed(
    state: SessionState, start_sessions: StartSessions, registry: Registry
) -> None:
    """Closing what has ended makes its thread start afresh."""
    record = _record(state)
    await registry.save(record)
    sessions = await start_sessions()
    sessions.close(record.session_id)
    fresh, outcome = await opened(sessions, record.thread_id, record.user_id)

    assert outcome == Outcome.CREATED
    assert fresh.id != record.session_id


async def test_sessions_of_a_crashed_process_are_lost(
    start_sessions: StartSessions, registry: Registry
) -> None:
    """What was active when the process died is remembered as lost, and told."""
    record = _record(SessionState.ACTIVE)
    await registry.save(record)
    sessions = await start_sessions()

    with pytest.raises(SandboxLost, match="restarted"):
        sessions.touch(record.session_id)
    (kept,) = await registry.load()
    assert (kept.state, kept.incarnation) == (SessionState.LOST, 5)
    session, outcome = await opened(sessions, record.thread_id, record.user_id)
    assert (outcome, session.id) == (Outcome.RECREATED, record.session_id)
    assert session.record.incarnation == 6


async def test_sessions_of_a_stopped_process_are_lost(
    start_sessions: StartSessions, start_pool: StartPool, engine: FakeEngine, registry: Registry
) -> None:
    """A clean stop ends every session, destroys its sandbox and remembers both."""
    sessions = await start_sessions()
    await opened(sessions)
    await sessions.__aexit__(None, None, None)

    (kept,) = await registry.load()
    assert (kept.state, kept.end_reason) == (SessionState.LOST, "the daemon was stopped")
    await engine.wait_until(lambda: not engine.live)


@pytest.mark.parametrize("state", SessionState)
async def test_ended_sessions_are_forgotten_in_the_end(
    state: SessionState, start_sessions: StartSessions, registry: Registry
) -> None:
    """What ended long ago is gone from the process and from disk; what ended lately is not."""
    old = replace(_record(state), changed_at=1.0)
    await registry.save(old)
    await registry.save(replace(_record(SessionState.CLOSED), session_id="ses_lately"))
    sessions = await start_sessions()
    was_active = state == SessionState.ACTIVE  # and is lost since the restart, which is now

    def known(session_id: str) -> bool:
        try:
            return bool(sessions.get(session_id))
        except SessionNotFound:
            return False

    await eventually(lambda: known(old.session_id) == was_active)
    assert known("ses_lately")
    await sessions.__aexit__(None, None, None)
    kept = {record.session_id for record in await registry.load()}
    assert kept == {"ses_lately", *([old.session_id] if was_active else [])}


async def test_failed_open_is_told_to_all_and_tried_again_later(
    start_sessions: StartSessions, engine: FakeEngine
) -> None:
    """Racing callers share a failure too, and the next one starts anew."""
    sessions = await start_sessions()
    engine.fail_once("start", EngineFailed("Broken.", retry_after_seconds=1.0))
    racing = await asyncio.gather(*(opened(sessions) for _ in range(5)), return_exceptions=True)
    assert all(isinstance(error, EngineFailed) for error in racing)

    async def opened_at_last() -> Outcome:
        while True:
            try:
                return (await opened(sessions, "another"))[1]
            except EngineFailed:
                await asyncio.sleep(0.02)

    assert await asyncio.wait_for(opened_at_last(), 3.0) == Outcome.CREATED


async def test_open_that_cannot_be_saved_gives_its_sandbox_back(
    start_sessions: StartSessions, engine: FakeEngine
) -> None:
    """Without a record there is no session, and no sandbox is held for it."""
    registry = FaultyRegistry()
    registry.save_errors = [disk_full()]
    sessions = await start_sessions(kept_in=registry)
    with pytest.raises(sqlite3.OperationalError):
        await opened(sessions)

    await engine.wait_until(lambda: not engine.live)
    assert (await opened(sessions))[1] == Outcome.CREATED


async def test_open_does_not_answer_with_a_session_that_is_lost(
    start_sessions: StartSessions, guests: FakeGuests, engine: FakeEngine
) -> None:
    """A sandbox that dies while its session is being made is an error or replaced."""
    registry = FaultyRegistry()
    registry.gate = asyncio.Event()
    sessions = await start_sessions(kept_in=registry)
    opening = asyncio.ensure_future(opened(sessions))
    await registry.is_saving.wait()
    (container,) = engine.live
    guests.lose(container)
    await guests.by_container[container].disconnected.wait()
    await asyncio.sleep(0)
    registry.gate.set()

    try:
        session, _ = await opening
    except SandboxdError:
        pass  # told, as it should be
    else:
        assert session.is_active


async def test_expiry_survives_a_registry_that_fails(start_sessions: StartSessions) -> None:
    """A full disk does not end the watch over idle sessions."""
    registry = FaultyRegistry()
    registry.forget_errors = [disk_full()]
    registry.records["old"] = replace(_record(SessionState.CLOSED), changed_at=1.0)
    sessions = await start_sessions(kept_in=registry, idle_seconds=BRIEF, memory_seconds=3600.0)
    await eventually(lambda: not registry.forget_errors)
    session, _ = await opened(sessions)

    await eventually(lambda: not session.is_active, timeout_seconds=1.0)


def _record(state: SessionState) -> SessionRecord:
    return SessionRecord(
        session_id="ses_earlier",
        user_id="ada",
        thread_id="t1",
        state=state,
        incarnation=5,
        created_at=1_000.0,
        changed_at=4_000_000_000.0,
        idle_seconds=60.0,
        end_reason="" if state == SessionState.ACTIVE else "it ended",
    )
