"""Sessions while opening fails, sandboxes die at the wrong moment or the registry is broken."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace

import pytest

from sandboxd.errors import EngineFailed, FileWorkInterrupted, SandboxdError, SandboxLost
from sandboxd.registry.contract import SOLE_OWNER, Fence, SessionRecord, SessionState
from sandboxd.sessions import ends as ends_module
from sandboxd.sessions import sessions as sessions_module
from sandboxd.sessions.changing import SessionChange
from sandboxd.sessions.session import Outcome
from sandboxd.sessions.sessions import Sessions
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.unit.test_session_ends import BRIEF, a_record
from tests.unit.test_sessions import opened

StartSessions = Callable[..., Awaitable[Sessions]]


class FaultyRegistry:
    """A registry that can be slow and can fail."""

    def __init__(self) -> None:
        self.records: dict[str, SessionRecord] = {}
        self.gate: asyncio.Event | None = None
        self.is_saving = asyncio.Event()
        self.save_errors: list[Exception] = []
        self.delete_errors: list[Exception] = []
        self.delete_gate: asyncio.Event | None = None
        self.is_deleting = asyncio.Event()

    async def load(self) -> Sequence[SessionRecord]:
        return list(self.records.values())

    async def save(self, record: SessionRecord, *, fence: Fence = SOLE_OWNER) -> None:
        self.is_saving.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.save_errors:
            raise self.save_errors.pop(0)
        self.records[record.session_id] = record

    async def delete(self, session_ids: Collection[str]) -> None:
        self.is_deleting.set()
        if self.delete_gate is not None:
            await self.delete_gate.wait()
        if self.delete_errors:
            raise self.delete_errors.pop(0)
        for session_id in session_ids:
            self.records.pop(session_id, None)

    async def ping(self) -> None: ...

    async def aclose(self) -> None: ...


def disk_full() -> Exception:
    return sqlite3.OperationalError("database or disk is full")


async def test_change_that_cannot_be_saved_is_taken_back(start_sessions: StartSessions) -> None:
    """What the caller was refused does not hold, and the next change does."""
    registry = FaultyRegistry()
    sessions = await start_sessions(kept_in=registry)
    session, _ = await opened(sessions)
    registry.save_errors.append(disk_full())

    with pytest.raises(sqlite3.OperationalError):
        await sessions.change(session.id, SessionChange(90.0, {"a": "1"}, ()))
    assert (session.record.metadata, session.record.idle_seconds) != ({"a": "1"}, 90.0)
    await sessions.change(session.id, SessionChange(None, {"b": "2"}, ()))

    assert session.record.metadata == {"b": "2"}
    assert registry.records[session.id].metadata == {"b": "2"}


async def test_failed_open_fails_for_all_and_is_tried_again_later(
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
        pass  # an error is right too
    else:
        assert session.is_active


async def test_file_work_of_a_dying_sandbox_reports_its_loss(
    start_sessions: StartSessions, guests: FakeGuests, engine: FakeEngine
) -> None:
    """However late the loss is noticed after the end of a worker, it is what the caller gets."""
    sessions = await start_sessions()
    session, _ = await opened(sessions)
    guests.answers_pings = False
    working = asyncio.ensure_future(interrupted_work(sessions, session.id))
    (container,) = engine.live
    await eventually(lambda: guests.by_container[container].pings == 1)
    guests.lose(container)

    with pytest.raises(SandboxLost, match="the guest went away"):
        await working


@pytest.mark.parametrize("answers", [True, False])
async def test_file_work_that_is_interrupted_reports_that(
    answers: bool,
    start_sessions: StartSessions,
    guests: FakeGuests,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The session stays active if its guest answers, and also if it is silent for a while."""
    if not answers:
        monkeypatch.setattr(sessions_module, "PROBE_SECONDS", 0.01)
    sessions = await start_sessions()
    session, _ = await opened(sessions)
    guests.answers_pings = answers
    with pytest.raises(FileWorkInterrupted):
        await interrupted_work(sessions, session.id)

    assert session.is_active


async def interrupted_work(sessions: Sessions, session_id: str) -> None:
    async with sessions.file_work(session_id):
        raise FileWorkInterrupted


