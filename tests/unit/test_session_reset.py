"""A reset gives a session a fresh sandbox, on which only the project files are not new."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from sandboxd.errors import (
    Draining,
    EngineFailed,
    PoolExhausted,
    SandboxLost,
    SessionClosed,
    SessionNotFound,
    SessionRecreated,
)
from sandboxd.execs.ending import Reason
from sandboxd.isolation.uids import UidRange
from sandboxd.pool.pool import WarmPool
from sandboxd.registry.contract import SessionRegistry, SessionState
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.kept_files import KeptFiles
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.sessions.session import Outcome, Session
from sandboxd.sessions.sessions import Sessions
from sandboxd.workspaces.disks import Disks
from tests.cancellation.invariants import free_uids
from tests.fakes.disks import FakeDisks
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.unit.test_session_faults import FaultyRegistry, disk_full
from tests.unit.test_sessions import a_command, opened

StartSessions = Callable[..., Awaitable[Sessions]]
UIDS = 64


@pytest.fixture(params=["disk", "memory"])
def disks(request: pytest.FixtureRequest) -> FakeDisks | None:
    return FakeDisks() if request.param == "disk" else None


@pytest.fixture
def maker(
    guests: FakeGuests,
    engine: FakeEngine,
    sandbox_settings: SandboxSettings,
    uids: UidRange,
    disks: FakeDisks | None,
) -> SandboxMaker:
    return guests.maker(engine, sandbox_settings, Host(uids=uids, disks=cast(Disks, disks)))


@pytest.fixture
async def pool(start_pool: Callable[..., Awaitable[WarmPool]]) -> WarmPool:
    pool = await start_pool(target=1, maximum=3)
    await pool.wait_until_warm()
    return pool


@pytest.fixture
async def sessions(start_sessions: StartSessions, pool: WarmPool) -> Sessions:
    return await start_sessions(pool=pool)


def sandbox_of(session: Session) -> Sandbox:
    assert session.sandbox is not None
    return session.sandbox


def project_dir(session: Session, maker: SandboxMaker) -> Path:
    return maker.kept_files.project_dir(KeptFiles(project_id=session.record.project_id))


def all_projects(maker: SandboxMaker) -> set[str]:
    directory = maker.kept_files.project_dir(KeptFiles(project_id="0" * 16)).parent
    return {path.name for path in directory.iterdir()} if directory.exists() else set()


async def is_at_rest(
    pool: WarmPool, maker: SandboxMaker, disks: FakeDisks | None, uids: UidRange
) -> None:
    """Disks, project directories and uids are those of warm and used sandboxes."""

    def is_consistent() -> bool:
        held = {*pool._warm, *pool._in_use}
        owned = [sandbox.kept_files for sandbox in held]
        return (
            pool.figures.starting == 0
            and all_projects(maker) == {kept.project_id for kept in owned}
            and (
                disks is None or set(disks.owners) == {kept.disk.id for kept in owned if kept.disk}
            )
            and free_uids(uids) == UIDS - len(held)
        )

    await eventually(is_consistent)


async def test_reset_gives_a_fresh_sandbox_and_keeps_the_project_files(
    sessions: Sessions,
    maker: SandboxMaker,
    pool: WarmPool,
    disks: FakeDisks | None,
    uids: UidRange,
    registry: SessionRegistry,
) -> None:
    """Same id, next incarnation, another disk; labels, idle time and project files stay."""
    before, _ = await opened(sessions, metadata={"a": "1"}, idle_seconds=77.0)
    old = sandbox_of(before)
    (project_dir(before, maker) / "kept").write_text("mine")
    after = await sessions.reset(before.id)

    assert after.id == before.id
    assert sessions.get(before.id) is after
    assert (after.record.incarnation, after.is_active) == (2, True)
    assert (after.record.metadata, after.record.idle_seconds) == ({"a": "1"}, 77.0)
    assert after.record.created_at == before.record.created_at
    fresh = sandbox_of(after)
    assert fresh.id != old.id
    assert fresh.uid != old.uid
    assert fresh.disk is None or fresh.disk != old.disk
    assert not after.has_earlier_files
    assert (project_dir(after, maker) / "kept").read_text() == "mine"
    assert (await opened(sessions))[1] == Outcome.ATTACHED
    await is_at_rest(pool, maker, disks, uids)
    assert await registry.load() == [after.record]


async def test_reset_ends_commands_and_their_readers_receive_the_end(sessions: Sessions) -> None:
    """Commands end because of the session's end, and their output can be read to its end."""
    session, _ = await opened(sessions)
    execution, _ = sessions.start_exec(session.id, a_command("echo early; sleep"))
    batches = [batch async for batch in _after_first(execution.follow(), sessions, session.id)]

    assert (await execution.wait()).reason == Reason.SESSION_CLOSED
    assert batches[-1].exit is not None
    assert "reset" in batches[-1].exit.hint
    assert sessions.running_exec_count == 0
    again, is_new = sessions.start_exec(session.id, a_command("true"))
    assert is_new, "an exec id of the incarnation before is free"
    assert (await again.wait()).code == 0


