"""Sessions that end without a call: expiry, loss and restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from sandboxd.errors import SandboxLost, SessionExpired, SessionNotFound
from sandboxd.registry.contract import SessionRecord, SessionRegistry, SessionState
from sandboxd.sessions.expiry import SessionExpiry
from sandboxd.sessions.session import Outcome, Session
from sandboxd.sessions.sessions import Sessions
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.unit.test_sessions import a_command, opened

StartSessions = Callable[..., Awaitable[Sessions]]
BRIEF = 0.06


def a_record(state: SessionState) -> SessionRecord:
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


async def test_idle_session_expires_and_says_so(
    start_sessions: StartSessions, engine: FakeEngine
) -> None:
    """After its idle time a session's sandbox is removed, and its next use is refused with why."""
    sessions = await start_sessions(idle_seconds=BRIEF)
    session, _ = await opened(sessions)
    await eventually(lambda: session.record.state == SessionState.EXPIRED)

    for use in (sessions.touch, lambda one: sessions.start_exec(one, a_command())):
        with pytest.raises(SessionExpired, match=r"was not used for 0\.06 s.*Open it again"):
            use(session.id)
    await engine.wait_until(lambda: not engine.live)


async def test_expired_session_is_recreated_under_its_id(
    start_sessions: StartSessions, engine: FakeEngine
) -> None:
    """The next open reports a new workspace and counts the incarnations."""
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


async def test_open_sessions_cost_an_open_nothing(
    start_sessions: StartSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open looks through the other sessions only if the new one has less time than there is
    until the next look."""
    sessions = await start_sessions(idle_seconds=3600.0)
    for thread in ("first", "second"):  # so that the look at the start is over
        await opened(sessions, thread=thread)
    looks = 0

    def look(_: SessionExpiry, session: Session) -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr(SessionExpiry, "_end_if_idle", look)
    for number in range(5):
        await opened(sessions, thread=f"t{number}")
    assert looks == 0
    await opened(sessions, thread="brief", idle_seconds=BRIEF)
    await eventually(lambda: looks >= 8)


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
    state: SessionState, start_sessions: StartSessions, registry: SessionRegistry
) -> None:
    """Closing what has ended makes its thread start afresh."""
    record = a_record(state)
    await registry.save(record)
    sessions = await start_sessions()
    sessions.close(record.session_id)
    fresh, outcome = await opened(sessions, record.thread_id, record.user_id)

    assert outcome == Outcome.CREATED
    assert fresh.id != record.session_id


async def test_sessions_of_a_crashed_process_are_lost(
    start_sessions: StartSessions, registry: SessionRegistry
) -> None:
    """Sessions that were active when the process died are remembered and reported as lost."""
    record = a_record(SessionState.ACTIVE)
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
    start_sessions: StartSessions, engine: FakeEngine, registry: SessionRegistry
) -> None:
    """A clean stop ends every session, destroys its sandbox and remembers both."""
    sessions = await start_sessions()
    await opened(sessions)
    await sessions.__aexit__(None, None, None)

    (kept,) = await registry.load()
    assert (kept.state, kept.end_reason) == (SessionState.LOST, "the daemon was stopped")
    await engine.wait_until(lambda: not engine.live)


@pytest.mark.parametrize("state", [one for one in SessionState if one is not SessionState.PARKED])
async def test_ended_sessions_are_deleted_in_the_end(
    state: SessionState, start_sessions: StartSessions, registry: SessionRegistry
) -> None:
    """A session that ended long ago is gone, from disk too; a recent one is not."""
    old = replace(a_record(state), changed_at=1.0)
    await registry.save(old)
    await registry.save(replace(a_record(SessionState.CLOSED), session_id="ses_recent"))
    sessions = await start_sessions()
    was_active = state == SessionState.ACTIVE  # and is lost since the restart, which is now

    def known(session_id: str) -> bool:
        try:
            return bool(sessions.get(session_id))
        except SessionNotFound:
            return False

    await eventually(lambda: known(old.session_id) == was_active)
    assert known("ses_recent")
    await sessions.__aexit__(None, None, None)
    kept = {record.session_id for record in await registry.load()}
    assert kept == {"ses_recent", *([old.session_id] if was_active else [])}


async def test_ended_sessions_that_are_remembered_are_bounded(
    start_sessions: StartSessions, registry: SessionRegistry
) -> None:
    """Beyond the limit the oldest are deleted, in the registry too; active ones never."""
    sessions = await start_sessions(max_remembered=2)
    kept, _ = await opened(sessions, thread="kept")
    ended = []
    for number in range(5):
        session, _ = await opened(sessions, thread=f"t{number}")
        sessions.close(session.id)
        await sessions.wait_until_saved(session.id)
        ended.append(session.id)
    await opened(sessions, thread="next")

    def is_known(session_id: str) -> bool:
        try:
            return bool(sessions.get(session_id))
        except SessionNotFound:
            return False

    await eventually(lambda: not is_known(ended[2]))
    assert [is_known(session_id) for session_id in ended] == [False, False, False, True, True]
    assert sessions.get(kept.id).is_active
    written = {record.session_id for record in await registry.load()}
    assert written & {kept.id, *ended} == {kept.id, *ended[3:]}
