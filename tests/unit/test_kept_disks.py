"""Files that outlive a lost sandbox, and everything that goes with the last process of one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from sandboxd.environments.environment import Environment
from sandboxd.errors import (
    DiskSpaceLow,
    EngineUnreachable,
    PoolExhausted,
    SandboxdError,
    SandboxLost,
)
from sandboxd.isolation.uids import UidRange
from sandboxd.pool.pool import WarmPool
from sandboxd.registry.contract import SessionRegistry, SessionState
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.kept_files import KeptFiles
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.sessions.session import Outcome, Session, SessionFilter
from sandboxd.sessions.sessions import Sessions
from sandboxd.workspaces.disks import Disk, Disks
from tests.fakes.disks import FakeDisks
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests, FakeProcess
from tests.fakes.waiting import eventually

StartPool = Callable[..., Awaitable[WarmPool]]
StartSessions = Callable[..., Awaitable[Sessions]]


@pytest.fixture
def disks() -> FakeDisks:
    return FakeDisks()


@pytest.fixture
def maker(
    guests: FakeGuests,
    engine: FakeEngine,
    sandbox_settings: SandboxSettings,
    uids: UidRange,
    disks: FakeDisks,
) -> SandboxMaker:
    return guests.maker(engine, sandbox_settings, Host(uids=uids, disks=cast(Disks, disks)))


@pytest.fixture
async def pool(start_pool: StartPool) -> WarmPool:
    return await start_pool()


@pytest.fixture
async def sessions(start_sessions: StartSessions, pool: WarmPool) -> Sessions:
    return await start_sessions(pool=pool)


async def opened(sessions: Sessions) -> tuple[Session, Outcome]:
    return await sessions.open("u", "t")


def lose(session: Session, guests: FakeGuests) -> None:
    assert session.sandbox is not None
    guests.lose(session.sandbox.container_id)


async def test_lost_session_gets_its_disk_and_its_uid_again(
    sessions: Sessions, guests: FakeGuests, disks: FakeDisks
) -> None:
    """The next incarnation is on the same files, which belong to the same user."""
    first, _ = await opened(sessions)
    sandbox = cast(Sandbox, first.sandbox)
    lose(first, guests)
    await eventually(lambda: not first.is_active)
    again, outcome = await opened(sessions)

    assert outcome == Outcome.RECREATED
    assert again.has_earlier_files
    assert again.sandbox is not None
    assert (again.sandbox.disk, again.sandbox.uid) == (sandbox.disk, sandbox.uid)
    assert len(disks.owners) == 1


async def test_disk_is_not_used_twice_at_a_time(
    sessions: Sessions, guests: FakeGuests, engine: FakeEngine
) -> None:
    """A reopened session waits until the lost sandbox is really gone: two mounts of one disk would
    destroy it."""
    first, _ = await opened(sessions)
    engine.gates["remove"] = asyncio.Event()
    lose(first, guests)
    await eventually(lambda: not first.is_active)
    opening = asyncio.ensure_future(opened(sessions))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not opening.done()
    engine.gates.pop("remove").set()

    again, _ = await opening
    assert again.has_earlier_files


@pytest.mark.parametrize("state", [SessionState.CLOSED, SessionState.EXPIRED])
async def test_disk_goes_with_its_session(
    state: SessionState,
    start_sessions: StartSessions,
    pool: WarmPool,
    disks: FakeDisks,
    uids: UidRange,
) -> None:
    """Closed or expired: no file and no uid stays behind."""
    sessions = await start_sessions(pool=pool, idle_seconds=0.05)
    session, _ = await opened(sessions)
    if state == SessionState.CLOSED:
        sessions.close(session.id)
    await eventually(lambda: session.record.state == state)
    await eventually(lambda: not disks.owners)

    assert session.record.disk_id == ""
    await eventually(lambda: len(uids._taken) == 0)


async def test_lost_session_that_nobody_opens_expires_with_its_disk(
    start_sessions: StartSessions, pool: WarmPool, guests: FakeGuests, disks: FakeDisks
) -> None:
    """Files of a lost session are kept as long as the session could have been idle."""
    sessions = await start_sessions(pool=pool, idle_seconds=0.4)
    session, _ = await opened(sessions)
    lose(session, guests)
    await eventually(lambda: session.record.state == SessionState.LOST)
    assert disks.owners
    await eventually(lambda: session.record.state == SessionState.EXPIRED)
    await eventually(lambda: not disks.owners)

    assert "was stopped and not opened again" in session.record.end_reason


async def test_closing_a_lost_session_deletes_its_disk(
    sessions: Sessions, guests: FakeGuests, disks: FakeDisks
) -> None:
    """Whoever closes does not want the files either."""
    session, _ = await opened(sessions)
    lose(session, guests)
    await eventually(lambda: session.record.state == SessionState.LOST)
    sessions.close(session.id)

    assert session.state == SessionState.CLOSED
    await eventually(lambda: not disks.owners)


async def test_session_without_a_sandbox_is_lost_only_with_its_files(
    sessions: Sessions, guests: FakeGuests, disks: FakeDisks
) -> None:
    """While its disk is there, it is stopped, is listed so, and its refusals say that the files are
    kept."""
    session, _ = await opened(sessions)
    lose(session, guests)
    await eventually(lambda: not session.is_active)

    def listed(state: SessionState) -> list[Session]:
        return [*sessions.list(SessionFilter(state=state, metadata={}), page_size=10)[0]]

    assert session.state == SessionState.STOPPED
    assert (listed(SessionState.STOPPED), listed(SessionState.LOST)) == ([session], [])
    with pytest.raises(
        SandboxLost, match=r"stopped \(the guest went away\) and its files are kept"
    ):
        sessions.touch(session.id)
    disks.owners.clear()
    assert session.state == SessionState.LOST
    assert (listed(SessionState.STOPPED), listed(SessionState.LOST)) == ([], [session])
    with pytest.raises(SandboxLost, match="was lost"):
        sessions.touch(session.id)


async def test_sessions_of_a_stopped_daemon_are_stopped(
    sessions: Sessions, start_sessions: StartSessions, start_pool: StartPool, disks: FakeDisks
) -> None:
    """Also for the daemon after it, which opens them with their files."""
    session, _ = await opened(sessions)
    await sessions.__aexit__(None, None, None)
    assert session.state == SessionState.STOPPED
    after = await start_sessions(pool=await start_pool())
    known = after.get(session.id)

    assert (known.state, known.record.end_reason) == (
        SessionState.STOPPED,
        "the daemon was stopped",
    )
    again, outcome = await opened(after)
    assert (again.id, outcome, again.has_earlier_files) == (session.id, Outcome.RECREATED, True)
    assert again.state == SessionState.ACTIVE


async def test_failed_replacement_keeps_the_disk(
    sessions: Sessions, guests: FakeGuests, engine: FakeEngine, disks: FakeDisks
) -> None:
    """An engine that is away when the session is reopened costs no file."""
    session, _ = await opened(sessions)
    lose(session, guests)
    await eventually(lambda: session.record.state == SessionState.LOST)
    away = EngineUnreachable("away", retry_after_seconds=1.0)
    for step in ("create", "start"):
        engine.fail_once(step, away)
        with pytest.raises(SandboxdError):
            await opened(sessions)
    assert len(disks.owners) == 1

    again, _ = await opened(sessions)
    assert again.has_earlier_files


async def test_damaged_disk_is_replaced_and_told(
    sessions: Sessions, guests: FakeGuests, disks: FakeDisks
) -> None:
    """A session does not die with its disk: it starts anew, and says that the files are gone."""
    session, _ = await opened(sessions)
    lose(session, guests)
    await eventually(lambda: session.record.state == SessionState.LOST)
    disks.damaged.update(disks.owners)
    again, outcome = await opened(sessions)

    assert outcome == Outcome.RECREATED
    assert not again.has_earlier_files
    await eventually(lambda: not disks.damaged & disks.owners.keys())


async def test_missing_disk_is_replaced_and_told(
    sessions: Sessions, guests: FakeGuests, disks: FakeDisks
) -> None:
    """Somebody deleted the file: the session starts anew."""
    session, _ = await opened(sessions)
    lose(session, guests)
    await eventually(lambda: session.record.state == SessionState.LOST)
    disks.owners.clear()
    again, _ = await opened(sessions)

    assert not again.has_earlier_files


async def test_full_host_is_told_with_a_retry_hint(
    sessions: Sessions, disks: FakeDisks, engine: FakeEngine, uids: UidRange
) -> None:
    """No room for another disk: a typed error, and neither uid nor container is left."""
    disks.fails = DiskSpaceLow(5 << 20, 10 << 20)
    with pytest.raises(DiskSpaceLow) as caught:
        await opened(sessions)

    assert caught.value.retry_after_seconds
    assert engine.live == set()
    assert len(uids._taken) == 0


async def test_start_keeps_only_disks_of_sessions(
    maker: SandboxMaker, disks: FakeDisks, uids: UidRange
) -> None:
    """After a crash the files of sessions stay, with their uid; all others go."""
    kept = Disk(id="a" * 16, uid=200_001)
    disks.owners = {kept.id: kept.uid, "b" * 16: 200_002}
    await maker.kept_files.keep([KeptFiles(disk=kept)])

    assert list(disks.owners) == [kept.id]
    assert 200_001 not in [uids.take() for _ in range(63)]
    with pytest.raises(PoolExhausted):
        uids.take()


async def test_uid_and_disk_stay_taken_until_the_last_process_is_gone(
    maker: SandboxMaker,
    disks: FakeDisks,
    uids: UidRange,
    monkeypatch: pytest.MonkeyPatch,
    environment: Environment,
) -> None:
    """The engine may say that a container is gone before its processes are: then nobody else gets
    its uid, until a sweep sees the end."""
    sandbox = await maker.make(environment)

    async def lives_on(self: FakeProcess, seconds: float) -> bool:
        return False

    with monkeypatch.context() as patched:
        patched.setattr(FakeProcess, "gone", lives_on)
        await maker.destroy(sandbox)
        await maker.sweep()
        assert sandbox.uid in uids._taken
        assert disks.owners
    await maker.sweep()

    assert sandbox.uid not in uids._taken
    assert not disks.owners


async def test_record_of_a_session_names_its_disk(
    sessions: Sessions, registry: SessionRegistry
) -> None:
    """What the next start keeps is what the registry says."""
    session, _ = await opened(sessions)
    (record,) = await registry.load()
    assert session.sandbox is not None
    assert session.sandbox.disk is not None

    assert (record.disk_id, record.uid) == (session.sandbox.disk.id, session.sandbox.uid)


async def kept_disk(pool: WarmPool) -> KeptFiles:
    """Files of a sandbox that is gone."""
    sandbox = await pool.acquire()
    kept = sandbox.kept_files
    pool.destroy(sandbox, keep=True)
    return kept


async def test_opener_with_files_waits_for_a_place_like_the_others(start_pool: StartPool) -> None:
    """When all sandboxes are in use, it waits in the queue and then starts one on its own disk."""
    pool = await start_pool(maximum=1, max_queue=2)
    kept = await kept_disk(pool)
    held = await pool.acquire()
    with_files = asyncio.ensure_future(pool.acquire(kept, user_id="a"))
    after = asyncio.ensure_future(pool.acquire(user_id="b"))
    await eventually(lambda: pool.figures.waiting == 2)
    pool.destroy(held)
    sandbox = await with_files

    assert sandbox.kept_files.disk == kept.disk
    assert not after.done()
    pool.destroy(sandbox)
    assert not (await after).is_lost


async def test_opener_with_files_does_not_pass_one_that_waits_longer(start_pool: StartPool) -> None:
    """A place that becomes free is for the opener whose turn it is, with files or without."""
    pool = await start_pool(maximum=1, max_queue=2)
    kept = await kept_disk(pool)
    held = await pool.acquire()
    before = asyncio.ensure_future(pool.acquire(user_id="b"))
    with_files = asyncio.ensure_future(pool.acquire(kept, user_id="a"))
    await eventually(lambda: pool.figures.waiting == 2)
    pool.destroy(held)
    sandbox = await before

    assert not with_files.done()
    pool.destroy(sandbox)
    assert (await with_files).kept_files.disk == kept.disk


async def test_warm_sandbox_gives_way_to_an_opener_with_files(
    start_pool: StartPool, engine: FakeEngine
) -> None:
    """A place that a warm one has is free for a session that needs its own files."""
    pool = await start_pool(target=2, maximum=2)
    await pool.wait_until_warm()
    kept = await kept_disk(pool)
    await eventually(lambda: pool.figures.warm == 2)
    sandbox = await pool.acquire(kept)

    assert sandbox.kept_files.disk == kept.disk
    await eventually(lambda: len(engine.live) == 2)
    assert (pool.figures.warm, pool.figures.in_use) == (1, 1)


async def test_cancelled_opener_with_files_gives_its_place_back(start_pool: StartPool) -> None:
    """Cancelled in the very moment it is served, it leaves the place to the next."""
    pool = await start_pool(maximum=1, max_queue=2)
    kept = await kept_disk(pool)
    held = await pool.acquire()
    with_files = asyncio.ensure_future(pool.acquire(kept, user_id="a"))
    after = asyncio.ensure_future(pool.acquire(user_id="b"))
    await eventually(lambda: pool.figures.waiting == 2)
    pool.destroy(held)  # answers it, before it can run
    with_files.cancel()
    await asyncio.wait([with_files])

    assert not (await after).is_lost
    assert (pool.figures.in_use, pool.figures.starting) == (1, 0)
