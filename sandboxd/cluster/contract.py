"""Who owns a session when several daemons share them: the contract of a directory.

A worker is a daemon of a cluster. A session has one owner at a time, and every change of the owner
gets a higher epoch. Whoever writes for a session names the epoch under which it was told that the
session is its own; a write with an older one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True)
class ThreadKey:
    """What a session is for."""

    user_id: str
    thread_id: str


class Origin(StrEnum):
    """How a session came to the worker that claimed it."""

    NEW = "new"
    """There was none for this thread."""
    KNOWN = "known"
    """It was the worker's own already, under the same epoch."""
    PARKED = "parked"
    """Its owner had released it; its files are in `head`, if that is not empty."""
    TAKEN = "taken"
    """Its owner is lost, or has forgotten it; what it did since `head` is gone."""


@dataclass(frozen=True, kw_only=True)
class Mine:
    """The worker that asked owns the session."""

    session_id: str
    epoch: int
    """Higher than that of every owner before; 0 without a cluster."""
    head: str = ""
    """What was committed last; empty if nothing was."""
    seq: int = 0
    """Number of that commit."""
    origin: Origin = Origin.KNOWN


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """Another worker owns the session."""

    session_id: str
    worker: str
    address: str
    epoch: int


@dataclass(frozen=True)
class ClaimWaits:
    """Nobody may become the owner yet: a worker that may own it has still to report."""

    retry_after_seconds: float


class PlaceState(StrEnum):
    HELD = "held"
    LOST = "lost"
    """Its owner is lost: the next claim takes it."""
    PARKED = "parked"
    CLOSED = "closed"


@dataclass(frozen=True, kw_only=True)
class Place:
    """What the directory knows of a session."""

    session_id: str
    worker: str
    """Its owner; the last one if it is parked or closed."""
    address: str
    """Where to reach that worker; empty if it is not known any more."""
    epoch: int
    state: PlaceState
    head: str = ""
    seq: int = 0


class WorkerState(StrEnum):
    READY = "ready"
    DRAINING = "draining"
    LOST = "lost"
    """It has not renewed its lease, so that others may take its sessions."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a worker reports of itself for placement."""

    warm: int = 0
    """Sandboxes that wait for a session."""
    used: int = 0
    """Sandboxes that have one."""
    starting: int = 0
    """Sandboxes for which somebody waits."""
    capacity: int = 0
    environments: Collection[str] = ()
    """Names of environments that are ready there."""
    package_sets: Collection[str] = ()
    """Keys of sets of packages that are there."""


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A worker as the others see it."""

    id: str
    address: str
    generation: int
    """How often it has registered."""
    state: WorkerState
    lease_seconds: float
    """Seconds until its lease ends; 0 if it has ended."""
    version: str = ""
    load: Load = Load()


@dataclass(frozen=True, kw_only=True)
class Holding:
    """A session that a worker believes to be its own, with what it has committed."""

    session_id: str
    thread: ThreadKey
    epoch: int
    head: str = ""
    seq: int = 0


class ReleaseState(StrEnum):
    """What becomes of a session that its owner gives up."""

    PARKED = "parked"
    CLOSED = "closed"


class Fenced(Exception):
    """The session is not, or no longer, the worker's own: nothing was changed. Let go of it."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id} belongs to another worker")
        self.session_id = session_id


class OwnershipUnknown(Exception):
    """The directory cannot say at the moment who owns a session. Nothing may be assumed."""

    def __init__(self, why: str, retry_after_seconds: float) -> None:
        super().__init__(why)
        self.retry_after_seconds = retry_after_seconds


class WorkerIdTaken(Exception):
    """Another machine runs a worker of this id."""


class Directory(Protocol):
    """Knows the owner of every session. All of it can be called at once, and cancelled."""

    @property
    def worker_id(self) -> str: ...

    @property
    def is_serving(self) -> bool:
        """Whether this worker may serve the sessions it holds, at this moment."""
        ...

    @property
    def state(self) -> WorkerState:
        """READY, or DRAINING if this worker shall get no new sessions."""
        ...

    def holds(self, session_id: str) -> bool:
        """Whether it may serve this one. Asks nobody, so it can precede every call."""
        ...

    def when_fenced(self, call: Callable[[], None]) -> None:
        """Call this when it may no longer serve: pause sandboxes, refuse calls."""
        ...

    def when_serving(self, call: Callable[[], None]) -> None:
        """Call this when it may serve, first or again: what `when_lost` did not name is its own."""
        ...

    def when_lost(self, call: Callable[[Sequence[str]], None]) -> None:
        """Call this with sessions that others own now: end their sandboxes, without a commit."""
        ...

    async def start(self, holdings: Sequence[Holding] = ()) -> None:
        """Join the cluster with the sessions that the daemon had before.

        Returns when that was tried; it goes on in the background if the directory does not
        answer. WorkerIdTaken if another machine runs under this id.
        """
        ...

    async def stop(self, *, leaves: bool = False) -> None:
        """Stop renewing. A worker that leaves, which must hold nothing, is forgotten."""
        ...

    async def claim(
        self,
        thread: ThreadKey,
        *,
        wanted_session_id: str | None = None,
        takes_from_lost: bool = True,
    ) -> Mine | Elsewhere | ClaimWaits:
        """Own the session of this thread; a new one, with the wanted id, if there is none.

        OwnershipUnknown if the directory does not answer, or this worker may not serve.
        """
        ...

    async def find(self, session_id: str, *, is_certain: bool = True) -> Place | None:
        """What is known of a session; None if nothing is. OwnershipUnknown.

        What need not be certain costs no write, and may lack the last changes after a failover.
        """
        ...

    async def find_thread(self, thread: ThreadKey) -> Place | None:
        """The same for the session of a thread. OwnershipUnknown."""
        ...

    async def commit(self, session_id: str, epoch: int, head: str, seq: int) -> None:
        """From now on whoever takes the session continues from this. Fenced, OwnershipUnknown.

        A number that is not higher than the last one changes nothing.
        """
        ...

    async def release(
        self,
        session_id: str,
        epoch: int,
        state: ReleaseState,
        *,
        keep_seconds: float,
        head: str | None = None,
        seq: int | None = None,
    ) -> None:
        """Give the session up, and keep what is known of it for so long.

        Fenced, OwnershipUnknown; after the latter it is still the worker's own: try again.
        """
        ...

    async def workers(self) -> Sequence[Worker]:
        """All workers that are known, by id. OwnershipUnknown."""
        ...

    def announce(self, load: Load) -> None:
        """Report this with the next renewal."""
        ...

    async def set_state(self, state: WorkerState) -> None:
        """Report that it drains, or is ready again, now. OwnershipUnknown; it is repeated."""
        ...

    async def fence(self, worker_id: str) -> None:
        """An operator declares a worker lost whose lease has ended, however many others are.

        OwnershipUnknown if its lease may still run, or nobody answers.
        """
        ...
