"""Kept disks that take the place of those that warm sandboxes have: who has which, and when."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from errno import EPERM
from typing import cast

import pytest

from sandboxd.config import Config
from sandboxd.daemon.composition import _runtime_problem
from sandboxd.isolation.attachment import AttachFailed, Attachment, Owner, Possibility, Way
from sandboxd.isolation.uids import UidRange
from sandboxd.pool.pool import WarmPool
from sandboxd.registry.contract import SessionRegistry
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.kept_files import KeptFiles
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.sessions.session import Outcome, kept_files_of
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
    host = Host(
        uids=uids,
        disks=cast(Disks, disks),
        attaching=Possibility(Way.ATTACHED),
        moving_problem="",
    )
    return guests.maker(engine, sandbox_settings, host)


@pytest.fixture
async def pool(start_pool: StartPool) -> WarmPool:
    pool = await start_pool(target=1, maximum=4)
    await pool.wait_until_warm()
    return pool


def disk_of(files: KeptFiles) -> Disk:
    assert files.disk is not None
    return files.disk


def attached(sandbox: Sandbox) -> list[Attachment]:
    assert isinstance(sandbox.process, FakeProcess)
    return sandbox.process.attached


async def kept_files(pool: WarmPool, disks: FakeDisks) -> KeptFiles:
    """Those of a sandbox that is gone, while others are warm."""
    sandbox = await pool.acquire()
    kept = sandbox.kept_files
    pool.destroy(sandbox, keep=True)
    await eventually(lambda: pool.figures.warm == 1 and len(disks.owners) == 2)
    return kept


async def test_warm_sandbox_gets_the_disk(
    pool: WarmPool, maker: SandboxMaker, disks: FakeDisks, uids: UidRange
) -> None:
    """With an owner that is mapped to its uid, and the project files on it. Its own disk is
    deleted, and its uid stays taken for as long as it lives; then both are free."""
    kept = await kept_files(pool, disks)
    hits, misses = pool.figures.hits, pool.figures.misses
    sandbox = await pool.acquire(kept)
    disk = disk_of(kept)

    assert (sandbox.kept_files, sandbox.uid == disk.uid) == (kept, False)
    assert (pool.figures.hits, pool.figures.misses) == (hits + 1, misses)
    assert [(one.target, one.owner) for one in attached(sandbox)] == [
        ("/workspace", Owner(on_disk=disk.uid, inside=sandbox.uid)),
        ("/workspace/project_files", None),
    ]
    assert attached(sandbox)[1].source == maker.kept_files.project_dir(kept)
    assert maker.kept_files.user_of(disk) == sandbox.id
    await eventually(lambda: pool.figures.warm == 1 and len(disks.owners) == 2)
    assert {disk.uid, sandbox.uid} <= uids._taken

    pool.destroy(sandbox, keep=True)
    await eventually(lambda: maker.kept_files.user_of(disk) is None)
    assert sandbox.uid not in uids._taken
    assert disk.uid in uids._taken
    maker.kept_files.discard(kept)
    await eventually(lambda: disk.uid not in uids._taken)
    assert not disks.has(disk.id)


async def test_disk_that_is_discarded_meanwhile_goes_with_the_sandbox(
    pool: WarmPool, maker: SandboxMaker, disks: FakeDisks, uids: UidRange
) -> None:
    kept = await kept_files(pool, disks)
    sandbox = await pool.acquire(kept)
    maker.kept_files.discard(kept)
    pool.destroy(sandbox, keep=True)

    await eventually(lambda: not disks.has(disk_of(kept).id))
    await eventually(lambda: not {disk_of(kept).uid, sandbox.uid} & uids._taken)


async def test_failed_move_starts_a_sandbox_with_the_disk(
    pool: WarmPool, disks: FakeDisks, uids: UidRange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that it failed in is destroyed before another gets the disk."""
    kept = await kept_files(pool, disks)

    def refuse(*_: object) -> None:
        raise AttachFailed("mount", OSError(EPERM, "Operation not permitted"))

    with monkeypatch.context() as patched:
        patched.setattr(FakeProcess, "attach", refuse)
        sandbox = await pool.acquire(kept)

    assert sandbox.kept_files == kept
    assert (sandbox.uid, attached(sandbox)) == (disk_of(kept).uid, [])
    assert pool.figures.in_use == 1
    await eventually(lambda: pool.figures.warm == 1 and len(disks.owners) == 2)
    pool.destroy(sandbox)
    await eventually(lambda: len(uids._taken) == 1)