async def test_expiry_survives_a_registry_that_fails(start_sessions: StartSessions) -> None:
    """A full disk does not end the watch over idle sessions."""
    registry = FaultyRegistry()
    registry.delete_errors = [disk_full()]
    registry.records["old"] = replace(a_record(SessionState.CLOSED), changed_at=1.0)
    sessions = await start_sessions(kept_in=registry, idle_seconds=BRIEF, memory_seconds=3600.0)
    await eventually(lambda: not registry.delete_errors)
    session, _ = await opened(sessions)

    await eventually(lambda: not session.is_active, timeout_seconds=1.0)


async def test_session_opened_while_another_is_deleted_expires_on_time(
    start_sessions: StartSessions,
) -> None:
    """A registry that takes its time does not hide a new session from the watch over idle ones."""
    registry = FaultyRegistry()
    registry.delete_gate = asyncio.Event()
    registry.records["old"] = replace(a_record(SessionState.CLOSED), changed_at=1.0)
    sessions = await start_sessions(kept_in=registry, idle_seconds=BRIEF, memory_seconds=3600.0)
    await registry.is_deleting.wait()
    session, _ = await opened(sessions)
    registry.delete_gate.set()

    await eventually(lambda: not session.is_active, timeout_seconds=5.0)


async def test_end_that_cannot_be_saved_is_saved_later(
    start_sessions: StartSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A close is answered although the disk is full, and saved once there is space."""
    monkeypatch.setattr(ends_module, "SAVE_RETRY_SECONDS", 0.01)
    registry = FaultyRegistry()
    sessions = await start_sessions(kept_in=registry)
    session, _ = await opened(sessions)
    registry.save_errors = [disk_full() for _ in range(5)]
    sessions.close(session.id)

    await eventually(lambda: registry.records[session.id].state == SessionState.CLOSED)
    assert not registry.save_errors


async def test_close_during_the_save_of_a_loss_is_saved_too(start_sessions: StartSessions) -> None:
    """The registry ends up with the last of two ends that follow each other quickly."""
    registry = FaultyRegistry()
    sessions = await start_sessions(kept_in=registry)
    session, _ = await opened(sessions)
    registry.gate = asyncio.Event()
    registry.is_saving.clear()
    assert session.sandbox is not None
    session.sandbox.cut_off("the test")
    await registry.is_saving.wait()
    sessions.close(session.id)
    registry.gate.set()

    await eventually(lambda: registry.records[session.id].state == SessionState.CLOSED)
    assert sessions.unsaved_count == 0


async def test_end_is_not_saved_over_the_next_incarnation(
    start_sessions: StartSessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that is open again stays so in the registry, however late its loss is saved."""
    monkeypatch.setattr(ends_module, "SAVE_RETRY_SECONDS", 0.2)
    registry = FaultyRegistry()
    sessions = await start_sessions(kept_in=registry)
    session, _ = await opened(sessions)
    registry.save_errors = [disk_full()]
    assert session.sandbox is not None
    session.sandbox.cut_off("the test")
    await eventually(lambda: not registry.save_errors)
    again, outcome = await opened(sessions)
    assert outcome == Outcome.RECREATED
    await eventually(lambda: not sessions.unsaved_count)

    record = registry.records[again.id]
    assert (record.state, record.incarnation) == (SessionState.ACTIVE, 2)


async def test_start_succeeds_with_a_registry_that_cannot_be_written(
    start_sessions: StartSessions,
) -> None:
    """A full disk does not keep the daemon from starting, and lost sessions are reported."""
    registry = FaultyRegistry()
    record = a_record(SessionState.ACTIVE)
    registry.records[record.session_id] = record
    registry.save_errors = [disk_full()]
    sessions = await start_sessions(kept_in=registry)

    assert sessions.get(record.session_id).record.state == SessionState.LOST


async def test_stop_does_not_wait_for_a_registry_that_stays_broken(
    start_sessions: StartSessions,
) -> None:
    """Ends that cannot be saved are given up; the next start finds the sandboxes gone."""
    registry = FaultyRegistry()
    sessions = await start_sessions(kept_in=registry)
    session, _ = await opened(sessions)
    registry.save_errors = [disk_full() for _ in range(100)]
    sessions.close(session.id)
    async with asyncio.timeout(2.0):
        await sessions.__aexit__()

    assert sessions.unsaved_count == 1
