"""One session, and what is asked about it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import NewType

from sandboxd.environments.environment import Environment
from sandboxd.errors import (
    ProjectMismatch,
    SandboxLost,
    SessionClosed,
    SessionExpired,
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
from sandboxd.workspaces.disks import Disk
from sandboxd.workspaces.layout import Layout

SessionId = NewType("SessionId", str)


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
    outlive_the_daemon: bool = False
    """Whether a stop leaves them, with what runs in them, to the next daemon."""
    workspace_dir: str
    layout: Layout = Layout.SHARED


@dataclass(frozen=True, kw_only=True)
class SessionFilter:
    """Which sessions a listing is about; an absent field matches every session."""

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
    """One session. `record` is what is known of it; it has a sandbox while it is active, unless it
    is one of an earlier daemon and its sandbox is not adopted yet."""

    def __init__(
        self,
        record: SessionRecord,
        environment: Environment | None,
        shared: SharedExecState,
        journal: Journal,
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
            shared, execs_key(record), user_id=record.user_id, on_ended=self._on_exec_ended
        )
        self._journal = journal
        self._last_use = time.monotonic()
        # The monotonic clock does not know when a session of an earlier daemon ended.
        self._ended_at = self._last_use - max(0.0, time.time() - record.changed_at)

    def __repr__(self) -> str:
        record = self.record
        return f"<Session {record.session_id} {record.state} incarnation={record.incarnation}>"

    @property
    def id(self) -> SessionId:
        return SessionId(self.record.session_id)

    @property
    def thread(self) -> ThreadKey:
        return self.record.user_id, self.record.thread_id

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
    def has_files(self) -> bool:
        return bool(self.record.disk_id or self.record.project_id)

    @property
    def seconds_left(self) -> float:
        """Seconds until it expires if it is not used. Running commands and file work are use, and
        may be under way in a sandbox that is not adopted yet."""
        is_used = self.execs or self.files or self.sandbox is None
        idle = 0.0 if is_used else time.monotonic() - self._last_use
        return self.record.idle_seconds - idle

    @property
    def seconds_since_end(self) -> float:
        """Meaningful once it has ended."""
        return time.monotonic() - self._ended_at

    def usage(self) -> LiveUsage | None:
        """Resources in use now; None where they cannot be read."""
        meter = self.sandbox.meter if self.sandbox is not None else None
        return meter.now() if meter is not None else None

    def touch(self) -> None:
        self._last_use = time.monotonic()

    def place(self, sandbox: Sandbox, files: WorkspaceFiles) -> None:
        """Use this sandbox from here on."""
        self.sandbox = sandbox
        self.files = SessionFiles(files, on_use=self.touch)

    def end(self, record: SessionRecord) -> Sandbox | None:
        """End it, and everything that runs in it, as the record says; returns its sandbox."""
        self.record = record
        self._ended_at = time.monotonic()
        self.execs.end_all(Reason.SESSION_CLOSED)
        if self.files is not None:
            self.files.close()
            self.files = None
        sandbox, self.sandbox = self.sandbox, None
        return sandbox

    def start_exec(self, spec: ExecSpec, clearance: Clearance | None = None) -> tuple[Exec, bool]:
        """Start a command once; False if it is there already. CheckTakesLong if it needs a
        clearance, GuestIsBehind if there is no room for it yet."""
        assert self.sandbox is not None
        if self.record.env:
            spec = replace(spec, session_env=self.record.env)
        execution, is_new = self.execs.start(spec, self.sandbox, clearance)
        if is_new:
            self._journal.on_started(self.record, execution, spec, self.execs.decision)
        return execution, is_new

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
                raise SandboxLost(self.record.end_reason)

    def check_not_returning(self) -> None:
        if self.is_returning:
            raise SessionReturning(self.id)

    def check_not_closed(self) -> None:
        if self.is_closed:
            raise SessionClosed(self.id)

    def _on_exec_ended(self, execution: Exec) -> None:
        self.touch()
        self._journal.on_ended(self.record, execution)


def execs_key(record: SessionRecord) -> str:
    """Name under which the execs of this incarnation are kept."""
    return f"{record.session_id}.{record.incarnation}"


def kept_files_of(record: SessionRecord) -> KeptFiles:
    """What holds the files of a session."""
    # A disk without an owner could not be given to any sandbox.
    has_disk = record.disk_id and record.uid
    disk = Disk(id=record.disk_id, uid=record.uid) if has_disk else None
    return KeptFiles(disk=disk, project_id=record.project_id)
