"""Sessions: a thread's hold on a sandbox, from open to its announced end."""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any, NamedTuple, NewType, TypeVar

import structlog

from sandboxd.access import current_caller
from sandboxd.errors import (
    Draining,
    ExecNotFound,
    FileWorkInterrupted,
    InvalidRequest,
    PoolExhausted,
    SandboxLost,
    SessionClosed,
    SessionExpired,
    SessionLimitReached,
    SessionNotFound,
    SessionRecreated,
)
from sandboxd.exec_shelf import ExecHouse, ExecShelf, shelves_on_disk
from sandboxd.exec_spec import ExecSpec
from sandboxd.execs import Exec, Reason
from sandboxd.files import FileDesk, FileSettings, WorkspaceFiles
from sandboxd.guest.frames import ExecState
from sandboxd.isolation.disks import Disk
from sandboxd.journal import ALLOWED
from sandboxd.pool import Patience, WarmPool
from sandboxd.registry.contract import Registry, SessionRecord, SessionState
from sandboxd.sandbox import Belongings, Sandbox
from sandboxd.session_book import SessionBook
from sandboxd.tasks import Tasks

log = structlog.get_logger()

T = TypeVar("T")

SessionId = NewType("SessionId", str)

FAREWELL_SECONDS = 5.0
"""How long the output of a closed session is there for those who read it just then."""
LOSS_SECONDS = 0.05
"""How long the news that a sandbox is lost may come after those of its parts."""
SAVE_AGAIN_SECONDS = 1.0
"""How long after a failure the end of a session is written down again."""
OPENING_SECONDS = 10.0
"""How long opens and resets get to finish when the daemon stops and sessions stay."""
RESET = "it was reset"


class Outcome(Enum):
    """How an open got its session."""

    CREATED = auto()
    ATTACHED = auto()
    RECREATED = auto()


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    idle_seconds: float
    memory_seconds: float
    """How long an ended session is remembered."""
    max_remembered: int = 10_000
    """How many ended sessions are remembered."""
    max_of_user: int = 0
    """Sessions of one user at once; 0 means no limit."""
    outlive_the_daemon: bool = False
    """Whether a stop leaves them, with what runs in them, to the next daemon."""
    files: FileSettings


class Adopted(NamedTuple):
    """A sandbox of an earlier daemon that goes on, with the execs that its guest has."""

    sandbox: Sandbox
    states: Mapping[int, ExecState]


@dataclass(frozen=True, kw_only=True)
class SessionFilter:
    """Which sessions a listing is about; absent means all."""

    user_id: str | None = None
    thread_id: str | None = None
    state: SessionState | None = None
    metadata: Mapping[str, str]

    def accepts(self, record: SessionRecord) -> bool:
        return (
            (self.user_id is None or record.user_id == self.user_id)
            and (self.thread_id is None or record.thread_id == self.thread_id)
            and (self.state is None or record.state == self.state)
            and self.metadata.items() <= record.metadata.items()
        )