async def test_damaged_disk_is_not_moved(pool: WarmPool, disks: FakeDisks, uids: UidRange) -> None:
    """The opener gets a sandbox with new files, and nothing of the damaged ones is left."""
    kept = await kept_files(pool, disks)
    disks.damaged.add(disk_of(kept).id)
    sandbox = await pool.acquire(kept)

    assert sandbox.disk != kept.disk
    await eventually(lambda: not disks.has(disk_of(kept).id))
    pool.destroy(sandbox)
    await eventually(lambda: len(disks.owners) == 1 == len(uids._taken))


async def test_cancelled_move_keeps_the_disk(
    pool: WarmPool,
    maker: SandboxMaker,
    disks: FakeDisks,
    uids: UidRange,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for the kernel, and the sandbox, which may show the disk, is destroyed."""
    kept = await kept_files(pool, disks)
    is_attaching, may_end = threading.Event(), threading.Event()

    def wait(*_: object) -> None:
        is_attaching.set()
        may_end.wait(5)

    monkeypatch.setattr(FakeProcess, "attach", wait)
    opening = asyncio.ensure_future(pool.acquire(kept))
    await eventually(is_attaching.is_set)
    opening.cancel()
    assert maker.kept_files.user_of(disk_of(kept)) is not None
    may_end.set()
    await asyncio.wait([opening])

    assert opening.cancelled()
    await eventually(lambda: maker.kept_files.user_of(disk_of(kept)) is None)
    assert disks.has(disk_of(kept).id)
    await eventually(lambda: pool.figures.warm == 1 and len(disks.owners) == 2 == len(uids._taken))
    assert pool.figures.in_use == 0


async def test_used_sandbox_gets_no_other_disk(
    pool: WarmPool, maker: SandboxMaker, disks: FakeDisks
) -> None:
    """A command could have changed what paths lead to, and has the old files open."""
    kept = await kept_files(pool, disks)
    sandbox = await pool.acquire()
    sandbox.is_untouched = False

    with pytest.raises(AssertionError, match="first command"):
        await maker.move_in(sandbox, kept)


async def test_without_a_warm_one_a_sandbox_is_started(
    start_pool: StartPool, disks: FakeDisks
) -> None:
    """With the disk, so that it is not waited for twice."""
    pool = await start_pool(target=0, maximum=4)
    first = await pool.acquire()
    kept = first.kept_files
    pool.destroy(first, keep=True)
    sandbox = await pool.acquire(kept)

    assert (sandbox.kept_files, sandbox.uid) == (kept, disk_of(kept).uid)
    assert len(disks.owners) == 1


async def test_record_names_the_owner_of_a_moved_disk(
    start_sessions: StartSessions,
    pool: WarmPool,
    guests: FakeGuests,
    registry: SessionRegistry,
) -> None:
    """Beside the uid of the sandbox: the next daemon needs both."""
    sessions = await start_sessions(pool=pool)
    first, _ = await sessions.open("u", "t")
    before = first.record
    assert first.sandbox is not None
    guests.lose(first.sandbox.container_id)
    await eventually(lambda: not first.is_active)
    await eventually(lambda: pool.figures.warm == 1)
    again, outcome = await sessions.open("u", "t")
    (saved,) = await registry.load()

    assert (outcome, again.has_earlier_files) == (Outcome.RECREATED, True)
    assert again.sandbox is not None
    assert (saved.uid, saved.disk_owner) == (again.sandbox.uid, before.uid)
    assert saved.uid != before.uid
    assert kept_files_of(saved) == kept_files_of(before) == again.sandbox.kept_files


@pytest.mark.parametrize(("runtime", "is_moved"), [(None, True), ("runc", True), ("runsc", False)])
def test_runtime_that_may_not_show_it_gets_no_other_disk(
    runtime: str | None, is_moved: bool
) -> None:
    """One with a kernel of its own would go on with the old disk, which is deleted."""
    config = Config.model_construct(container_runtime=runtime)

    assert (_runtime_problem(config) == "") is is_moved
