"""Sessions: a thread's hold on a sandbox, from open to its announced end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import TypeAlias

from sandboxd.access import current_caller
from sandboxd.code.contexts import CodeRun
from sandboxd.errors import (
    Draining,
    ExecNotFound,
    FileWorkInterrupted,
    OwnershipNotKnown,
    SandboxdError,
    SandboxLost,
    SessionNotFound,
)
from sandboxd.execs.exec import Exec
from sandboxd.execs.policy import CheckTakesLong, Clearance
from sandboxd.execs.session_execs import GuestIsBehind, SharedExecState, key_prefixes
from sandboxd.execs.spec import ExecSpec
from sandboxd.files import SessionFiles
from sandboxd.link.connection import LinkClosed
from sandboxd.pool.pools import Pools
from sandboxd.registry.contract import SessionRegistry, SessionState
from sandboxd.sandboxes.kept_files import KeptFilesStore
from sandboxd.sandboxes.maker import Adopted
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sessions.added_packages import AddedPackages, sets_in_use
from sandboxd.sessions.changing import Changing, SessionChange
from sandboxd.sessions.egress import EgressStatus
from sandboxd.sessions.ends import SessionEnds
from sandboxd.sessions.expiry import SessionExpiry
from sandboxd.sessions.journal import Journal
from sandboxd.sessions.leaving import DrainProgress, Leaving
from sandboxd.sessions.lines import SessionLines
from sandboxd.sessions.opening import Opening, OpenRequest
from sandboxd.sessions.owned_registry import OwnedRegistry
from sandboxd.sessions.ownership import Ownership, claimed, is_same_owner, record_of
from sandboxd.sessions.parking import Parking
from sandboxd.sessions.placement import Placement
from sandboxd.sessions.preparation import Preparation
from sandboxd.sessions.resetting import Resetting
from sandboxd.sessions.returning import ReturningSessions
from sandboxd.sessions.rewinding import Rewinding, Rewound
from sandboxd.sessions.session import (
    Outcome,
    Session,
    SessionFilter,
    SessionSettings,
    execs_key,
)
from sandboxd.sessions.shared import SharedSessionState
from sandboxd.sessions.turns import Turns
from sandboxd.snapshots.contract import Snapshot

Place: TypeAlias = tuple[float, str]
"""Place in a listing: creation time and session id."""
PROBE_SECONDS = 3.0
"""How long a guest gets to answer after work on its files was interrupted."""
OPENING_SECONDS = 10.0
"""How long opens and resets get to finish when the daemon stops and sessions stay."""


class Sessions:
    """All sessions of this daemon."""

    def __init__(
        self,
        pools: Pools,
        kept_files: KeptFilesStore,
        registry: SessionRegistry,
        settings: SessionSettings,
        exec_state: SharedExecState,
        returning: Collection[str] = (),
        journal: Journal | None = None,
        preparation: Preparation | None = None,
    ) -> None:
        """With the ids of sessions of an earlier daemon whose sandboxes may still be adopted."""
        preparation = preparation or Preparation()
        self.ownership = ownership = preparation.ownership or Ownership()
        if ownership.is_shared:
            registry = OwnedRegistry(registry, ownership)
        shared = SharedSessionState(
            pools=pools,
            kept_files=kept_files,
            registry=registry,
            ownership=ownership,
            settings=settings,
            exec_state=exec_state,
            journal=journal or Journal(),
            preparation=preparation,
            packages=AddedPackages(preparation.packages),
            lines=preparation.lines or SessionLines.off(kept_files),
        )
        self.exec_state = exec_state
        self._registry = registry
        self._settings = settings
        self._returning = ReturningSessions(returning)
        self._journal = shared.journal
        self._sessions = shared.sessions
        self._transitions = shared.transitions
        self._tasks = shared.tasks
        self._packages = shared.packages
        self._doors = preparation.doors
        self.lines = shared.lines
        self.turns = Turns(shared.lines, shared.tasks, shared.journal)
        self._ends = SessionEnds(shared)
        self._expiry = SessionExpiry(shared, self._ends)
        self._placement = Placement(shared, self._ends, self._expiry, self.turns)
        self._opening = Opening(shared, self._expiry, self._placement)
        self._resetting = Resetting(shared, self._ends, self._placement)
        self._rewinding = Rewinding(shared, self._ends, self._resetting)
        self._parking = Parking(shared, self._ends)
        self._expiry.parking = self._parking
        self._expiry.on_forgotten = self._forget
        self._changing = Changing(shared, self._expiry)
        self._leaving = Leaving(shared, self._ends, self._parking)
        shared.lines.on_taken = ownership.on_snapshot
        shared.lines.check_owner = ownership.check_record
        ownership.on_lost = self._leaving.let_go
        ownership.directory.when_fenced(self._leaving.pause)
        ownership.directory.when_serving(self._leaving.resume)
        self._draining = False

    # --- start ---

    async def __aenter__(self) -> Sessions:
        records = await self._registry.load()
        active = [execs_key(record) for record in records if record.session_id in self._returning]
        self.exec_state.sweep(key_prefixes(active))
        for record in sorted(records, key=lambda record: record.changed_at):
            if record.state == SessionState.ACTIVE and record.session_id not in self._returning:
                record = self._ends.end_unadopted(record)
            await self._placement.restore(record)
        self._expiry.start()
        self._packages.start_sweeping(lambda: sets_in_use(self._sessions))
        await self._ends.save_all()
        return self

    # --- sessions of an earlier daemon ---

    @property
    def are_returning(self) -> bool:
        """Whether any session is still to be adopted."""
        return bool(self._returning)

    async def wait_until_back(self, session_id: str) -> None:
        """Return when a session of an earlier daemon is adopted or lost, or after a while."""
        if session_id in self._returning:
            self.get(session_id)
            await self._returning.wait(session_id)

    async def adopt(self, session_id: str, adopted: Adopted) -> bool:
        """Continue a session of an earlier daemon on its sandbox; False if it has ended since."""
        session = self._sessions.get(session_id)
        is_wanted = session is not None and session.is_returning
        if session is not None and is_wanted:
            self._placement.adopt(session, adopted)
            if not self.ownership.directory.is_serving:  # it will be thawed when that is known
                adopted.sandbox.freeze_commands(is_frozen=True)
            await self._doors.open(session.record, adopted.sandbox)
            # The answer follows the output that the guest has kept: no reader finds less of it than
            # before.
            await _probe(adopted.sandbox)
        self._returning.remove(session_id)
        return is_wanted

    def give_up(self, session_id: str, why: str) -> None:
        """Report a session of an earlier daemon as lost: its sandbox cannot be adopted."""
        session = self._sessions.get(session_id)
        if session is not None and session.is_returning:
            self._ends.end(session, SessionState.LOST, why)
            for prefix in key_prefixes([execs_key(session.record)]):
                self.exec_state.delete(prefix)
        self._returning.remove(session_id)

    # --- stop ---

    async def __aexit__(self, *_: object) -> None:
        await self.shut_down(0.0)
        self._expiry.stop()
        self._ends.stop_retrying()
        await self._tasks.finish()
        # Otherwise timers would delete them after the end, in a process that runs on.
        self._ends.delete_execs_now()
        for session in self._sessions:
            session.execs.close()

    def drain(self) -> None:
        """Accept no new sessions and no new commands."""
        self._draining = True

    async def shut_down(self, grace_seconds: float) -> None:
        """Accept nothing new, let running commands end for a while, then end every session.

        Each is remembered as lost, so that its next open reports it; its commands end with an exit
        that their callers still receive. Where sessions outlive the daemon, they are left as they
        are, and only commands whose id no caller knows are waited for: no caller could find them
        after the restart.
        """
        self.drain()
        is_kept = self._settings.outlive_the_daemon
        running = [
            execution
            for session in self._sessions
            for execution in session.execs.running.values()
            if not (is_kept and execution.details.is_chosen)
        ]
        if running and grace_seconds > 0:
            ends = [asyncio.ensure_future(execution.ended()) for execution in running]
            _, pending = await asyncio.wait(ends, timeout=grace_seconds)
            for end in pending:
                end.cancel()
        if is_kept:
            await self._leave_to_the_next_daemon()
        else:
            await self._end_all()

    async def _leave_to_the_next_daemon(self) -> None:
        """Finish opens and resets, and write execs to disk."""
        if under_way := self._transitions.tasks:
            await asyncio.wait(under_way, timeout=OPENING_SECONDS)
        for session in self._sessions:
            session.execs.close()

    async def _end_all(self) -> None:
        under_way = self._transitions.tasks
        for task in under_way:
            task.cancel()
        if under_way:
            await asyncio.wait(under_way)
        for session in self._sessions.present:
            if session.is_active:
                self._ends.end(session, SessionState.LOST, "the daemon was stopped")

    async def keep_committing(self, pause_seconds: float) -> None:
        """Take a snapshot of what has changed now and then, so that other workers can continue
        from it."""
        await self._leaving.keep_committing(pause_seconds)

    async def keep_forgetting(self, pause_seconds: float) -> None:
        """Look now and then for parked sessions that other workers have had since, and forget
        them."""
        await self._expiry.keep_forgetting(pause_seconds)

    def move_away(self, seconds: float) -> AsyncIterator[DrainProgress]:
        """Park every session; commands get so many seconds to end."""
        return self._leaving.drain(seconds)

    def stop_moving_away(self) -> None:
        self._leaving.stop_drain()

    @property
    def is_draining(self) -> bool:
        return self._draining

    def _refuse_if_draining(self) -> None:
        if self._draining:
            raise Draining

    # --- figures ---

    @property
    def active_count(self) -> int:
        return sum(session.is_active for session in self._sessions.present)

    @property
    def parked_count(self) -> int:
        return sum(
            session.record.state == SessionState.PARKED for session in self._sessions.present
        )

    @property
    def paused_count(self) -> int:
        """Active sessions that get no automatic snapshots although they want them."""
        active = [session for session in self._sessions.present if session.is_active]
        return sum(bool(session.snapshots_paused_because) for session in active)

    def count_in(self, environment: str) -> int:
        """Active sessions in an environment."""
        return sum(
            session.is_active and session.record.environment == environment
            for session in self._sessions.present
        )

    @property
    def running_exec_count(self) -> int:
        return sum(len(session.execs) for session in self._sessions)

    @property
    def unsaved_count(self) -> int:
        """Sessions whose end is not in the registry yet."""
        return self._ends.unsaved_count

    # --- open, change, reset, close ---

    async def open(
        self,
        user_id: str,
        thread_id: str,
        wanted: OpenRequest | None = None,
    ) -> tuple[Session, Outcome]:
        """Get or create the session of a thread; racing callers share one creation.

        ProjectNotFound, ProjectMismatch, EnvironmentNotFound, EnvironmentMismatch, and what
        Preparation raises.
        """
        wanted = wanted or OpenRequest()
        current_caller().check_acts_for(user_id)
        self._refuse_if_draining()
        if wanted.command_policy:
            self.exec_state.policies.check_known(wanted.command_policy)
        began = time.monotonic()
        key = (user_id, thread_id)
        earlier = self._sessions.of_thread(key)
        if earlier is not None and earlier.is_returning:
            await self._returning.wait(earlier.id)
        opened, outcome = await self._opening.open(key, wanted)
        seconds = time.monotonic() - began
        self._journal.on_opened(opened.record, outcome.name, seconds)
        return opened, outcome

    async def reset(self, session_id: str, *, incarnation: int = 0) -> Session:
        """Give a session a fresh sandbox, on which only the project files are not new.

        Racing callers share one reset. An incarnation of 0 means any.
        """
        self._refuse_if_draining()
        await self.wait_until_back(session_id)
        key = self.get(session_id).thread
        await self._transitions.wait_for_moves(key)
        session = self.get(session_id)
        session.check_incarnation(incarnation)
        session.check_not_closed()
        session.check_not_returning()
        return await self._resetting.reset(session)

    async def rewind(
        self, session_id: str, target: Snapshot, *, incarnation: int = 0, request_id: str = ""
    ) -> Rewound:
        """Give a session a fresh sandbox with the files of one of its snapshots.

        A request that is repeated changes nothing. An incarnation of 0 means any.
        """
        self._refuse_if_draining()
        await self.wait_until_back(session_id)
        await self._transitions.wait_for_all(self.get(session_id).thread)
        session = self.get(session_id)
        if request_id and session.record.restore_request == request_id:
            return Rewound(session, None)
        session.check_incarnation(incarnation)
        session.check_not_closed()
        session.check_not_returning()
        return await self._rewinding.rewind(session, target, request_id)

    async def park(self, session_id: str, *, incarnation: int = 0) -> Session:
        """Park a session now; one that is parked stays as it is."""
        self._refuse_if_draining()
        await self.wait_until_back(session_id)
        await self._transitions.wait_for_all(self.get(session_id).thread)
        session = self.get(session_id)
        session.check_incarnation(incarnation)
        return await self._parking.park(session)

    async def change(self, session_id: str, wanted: SessionChange) -> Session:
        """Change the idle time and the labels of an active session; this counts as use."""
        await self.wait_until_back(session_id)
        return await self._changing.change(self.get(session_id), wanted)

    async def set_egress(
        self, session_id: str, rules: Sequence[str] | None, *, incarnation: int = 0
    ) -> Session:
        """Let an active session reach these hosts, or those of its environment, from now on.

        EgressNotAllowed, DoorsOff.
        """
        await self.wait_until_back(session_id)
        session = self._active(session_id)
        session.check_incarnation(incarnation)
        self._doors.egress.check(rules or (), session.record.environment)
        return await self._changing.set_egress(session, rules)

    def egress(self, session_id: str) -> EgressStatus:
        """The hosts that a session may reach, and what it did with that."""
        session = self.get(session_id)
        return self._doors.egress.status(session.record, session.sandbox)

    def close(self, session_id: str) -> Session:
        """End a session for good; one that has ended already stays as it is, but closed."""
        session = self.get(session_id)
        if not session.is_closed:
            self.ownership.expect_end(session.record)
            self._ends.end(session, SessionState.CLOSED, "it was closed")
            self._tasks.spawn(self._delete_line(session), "delete-line")
        return session

    async def claim_parked(self, session_id: str) -> None:
        """Before a parked session is closed: have it to ourselves, so that no other worker opens it
        meanwhile. OwnedElsewhere if one has."""
        session = self.get(session_id)
        if not self.ownership.is_shared or session.record.state != SessionState.PARKED:
            return
        mine = await self.ownership.claim(*session.thread, session.record)
        if mine.session_id != session_id:
            # Another worker has closed it, and the thread has another session since.
            await self.ownership.give_back(mine)
            raise SessionNotFound(session_id)
        if is_same_owner(session.record, mine):
            session.record = claimed(session.record, mine)
            return
        try:
            session.record = record_of(mine.head, epoch=mine.epoch)
        except ValueError as error:
            await self.ownership.give_back(mine)
            raise OwnershipNotKnown(f"its record cannot be read: {error}", 1.0) from error

    async def _delete_line(self, session: Session) -> None:
        """Delete the snapshots of a session. If that fails, it is done again when the session is
        forgotten."""
        self._forget(session.id)
        with suppress(SandboxdError, OSError):
            # Until then, another worker may take it over, and continue from them.
            await self.ownership.told(session.id)
            await self.lines.delete_line(session.record)

    def _forget(self, session_id: str) -> None:
        self.turns.forget(session_id)
        self._parking.forget(session_id)

    async def wait_until_saved(self, session_id: str) -> None:
        """Return when the end of a session is saved, or after a failure that is tried again, and
        other workers know of it; OwnershipNotKnown if they do not."""
        await self._ends.wait_until_saved(session_id)
        await self.ownership.told(session_id)

    # --- look-up ---

    def get(self, session_id: str) -> Session:
        """The session, whatever its state. That of another user looks like one that never was."""
        session = self._sessions.get(session_id)
        is_seen = current_caller().sees(session.record.user_id if session else "")
        if session is None or not is_seen:
            raise SessionNotFound(session_id)
        if session.is_active:
            self.ownership.check(session_id)
        return session

    def has(self, session_id: str) -> bool:
        """Whether this daemon answers for a session."""
        session = self._sessions.get(session_id)
        return session is not None and (session.is_active or not self.ownership.is_shared)

    def knows(self, session_id: str) -> bool:
        """Whether it can say what became of a session."""
        return self._sessions.get(session_id) is not None

    def has_thread(self, user_id: str, thread_id: str) -> bool:
        """The same for the session of a thread."""
        session = self._sessions.of_thread((user_id, thread_id))
        is_opening = self._transitions.is_under_way((user_id, thread_id))
        return is_opening or (session is not None and self.has(session.id))

    def list(
        self, wanted: SessionFilter, *, page_size: int, after: Place | None = None
    ) -> tuple[Sequence[Session], Place | None]:
        """A page of sessions after a place, oldest first, and the place of its last one if more
        follow."""
        caller = current_caller()
        ordered = sorted(
            (
                session
                for session in self._sessions
                if caller.sees(session.record.user_id) and wanted.accepts(session)
            ),
            key=_order,
        )
        rest = [session for session in ordered if after is None or _order(session) > after]
        page = rest[:page_size]
        return page, _order(page[-1]) if len(rest) > page_size else None

    def find_exec(self, session_id: str, exec_id: str) -> Exec:
        """An exec, running or ended, also in a session that has been lost since."""
        session = self.get(session_id)
        try:
            return session.execs.find(exec_id)
        except ExecNotFound:
            self._active(session_id)
            raise

    # --- use ---

    def touch(self, session_id: str) -> Session:
        session = self._active(session_id)
        session.touch()
        return session

    async def check_and_start_exec(
        self, session_id: str, spec: ExecSpec, *, incarnation: int = 0
    ) -> tuple[Exec, bool]:
        """The same as `start_exec`, but a command that takes long to check delays no others, and a
        session that is returning, or a guest that is behind, is waited for."""
        if self.are_returning:
            await self.wait_until_back(session_id)
        if self.turns.is_busy(session_id):
            await self.turns.settle(session_id)
        clearance: Clearance | None = None
        while True:
            try:
                return self.start_exec(
                    session_id, spec, incarnation=incarnation, clearance=clearance
                )
            except CheckTakesLong:
                clearance = await self.get(session_id).execs.clear(spec)
            except GuestIsBehind:
                await self._active(session_id).wait_for_guest()

    def start_exec(
        self,
        session_id: str,
        spec: ExecSpec,
        *,
        incarnation: int = 0,
        clearance: Clearance | None = None,
    ) -> tuple[Exec, bool]:
        """Start a command once in an active session; False if it is there already.

        An incarnation of 0 means any. CheckTakesLong if the command needs a clearance.
        """
        self._refuse_if_draining()
        session = self._active(session_id)
        session.check_incarnation(incarnation)
        session.touch()
        return session.start_exec(spec, clearance)

    async def start_code(
        self, session_id: str, run: CodeRun, *, incarnation: int = 0
    ) -> tuple[Exec, bool]:
        """Start a run of code once in an active session; False if it is there already."""
        if self.are_returning:
            await self.wait_until_back(session_id)
        while True:
            self._refuse_if_draining()
            session = self._active(session_id)
            session.check_incarnation(incarnation)
            session.touch()
            try:
                return session.start_code(run)
            except GuestIsBehind:
                await session.wait_for_guest()

    async def with_contexts(self, session_id: str) -> Session:
        """An active session, for a call about its contexts; this counts as use."""
        if self.are_returning:
            await self.wait_until_back(session_id)
        return self.touch(session_id)

    @asynccontextmanager
    async def file_work(
        self, session_id: str, *, incarnation: int = 0, changes: bool = False
    ) -> AsyncIterator[SessionFiles]:
        """Work on the files of an active session, which `changes` them or not. An operation that is
        still running when the session ends is reported as failed, even if it took effect."""
        self._refuse_if_draining()
        await self.wait_until_back(session_id)
        if changes and self.turns.is_busy(session_id):
            await self.turns.settle(session_id)
        session = self._active(session_id)
        session.check_incarnation(incarnation)
        assert session.files is not None
        try:
            with session.files.in_use(), session.changing() if changes else nullcontext():
                yield session.files
        except (FileWorkInterrupted, SandboxLost):
            if session.sandbox is not None:
                await _probe(session.sandbox)
            session.check_active()
            raise
        session.check_active()

    def _active(self, session_id: str) -> Session:
        session = self.get(session_id)
        session.check_active()
        return session


async def _probe(sandbox: Sandbox) -> None:
    """Return once a sandbox has answered or is lost, or after a while.

    One that dies takes its file workers with it, and their end may be noticed before its own.
    """
    with suppress(LinkClosed, TimeoutError):
        async with asyncio.timeout(PROBE_SECONDS):
            await sandbox.link.ping()


def _order(session: Session) -> Place:
    return session.record.created_at, session.record.session_id