class Session:
    """One session. `record` is what is known of it; a sandbox is there while it is active."""

    def __init__(self, record: SessionRecord, house: ExecHouse) -> None:
        self.record = record
        self.sandbox: Sandbox | None = None
        self.files: FileDesk | None = None
        """There while it is active."""
        self.has_earlier_files = False
        """Whether its workspace is that of an earlier sandbox."""
        self.execs = ExecShelf(
            house, shelf_name(record), user_id=record.user_id, on_ended=self._on_exec_ended
        )
        self._journal = house.journal
        self._last_use = time.monotonic()
        # Of one that ended under an earlier daemon, only the clock on the wall can tell.
        self._ended_at = self._last_use - max(0.0, time.time() - record.changed_at)

    def __repr__(self) -> str:
        record = self.record
        return f"<Session {record.session_id} {record.state} incarnation={record.incarnation}>"

    @property
    def id(self) -> SessionId:
        return SessionId(self.record.session_id)

    @property
    def is_active(self) -> bool:
        return self.record.state == SessionState.ACTIVE

    @property
    def is_over(self) -> bool:
        """Whether it has ended, and has nothing any more that could be ended."""
        return self.record.state in (SessionState.CLOSED, SessionState.EXPIRED)

    @property
    def seconds_left(self) -> float:
        """Until it expires, if it is not used. A running command is use, as is work on files."""
        is_used = self.execs or self.files
        idle = 0.0 if is_used else time.monotonic() - self._last_use
        return self.record.idle_seconds - idle

    @property
    def seconds_since_end(self) -> float:
        """Only of one that has ended."""
        return time.monotonic() - self._ended_at

    def touch(self) -> None:
        self._last_use = time.monotonic()

    def end(self, record: SessionRecord) -> None:
        """It has ended, as the record says."""
        self.record = record
        self._ended_at = time.monotonic()

    def start_exec(self, spec: ExecSpec, decision: str = ALLOWED) -> tuple[Exec, bool]:
        """Start a command once; False if it is there already."""
        assert self.sandbox is not None
        if self.record.env:
            spec = replace(spec, session_env=self.record.env)
        execution, is_new = self.execs.start(spec, self.sandbox)
        if is_new:
            self._journal.on_started(self.record, execution, spec, decision)
        return execution, is_new

    def _on_exec_ended(self, execution: Exec) -> None:
        self.touch()
        self._journal.on_ended(self.record, execution)


