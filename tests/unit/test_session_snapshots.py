"""Turns, rewinds, forks and parked sessions, over a fake store and fake sandboxes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from sandboxd.access import Caller, Scope, act_as
from sandboxd.doors.door import Door
from sandboxd.errors import (
    CallNotPermitted,
    DataSourceNotFound,
    EgressNotAllowed,
    InvalidRequest,
    SandboxdError,
    SessionClosed,
    SessionExists,
    SessionParked,
    SessionRecreated,
    SnapshotInUse,
    SnapshotLimitReached,
    SnapshotNotFound,
    SnapshotsOff,
    SnapshotStoreFailed,
    WorkspaceBusy,
)
from sandboxd.execs.ending import Reason
from sandboxd.isolation.uids import UidRange
from sandboxd.policy.profile import STRICT
from sandboxd.pool.pool import WarmPool
from sandboxd.registry.contract import SessionRecord, SessionState
from sandboxd.registry.sqlite import SqliteRegistry
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.kept_files import KeptFiles
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.sessions.doors import SessionDoors
from sandboxd.sessions.journal import Journal
from sandboxd.sessions.lines import (
    AutoSnapshot,
    Cause,
    SessionLines,
    SnapshotSettings,
    cause_of,
    line_of,
)
from sandboxd.sessions.opening import EnvironmentConfig, OpenRequest
from sandboxd.sessions.preparation import Preparation
from sandboxd.sessions.session import Outcome, Session
from sandboxd.sessions.sessions import Sessions
from sandboxd.sessions.snapshots import ForkRequest, SessionSnapshots, SnapshotRef
from sandboxd.sessions.thinning import LineLimits
from sandboxd.sessions.turn_ids import current_turn
from sandboxd.snapshots.contract import DiffLimits
from sandboxd.workspaces.disks import Disks
from tests.fakes.disks import FakeDisks
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.snapshots import FakeSnapshots
from tests.fakes.waiting import eventually
from tests.unit.test_sessions import a_command

T = TypeVar("T")
StartSessions = Callable[..., Awaitable[Sessions]]
COMMANDS = OpenRequest(auto_snapshot=AutoSnapshot.COMMANDS)
TURNS = OpenRequest(auto_snapshot=AutoSnapshot.TURNS)


@pytest.fixture
def disks() -> FakeDisks:
    return FakeDisks()


@pytest.fixture
def store() -> FakeSnapshots:
    return FakeSnapshots()


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
def settings(short_dir: Path) -> SnapshotSettings:
    return SnapshotSettings(directory=short_dir, reserve_bytes=0, limits=LineLimits(lasting=3))


class Sources:
    """Data sources that exist until they are refused."""

    refused: frozenset[str] = frozenset()

    def check_usable(self, data_sources: Sequence[str], user_id: str) -> None:
        for name in self.refused & set(data_sources):
            raise DataSourceNotFound(f"{user_id} has no data source {name}")

    def doors_of(self, record: SessionRecord) -> Sequence[Door]:
        return ()


class Rig:
    """Sessions with snapshots."""

    def __init__(
        self,
        sessions: Sessions,
        store: FakeSnapshots,
        maker: SandboxMaker,
        pool: WarmPool,
        sources: Sources,
    ) -> None:
        self.sessions = sessions
        self.sources = sources
        self.store = store
        self.maker = maker
        self.pool = pool
        self.snapshots = SessionSnapshots(sessions, Journal())
        self.commands = 0

    async def open(self, wanted: OpenRequest | None = None, thread: str = "t") -> Session:
        session, _ = await self.sessions.open("ada", thread, wanted)
        return session

    def write(self, session: Session, content: str) -> None:
        """As if a command had done so."""
        self.store.workspaces[self.image(session)] = content

    def image(self, session: Session) -> Path:
        return Path("/disks") / f"{session.record.disk_id}.img"

    async def run(self, session: Session, content: str | None = None) -> None:
        """A command that may change the workspace."""
        self.commands += 1
        spec = a_command("exit 0", exec_id=f"run-{self.commands}")
        execution, _ = await self.sessions.check_and_start_exec(session.id, spec)
        if content is not None:
            self.write(session, content)
        await execution.wait()

    def contents(self, session: Session) -> list[str]:
        return [
            content for _, content in self.store.lines.get(line_of(session.record), {}).values()
        ]

    def causes(self, session: Session) -> list[Cause]:
        found = self.store.lines.get(line_of(session.record), {}).values()
        return [cause_of(snapshot) for snapshot, _ in found]

    async def settled(self, session: Session) -> None:
        await eventually(lambda: not self.sessions.turns.is_busy(session.id))


@pytest.fixture
async def rig(
    start_sessions: StartSessions,
    start_pool: Callable[..., Awaitable[WarmPool]],
    maker: SandboxMaker,
    store: FakeSnapshots,
    settings: SnapshotSettings,
) -> Rig:
    return await _rig(start_sessions, start_pool, maker, store, settings)


async def _rig(
    start_sessions: StartSessions,
    start_pool: Callable[..., Awaitable[WarmPool]],
    maker: SandboxMaker,
    store: FakeSnapshots,
    settings: SnapshotSettings,
    **others: Any,
) -> Rig:
    pool = await start_pool(target=2, maximum=8)
    sources = Sources()
    preparation = Preparation(doors=SessionDoors([sources]))
    preparation.lines = SessionLines(store, maker.kept_files, settings, workspace_dir="/workspace")
    others = {"idle_seconds": 3600.0, **others}
    sessions = await start_sessions(pool=pool, preparation=preparation, **others)
    return Rig(sessions, store, maker, pool, sources)


async def as_ada(work: Coroutine[Any, Any, T]) -> T:
    """Do it as a user whose token has no rights of its own."""
    context = copy_context()
    context.run(act_as, Caller(name="ada", scope=Scope.USER, user_id="ada"))
    return await asyncio.get_running_loop().create_task(work, context=context)


@contextmanager
def in_turn(turn_id: str) -> Iterator[None]:
    token = current_turn.set(turn_id)
    try:
        yield
    finally:
        current_turn.reset(token)


# --- turns ---


async def test_command_that_changed_something_leaves_a_snapshot(rig: Rig) -> None:
    """The line begins with what was there, and has the state after each command that changed
    something."""
    session = await rig.open(COMMANDS)
    await rig.settled(session)
    for content in ("a", "b", "b", "c"):
        await rig.run(session, content)
        await rig.settled(session)

    assert rig.contents(session) == ["", "a", "b", "c"]
    assert rig.causes(session) == [Cause.BASELINE, *[Cause.EXEC] * 3]


async def test_without_auto_snapshot_nothing_is_taken(rig: Rig) -> None:
    """A session that did not ask for it costs nothing."""
    session = await rig.open()
    await rig.run(session, "a")
    await rig.settled(session)

    assert rig.store.takes == 0


async def test_turn_is_one_snapshot(rig: Rig) -> None:
    """However many commands it has; what commands without a turn change belongs to the next."""
    session = await rig.open(TURNS)
    await rig.settled(session)
    for turn_id, content in (("t1", "a"), ("t1", "b"), ("", "c"), ("t2", "d")):
        with in_turn(turn_id):
            await rig.run(session, content)
        await rig.settled(session)

    assert rig.contents(session) == ["", "b", "d"]


async def test_file_call_that_changes_leaves_a_snapshot(rig: Rig) -> None:
    """File calls that only read do not."""
    session = await rig.open(COMMANDS)
    await rig.settled(session)
    async with rig.sessions.file_work(session.id):
        pass
    await rig.settled(session)
    async with rig.sessions.file_work(session.id, changes=True):
        rig.write(session, "a")
    await rig.settled(session)

    assert rig.causes(session) == [Cause.BASELINE, Cause.FILES]


async def test_command_waits_only_a_moment_for_a_snapshot(rig: Rig) -> None:
    """One that takes long does not hold up what follows."""
    session = await rig.open(COMMANDS)
    rig.store.may_go_on.clear()
    await rig.run(session, "a")
    await rig.run(session, "b")  # would never return if it waited

    rig.store.may_go_on.set()
    await rig.settled(session)
    assert rig.contents(session)[-1] == "b"


@pytest.mark.parametrize("before", [0, 1])
async def test_command_that_overtakes_a_snapshot_has_its_own(rig: Rig, before: int) -> None:
    """Also if the one that was being taken already holds what the command did; the next command
    that changes nothing has none."""
    rig.store.reads_late = True
    if not before:
        rig.store.may_go_on.clear()
    session = await rig.open(COMMANDS)
    if before:
        await rig.settled(session)
        rig.store.may_go_on.clear()
        await rig.run(session, "a")
    await eventually(lambda: rig.store.takes == before + 1)
    await rig.run(session, "b")
    rig.store.may_go_on.set()
    await rig.settled(session)
    await rig.run(session)
    await rig.settled(session)

    assert rig.causes(session) == [Cause.BASELINE, *[Cause.EXEC] * (before + 1)]
    assert rig.contents(session)[-1] == "b"


async def test_turn_that_has_just_ended_can_be_taken_back(rig: Rig) -> None:
    """A caller who asks at once waits for its snapshot, and gets what was before it."""
    session = await rig.open(TURNS)
    await rig.settled(session)
    for turn_id, content in (("t1", "a"), ("t2", "b")):
        rig.store.may_go_on.clear()
        with in_turn(turn_id):
            await rig.run(session, content)
        asking = asyncio.ensure_future(
            rig.snapshots.get(session.id, SnapshotRef(before_turn_id=turn_id))
        )
        await asyncio.sleep(0)
        assert not asking.done()
        rig.store.may_go_on.set()
        before = await asking

    assert rig.store.content(line_of(session.record), before.number) == "a"


async def test_snapshot_that_fails_fails_no_command(rig: Rig) -> None:
    """The session says that there are none, and goes on; the next one that succeeds ends that."""
    session = await rig.open(COMMANDS)
    await rig.settled(session)
    rig.store.fails = SnapshotStoreFailed("it is away")
    await rig.run(session, "a")
    await rig.settled(session)
    paused = session.snapshots_paused_because
    rig.store.fails = None
    await rig.run(session, "b")
    await rig.settled(session)

    assert "it is away" in paused
    assert session.snapshots_paused_because == ""
    assert rig.contents(session) == ["", "b"]


async def test_low_disk_pauses_turns(rig: Rig, settings: SnapshotSettings) -> None:
    """No snapshot uses up what the host needs, and the session says so."""
    session = await rig.open(COMMANDS)
    await rig.settled(session)
    rig.sessions.lines.settings = replace(settings, reserve_bytes=1 << 62)
    await rig.run(session, "a")
    await rig.settled(session)

    assert "free space" in session.snapshots_paused_because
    assert rig.contents(session) == [""]


async def test_line_of_turns_is_bounded(rig: Rig, settings: SnapshotSettings) -> None:
    """In number; the newest are kept."""
    rig.sessions.lines.settings = replace(settings, limits=LineLimits(count=5))
    session = await rig.open(COMMANDS)
    for number in range(20):
        await rig.run(session, f"{number}")
        await rig.settled(session)

    assert rig.contents(session) == [f"{number}" for number in range(15, 20)]


# --- snapshots that callers ask for ---


async def test_repeated_request_makes_one_snapshot(rig: Rig) -> None:
    """A caller whose answer was lost can ask again."""
    session = await rig.open()
    first = await rig.snapshots.create(session.id, label="x", request_id="r1")
    again = await rig.snapshots.create(session.id, label="x", request_id="r1")
    other = await rig.snapshots.create(session.id, request_id="r2")

    assert first == again
    assert other.number == first.number + 1


async def test_number_of_requested_snapshots_is_limited(rig: Rig) -> None:
    """A caller cannot fill the store; a repeated request still gets its answer."""
    session = await rig.open()
    for number in range(3):
        await rig.snapshots.create(session.id, request_id=f"r{number}")

    with pytest.raises(SnapshotLimitReached):
        await rig.snapshots.create(session.id, request_id="r3")
    assert (await rig.snapshots.create(session.id, request_id="r1")).number == 2


async def test_bytes_of_requested_snapshots_are_limited(
    rig: Rig, settings: SnapshotSettings
) -> None:
    """They count towards the space of their session, and the refusal says which limit it is."""
    rig.sessions.lines.settings = replace(settings, limits=LineLimits(stored_bytes=25))
    session = await rig.open()
    for number in range(3):  # of 10 bytes each
        await rig.snapshots.create(session.id, request_id=f"r{number}")

    with pytest.raises(SnapshotLimitReached, match="SANDBOXD_SNAPSHOT_SESSION_MB") as refusal:
        await rig.snapshots.create(session.id)
    assert "delete some" in refusal.value.message
    assert (await rig.snapshots.create(session.id, request_id="r1")).number == 2
    await rig.snapshots.delete(session.id, 1)
    await rig.snapshots.create(session.id)


async def test_snapshot_refused_in_a_session_without_a_disk(
    rig: Rig,
) -> None:
    """Workspaces in memory have none."""
    session = await rig.open()
    session.record = replace(session.record, disk_id="")

    with pytest.raises(SnapshotsOff):
        await rig.snapshots.create(session.id)


async def test_names_of_snapshots(rig: Rig) -> None:
    """By number, from the end, by label, turn and what was before a turn."""
    session = await rig.open(TURNS)
    await rig.settled(session)
    await rig.snapshots.create(session.id, label="start")
    for turn_id, content in (("t1", "a"), ("t2", "b")):
        with in_turn(turn_id):
            await rig.run(session, content)
        await rig.settled(session)

    async def number(ref: SnapshotRef) -> int:
        return (await rig.snapshots.get(session.id, ref)).number

    assert await number(SnapshotRef(number=3)) == 3
    assert await number(SnapshotRef(back=0)) == 4
    assert await number(SnapshotRef(back=1)) == 3
    assert await number(SnapshotRef(label="start")) == 2
    assert await number(SnapshotRef(turn_id="t1")) == 3
    assert await number(SnapshotRef(before_turn_id="t2")) == 3
    for missing in (
        SnapshotRef(number=9),
        SnapshotRef(back=4),
        SnapshotRef(label="t1"),
        SnapshotRef(before_turn_id="t9"),
    ):
        with pytest.raises(SnapshotNotFound):
            await number(missing)


async def test_comparison_with_the_present_leaves_no_snapshot(rig: Rig) -> None:
    """It needs one for a moment, which nobody sees."""
    session = await rig.open()
    rig.write(session, "a")
    first = await rig.snapshots.create(session.id)
    rig.write(session, "b")
    ref = SnapshotRef(number=first.number)
    found = await rig.snapshots.diff(session.id, ref, None, DiffLimits())

    assert len(found.changes) == 1
    assert rig.contents(session) == ["a"]


async def test_deleting_twice_is_no_error(rig: Rig) -> None:
    """But a number that never was is."""
    session = await rig.open()
    await rig.snapshots.create(session.id)
    await rig.snapshots.create(session.id)

    assert await rig.snapshots.delete(session.id, 1)
    assert not await rig.snapshots.delete(session.id, 1)
    with pytest.raises(SnapshotNotFound):
        await rig.snapshots.delete(session.id, 7)


async def test_closed_session_has_no_snapshots(rig: Rig) -> None:
    """They go with its files."""
    session = await rig.open()
    await rig.snapshots.create(session.id)
    rig.sessions.close(session.id)

    await eventually(lambda: not rig.store.lines)


# --- rewinds ---


async def test_rewind_restores_and_keeps_the_present(rig: Rig) -> None:
    """Same id, next incarnation; and a rewind can be rewound."""
    session = await rig.open()
    rig.write(session, "old")
    target = await rig.snapshots.create(session.id)
    rig.write(session, "new")
    done = await rig.snapshots.restore(session.id, SnapshotRef(number=target.number))

    assert rig.store.restored == ["old"]
    assert done.session.id == session.id
    assert done.session.record.incarnation == session.record.incarnation + 1
    assert done.before is not None
    back = await rig.snapshots.restore(session.id, SnapshotRef(number=done.before.number))
    assert rig.store.restored == ["old", "new"]
    assert back.session.record.restored_number == done.before.number


async def test_repeated_rewind_is_one(rig: Rig) -> None:
    """With the same request id, whatever happened since."""
    session = await rig.open()
    await rig.snapshots.create(session.id)
    ref = SnapshotRef(number=1)
    first = await rig.snapshots.restore(session.id, ref, request_id="r1")
    again = await rig.snapshots.restore(session.id, ref, request_id="r1", incarnation=1)

    assert again.session.record.incarnation == first.session.record.incarnation == 2
    assert again.restored_from == first.restored_from


async def test_rewind_of_another_incarnation_is_refused(rig: Rig) -> None:
    """A caller that counts on files that are gone is told."""
    session = await rig.open()
    await rig.snapshots.create(session.id)
    await rig.sessions.reset(session.id)

    with pytest.raises(SessionRecreated):
        await rig.snapshots.restore(session.id, SnapshotRef(number=1), incarnation=1)


async def test_rewind_ends_commands_and_keeps_what_they_wrote(rig: Rig) -> None:
    """Until they were ended: the one snapshot of before is taken from the disk that they had."""
    session = await rig.open()
    await rig.snapshots.create(session.id)
    image = rig.image(session)
    execution, _ = await rig.sessions.check_and_start_exec(session.id, a_command("sleep"))
    rig.write(session, "half")
    restore = rig.store.restore

    async def restore_while_writing(*arguments: Any, **fields: Any) -> None:
        rig.write(session, "whole")
        await restore(*arguments, **fields)

    rig.store.restore = restore_while_writing  # type: ignore[method-assign]
    done = await rig.snapshots.restore(session.id, SnapshotRef(number=1))
    status = await execution.wait()

    assert status.reason is Reason.SESSION_CLOSED
    assert rig.store.unmounted == [image]
    assert done.before is not None
    assert rig.store.content(line_of(session.record), done.before.number) == "whole"
    assert rig.causes(session).count(Cause.BEFORE_REWIND) == 1


async def test_failed_restore_leaves_the_session_as_it_was(rig: Rig) -> None:
    """A snapshot that cannot be read costs nothing but the call."""
    session = await rig.open()
    rig.write(session, "a")
    await rig.snapshots.create(session.id)
    rig.store.fails = None
    original = rig.store.restore

    async def failing(*arguments: object, **fields: object) -> None:
        raise SnapshotStoreFailed("it is away")

    rig.store.restore = failing  # type: ignore[method-assign, assignment]
    with pytest.raises(SnapshotStoreFailed):
        await rig.snapshots.restore(session.id, SnapshotRef(number=1))
    rig.store.restore = original  # type: ignore[method-assign]

    assert rig.sessions.get(session.id) is session
    assert session.is_active
    await rig.run(session)


async def test_racing_rewind_and_reset_do_both(rig: Rig) -> None:
    """One after the other: each gets a sandbox, and none is left over."""
    session = await rig.open()
    await rig.snapshots.create(session.id)
    await asyncio.gather(
        rig.snapshots.restore(session.id, SnapshotRef(number=1)),
        rig.sessions.reset(session.id),
        rig.sessions.reset(session.id),
    )
    current = rig.sessions.get(session.id)

    assert current.is_active
    assert current.record.incarnation == 3
    await eventually(lambda: rig.sessions.active_count == 1)


async def test_closed_session_cannot_be_rewound(rig: Rig) -> None:
    """Its files are gone for good."""
    session = await rig.open()
    await rig.snapshots.create(session.id)
    rig.sessions.close(session.id)

    with pytest.raises((SessionClosed, SnapshotNotFound)):
        await rig.snapshots.restore(session.id, SnapshotRef(number=1))


async def test_expired_session_can_be_rewound(rig: Rig) -> None:
    """Its files are gone, but not its snapshots: it is open again, with the files of one."""
    session = await rig.open(OpenRequest(idle_seconds=0.3))
    rig.write(session, "kept")
    await rig.snapshots.create(session.id)
    await eventually(lambda: session.record.state is SessionState.EXPIRED)
    done = await rig.snapshots.restore(session.id, SnapshotRef(number=1))

    assert rig.store.restored == ["kept"]
    assert done.session.is_active
    assert done.before is None


async def test_lost_session_is_rewound_and_keeps_what_it_had(rig: Rig) -> None:
    """The snapshot of before is taken from the disk that the lost sandbox has left."""
    session = await rig.open()
    rig.write(session, "old")
    await rig.snapshots.create(session.id)
    rig.write(session, "new")
    image = rig.image(session)
    assert session.sandbox is not None
    session.sandbox.cut_off("a test")
    await eventually(lambda: session.record.state is SessionState.LOST)
    done = await rig.snapshots.restore(session.id, SnapshotRef(number=1))

    assert rig.store.unmounted == [image]
    assert rig.store.restored == ["old"]
    assert done.before is not None
    assert rig.store.content(line_of(session.record), done.before.number) == "new"


# --- forks ---


async def test_forks_are_sessions_of_their_own(rig: Rig) -> None:
    """With the files and the settings of the session."""
    session = await rig.open(replace(COMMANDS, metadata={"a": "b"}))
    rig.write(session, "x")
    wanted = ForkRequest(threads=["f1", "f2"])
    snapshot, forks = await rig.snapshots.fork(session.id, None, wanted)
    opened = [one.session for one in forks if one.session]

    assert rig.store.restored == ["x", "x"]
    assert len({one.id for one in (session, *opened)}) == 3
    assert [one.record.thread_id for one in opened] == ["f1", "f2"]
    assert {one.record.forked_from for one in opened} == {session.id}
    assert {one.record.auto_snapshot for one in opened} == {"commands"}
    assert [dict(one.record.metadata) for one in opened] == [{"a": "b"}] * 2
    assert snapshot.number


async def test_fork_reaches_what_its_origin_reaches(rig: Rig) -> None:
    """Also none at all, where the environment has rules; and it is found again after a change."""
    for number, rules in enumerate((["example.com", "*.example.org:8443"], [], None)):
        session = await rig.open(OpenRequest(egress=rules), thread=f"t{number}")
        wanted = ForkRequest(threads=[f"f{number}"], request_id=f"r{number}")
        _, (fork,) = await rig.snapshots.fork(session.id, None, wanted)
        assert fork.session is not None, fork.error
        assert fork.session.record.egress == rules

        await rig.sessions.set_egress(fork.session.id, ["other.example"])
        _, (again,) = await rig.snapshots.fork(session.id, None, wanted)
        assert again.session is fork.session


async def test_fork_passes_the_gates_of_an_open(rig: Rig) -> None:
    """Who could not open a session with these rules or data sources cannot fork one that has
    them, whoever opened it; nothing is left out in silence."""
    reaching = await rig.open(OpenRequest(egress=["example.com"]), thread="t1")
    asking = await rig.open(OpenRequest(data_sources=["sales"]), thread="t2")
    rig.sources.refused = frozenset({"sales"})

    _, (fork,) = await rig.snapshots.fork(asking.id, None, ForkRequest(threads=["f2"]))
    assert isinstance(fork.error, DataSourceNotFound)
    with pytest.raises(DataSourceNotFound):
        await rig.open(OpenRequest(data_sources=["sales"]), thread="t1")

    _, (fork,) = await as_ada(rig.snapshots.fork(reaching.id, None, ForkRequest(threads=["f1"])))
    assert isinstance(fork.error, EgressNotAllowed)


async def test_repeated_fork_returns_the_same_sessions(rig: Rig) -> None:
    """And makes neither another snapshot nor another session."""
    session = await rig.open()
    wanted = ForkRequest(threads=["f1"], request_id="r1")
    first, (one,) = await rig.snapshots.fork(session.id, None, wanted)
    again, (same,) = await rig.snapshots.fork(session.id, None, wanted)

    assert first == again
    assert one.session is not None
    assert same.session is one.session


async def test_fork_into_a_thread_with_a_session_fails_alone(rig: Rig) -> None:
    """The other forks are made, and the session of that thread stays as it is."""
    session = await rig.open()
    await rig.open(thread="taken")
    wanted = ForkRequest(threads=["taken", "free"])
    _, (taken, free) = await rig.snapshots.fork(session.id, None, wanted)

    assert isinstance(taken.error, SessionExists)
    assert free.session is not None


async def test_fork_has_a_copy_of_the_project_files(rig: Rig) -> None:
    """Files that the caller of the session has put into project_files/."""
    session = await rig.open()
    source = rig.maker.kept_files.project_dir(KeptFiles(project_id=session.record.project_id))
    (source / "a.txt").write_text("hello")
    _, (fork,) = await rig.snapshots.fork(session.id, None, ForkRequest(threads=["f"]))
    assert fork.session is not None
    target = rig.maker.kept_files.project_dir(KeptFiles(project_id=fork.session.record.project_id))

    assert (target / "a.txt").read_text() == "hello"
    assert target != source


# --- opened again ---

EVERYTHING = OpenRequest(
    idle_seconds=120.0,
    metadata={"team": "blue"},
    env={"A": "1"},
    environment_config=EnvironmentConfig(env_vars={"B": "2"}),
    command_policy="open",
    data_sources=["sales"],
    egress=["example.com"],
    auto_snapshot=AutoSnapshot.COMMANDS,
    park_seconds=60.0,
)
WAYS = pytest.mark.parametrize("way", ["parked", "stopped"])


async def ended(rig: Rig, way: str, guests: FakeGuests) -> Session:
    """A session with everything that has no sandbox."""
    session = await rig.open(EVERYTHING)
    await rig.settled(session)
    if way == "parked":
        return await rig.snapshots.park(session.id)
    assert session.sandbox is not None
    guests.lose(session.sandbox.container_id)
    await eventually(lambda: not session.is_active)
    assert session.state == SessionState.STOPPED
    return session


@WAYS
async def test_session_opened_again_has_what_it_had(way: str, rig: Rig, guests: FakeGuests) -> None:
    """Without naming any of it; what is named holds instead, or is added where an open session
    would be given it in addition."""
    before = (await ended(rig, way, guests)).record
    again = await rig.open()

    def had(record: SessionRecord) -> dict[str, object]:
        fields = asdict(record)
        names = "idle_seconds metadata env env_vars command_policy data_sources egress"
        return {name: fields[name] for name in (*names.split(), "auto_snapshot", "park_seconds")}

    assert again.has_earlier_files
    assert had(again.record) == had(before)
    await rig.snapshots.park(again.id)
    other = OpenRequest(
        idle_seconds=240.0, env={"C": "3"}, egress=[], data_sources=["stock"], park_seconds=0.0
    )
    changed = await rig.open(other)
    assert had(changed.record) == had(before) | {
        "idle_seconds": 240.0,
        "env": {"A": "1", "C": "3"},
        "data_sources": ("sales", "stock"),
        "egress": [],
        "park_seconds": 0.0,
    }


@WAYS
async def test_session_never_comes_back_with_less(
    way: str,
    guests: FakeGuests,
    start_sessions: StartSessions,
    start_pool: Callable[..., Awaitable[WarmPool]],
    maker: SandboxMaker,
    store: FakeSnapshots,
    settings: SnapshotSettings,
) -> None:
    """A caller who may not ask for what it had, and everyone if that is not there any more, is told
    so and what to do; its files stay, and whoever may ask opens it."""
    rig = await _rig(start_sessions, start_pool, maker, store, settings, policy=STRICT)
    session = await ended(rig, way, guests)
    known = session.state

    async def is_refused(
        opening: Coroutine[Any, Any, Session], error: type[SandboxdError], advice: str
    ) -> None:
        with pytest.raises(error, match=f"from an earlier open; .*{advice}"):
            await opening
        assert rig.sessions.get(session.id).state == known

    await is_refused(as_ada(rig.open()), CallNotPermitted, "name another command_policy")
    strict = OpenRequest(command_policy="strict")
    await is_refused(as_ada(rig.open(strict)), EgressNotAllowed, "name another egress")
    rig.sources.refused = frozenset({"sales"})
    await is_refused(rig.open(), DataSourceNotFound, "close the session")
    rig.sources.refused = frozenset()
    policies = rig.sessions.exec_state.policies._policies
    rig.sessions.exec_state.policies._policies = {"strict": policies["strict"]}
    await is_refused(rig.open(), InvalidRequest, "name another command_policy")
    rig.sessions.exec_state.policies._policies = policies

    named = replace(strict, egress=[])
    assert (await as_ada(rig.open(named))).has_earlier_files


# --- parking ---


async def test_parked_session_has_its_files_when_it_is_opened(rig: Rig, disks: FakeDisks) -> None:
    """It gives up sandbox and disk; same id, next incarnation, and the open says so."""
    session = await rig.open()
    disk_id = session.record.disk_id
    rig.write(session, "kept")
    parked = await rig.snapshots.park(session.id)
    await eventually(lambda: disk_id not in disks.owners)

    assert parked.record.state is SessionState.PARKED
    with pytest.raises(SessionParked):
        rig.sessions.touch(session.id)
    opened, outcome = await rig.sessions.open("ada", "t")
    assert outcome is Outcome.UNPARKED
    assert (opened.id, opened.record.incarnation) == (session.id, 2)
    assert rig.store.restored == ["kept"]
    assert opened.has_earlier_files
    assert opened.record.parked_number == 0


async def test_idle_session_is_parked(rig: Rig) -> None:
    """After the time that it asked for, and not before."""
    session = await rig.open(OpenRequest(park_seconds=0.2))
    rig.write(session, "x")
    began = time.monotonic()
    await eventually(lambda: session.record.state is SessionState.PARKED)

    assert time.monotonic() - began >= 0.15
    assert rig.contents(session) == ["x"]


async def test_session_that_is_used_meanwhile_is_not_parked(rig: Rig) -> None:
    """The use wins, and the snapshot that was taken for nothing is deleted."""
    rig.store.may_go_on.clear()
    session = await rig.open(OpenRequest(park_seconds=0.1))
    await eventually(lambda: rig.store.takes == 1)
    await rig.run(session, "x")
    session.record = replace(session.record, park_seconds=0.0)
    rig.store.may_go_on.set()
    await eventually(lambda: not rig.contents(session))

    assert session.is_active


async def test_command_that_runs_keeps_a_session_from_being_parked(rig: Rig) -> None:
    """Running commands are use."""
    session = await rig.open(OpenRequest(park_seconds=0.05))
    execution, _ = await rig.sessions.check_and_start_exec(
        session.id, a_command("sleep", seconds=0.5)
    )
    await execution.wait()

    assert rig.store.takes == 0
    await eventually(lambda: session.record.state is SessionState.PARKED)


async def test_session_is_parked_instead_of_expired(rig: Rig, settings: SnapshotSettings) -> None:
    """If the operator wants it so."""
    rig.sessions.lines.settings = replace(settings, parks_instead_of_expiry=True)
    session = await rig.open(OpenRequest(idle_seconds=0.1))

    await eventually(lambda: session.record.state is SessionState.PARKED)


async def test_parked_session_expires_in_the_end(rig: Rig, settings: SnapshotSettings) -> None:
    """Its files are kept for days, not for ever."""
    rig.sessions.lines.settings = replace(settings, parked_seconds=0.2)
    session = await rig.open(OpenRequest(park_seconds=0.1))
    await eventually(lambda: session.record.state is SessionState.PARKED)

    await eventually(lambda: session.record.state is SessionState.EXPIRED)
    assert session.record.parked_number == 0


async def test_parked_sessions_of_a_user_are_limited(rig: Rig, settings: SnapshotSettings) -> None:
    """One too many goes on as it is; other users park theirs."""
    rig.sessions.lines.settings = replace(settings, max_user_parked=2)
    for thread in ("1", "2"):
        session, _ = await rig.sessions.open("eve", thread, OpenRequest())
        await rig.snapshots.park(session.id)
    third, _ = await rig.sessions.open("eve", "3", OpenRequest())
    other, _ = await rig.sessions.open("ada", "1", OpenRequest())

    with pytest.raises(SnapshotLimitReached, match="SANDBOXD_MAX_USER_PARKED_SESSIONS"):
        await rig.snapshots.park(third.id)
    assert third.is_active
    assert (await rig.snapshots.park(other.id)).record.state is SessionState.PARKED
    rig.sessions.close(session.id)
    assert (await rig.snapshots.park(third.id)).record.state is SessionState.PARKED


async def test_store_that_is_away_parks_nothing_and_loses_nothing(rig: Rig) -> None:
    """The session stays open, and is tried again later."""
    session = await rig.open(OpenRequest(park_seconds=0.05))
    rig.store.fails = SnapshotStoreFailed("it is away")
    await eventually(lambda: rig.store.takes >= 1)
    await asyncio.sleep(0.1)

    assert session.is_active
    await rig.run(session)


async def test_parking_a_busy_session_ends_its_commands(rig: Rig) -> None:
    """What they wrote until then is in the snapshot."""
    session = await rig.open()
    image = rig.image(session)
    execution, _ = await rig.sessions.check_and_start_exec(session.id, a_command("sleep"))
    rig.write(session, "half")
    await rig.snapshots.park(session.id)

    assert (await execution.wait()).reason is Reason.SESSION_CLOSED
    assert rig.store.unmounted == [image]
    opened, _ = await rig.sessions.open("ada", "t")
    assert rig.store.restored == ["half"]
    assert opened.is_active


async def test_racing_opens_of_a_parked_session_share_one_sandbox(rig: Rig) -> None:
    """As of any other session."""
    session = await rig.open()
    await rig.snapshots.park(session.id)
    answers = await asyncio.gather(*(rig.sessions.open("ada", "t") for _ in range(20)))

    assert len(rig.store.restored) == 1
    assert sum(outcome is Outcome.UNPARKED for _, outcome in answers) == 1
    assert {one.id for one, _ in answers} == {session.id}


async def test_open_that_cannot_be_restored_leaves_the_session_parked(rig: Rig) -> None:
    """The next open, when the store is back, has the files."""
    session = await rig.open()
    rig.write(session, "x")
    await rig.snapshots.park(session.id)
    rig.store.fails = SnapshotStoreFailed("it is away")
    with pytest.raises(SnapshotStoreFailed):
        await rig.open()
    assert rig.sessions.get(session.id).record.state is SessionState.PARKED

    rig.store.fails = None
    assert (await rig.open()).has_earlier_files
    assert rig.store.restored == ["x"]


async def test_snapshot_of_a_parked_session_cannot_be_deleted(rig: Rig) -> None:
    """It is all that is left of its files."""
    session = await rig.open()
    await rig.snapshots.park(session.id)

    with pytest.raises(SnapshotInUse):
        await rig.snapshots.delete(session.id, session.record.parked_number)


async def test_parked_session_outlives_the_daemon(rig: Rig, registry: SqliteRegistry) -> None:
    """The registry and its copies name the snapshot."""
    session = await rig.open()
    await rig.snapshots.park(session.id)
    (record,) = await registry.load()

    assert record.state is SessionState.PARKED
    assert record.parked_number == session.record.parked_number > 0
    assert record.disk_id == ""


async def test_parked_session_can_be_closed(rig: Rig) -> None:
    """Then nothing is left of it."""
    session = await rig.open()
    await rig.snapshots.park(session.id)
    rig.sessions.close(session.id)

    await eventually(lambda: not rig.store.lines)
    assert session.record.state is SessionState.CLOSED


async def test_busy_workspace_is_a_typed_error(rig: Rig) -> None:
    """A snapshot of one moment that cannot be had is refused, and costs the session nothing."""
    session = await rig.open()
    rig.store.fails = WorkspaceBusy()

    with pytest.raises(WorkspaceBusy):
        await rig.snapshots.create(session.id)
    assert session.is_active
