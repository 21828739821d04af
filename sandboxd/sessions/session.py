"""One session, and what is asked about it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import NewType

from sandboxd.code.contexts import CodeRun, SessionContexts
from sandboxd.code.settings import CodeSettings
from sandboxd.environments.environment import Environment
from sandboxd.errors import (
    ProjectMismatch,
    SandboxLost,
    SessionClosed,
    SessionExpired,
    SessionParked,
    SessionRecreated,
    SessionReturning,
)
from sandboxd.execs.ending import Reason
from sandboxd.execs.exec import Exec
from sandboxd.execs.policy import Clearance
from sandboxd.execs.session_execs import SessionExecs, SharedExecState
from sandboxd.execs.spec import ExecSpec
from sandboxd.files import SessionFiles, WorkspaceFiles
from sandboxd.isolation.meter import LiveUsage
from sandboxd.registry.contract import SessionRecord, SessionState
from sandboxd.sandboxes.kept_files import KeptFiles
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sessions.book import ThreadKey
from sandboxd.sessions.journal import Journal
from sandboxd.sessions.lines import Cause, Occasion
from sandboxd.sessions.turn_ids import current_turn
from sandboxd.workspaces.disks import Disk
from sandboxd.workspaces.layout import Layout

SessionId = NewType("SessionId", str)


class Outcome(Enum):
    """How an open got its session."""

    CREATED = auto()
    ATTACHED = auto()
    RECREATED = auto()
    UNPARKED = auto()


@dataclass(frozen=True, kw_only=True)
class SessionSettings:
    idle_seconds: float
    memory_seconds: float
    """How long an ended session is remembered."""
    max_remembered: int = 10_000
    """How many ended sessions are remembered."""
    outlive_the_daemon: bool = False
    """Whether a stop leaves them, with what runs in them, to the next daemon."""
    workspace_dir: str
    layout: Layout = Layout.SHARED
    code: CodeSettings = field(default_factory=CodeSettings)


@dataclass(frozen=True, kw_only=True)
class SessionFilter:
    """Which sessions a listing is about; an absent field matches every session."""

    user_id: str | None = None
    thread_id: str | None = None
    state: SessionState | None = None
    metadata: Mapping[str, str]

    def accepts(self, session: Session) -> bool:
        record = session.record
        return (
            (self.user_id is None or record.user_id == self.user_id)
            and (self.thread_id is None or record.thread_id == self.thread_id)
            and (self.state is None or session.state == self.state)
            and self.metadata.items() <= record.metadata.items()
        )


class Session:
    """One session. `record` is what is known of it; it has a sandbox while it is active, unless it
    is one of an earlier daemon and its sandbox is not adopted yet."""

    def __init__(
        self,
        record: SessionRecord,
        environment: Environment | None,
        shared: SharedExecState,
        journal: Journal,
        code: CodeSettings | None = None,
    ) -> None:
        self.record = record
        self.environment = environment
        """Absent if this daemon does not have it; then the session is not active."""
        self.sandbox: Sandbox | None = None
        self.files: SessionFiles | None = None
        """Present while it has a sandbox."""
        self.has_earlier_files = False
        """Whether its workspace is that of an earlier sandbox."""
        self.execs = SessionExecs(
            shared,
            execs_key(record),
            user_id=record.user_id,
            on_ended=self._on_exec_ended,
            policy=record.command_policy or (environment.command_policy if environment else ""),
        )
        self.on_change: Callable[[Session, Occasion], None] = lambda session, occasion: None
        """Called when a command or a file call may have changed the workspace."""
        self.paused_because: Callable[[str], str] = lambda session_id: ""
        self.is_there: Callable[[Disk], bool] = lambda disk: True
        """Whether a disk that the record names still exists."""
        self.uses = 0
        """Counts starts and ends of commands and file calls."""
        self._changing_calls = 0
        self._turn_ids: dict[Exec, str] = {}
        self.contexts = SessionContexts(self.execs, code or CodeSettings(), shared.labels)
        self._journal = journal
        self._last_use = time.monotonic()
        # The monotonic clock does not know when a session of an earlier daemon ended.
        self._ended_at = self._last_use - max(0.0, time.time() - record.changed_at)

    def __repr__(self) -> str:
        record = self.record
        return f"<Session {record.session_id} {self.state} incarnation={record.incarnation}>"

    @property
    def id(self) -> SessionId:
        return SessionId(self.record.session_id)

    @property
    def thread(self) -> ThreadKey:
        return self.record.user_id, self.record.thread_id

    @property
    def state(self) -> SessionState:
        """What callers are told: it is lost only if its files are."""
        if self.record.state != SessionState.LOST:
            return self.record.state
        disk = kept_files_of(self.record).disk
        is_kept = disk is not None and self.is_there(disk)
        return SessionState.STOPPED if is_kept else SessionState.LOST

    @property
    def is_active(self) -> bool:
        return self.record.state == SessionState.ACTIVE

    @property
    def is_returning(self) -> bool:
        """Whether its sandbox is still to be adopted from an earlier daemon."""
        return self.is_active and self.sandbox is None

    @property
    def is_over(self) -> bool:
        """Whether it has ended and has no files left that could expire."""
        return self.record.state in (SessionState.CLOSED, SessionState.EXPIRED)

    @property
    def is_closed(self) -> bool:
        return self.record.state == SessionState.CLOSED

    @property
    def command_policy(self) -> str:
        """Name of the policy that its commands are checked with."""
        return self.execs.policy.name

    @property
    def has_files(self) -> bool:
        record = self.record
        return bool(record.disk_id or record.project_id or record.parked_number)

    @property
    def is_at_rest(self) -> bool:
        """Whether it has a sandbox in which no command runs and no file call changes anything.
        Processes that a command left behind may still run."""
        return self.sandbox is not None and not self.execs and not self._changing_calls

    @property
    def unused_seconds(self) -> float:
        """Seconds since its last use. Running commands and file work are use, and may be under way
        in a sandbox that is not adopted yet."""
        is_used = self.execs or self.files or self.sandbox is None
        return 0.0 if is_used else time.monotonic() - self._last_use

    @property
    def seconds_left(self) -> float:
        """Seconds until it expires if it is not used."""
        return self.record.idle_seconds - self.unused_seconds

    @property
    def seconds_until_parked(self) -> float | None:
        """Seconds until it is parked if it is not used; None if it never is."""
        after = self.record.park_seconds
        return after - self.unused_seconds if after else None

    @property
    def snapshots_paused_because(self) -> str:
        """Why it gets no automatic snapshots at the moment; empty if it does."""
        return self.paused_because(self.id)

    @property
    def seconds_since_end(self) -> float:
        """Meaningful once it has ended."""
        return time.monotonic() - self._ended_at

    def usage(self) -> LiveUsage | None:
        """Resources in use now; None where they cannot be read."""
        meter = self.sandbox.meter if self.sandbox is not None else None
        return meter.now() if meter is not None else None

    def touch(self) -> None:
        self.uses += 1
        self._last_use = time.monotonic()

    def place(self, sandbox: Sandbox, files: WorkspaceFiles) -> None:
        """Use this sandbox from here on."""
        sandbox.is_untouched = False
        self.sandbox = sandbox
        self.contexts.place(sandbox)
        self.files = SessionFiles(files, on_use=self.touch)

    def end(self, record: SessionRecord) -> Sandbox | None:
        """End it, and everything that runs in it, as the record says; returns its sandbox."""
        self.record = record
        self._ended_at = time.monotonic()
        self.execs.end_all(Reason.SESSION_CLOSED)
        if self.files is not None:
            self.files.close()
            self.files = None
        self.contexts.leave()
        sandbox, self.sandbox = self.sandbox, None
        return sandbox

    def start_exec(self, spec: ExecSpec, clearance: Clearance | None = None) -> tuple[Exec, bool]:
        """Start a command once; False if it is there already. CheckTakesLong if it needs a
        clearance, GuestIsBehind if there is no room for it yet."""
        assert self.sandbox is not None
        if spec.code is None and (env := self.variables):
            spec = replace(spec, session_env=env)
        execution, is_new = self.execs.start(spec, self.sandbox, clearance)
        if is_new:
            if turn_id := current_turn.get():
                self._turn_ids[execution] = turn_id
            self._journal.on_started(self.record, execution, spec, self.execs.decision)
        return execution, is_new

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables of everything that it runs."""
        doors = self.sandbox.doors.env if self.sandbox is not None else {}
        return {**doors, **self.record.env_vars, **self.record.env}

    def start_code(self, run: CodeRun) -> tuple[Exec, bool]:
        """Start a run of code once; False if it is there already. GuestIsBehind if there is no room
        for it yet."""
        try:
            return self.start_exec(self.contexts.spec(run, session_env=self.variables))
        except BaseException:
            self.contexts.forget_unused(run.context)
            raise

    async def wait_for_guest(self) -> None:
        """Return when there is room for a command."""
        assert self.sandbox is not None
        await self.execs.wait_for_guest(self.sandbox)

    def check_incarnation(self, asked: int) -> None:
        """Refuse a caller that counts on another incarnation; 0 stands for any."""
        current = self.record.incarnation
        if asked and asked != current:
            raise SessionRecreated(self.id, asked=asked, current=current)

    def check_project(self, asked: str) -> None:
        """Refuse a caller that counts on another project; an empty id stands for any."""
        if asked and asked != self.record.project:
            raise ProjectMismatch(self.id, asked=asked, current=self.record.project)

    def check_active(self) -> None:
        match self.record.state:
            case SessionState.ACTIVE:
                if self.sandbox is None:
                    raise SessionReturning(self.id)
            case SessionState.CLOSED:
                raise SessionClosed(self.id)
            case SessionState.EXPIRED:
                raise SessionExpired(self.id, self.record.end_reason)
            case SessionState.LOST:
                is_kept = self.state == SessionState.STOPPED
                raise SandboxLost(self.record.end_reason, is_kept=is_kept)
            case SessionState.PARKED:
                raise SessionParked(self.id)

    def check_not_returning(self) -> None:
        if self.is_returning:
            raise SessionReturning(self.id)

    def check_not_closed(self) -> None:
        if self.is_closed:
            raise SessionClosed(self.id)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """A file call changes the workspace for as long as the block lasts."""
        self._changing_calls += 1
        try:
            yield
        finally:
            self._changing_calls -= 1
            self.on_change(self, Occasion(cause=Cause.FILES, turn_id=current_turn.get()))

    def _on_exec_ended(self, execution: Exec) -> None:
        self.touch()
        if execution.is_code:
            self.contexts.on_ended(execution)
        if execution.details.is_internal:
            return
        self._journal.on_ended(self.record, execution)
        turn_id = self._turn_ids.pop(execution, "")
        self.on_change(self, Occasion(cause=Cause.EXEC, exec_id=execution.id, turn_id=turn_id))


def execs_key(record: SessionRecord) -> str:
    """Name under which the execs of this incarnation are kept."""
    return f"{record.session_id}.{record.incarnation}"


def kept_files_of(record: SessionRecord) -> KeptFiles:
    """What holds the files of a session."""
    # A disk without an owner could not be given to any sandbox.
    has_disk = record.disk_id and record.disk_owner
    disk = Disk(id=record.disk_id, uid=record.disk_owner) if has_disk else None
    return KeptFiles(disk=disk, project_id=record.project_id)