class Sessions:
    """All sessions of this daemon."""

    def __init__(
        self,
        pool: WarmPool,
        registry: Registry,
        settings: SessionSettings,
        house: ExecHouse,
        adopted: Mapping[str, Adopted] | None = None,
    ) -> None:
        self._pool = pool
        self._registry = registry
        self._settings = settings
        self.house = house
        self._adopted = adopted or {}
        self._sessions = SessionBook[Session]()
        self._by_thread: dict[tuple[str, str], Session] = {}
        self._opening: dict[tuple[str, str], asyncio.Task[tuple[Session, Outcome]]] = {}
        self._resetting: dict[tuple[str, str], asyncio.Task[Session]] = {}
        """Never of a thread that is being opened, nor the other way round."""
        self._unwanted: dict[tuple[str, str], Belongings] = {}
        """Of sessions that were closed while they were being opened or reset."""
        self._tasks = Tasks()
        self._expiry_changed = asyncio.Event()
        self._unsaved: set[str] = set()
        self._is_saving = False
        self._leaving = asyncio.Event()
        self._farewells: dict[Session, asyncio.TimerHandle] = {}
        self._draining = False

    async def __aenter__(self) -> Sessions:
        records = await self._registry.load()
        active = [shelf_name(one) for one in records if one.session_id in self._adopted]
        self.house.sweep(shelves_on_disk(active))
        for record in sorted(records, key=lambda one: one.changed_at):
            adopted = self._adopted.get(record.session_id)
            if record.state == SessionState.ACTIVE and adopted is None:
                record = _ended(record, SessionState.LOST, "the daemon was restarted")
                self.house.journal.on_session_ended(record)
                self._unsaved.add(record.session_id)
            if record.unmoved_project_id:
                record = await self._finish_move(record)
            session = Session(record, self.house)
            self._sessions.put(session)
            if record.state != SessionState.CLOSED:
                self._by_thread[record.user_id, record.thread_id] = session
            if adopted is not None:
                self._adopt(session, adopted)
        self._tasks.spawn(self._keep_expiring(), "sessions-expiry")
        for session_id in tuple(self._unsaved):
            await self._save_end(session_id)
        self._save_ends()
        return self

    async def _finish_move(self, record: SessionRecord) -> SessionRecord:
        """Do what an earlier daemon had begun."""
        try:
            await self._pool.move_project_files(record.unmoved_project_id, record.project_id)
        except OSError as error:
            log.error("project_files.not_moved", session_id=record.session_id, error=str(error))
            return record
        self._pool.discard(Belongings(project_id=record.unmoved_project_id))
        moved = replace(record, unmoved_project_id="")
        await self._registry.save(moved)
        return moved

    def _adopt(self, session: Session, adopted: Adopted) -> None:
        sandbox = adopted.sandbox
        self._put_on(session, sandbox)
        session.execs.adopt(sandbox, adopted.states)
        sandbox.when_lost(lambda why: self._on_sandbox_lost(session, sandbox, why))
        log.info("session.adopted", session_id=session.id, execs=len(session.execs))

    async def __aexit__(self, *_: object) -> None:
        await self.shut_down(0.0)
        self._tasks.cancel("sessions-expiry")
        self._leaving.set()
        await self._tasks.finish()
        # Or these would write and delete later, where the process goes on.
        for session in tuple(self._farewells):
            self._forget_execs(session)
        for session in self._sessions:
            session.execs.close()

    def drain(self) -> None:
        """Take no new sessions and no new commands."""
        self._draining = True

    async def shut_down(self, grace_seconds: float) -> None:
        """Take nothing new, let running commands end for a while, then end every session.

        Each is remembered as lost, so that its next open says so; its commands end with an exit
        that their callers still hear. Where sessions outlive the daemon, they are left as they are,
        and only those commands are waited for that nobody could ask for by their id afterwards.
        """
        self.drain()
        is_kept = self._settings.outlive_the_daemon
        running = [
            execution
            for session in self._sessions
            for execution in session.execs.running.values()
            if not (is_kept and execution.facts.is_chosen)
        ]
        if running and grace_seconds > 0:
            ends = [asyncio.ensure_future(execution.ended()) for execution in running]
            _, pending = await asyncio.wait(ends, timeout=grace_seconds)
            for end in pending:
                end.cancel()
        if is_kept:
            await self._leave_for_the_next()
            return
        being_made = self._being_made
        for task in being_made:
            task.cancel()
        if being_made:
            await asyncio.wait(being_made)
        for session in self._sessions.present:
            if session.is_active:
                self._end(session, SessionState.LOST, "the daemon was stopped")

    async def _leave_for_the_next(self) -> None:
        """What is being opened is finished; what is open is written down."""
        if self._being_made:
            await asyncio.wait(self._being_made, timeout=OPENING_SECONDS)
        for session in self._sessions:
            session.execs.close()

    @property
    def _being_made(self) -> Sequence[asyncio.Task[Any]]:
        return [*self._opening.values(), *self._resetting.values()]

    @property
    def is_draining(self) -> bool:
        return self._draining

    @property
    def active_count(self) -> int:
        return sum(session.is_active for session in self._sessions.present)

    @property
    def running_exec_count(self) -> int:
        return sum(len(session.execs) for session in self._sessions)

    @property
    def unsaved_count(self) -> int:
        """Sessions whose end is not in the registry yet."""
        return len(self._unsaved)

    # --- open ---

    async def open(
        self,
        user_id: str,
        thread_id: str,
        *,
        idle_seconds: float | None,
        metadata: Mapping[str, str],
        env: Mapping[str, str] | None = None,
    ) -> tuple[Session, Outcome]:
        """Get or create the session of a thread; racing callers share one creation."""
        current_caller().check_acts_for(user_id)
        began = time.monotonic()
        opened, outcome = await self._open(
            (user_id, thread_id), _Wanted(idle_seconds, metadata, env or {})
        )
        seconds = time.monotonic() - began
        self.house.journal.on_opened(opened.record, outcome.name, seconds)
        return opened, outcome

    async def _open(self, key: tuple[str, str], wanted: _Wanted) -> tuple[Session, Outcome]:
        self._refuse_if_draining()
        while (resetting := self._resetting.get(key)) is not None:
            await asyncio.wait([resetting])
        session = self._by_thread.get(key)
        if session is not None and session.is_active and key not in self._opening:
            return await self._attach(session, wanted)
        opening = self._opening.get(key)
        if opening is not None:
            opened, _ = await self._made_by(opening)
            return await self._attach(opened, wanted)
        opening = asyncio.get_running_loop().create_task(
            self._create(key, wanted), name="session-open"
        )
        self._opening[key] = opening
        opening.add_done_callback(lambda task: self._on_opened(key, task))
        return await self._made_by(opening)

    async def _made_by(self, task: asyncio.Task[T]) -> T:
        try:
            # Shielded: a caller that gives up must not take the session away from the others.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # by the shutdown, not by our caller
                self._refuse_if_draining()
            raise

    def _on_opened(self, key: tuple[str, str], task: asyncio.Task[tuple[Session, Outcome]]) -> None:
        del self._opening[key]
        self._discard_unwanted(key)
        _look_at(task)

    async def _create(self, key: tuple[str, str], wanted: _Wanted) -> tuple[Session, Outcome]:
        self._check_room_of(key[0])
        earlier = self._by_thread.get(key)
        kept = belongings_of(earlier.record) if earlier else Belongings()
        sandbox = await self._pool.acquire(kept, user_id=key[0])
        is_kept = _is_on(sandbox, kept)
        try:
            now = time.time()
            before = earlier.record if earlier else None
            record = SessionRecord(
                session_id=before.session_id if before else f"ses_{secrets.token_hex(12)}",
                user_id=key[0],
                thread_id=key[1],
                state=SessionState.ACTIVE,
                incarnation=before.incarnation + 1 if before else 1,
                created_at=before.created_at if before else now,
                changed_at=now,
                idle_seconds=wanted.idle_seconds or self._settings.idle_seconds,
                metadata={**(before.metadata if before else {}), **wanted.metadata},
                env={**(before.env if before else {}), **wanted.env},
            )
            record = await self._move_in(record, sandbox, kept)
        except BaseException:
            self._pool.release(sandbox, keep=is_kept)
            raise
        if earlier is not None and earlier.record.state == SessionState.CLOSED:
            self._pool.release(sandbox, keep=is_kept)
            self._tasks.spawn(self._registry.save(earlier.record), "session-save")
            return await self._create(key, wanted)
        if earlier is not None:
            earlier.execs.delete()  # of another incarnation
        session = self._install(record, sandbox)
        session.has_earlier_files = is_kept
        outcome = Outcome.RECREATED if earlier else Outcome.CREATED
        log.info("session.opened", session_id=session.id, outcome=outcome.name.lower())
        return session, outcome

    async def _move_in(
        self, record: SessionRecord, sandbox: Sandbox, kept: Belongings
    ) -> SessionRecord:
        """Write down that a session is on this sandbox, which gets the project files from before.

        Written down first: a daemon that starts after a crash finishes the move.
        """
        owned = sandbox.belongings
        is_moving = kept.project_id not in ("", owned.project_id)
        record = replace(
            record,
            disk_id=owned.disk.id if owned.disk else "",
            uid=sandbox.uid,
            sandbox_id=sandbox.id,
            project_id=owned.project_id,
            unmoved_project_id=kept.project_id if is_moving else "",
        )
        await self._registry.save(record)
        if not is_moving:
            return record
        await self._pool.move_project_files(kept.project_id, owned.project_id)
        self._pool.discard(Belongings(project_id=kept.project_id))
        moved = replace(record, unmoved_project_id="")
        self._tasks.spawn(self._registry.save(moved), "session-save")
        return moved

    def _install(self, record: SessionRecord, sandbox: Sandbox) -> Session:
        """From here on the session is on this sandbox; SandboxLost if it is lost by now."""
        session = Session(record, self.house)
        self._put_on(session, sandbox)
        self._sessions.put(session)
        self._by_thread[record.user_id, record.thread_id] = session
        sandbox.when_lost(lambda why: self._on_sandbox_lost(session, sandbox, why))
        if not session.is_active:
            raise SandboxLost(session.record.end_reason)
        self._expiry_changed.set()
        return session

    async def _attach(self, session: Session, wanted: _Wanted) -> tuple[Session, Outcome]:
        session.touch()
        record = session.record
        changed = replace(
            record,
            idle_seconds=wanted.idle_seconds or record.idle_seconds,
            metadata={**record.metadata, **wanted.metadata},
            env={**record.env, **wanted.env},
        )
        if changed != record:
            session.record = changed
            self._expiry_changed.set()
            await self._registry.save(changed)
        return session, Outcome.ATTACHED

    def _put_on(self, session: Session, sandbox: Sandbox) -> None:
        session.sandbox = sandbox
        project_dir = self._pool.project_dir(sandbox)
        files = WorkspaceFiles(sandbox, self._settings.files, project_dir)
        session.files = FileDesk(files, on_use=session.touch)

    # --- reset ---

    async def reset(self, session_id: str, *, incarnation: int = 0) -> Session:
        """Give a session a fresh sandbox, of which only the project files are not new.

        Racing callers share one reset. An incarnation of 0 means any.
        """
        self._refuse_if_draining()
        key = _thread_of(self.get(session_id))
        while (opening := self._opening.get(key)) is not None:
            await asyncio.wait([opening])
        session = self.get(session_id)
        _check_incarnation(session, incarnation)
        _check_open(session)
        resetting = self._resetting.get(key)
        if resetting is None:
            resetting = asyncio.get_running_loop().create_task(
                self._reset(session), name="session-reset"
            )
            self._resetting[key] = resetting
            resetting.add_done_callback(_look_at)
        return await self._made_by(resetting)

    async def _reset(self, session: Session) -> Session:
        try:
            sandbox = await self._acquire_instead(session)
            return await _to_its_end(self._swap(session, sandbox))
        finally:
            # Here and not in a callback: whoever comes next has seen the new sandbox.
            key = _thread_of(session)
            del self._resetting[key]
            self._discard_unwanted(key)

    async def _acquire_instead(self, session: Session) -> Sandbox:
        """A sandbox to replace that of a session, which goes first if there may be no more."""
        user_id = session.record.user_id
        has_one = session.sandbox is not None
        patience = Patience.NONE if has_one else Patience.QUEUES
        try:
            return await self._pool.acquire(user_id=user_id, patience=patience)
        except PoolExhausted:
            if session.sandbox is None:
                raise
        self._stop(session, SessionState.LOST, RESET)
        await self._registry.save(session.record)
        return await self._pool.acquire(user_id=user_id, patience=Patience.GOES_FIRST)

    async def _swap(self, session: Session, sandbox: Sandbox) -> Session:
        if session.is_active:
            self._stop(session, SessionState.LOST, RESET)
        kept = belongings_of(session.record)
        try:
            _check_open(session)
            record = replace(
                session.record,
                state=SessionState.ACTIVE,
                incarnation=session.record.incarnation + 1,
                changed_at=time.time(),
                end_reason="",
            )
            record = await self._move_in(record, sandbox, kept)
            _check_open(session)
        except BaseException:
            self._pool.release(sandbox)
            self._tasks.spawn(self._registry.save(session.record), "session-save")
            raise
        self._pool.discard(Belongings(disk=kept.disk))
        self._say_farewell(session)
        fresh = self._install(record, sandbox)
        self.house.journal.on_reset(record)
        log.info("session.reset", session_id=session.id, incarnation=record.incarnation)
        return fresh

    # --- use ---

    def get(self, session_id: str) -> Session:
        """The session, whatever its state. Another user's is told like one that never was."""
        session = self._sessions.get(session_id)
        is_seen = current_caller().sees(session.record.user_id if session else "")
        if session is None or not is_seen:
            raise SessionNotFound(session_id)
        return session

    def list(
        self, wanted: SessionFilter, *, page_size: int, page_token: str
    ) -> tuple[Sequence[Session], str]:
        """A page of sessions, oldest first, and the token of the next page."""
        after = _decode_token(page_token)
        caller = current_caller()
        ordered = sorted(
            (
                session
                for session in self._sessions
                if caller.sees(session.record.user_id) and wanted.accepts(session.record)
            ),
            key=_order,
        )
        rest = [session for session in ordered if after is None or _order(session) > after]
        page = rest[:page_size]
        return page, _encode_token(_order(page[-1])) if len(rest) > page_size else ""

    def touch(self, session_id: str) -> Session:
        session = self._active(session_id)
        session.touch()
        return session

    def start_exec(
        self, session_id: str, spec: ExecSpec, *, incarnation: int = 0, decision: str = ALLOWED
    ) -> tuple[Exec, bool]:
        """Start a command once in an active session; False if it is there already.

        An incarnation of 0 means any. The decision is why it may run, for the audit log.
        """
        self._refuse_if_draining()
        session = self._active(session_id)
        _check_incarnation(session, incarnation)
        session.touch()
        return session.start_exec(spec, decision)

    @asynccontextmanager
    async def file_work(self, session_id: str, *, incarnation: int = 0) -> AsyncIterator[FileDesk]:
        """Work on the files of an active session. What the session does not live to see the end of
        has failed, whatever came of it."""
        self._refuse_if_draining()
        session = self._active(session_id)
        _check_incarnation(session, incarnation)
        assert session.files is not None
        try:
            with session.files.at_work():
                yield session.files
        except (FileWorkInterrupted, SandboxLost):
            if session.is_active:
                # A sandbox that dies takes its workers with it; which is heard first is chance.
                await asyncio.sleep(LOSS_SECONDS)
            _check_active(session)
            raise
        _check_active(session)

    def find_exec(self, session_id: str, exec_id: str) -> Exec:
        """An exec, running or ended, also of a session that was lost meanwhile."""
        session = self.get(session_id)
        try:
            return session.execs.find(exec_id)
        except ExecNotFound:
            self._active(session_id)
            raise

    def _active(self, session_id: str) -> Session:
        session = self.get(session_id)
        _check_active(session)
        return session

    # --- ends ---

    def close(self, session_id: str) -> Session:
        """End a session for good; one that has ended already stays as it is, but closed."""
        session = self.get(session_id)
        if session.record.state != SessionState.CLOSED:
            self._end(session, SessionState.CLOSED, "it was closed")
            self._by_thread.pop(_thread_of(session), None)
        return session

    async def written(self, session_id: str) -> None:
        """Return when the end of a session is in the registry, or will be tried on and on."""
        if session_id in self._unsaved and not await self._save_end(session_id):
            self._save_ends()

    def _say_farewell(self, session: Session) -> None:
        """Forget the execs of an ended session. Not at once: whoever reads hears the end first."""
        loop = asyncio.get_running_loop()
        self._farewells[session] = loop.call_later(FAREWELL_SECONDS, self._forget_execs, session)

    def _forget_execs(self, session: Session) -> None:
        self._farewells.pop(session).cancel()
        session.execs.delete()

    def _end(self, session: Session, state: SessionState, why: str) -> None:
        """End a session. Its files stay if its sandbox was lost: it may be opened again."""
        self._stop(session, state, why)
        if state != SessionState.LOST:
            self._say_farewell(session)
        self._unsaved.add(session.id)
        self._save_ends()
        self.house.journal.on_session_ended(session.record)
        log.info("session.ended", session_id=session.id, state=state.value, why=why)

    def _stop(self, session: Session, state: SessionState, why: str) -> None:
        """End everything that runs in it, and give its sandbox up."""
        kept = belongings_of(session.record)
        session.end(_ended(session.record, state, why))
        self._sessions.put(session)
        session.execs.end_all(Reason.SESSION_CLOSED)
        if session.files is not None:
            session.files.close()
            session.files = None
        sandbox, session.sandbox = session.sandbox, None
        if sandbox is not None:
            sandbox.cut_off(why)
            self._pool.release(sandbox, keep=state == SessionState.LOST)
        elif state != SessionState.LOST:
            self._discard(_thread_of(session), kept)

    def _discard(self, key: tuple[str, str], kept: Belongings) -> None:
        """Delete files of an ended session, when whoever is about to take them over has."""
        if key in self._opening or key in self._resetting:
            self._unwanted[key] = kept
        else:
            self._pool.discard(kept)

    def _discard_unwanted(self, key: tuple[str, str]) -> None:
        if (kept := self._unwanted.pop(key, None)) is not None:
            self._pool.discard(kept)

    def _save_ends(self) -> None:
        if self._unsaved and not self._is_saving:
            self._is_saving = True
            self._tasks.spawn(self._keep_saving_ends(), "session-save")

    async def _keep_saving_ends(self) -> None:
        """Write down how sessions ended, again and again until all are, or the daemon leaves."""
        while True:
            is_last = self._leaving.is_set()
            failed = [one for one in tuple(self._unsaved) if not await self._save_end(one)]
            if is_last or not self._unsaved:
                break
            if failed:
                with suppress(TimeoutError):
                    async with asyncio.timeout(SAVE_AGAIN_SECONDS):
                        await self._leaving.wait()
        self._is_saving = False
        if self._unsaved:
            log.error("sessions.ends_not_saved", session_ids=sorted(self._unsaved))

    async def _save_end(self, session_id: str) -> bool:
        session = self._sessions.get(session_id)
        if session is not None and not session.is_active:
            key = _thread_of(session)
            if key in self._opening or key in self._resetting:
                return False  # its next incarnation may be saved right now, and must stay
            self._unsaved.discard(session_id)
            try:
                await self._registry.save(session.record)
            except Exception as error:  # whatever the registry suffers from, it may get well
                log.error("session.end_not_saved", session_id=session_id, error=str(error))
                self._unsaved.add(session_id)
                return False
            except asyncio.CancelledError:
                self._unsaved.add(session_id)
                self._save_ends()
                raise
        self._unsaved.discard(session_id)
        return True

    def _on_sandbox_lost(self, session: Session, sandbox: Sandbox, why: str) -> None:
        if session.sandbox is sandbox:
            self._end(session, SessionState.LOST, why)

    async def _keep_expiring(self) -> None:
        """End sessions whose idle time is over, and forget those that ended long ago."""
        while True:
            # Before the look: whatever changes from here on calls for another.
            self._expiry_changed.clear()
            active = [session for session in self._sessions.present if session.is_active]
            for session in active:
                if session.seconds_left <= 0:
                    idle = session.record.idle_seconds
                    self._end(session, SessionState.EXPIRED, f"was not used for {idle:g} s")
            try:
                await self._forget_old()
            except Exception as error:  # whatever the registry suffers from, expiry has to go on
                log.error("sessions.forgetting_failed", exc_info=error)
            for session in self._sessions.present:
                session.execs.forget_old()
            left = [session.seconds_left for session in active if session.is_active]
            left += self._expire_lost()
            try:
                # Use only moves an expiry on, so the earliest one is a safe time to look again; a
                # new or changed session wakes us.
                async with asyncio.timeout(max(0.05, min([*left, 60.0]))):
                    await self._expiry_changed.wait()
            except TimeoutError:
                pass  # time to look again

    def _expire_lost(self) -> Sequence[float]:
        """A lost session keeps its files as long as it would have lived unused; returns how long
        each of the others has left."""
        left = []
        for session in self._sessions.present:
            record = session.record
            if record.state == SessionState.LOST and _has_files(record):
                seconds = record.idle_seconds - session.seconds_since_end
                key = _thread_of(session)
                if seconds > 0 or key in self._opening or key in self._resetting:
                    left.append(max(seconds, 1.0))
                else:
                    why = f"was lost and not opened again for {record.idle_seconds:g} s"
                    self._end(session, SessionState.EXPIRED, why)
        return left

    async def _forget_old(self) -> None:
        seconds = self._settings.memory_seconds
        old = [
            session
            for session in self._sessions.present
            if not session.is_active
            and not _has_files(session.record)  # with files it has to expire first
            and session.seconds_since_end > seconds
        ]
        old += self._sessions.outdated(seconds=seconds, count=self._settings.max_remembered)
        # Not while it is opened again: that has written it down anew, or is about to.
        busy = {*self._opening, *self._resetting}
        old = [session for session in old if _thread_of(session) not in busy]
        for session in old:
            session.execs.delete()
            self._sessions.remove(session)
            key = _thread_of(session)
            if self._by_thread.get(key) is session:
                del self._by_thread[key]
        if old:
            await self._registry.forget([session.id for session in old])

    def _check_room_of(self, user_id: str) -> None:
        """Refuse another session, counting those that are being opened, this one among them."""
        limit = self._settings.max_of_user
        if not limit:
            return
        of_user = {key for key in self._opening if key[0] == user_id}
        of_user |= {
            key for key, one in self._by_thread.items() if key[0] == user_id and one.is_active
        }
        if len(of_user) > limit:
            raise SessionLimitReached(limit)

    def _refuse_if_draining(self) -> None:
        if self._draining:
            raise Draining("The daemon is shutting down; try again.", retry_after_seconds=5.0)