async def _after_first(batches: AsyncIterator, sessions: Sessions, session_id: str):  # type: ignore[no-untyped-def, type-arg]
    resetting = None
    async for batch in batches:
        resetting = resetting or asyncio.ensure_future(sessions.reset(session_id))
        yield batch
    assert resetting is not None
    await resetting


async def test_racing_resets_and_opens_share_one_fresh_sandbox(
    sessions: Sessions, engine: FakeEngine, pool: WarmPool
) -> None:
    """Any number of callers at once share one reset, and opens get the session that it made."""
    session, _ = await opened(sessions)
    calls = [sessions.reset(session.id) for _ in range(20)]
    calls += [sessions.reset(session.id, incarnation=1) for _ in range(20)]
    resetting = [asyncio.ensure_future(call) for call in calls]
    opening = [asyncio.ensure_future(opened(sessions)) for _ in range(20)]
    reset = await asyncio.gather(*resetting)
    found = [session for session, _ in await asyncio.gather(*opening)]

    assert len({id(session) for session in (*reset, *found)}) == 1
    assert reset[0].record.incarnation == 2
    assert pool.figures.in_use == 1


async def test_each_reset_counts(sessions: Sessions, maker: SandboxMaker) -> None:
    """Each of several resets increases the incarnation by one and keeps the project files."""
    session, _ = await opened(sessions)
    (project_dir(session, maker) / "kept").touch()
    for number in range(2, 6):
        session = await sessions.reset(session.id, incarnation=number - 1)
        assert session.record.incarnation == number
        assert (project_dir(session, maker) / "kept").exists()

    with pytest.raises(SessionRecreated, match="incarnation 5, not 4"):
        await sessions.reset(session.id, incarnation=4)


async def test_reset_with_all_sandboxes_in_use_gives_its_own_up_first(
    sessions: Sessions, pool: WarmPool, maker: SandboxMaker
) -> None:
    """At the maximum the only free place is that of the session itself."""
    held = [(await opened(sessions, f"t{n}"))[0] for n in range(3)]
    assert pool.figures.in_use == 3
    (project_dir(held[0], maker) / "kept").touch()
    after = await sessions.reset(held[0].id)

    assert (after.record.incarnation, pool.figures.in_use) == (2, 3)
    assert (project_dir(after, maker) / "kept").exists()


async def test_reset_of_a_lost_session_keeps_its_project_files_only(
    sessions: Sessions,
    guests: FakeGuests,
    maker: SandboxMaker,
    pool: WarmPool,
    disks: FakeDisks | None,
    uids: UidRange,
) -> None:
    """Its workspace is not taken over, and its disk is deleted."""
    session, _ = await opened(sessions)
    (project_dir(session, maker) / "kept").touch()
    guests.lose(sandbox_of(session).container_id)
    await eventually(lambda: session.record.state == SessionState.LOST)
    after = await sessions.reset(session.id)

    assert after.is_active
    assert (project_dir(after, maker) / "kept").exists()
    assert not after.has_earlier_files
    await is_at_rest(pool, maker, disks, uids)


async def test_reset_of_an_expired_session_opens_it_anew(
    start_sessions: StartSessions, pool: WarmPool, maker: SandboxMaker
) -> None:
    """The session is there again, without the files that expired."""
    sessions = await start_sessions(pool=pool, idle_seconds=0.5)
    session, _ = await opened(sessions)
    (project_dir(session, maker) / "gone").touch()
    await eventually(lambda: session.record.state == SessionState.EXPIRED)
    after = await sessions.reset(session.id)

    assert after.record.incarnation == 2
    assert list(project_dir(after, maker).iterdir()) == []


