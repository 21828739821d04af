"""What sessions ask of a registry."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol


class SessionState(StrEnum):
    ACTIVE = "active"
    EXPIRED = "expired"
    LOST = "lost"
    CLOSED = "closed"


@dataclass(frozen=True, kw_only=True)
class SessionRecord:
    """What is known of a session, whether it lives or not."""

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
    """Of its sandbox, and so the owner of its files."""
    sandbox_id: str = ""
    """The sandbox it has, or had last."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of all its commands."""
    project_id: str = ""
    """Directory of its project files; empty when there is none."""
    unmoved_project_id: str = ""
    """Where project files are still to be moved from, if the daemon died while it did that."""


class ExecutionRecord(NamedTuple):
    """A command that has ended."""

    session_id: str
    incarnation: int
    exec_id: str
    command: str
    """In short."""
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
    """Like the other use, absent where the host could not look."""
    peak_memory_bytes: int | None
    peak_processes: int | None
    oom_kills: int | None
    refused_forks: int | None
    place: int = 0
    """Its number in the registry; 0 until it is there."""


class ExecutionFigures(NamedTuple):
    """The commands of the history, in numbers."""

    first_started_at: float | None
    """Seconds since the epoch; absent if there are none, as all that follows is 0 then."""
    ends: Mapping[str, int]
    """By the name of the reason."""
    succeeded: int
    """Returned 0."""
    mean_seconds: float
    longest_seconds: float
    quantiles: Mapping[float, float]
    """What these parts of all did not exceed, in seconds."""

    @property
    def total(self) -> int:
        return sum(self.ends.values())

    @property
    def success_rate(self) -> float:
        """1 if there were none."""
        return self.succeeded / self.total if self.total else 1.0


class Registry(Protocol):
    """Keeps session records. An answered save survives the process."""

    async def load(self) -> Sequence[SessionRecord]: ...

    async def save(self, record: SessionRecord) -> None: ...

    async def forget(self, session_ids: Collection[str]) -> None: ...

    async def add_executions(
        self, records: Sequence[ExecutionRecord], *, per_session: int, in_all: int
    ) -> None:
        """Keep these, and of each session and of all no more than so many, the newest."""
        ...

    async def executions(
        self, session_id: str, *, size: int, before: int | None
    ) -> list[ExecutionRecord]:
        """Newest first, those whose place is before this one."""
        ...

    async def execution_figures(self, quantiles: Sequence[float]) -> ExecutionFigures:
        """Of all that are kept."""
        ...

    async def ping(self) -> None:
        """Return when it answers, well or not: that it does not is for the caller to find out."""
        ...

    async def aclose(self) -> None: ...