class _Wanted(NamedTuple):
    """What an open asks for."""

    idle_seconds: float | None
    metadata: Mapping[str, str]
    env: Mapping[str, str]


def shelf_name(record: SessionRecord) -> str:
    """Under which the execs of this incarnation are kept."""
    return f"{record.session_id}.{record.incarnation}"


def belongings_of(record: SessionRecord) -> Belongings:
    """What holds the files of a session."""
    # Without an owner there is nobody a disk could be given to.
    has_disk = record.disk_id and record.uid
    disk = Disk(id=record.disk_id, uid=record.uid) if has_disk else None
    return Belongings(disk=disk, project_id=record.project_id)


def _has_files(record: SessionRecord) -> bool:
    return bool(record.disk_id or record.project_id)


def _is_on(sandbox: Sandbox, kept: Belongings) -> bool:
    return kept.disk is not None and sandbox.disk == kept.disk


def _thread_of(session: Session) -> tuple[str, str]:
    return session.record.user_id, session.record.thread_id


def _check_incarnation(session: Session, asked: int) -> None:
    current = session.record.incarnation
    if asked and asked != current:
        raise SessionRecreated(session.id, asked=asked, current=current)


def _check_active(session: Session) -> None:
    match session.record.state:
        case SessionState.ACTIVE:
            pass
        case SessionState.CLOSED:
            raise SessionClosed(session.id)
        case SessionState.EXPIRED:
            raise SessionExpired(session.id, session.record.end_reason)
        case SessionState.LOST:
            raise SandboxLost(session.record.end_reason)