async def test_closed_and_unknown_sessions_are_not_reset(sessions: Sessions) -> None:
    """A closed session stays closed."""
    session, _ = await opened(sessions)
    sessions.close(session.id)
    with pytest.raises(SessionClosed):
        await sessions.reset(session.id)
    with pytest.raises(SessionNotFound):
        await sessions.reset("ses_nobody")
    sessions.drain()
    with pytest.raises(Draining):
        await sessions.reset(session.id)


async def test_reset_that_gets_no_sandbox_leaves_the_session_as_it_is(
    sessions: Sessions, engine: FakeEngine, pool: WarmPool
) -> None:
    """An engine that fails does not cost a running session."""
    session, _ = await opened(sessions)
    await pool.wait_until_warm()
    execution, _ = sessions.start_exec(session.id, a_command())
    engine.failures["start"] = EngineFailed("Broken.", retry_after_seconds=1.0)
    warm = await pool.acquire()
    with pytest.raises(EngineFailed):
        await sessions.reset(session.id)

    assert sessions.get(session.id) is session
    assert (session.is_active, execution.exit) == (True, None)
    pool.destroy(warm)


async def test_reset_of_a_lost_session_beyond_the_maximum_is_refused(
    sessions: Sessions, guests: FakeGuests
) -> None:
    """A session without a sandbox to give up waits for others, and stays lost until then."""
    session, _ = await opened(sessions)
    guests.lose(sandbox_of(session).container_id)
    await eventually(lambda: not session.is_active)
    for number in range(3):
        await opened(sessions, f"other{number}")
    with pytest.raises(PoolExhausted):
        await sessions.reset(session.id)

    assert session.record.state == SessionState.LOST


async def test_session_closed_while_it_is_reset_stays_closed(
    start_sessions: StartSessions,
    pool: WarmPool,
    maker: SandboxMaker,
    disks: FakeDisks | None,
    uids: UidRange,
) -> None:
    """Whenever the close comes, the session is closed, also on disk, and nothing of it is left."""
    for is_lost in (False, True):
        registry = FaultyRegistry()
        sessions = await start_sessions(pool=pool, kept_in=registry)
        session, _ = await opened(sessions)
        (project_dir(session, maker) / "file").touch()
        if is_lost:
            sandbox_of(session).cut_off("for the test")
            await eventually(lambda: session.record.state == SessionState.LOST)  # noqa: B023
            await eventually(lambda: registry.records[session.id].state == SessionState.LOST)  # noqa: B023
        registry.gate = asyncio.Event()
        registry.is_saving.clear()
        resetting = asyncio.ensure_future(sessions.reset(session.id))
        await registry.is_saving.wait()
        sessions.close(session.id)
        registry.gate.set()
        with pytest.raises(SessionClosed):
            await resetting

        assert sessions.get(session.id).record.state == SessionState.CLOSED
        await eventually(lambda: registry.records[session.id].state == SessionState.CLOSED)  # noqa: B023
        await is_at_rest(pool, maker, disks, uids)
        assert pool.figures.in_use == 0


async def test_lost_session_closed_while_it_is_opened_again_is_gone(
    start_sessions: StartSessions,
    pool: WarmPool,
    maker: SandboxMaker,
    disks: FakeDisks | None,
    uids: UidRange,
) -> None:
    """The opener gets a new session; neither files nor uid of the closed one are used twice."""
    registry = FaultyRegistry()
    sessions = await start_sessions(pool=pool, kept_in=registry)
    session, _ = await opened(sessions)
    (project_dir(session, maker) / "file").touch()
    sandbox_of(session).cut_off("for the test")
    await eventually(lambda: registry.records[session.id].state == SessionState.LOST)
    registry.gate = asyncio.Event()
    registry.is_saving.clear()
    opening = asyncio.ensure_future(opened(sessions))
    await registry.is_saving.wait()
    sessions.close(session.id)
    registry.gate.set()
    fresh, outcome = await opening

    assert (outcome, fresh.record.incarnation) == (Outcome.CREATED, 1)
    assert fresh.id != session.id
    await eventually(lambda: registry.records[session.id].state == SessionState.CLOSED)
    assert list(project_dir(fresh, maker).iterdir()) == []
    await is_at_rest(pool, maker, disks, uids)


