"""Warm sandboxes, each for one session and then never again."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import structlog

from sandboxd.environments.environment import Environment
from sandboxd.errors import Draining, EngineFailed, PoolExhausted, SandboxdError, SandboxLost
from sandboxd.histogram import Histogram
from sandboxd.isolation.attachment import Attachment
from sandboxd.link import LinkClosed
from sandboxd.pool.demand import Demand
from sandboxd.pool.pace import StartPace
from sandboxd.pool.plan import plan_pool
from sandboxd.pool.queue import OpenQueue
from sandboxd.sandboxes.kept_files import KeptFiles
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.tasks import Tasks
from sandboxd.workspaces.disks import DiskDamaged

log = structlog.get_logger()

BACKOFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
FULL_RETRY_SECONDS = 5.0
"""Seconds after which an opener that was refused should try again."""


class Patience(Enum):
    """What an opener does when all sandboxes are in use."""

    QUEUES = auto()
    NONE = auto()
    """It is refused at once."""
    GOES_FIRST = auto()
    """It waits before all others: it has just given up a sandbox to get another."""


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    target: int
    """Warm sandboxes at the start, and the most that are kept for later openers."""
    minimum: int = 0
    """Warm sandboxes that are always kept."""
    maximum: int
    """Sandboxes in all: warm, starting and in use."""
    idle_seconds: float = 300.0
    """How long surplus warm sandboxes are kept after demand drops."""
    concurrency: int
    """The most starts at once; the actual number depends on how long they take."""
    max_queue: int = 0
    """Openers that may wait for others to close, when all sandboxes are in use."""
    wait_seconds: float
    """How long an opener waits for a sandbox."""
    health_seconds: float


@dataclass(frozen=True, kw_only=True)
class PoolFigures:
    """The pool in numbers."""

    environment: str
    warm: int
    starting: int
    in_use: int
    waiting: int
    oldest_wait_seconds: float
    """Age of the oldest wait there is now; 0 if nobody waits."""
    target: int
    minimum: int
    maximum: int
    max_queue: int
    concurrency: int
    """Starts that may run at once, by what the machine has shown so far."""
    hits: int
    misses: int
    gave_up: int
    """Openers that waited until their time was up."""
    refused: int
    """Openers that were not allowed to wait."""
    failed_starts: int
    last_error: str
    waits: Histogram
    """Waiting times of openers that got a sandbox."""
    starts: Histogram
    """Starting times of sandboxes."""

    @property
    def hit_rate(self) -> float:
        """The share of openers that got a warm sandbox; 1 if there were none."""
        opens = self.hits + self.misses
        return self.hits / opens if opens else 1.0


@dataclass(eq=False, kw_only=True)
class _Waiter:
    """An opener in the queue."""

    user_id: str
    starts_own: bool
    """Whether it waits only for a slot, in which it starts a sandbox on its disk or with its
    directories."""
    answer: asyncio.Future[Sandbox | None]
    since: float = field(default_factory=time.monotonic)


class WarmPool:
    """Keeps sandboxes of one environment warm, hands each out once, destroys what comes back."""

    def __init__(
        self,
        maker: SandboxMaker,
        environment: Environment,
        settings: PoolSettings,
        *,
        expected: int = 0,
    ) -> None:
        """With the number of sandboxes that sessions of an earlier daemon hold."""
        self.environment = environment
        self._maker = maker
        self._settings = settings
        self._warm: deque[Sandbox] = deque()
        self._stale: set[str] = set()
        self._in_use: set[Sandbox] = set()
        self._expected = expected
        """Sandboxes of an earlier daemon that are still to be adopted; they count as in use."""
        self._starting = 0
        self._reserved_slots = 0
        """Slots of openers that start a sandbox themselves; they count as starting as well."""
        self._queue: OpenQueue[_Waiter] = OpenQueue()
        self._demand = Demand(
            least=settings.minimum,
            most=settings.target,
            memory_seconds=settings.idle_seconds,
            now=time.monotonic(),
        )
        # A start keeps about one core busy.
        cores = len(os.sched_getaffinity(0))
        self._pace = StartPace(first=max(2, cores), most=settings.concurrency)
        self._waits, self._starts = Histogram(), Histogram()
        self._tasks = Tasks()
        self._failures = 0
        self._retry: asyncio.TimerHandle | None = None
        self._last_error: SandboxdError | None = None
        self._hits = self._misses = self._failed_starts = 0
        self._gave_up = self._refused = 0
        self._shrink: asyncio.TimerHandle | None = None
        self._closed = False
        self._became_warm = asyncio.Condition()

    def __repr__(self) -> str:
        return (
            f"<WarmPool warm={len(self._warm)} starting={self._starting} "
            f"in_use={self._used} waiting={len(self._queue)}>"
        )

    @property
    def figures(self) -> PoolFigures:
        now = time.monotonic()
        return PoolFigures(
            environment=self.environment.name,
            warm=len(self._warm),
            starting=self._starting,
            in_use=self._used,
            waiting=len(self._queue),
            oldest_wait_seconds=now - min((waiter.since for waiter in self._queue), default=now),
            target=self._demand.target(now),
            minimum=self._settings.minimum,
            maximum=self._settings.maximum,
            max_queue=self._settings.max_queue,
            concurrency=self._pace.limit,
            hits=self._hits,
            misses=self._misses,
            gave_up=self._gave_up,
            refused=self._refused,
            failed_starts=self._failed_starts,
            last_error=str(self._last_error) if self._last_error else "",
            waits=self._waits,
            starts=self._starts,
        )

    async def __aenter__(self) -> WarmPool:
        self._tasks.spawn(self._keep_healthy(), "pool-health")
        self._act()
        return self

    def add_expected(self, sandbox: Sandbox) -> None:
        """Count a sandbox in use that a session of an earlier daemon holds."""
        self._expected -= 1
        self._in_use.add(sandbox)

    def give_up_expected(self) -> None:
        """Stop waiting for one of the expected sandboxes."""
        self._expected -= 1
        self._act()

    def leave_used(self) -> None:
        """Leave the sandboxes that sessions hold to the next daemon."""
        for sandbox in self._in_use:
            sandbox.leave_running()
        self._in_use.clear()

    async def __aexit__(self, *_: object) -> None:
        """Destroy every sandbox, including those that sessions hold and those being started."""
        self._closed = True
        for timer in (self._retry, self._shrink):
            if timer is not None:
                timer.cancel()
        while len(self._queue):
            self._queue.pop().answer.set_exception(Draining())
        self._tasks.cancel("pool-")
        await self._tasks.finish()
        # The sessions that still hold one have not given up their files.
        used = [self._maker.destroy(sandbox, keep=True) for sandbox in self._in_use]
        unused = [self._maker.destroy(sandbox) for sandbox in self._warm]
        self._warm.clear()
        self._in_use.clear()
        await asyncio.gather(*used, *unused)

    async def acquire(
        self,
        kept: KeptFiles | None = None,
        *,
        user_id: str = "",
        patience: Patience = Patience.QUEUES,
        attachments: Sequence[Attachment] = (),
    ) -> Sandbox:
        """A warm sandbox, or the next one that is free; PoolExhausted if none is free in time.

        It shows these directories of the host. For kept files on a disk, a sandbox is started with
        them, and so is one for directories that the host cannot attach. Users who wait take turns.
        """
        if self._closed:
            raise Draining
        self._demand.on_open(time.monotonic())
        if kept is not None and kept.disk is not None and self._maker.kept_files.has(kept.disk):
            try:
                return await self._start_with(kept, user_id, Patience.QUEUES, attachments)
            except DiskDamaged:
                log.error("disk.damaged", disk_id=kept.disk.id)
                self._maker.kept_files.discard(KeptFiles(disk=kept.disk))
        if attachments and not self._maker.can_attach:
            return await self._start_with(None, user_id, patience, attachments)
        sandbox = await self._acquire_warm(user_id, patience)
        try:
            await sandbox.attach(attachments)
        except BaseException:
            self.destroy(sandbox)
            raise
        return sandbox

    async def _acquire_warm(self, user_id: str, patience: Patience) -> Sandbox:
        if (sandbox := self._take_warm()) is not None:
            self._hits += 1
            self._act()
            return sandbox
        self._misses += 1
        is_pausing = self._retry is not None and not self._starting
        if is_pausing and self._last_error is not None and self._excess < 0:
            # Nothing is started before the back-off is over. Raised again and again with its
            # traceback, the error would collect the frames of all its callers.
            raise self._last_error.with_traceback(None)
        self._refuse_impatient(patience)
        served = await self._wait(
            user_id, starts_own=False, goes_first=patience is Patience.GOES_FIRST
        )
        assert served is not None
        return served

    def _refuse_impatient(self, patience: Patience) -> None:
        if patience is Patience.NONE and self._excess >= 0:
            self._refused += 1
            raise self._full_error()

    def _take_warm(self) -> Sandbox | None:
        # No await in between, or it would belong to nobody. The newest one, because surplus
        # sandboxes are destroyed oldest first.
        for sandbox in reversed(self._warm):
            if not sandbox.is_lost:
                self._warm.remove(sandbox)
                self._in_use.add(sandbox)
                return sandbox
        return None

    @property
    def _excess(self) -> int:
        """How many openers wait for others to close; below 0, how many more would not have to."""
        taken = self._used + self._reserved_slots
        return taken + len(self._queue) - self._settings.maximum

    async def _start_with(
        self,
        kept: KeptFiles | None,
        user_id: str,
        patience: Patience,
        attachments: Sequence[Attachment],
    ) -> Sandbox:
        self._misses += 1
        if self._excess < 0:
            self._reserve_slot()
        else:
            self._refuse_impatient(patience)
            await self._wait(user_id, starts_own=True, goes_first=patience is Patience.GOES_FIRST)
        sandbox: Sandbox | None = None
        try:
            sandbox = await self._maker.make(self.environment, kept, attachments)
        except DiskDamaged:
            raise
        except Exception as error:
            self._failed_starts += 1
            raise _public_error(error) from error
        finally:
            if sandbox is not None:
                self._in_use.add(sandbox)
            self._free_slot()
        return sandbox

    def _reserve_slot(self) -> None:
        """Count a start for one opener; if that is one too many, destroy a warm sandbox."""
        self._starting += 1
        self._reserved_slots += 1
        if self._warm and self._total > self._settings.maximum:
            self._destroy_soon(self._warm.popleft())

    def _free_slot(self) -> None:
        self._starting -= 1
        self._reserved_slots -= 1
        self._act()

    @property
    def _used(self) -> int:
        return len(self._in_use) + self._expected

    @property
    def _total(self) -> int:
        return len(self._warm) + self._starting + self._used

    async def _wait(
        self, user_id: str, *, starts_own: bool, goes_first: bool = False
    ) -> Sandbox | None:
        """Wait in the queue for a sandbox, or for a slot in which one can be started."""
        if self._excess >= self._settings.max_queue and not goes_first:
            self._refuse_one(user_id)
        answer: asyncio.Future[Sandbox | None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(user_id=user_id, starts_own=starts_own, answer=answer)
        if goes_first:
            self._queue.go_first(user_id, waiter)
        else:
            self._queue.join(user_id, waiter)
        self._act()
        try:
            # Not `asyncio.timeout`: a sandbox that comes in the same moment would be lost.
            await asyncio.wait([answer], timeout=self._settings.wait_seconds)
            if not answer.done():
                self._gave_up += 1
                raise self._timed_out_error()
            served = answer.result()
            self._waits.observe(time.monotonic() - waiter.since)
            return served
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._return_unused(answer.result())  # it came together with the cancel
            raise
        finally:
            self._queue.leave(user_id, waiter)
            self._act()

    def _refuse_one(self, user_id: str) -> None:
        """The queue is full: refuse the newest opener of the user with the most, or this one."""
        evicted = self._queue.evict_for(user_id)
        self._refused += 1
        if evicted is None:
            raise self._full_error()
        evicted.answer.set_exception(self._full_error())

    def _full_error(self) -> PoolExhausted:
        return PoolExhausted(
            f"All {self._settings.maximum} sandboxes are in use; close sessions that are done, "
            "try again later, or raise MAX_POOL_SIZE.",
            retry_after_seconds=FULL_RETRY_SECONDS,
        )

    def _timed_out_error(self) -> SandboxdError:
        if self._used >= self._settings.maximum:
            return self._full_error()
        return self._last_error or EngineFailed(
            "No sandbox became ready in time; see the daemon's log.", retry_after_seconds=2.0
        )

    def _return_unused(self, served: Sandbox | None) -> None:
        if served is None:
            self._free_slot()
        else:
            self.destroy(served)

    def destroy(self, sandbox: Sandbox, *, keep: bool = False) -> None:
        """Destroy a sandbox that was handed out; its files too, unless they are to be kept."""
        if sandbox in self._in_use:
            self._in_use.remove(sandbox)
            self._destroy_soon(sandbox, keep=keep)
            self._act()

    async def wait_until_warm(self) -> None:
        """Return once the pool has reached its target for the first time."""
        async with self._became_warm:
            await self._became_warm.wait_for(lambda: len(self._warm) >= self.figures.target)

    # --- keeping the plan ---

    def _act(self) -> None:
        """Carry out the plan. Called after every change; never awaits."""
        if self._closed:
            return
        self._serve()
        plan = plan_pool(
            warm=[sandbox.id for sandbox in self._warm],
            stale=self._stale,
            starting=self._starting,
            in_use=self._used,
            waiting=sum(not waiter.starts_own for waiter in self._queue),
            target=self._demand.target(time.monotonic()),
            maximum=self._settings.maximum,
            concurrency=self._pace.limit,
        )
        for sandbox_id in plan.destroy:
            sandbox = next(warm for warm in self._warm if warm.id == sandbox_id)
            self._warm.remove(sandbox)
            self._stale.discard(sandbox_id)
            self._destroy_soon(sandbox)
        for _ in range(plan.start if self._retry is None else 0):
            self._starting += 1
            self._tasks.spawn(self._start_one(), "pool-start")
        self._watch_demand()

    def _serve(self) -> None:
        """Hand out what is free to those who wait, in their turn."""
        while (waiter := self._queue.next) is not None:
            served: Sandbox | None = None
            if waiter.starts_own:
                if self._used + self._starting >= self._settings.maximum:
                    return
                self._reserve_slot()
            elif (served := self._take_warm()) is None:
                return
            # No waiter in the queue has an answer yet: an answer, or giving up, takes it out.
            self._queue.pop().answer.set_result(served)

    def _watch_demand(self) -> None:
        """Plan again when the target may have fallen."""
        seconds = self._demand.seconds_to_fall(time.monotonic())
        if self._shrink is None and seconds is not None:
            loop = asyncio.get_running_loop()
            self._shrink = loop.call_later(max(seconds, 0.01), self._shrink_if_idle)

    def _shrink_if_idle(self) -> None:
        self._shrink = None
        self._act()

    async def _start_one(self) -> None:
        began = time.monotonic()
        try:
            sandbox = await self._maker.make(self.environment)
        except Exception as error:
            self._starting -= 1
            self._on_failed_start(_public_error(error))
            return
        except asyncio.CancelledError:
            self._starting -= 1
            raise
        if sandbox.lost_because is not None:  # right after its greeting
            self._starting -= 1
            self._destroy_soon(sandbox)
            self._on_failed_start(SandboxLost(sandbox.lost_because))
            return
        seconds = time.monotonic() - began
        self._pace.on_started(seconds, at_once=self._starting)
        self._starts.observe(seconds)
        self._starting -= 1
        self._failures = 0
        self._last_error = None
        log.info("sandbox.started", sandbox_id=sandbox.id, seconds=round(seconds, 3))
        await self._add_warm(sandbox)

    async def _add_warm(self, sandbox: Sandbox) -> None:
        self._warm.append(sandbox)
        sandbox.when_lost(lambda _: self._on_lost_while_warm(sandbox))
        self._act()
        async with self._became_warm:
            self._became_warm.notify_all()

    def _on_failed_start(self, error: SandboxdError) -> None:
        """Report the error to those who wait, and try again after longer and longer pauses."""
        self._failed_starts += 1
        self._last_error = error
        delay = BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        log.warning(
            "sandbox.start_failed",
            error=str(error),
            cause=repr(error.__cause__)[:500] if error.__cause__ else None,
            retry_seconds=delay,
        )
        if self._starting == 0:
            # Openers that wait for others to close go on waiting.
            for _ in range(len(self._queue) - max(0, self._excess)):
                self._queue.pop().answer.set_exception(error)
        self._pause(delay)

    def _pause(self, seconds: float) -> None:
        """Start nothing for a while."""
        if self._retry is None and not self._closed:
            self._retry = asyncio.get_running_loop().call_later(seconds, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        self._act()

    def _on_lost_while_warm(self, sandbox: Sandbox) -> None:
        if sandbox in self._warm:
            log.warning("sandbox.lost", sandbox_id=sandbox.id, why=sandbox.lost_because)
            self._stale.add(sandbox.id)
            # Not at once: sandboxes that are lost as soon as they are warm would be replaced
            # without a pause.
            self._pause(BACKOFF_SECONDS[0])
            self._act()

    def _destroy_soon(self, sandbox: Sandbox, *, keep: bool = False) -> None:
        self._tasks.spawn(self._maker.destroy(sandbox, keep=keep), "destroy")

    async def _keep_healthy(self) -> None:
        """Ping every warm sandbox at intervals; one that does not answer is replaced."""
        while True:
            await asyncio.sleep(self._settings.health_seconds)
            await asyncio.gather(*(self._check(sandbox) for sandbox in tuple(self._warm)))

    async def _check(self, sandbox: Sandbox) -> None:
        try:
            await sandbox.link.ping()
        except TimeoutError:
            sandbox.cut_off("the guest did not answer a ping")
        except LinkClosed as error:
            log.debug("sandbox.ping_failed", sandbox_id=sandbox.id, error=str(error))


def _public_error(error: Exception) -> SandboxdError:
    """The error that openers get; the details of an unexpected one stay in the log."""
    if isinstance(error, SandboxdError):
        return error
    log.error("sandbox.start_failed_unexpectedly", exc_info=error)
    public = EngineFailed(
        "A sandbox could not be started; see the daemon's log.", retry_after_seconds=2.0
    )
    public.__cause__ = error
    return public