def _check_open(session: Session) -> None:
    if session.record.state == SessionState.CLOSED:
        raise SessionClosed(session.id)


def _look_at(task: asyncio.Task[Any]) -> None:
    """See its error: every caller may have given up."""
    if not task.cancelled():
        task.exception()


async def _to_its_end(work: Coroutine[None, None, T]) -> T:
    """Finish work that must not be left half done; a cancel is raised after it."""
    task = asyncio.get_running_loop().create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        _look_at(task)
        raise


def _ended(record: SessionRecord, state: SessionState, why: str) -> SessionRecord:
    ended = replace(record, state=state, changed_at=time.time(), end_reason=why)
    return ended if state == SessionState.LOST else replace(ended, disk_id="", project_id="")


def _order(session: Session) -> tuple[float, str]:
    return session.record.created_at, session.record.session_id


def _encode_token(position: tuple[float, str]) -> str:
    return base64.urlsafe_b64encode(f"{position[0]!r} {position[1]}".encode()).decode()


def _decode_token(token: str) -> tuple[float, str] | None:
    if not token:
        return None
    try:
        created_at, _, session_id = base64.urlsafe_b64decode(token).decode().partition(" ")
        return float(created_at), session_id
    except (ValueError, binascii.Error):
        raise InvalidRequest("page_token", "use the token of the page before, unchanged") from None
