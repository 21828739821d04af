"""What must outlive the process: the contracts for sessions and for the history of commands."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, NewType, Protocol


class SessionState(StrEnum):
    ACTIVE = "active"
    EXPIRED = "expired"
    LOST = "lost"
    CLOSED = "closed"
    PARKED = "parked"
    """It gave up its sandbox, and its files are in a snapshot."""
    STOPPED = "stopped"
    """What callers are told of one that is lost but for its files, which are on a disk. Never in a
    record: that the disk is there is known when it is asked for."""


@dataclass(frozen=True, kw_only=True)
class SessionRecord:
    """What is known of a session, active or ended."""

    session_id: str
    user_id: str
    thread_id: str
    state: SessionState
    incarnation: int
    created_at: float
    """Seconds since the epoch."""
    changed_at: float
    """When the state last changed, seconds since the epoch."""
    idle_seconds: float
    metadata: Mapping[str, str] = field(default_factory=dict)
    end_reason: str = ""
    disk_id: str = ""
    """The disk that holds its files; empty when there is none."""
    uid: int = 0
    """User id of its sandbox; 0 when it never had one."""
    sandbox_id: str = ""
    """Its sandbox, or its last one."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of all its commands."""
    project_id: str = ""
    """Directory of its own project files; empty when there is none."""
    unmoved_project_id: str = ""
    """Directory that its project files are still to be moved from, after a crash during a move."""
    environment: str = "default"
    """Name of its environment; that of all sessions of releases which had only one."""
    project: str = ""
    """Project of its user whose files it sees in place of its own; empty when there is none."""
    packages: Sequence[str] = ()
    """Packages that it added to its environment, as they were requested, sorted."""
    env_vars: Mapping[str, str] = field(default_factory=dict)
    """Variables that it added to its environment; `env` overrides them."""
    package_set: str = ""
    """Key of the set that holds its packages; empty when it has none."""
    command_policy: str = ""
    """Name of the command policy that was requested; empty means that of its environment."""
    data_sources: Sequence[str] = ()
    """Names of the data sources that it may query, sorted."""
    auto_snapshot: str = "off"
    """Which automatic snapshots it gets."""
    park_seconds: float = 0.0
    """Idle time after which it is parked; 0 means never."""
    parked_number: int = 0
    """Snapshot that holds its files while it is parked; 0 in any other state."""
    restored_number: int = 0
    """Snapshot that its workspace was last restored from; 0 if it never was."""
    restore_request: str = ""
    """Id of the request that last rewound it; empty if that had none."""
    forked_from: str = ""
    """Session that it was forked from; empty if it is no fork."""
    fork_request: str = ""
    """Id of the request that made the fork; empty if that had none."""
    egress: Sequence[str] | None = None
    """Rules of egress that were requested; None means those of its environment."""
    epoch: int = 0
    """Number of its owner among the workers of a cluster; 0 without one."""
    disk_uid: int = 0
    """User id that owns its files on the disk; 0 means that of its sandbox."""

    @property
    def disk_owner(self) -> int:
        """User id that owns its files on the disk."""
        return self.disk_uid or self.uid


class ExecutionRecord(NamedTuple):
    """A command that has ended."""

    session_id: str
    incarnation: int
    exec_id: str
    command: str
    """The command, shortened."""
    started_at: float
    """Seconds since the epoch."""
    duration_seconds: float
    ending: str
    """Name of the reason."""
    code: int | None
    signal: int | None
    hint: str
    stdin_bytes: int
    stdout_bytes: int
    stderr_bytes: int
    stdout_dropped: int
    stderr_dropped: int
    cpu_seconds: float | None
    """Absent, as the other figures of use, if the host could not read it."""
    peak_memory_bytes: int | None
    peak_processes: int | None
    oom_kills: int | None
    refused_forks: int | None
    context: str = ""
    """Context that the code ran in; empty for a command."""
    place: int = 0
    """Its number in the store; 0 before it is added."""


class ExecutionFigures(NamedTuple):
    """Figures of the commands in the history."""

    first_started_at: float | None
    """Seconds since the epoch; absent without commands, when all other figures are 0."""
    ends: Mapping[str, int]
    """Commands by the name of their ending."""
    succeeded: int
    """Commands that returned 0."""
    mean_seconds: float
    longest_seconds: float
    quantiles: Mapping[float, float]
    """Durations in seconds that these shares of all commands did not exceed."""

    @property
    def total(self) -> int:
        return sum(self.ends.values())

    @property
    def success_rate(self) -> float:
        """Share of commands that returned 0; 1 without commands."""
        return self.succeeded / self.total if self.total else 1.0


Fence = NewType("Fence", int)
"""Number of a session's owner: higher than that of every owner before."""
SOLE_OWNER = Fence(0)
"""Fence of a daemon that shares its sessions with no other."""


class SessionRegistry(Protocol):
    """Keeps the records of one daemon's sessions. An answered save survives the process.

    Where daemons share a registry, each session has one owner at a time. A daemon that was taken
    for dead may still write, so each save names the fence under which the writer owns the session.
    """

    async def load(self) -> Sequence[SessionRecord]:
        """Every record, in the order of creation."""
        ...

    async def save(self, record: SessionRecord, *, fence: Fence = SOLE_OWNER) -> None:
        """Keep a record in place of any earlier one of its session.

        StateNotSaved, with nothing changed, if that fails or if the fence is not the latest.
        """
        ...

    async def delete(self, session_ids: Collection[str]) -> None:
        """Delete these sessions, as far as this daemon owns them, with all that is kept of them."""
        ...

    async def ping(self) -> None:
        """Return when it answers, even with an error; the caller sets the time limit."""
        ...

    async def aclose(self) -> None: ...


class HistoryStore(Protocol):
    """Keeps the records of ended commands."""

    async def add_executions(
        self, records: Sequence[ExecutionRecord], *, per_session: int, in_all: int
    ) -> None:
        """Keep these; then delete the oldest beyond so many of each session, and of all."""
        ...

    async def executions(
        self, session_id: str, *, size: int, before: int | None
    ) -> list[ExecutionRecord]:
        """Commands of a session, newest first, from below this place."""
        ...

    async def execution_figures(self, quantiles: Sequence[float]) -> ExecutionFigures:
        """Figures of all records that are kept."""
        ...