async def test_reset_that_cannot_be_saved_loses_no_file(
    start_sessions: StartSessions, pool: WarmPool, maker: SandboxMaker, disks: FakeDisks | None
) -> None:
    """The session is lost then, and opening it again finds all of its files."""
    registry = FaultyRegistry()
    sessions = await start_sessions(pool=pool, kept_in=registry)
    session, _ = await opened(sessions)
    disk = sandbox_of(session).disk
    (project_dir(session, maker) / "kept").touch()
    registry.save_errors = [disk_full()]
    with pytest.raises(sqlite3.OperationalError):
        await sessions.reset(session.id)
    with pytest.raises(SandboxLost, match="reset"):
        sessions.start_exec(session.id, a_command())
    again, outcome = await opened(sessions)

    assert outcome == Outcome.RECREATED
    assert sandbox_of(again).disk == disk or disks is None
    assert (project_dir(again, maker) / "kept").exists()


async def test_project_files_outlive_a_lost_sandbox(
    sessions: Sessions,
    guests: FakeGuests,
    maker: SandboxMaker,
    pool: WarmPool,
    disks: FakeDisks | None,
    uids: UidRange,
) -> None:
    """They stay even where the workspace was in memory and is gone."""
    session, _ = await opened(sessions)
    (project_dir(session, maker) / "kept").write_text("mine")
    guests.lose(sandbox_of(session).container_id)
    await eventually(lambda: not session.is_active)
    again, outcome = await opened(sessions)

    assert outcome == Outcome.RECREATED
    assert (project_dir(again, maker) / "kept").read_text() == "mine"
    await is_at_rest(pool, maker, disks, uids)


@pytest.mark.parametrize("state", [SessionState.CLOSED, SessionState.EXPIRED])
async def test_project_files_are_deleted_with_their_session(
    state: SessionState,
    start_sessions: StartSessions,
    pool: WarmPool,
    maker: SandboxMaker,
    disks: FakeDisks | None,
    uids: UidRange,
) -> None:
    """Nothing stays on the host of a session that was closed or expired, even after a loss."""
    sessions = await start_sessions(pool=pool, idle_seconds=0.3)
    active, _ = await opened(sessions, "active")
    lost, _ = await opened(sessions, "lost")
    for session in (active, lost):
        (project_dir(session, maker) / "file").touch()
    sandbox_of(lost).cut_off("for the test")
    await eventually(lambda: lost.record.state == SessionState.LOST)
    if state == SessionState.CLOSED:
        for session in (active, lost):
            sessions.close(session.id)
    await eventually(lambda: active.record.state == lost.record.state == state)

    assert active.record.project_id == lost.record.project_id == ""
    await is_at_rest(pool, maker, disks, uids)


async def test_a_daemon_that_died_while_it_reset_leaves_a_session_with_its_files(
    start_sessions: StartSessions,
    pool: WarmPool,
    maker: SandboxMaker,
    registry: SessionRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The saved record is enough for the next daemon to finish the reset from any step."""
    first = await start_sessions(pool=pool)
    session, _ = await opened(first)
    for name in ("one", "two"):
        (project_dir(session, maker) / name).touch()

    is_over = asyncio.Event()

    async def die_half_way(*places: KeptFiles) -> None:
        source, target = map(maker.kept_files.project_dir, places)
        (source / "one").rename(target / "one")
        await is_over.wait()
        raise OSError("it died")

    with monkeypatch.context() as patched:
        patched.setattr(maker.kept_files, "move_project_files", die_half_way)
        resetting = asyncio.ensure_future(first.reset(session.id))
        while (await registry.load())[0].incarnation == 1:
            await asyncio.sleep(0.01)
    try:
        for sandbox in tuple(pool._in_use):
            pool.destroy(sandbox, keep=True)  # they ended with the daemon
        second = await start_sessions(pool=pool)
        found = second.get(session.id)
        assert (found.record.incarnation, found.record.unmoved_project_id) == (2, "")
        assert sorted(p.name for p in project_dir(found, maker).iterdir()) == ["one", "two"]
        again, _ = await opened(second)
        assert again.record.incarnation == 3
        assert sorted(p.name for p in project_dir(again, maker).iterdir()) == ["one", "two"]
    finally:
        is_over.set()
        with pytest.raises(OSError, match="it died"):
            await resetting
