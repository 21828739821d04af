"""Warm sandboxes, each for one session and then never again."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path

import structlog

from sandboxd.errors import Draining, EngineFailed, PoolExhausted, SandboxdError, SandboxLost
from sandboxd.histogram import Histogram
from sandboxd.isolation.disks import DiskDamaged
from sandboxd.link import LinkClosed
from sandboxd.open_queue import OpenQueue
from sandboxd.pool_demand import Demand
from sandboxd.pool_plan import plan_pool
from sandboxd.sandbox import Belongings, Sandbox, SandboxMaker
from sandboxd.start_pace import StartPace
from sandboxd.tasks import Tasks

log = structlog.get_logger()

PING_SECONDS = 5.0
SWEEP_AGAIN_SECONDS = 5.0
"""After a sweep or a removal that failed."""
BACKOFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
DEFAULT_ENVIRONMENT = "default"
"""Of sessions that ask for no other."""
FULL_RETRY_SECONDS = 5.0
"""When an opener that found no place should try again."""


class Patience(Enum):
    """What an opener does when all sandboxes are in use."""

    QUEUES = auto()
    NONE = auto()
    """It hears so at once."""
    GOES_FIRST = auto()
    """It has just given one up, to get another."""


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    target: int
    """Warm sandboxes to begin with, and the most that are kept for openers to come."""
    minimum: int = 0
    """Warm sandboxes that stay, however long nobody needs them."""
    maximum: int
    """Sandboxes in all."""
    idle_seconds: float = 300.0
    """How long warm sandboxes beyond the minimum stay when nobody needs so many."""
    concurrency: int
    """The most starts at once; how many there are depends on how long they take."""
    max_queue: int = 0
    """Openers that may wait for others to close, when all sandboxes are in use."""
    wait_seconds: float
    health_seconds: float
    sweep_seconds: float
    environment: str = DEFAULT_ENVIRONMENT
    """What its sandboxes are for."""


@dataclass(frozen=True, kw_only=True)
class PoolFigures:
    """The pool in numbers."""

    environment: str
    warm: int
    starting: int
    in_use: int
    waiting: int
    oldest_wait_seconds: float
    """Of those who wait now."""
    target: int
    minimum: int
    maximum: int
    max_queue: int
    concurrency: int
    """Starts there may be at once, as the machine has shown so far."""
    hits: int
    misses: int
    gave_up: int
    """Openers that waited in vain."""
    refused: int
    """Openers for whom there was no place to wait."""
    failed_starts: int
    last_error: str
    waits: Histogram
    """How long openers waited that were served in the end."""
    starts: Histogram
    """How long sandboxes took to start."""

    @property
    def hit_rate(self) -> float:
        """The part of all openers that got a warm sandbox; 1 if there were none."""
        opens = self.hits + self.misses
        return self.hits / opens if opens else 1.0


@dataclass(eq=False, kw_only=True)
class _Waiter:
    """An opener in the queue."""

    user_id: str
    brings_disk: bool
    """Whether it starts a sandbox of its own and waits for the place only."""
    answer: asyncio.Future[Sandbox | None]
    since: float = field(default_factory=time.monotonic)


class WarmPool:
    """Keeps sandboxes warm, hands each out once, destroys what comes back."""

    def __init__(
        self, maker: SandboxMaker, settings: PoolSettings, in_use: Collection[Sandbox] = ()
    ) -> None:
        """With sandboxes that sessions of an earlier daemon hold."""
        self._maker = maker
        self._settings = settings
        self._warm: deque[Sandbox] = deque()
        self._stale: set[str] = set()
        self._in_use: set[Sandbox] = set(in_use)
        self._starting = 0
        self._own_starts = 0
        """Of those that start: for openers that bring a disk."""
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
            f"in_use={len(self._in_use)} waiting={len(self._queue)}>"
        )

    @property
    def figures(self) -> PoolFigures:
        now = time.monotonic()
        return PoolFigures(
            environment=self._settings.environment,
            warm=len(self._warm),
            starting=self._starting,
            in_use=len(self._in_use),
            waiting=len(self._queue),
            oldest_wait_seconds=now - min((one.since for one in self._queue), default=now),
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
        self._tasks.spawn(self._keep_swept(), "pool-sweep")
        self._act()
        return self

    def leave_used(self) -> None:
        """Let go of the sandboxes that sessions hold: they are for the next daemon."""
        for sandbox in self._in_use:
            sandbox.let_go()
        self._in_use.clear()

    async def __aexit__(self, *_: object) -> None:
        """Destroy every sandbox, also those that sessions hold and those being started."""
        self._closed = True
        for timer in (self._retry, self._shrink):
            if timer is not None:
                timer.cancel()
        while len(self._queue):
            self._queue.pop().answer.set_exception(_draining())
        self._tasks.cancel("pool-")
        await self._tasks.finish()
        # Whoever holds one now has not said that its files may go.
        used = [self._maker.destroy(sandbox, keep=True) for sandbox in self._in_use]
        unused = [self._maker.destroy(sandbox) for sandbox in self._warm]
        self._warm.clear()
        self._in_use.clear()
        await asyncio.gather(*used, *unused)
        await self._sweep()

    async def acquire(
        self,
        kept: Belongings | None = None,
        *,
        user_id: str = "",
        patience: Patience = Patience.QUEUES,
    ) -> Sandbox:
        """Take a warm sandbox, or wait for one; PoolExhausted when none became free in time.

        With a disk that an earlier sandbox left, one is started for it and for its project files.
        Users who wait take turns.
        """
        if self._closed:
            raise _draining()
        self._demand.on_open(time.monotonic())
        if kept is not None and kept.disk is not None and self._maker.has(kept.disk):
            try:
                return await self._start_with(kept, user_id)
            except DiskDamaged:
                log.error("disk.damaged", disk_id=kept.disk.id)
                self.discard(Belongings(disk=kept.disk))
        if (sandbox := self._take_warm()) is not None:
            self._hits += 1
            self._act()
            return sandbox
        self._misses += 1
        is_pausing = self._retry is not None and not self._starting
        if is_pausing and self._last_error is not None and self._beyond < 0:
            # Nothing is started before the back-off is over. Raised many times over, an error would
            # collect the frames of all whom it was told.
            raise self._last_error.with_traceback(None)
        if patience is Patience.NONE and self._beyond >= 0:
            self._refused += 1
            raise self._full()
        served = await self._wait(
            user_id, brings_disk=False, goes_first=patience is Patience.GOES_FIRST
        )
        assert served is not None
        return served

    def _take_warm(self) -> Sandbox | None:
        # No await in between, or it would belong to nobody. The newest: the others may go first.
        for sandbox in reversed(self._warm):
            if not sandbox.is_lost:
                self._warm.remove(sandbox)
                self._in_use.add(sandbox)
                return sandbox
        return None

    @property
    def _beyond(self) -> int:
        """How many openers wait for others to close; below 0, how many more need not."""
        taken = len(self._in_use) + self._own_starts
        return taken + len(self._queue) - self._settings.maximum

    async def _start_with(self, kept: Belongings, user_id: str) -> Sandbox:
        self._misses += 1
        if self._beyond < 0:
            self._take_place()
        else:
            await self._wait(user_id, brings_disk=True)
        sandbox: Sandbox | None = None
        try:
            sandbox = await self._maker.make(kept)
        except DiskDamaged:
            raise
        except Exception as error:
            self._failed_starts += 1
            raise _told(error) from error
        finally:
            if sandbox is not None:
                self._in_use.add(sandbox)
            self._give_up_place()
        return sandbox

    def _take_place(self) -> None:
        """For an opener that starts its own; a warm one goes if there would be too many."""
        self._starting += 1
        self._own_starts += 1
        if self._warm and self._total > self._settings.maximum:
            self._destroy(self._warm.popleft())

    def _give_up_place(self) -> None:
        self._starting -= 1
        self._own_starts -= 1
        self._act()

    @property
    def _total(self) -> int:
        return len(self._warm) + self._starting + len(self._in_use)

    async def _wait(
        self, user_id: str, *, brings_disk: bool, goes_first: bool = False
    ) -> Sandbox | None:
        """Wait in the queue for a sandbox, or for a place where one can be started."""
        if self._beyond >= self._settings.max_queue and not goes_first:
            self._make_way(user_id)
        answer: asyncio.Future[Sandbox | None] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(user_id=user_id, brings_disk=brings_disk, answer=answer)
        if goes_first:
            self._queue.go_first(user_id, waiter)
        else:
            self._queue.join(user_id, waiter)
        self._act()
        try:
            # Not a timeout around it: a sandbox that comes in the same moment would be lost.
            await asyncio.wait([answer], timeout=self._settings.wait_seconds)
            if not answer.done():
                self._gave_up += 1
                raise self._waited_in_vain()
            served = answer.result()
            self._waits.observe(time.monotonic() - waiter.since)
            return served
        except asyncio.CancelledError:
            if answer.done() and not answer.cancelled() and answer.exception() is None:
                self._take_back(answer.result())  # it came, and so did the cancel
            raise
        finally:
            self._queue.leave(user_id, waiter)
            self._act()

    def _make_way(self, user_id: str) -> None:
        """Everybody who may wait does: one of the user with the most goes, unless it is this."""
        longest = self._queue.give_way(user_id)
        self._refused += 1
        if longest is None:
            raise self._full()
        longest.answer.set_exception(self._full())

    def _full(self) -> PoolExhausted:
        return PoolExhausted(
            f"All {self._settings.maximum} sandboxes are in use; close sessions that are done, "
            "try again later, or raise MAX_POOL_SIZE.",
            retry_after_seconds=FULL_RETRY_SECONDS,
        )

    def _waited_in_vain(self) -> SandboxdError:
        if len(self._in_use) >= self._settings.maximum:
            return self._full()
        return self._last_error or EngineFailed(
            "No sandbox became ready in time; see the daemon's log.", retry_after_seconds=2.0
        )

    def _take_back(self, served: Sandbox | None) -> None:
        if served is None:
            self._give_up_place()
        else:
            self.release(served)

    def release(self, sandbox: Sandbox, *, keep: bool = False) -> None:
        """Give up a sandbox: it is destroyed, whatever it was used for; its files with it, unless
        they are to be kept."""
        if sandbox in self._in_use:
            self._in_use.remove(sandbox)
            self._destroy(sandbox, keep=keep)
            self._act()

    def discard(self, kept: Belongings) -> None:
        """Delete what was kept."""
        self._tasks.spawn(self._maker.discard(kept), "discard")

    def project_dir(self, sandbox: Sandbox) -> Path:
        """The host's directory that the sandbox shows as its project files."""
        return self._maker.projects.path(sandbox.belongings.project_id)

    async def move_project_files(self, source_id: str, target_id: str) -> None:
        """From a sandbox that is no more to another; all of them, or none."""
        await self._maker.projects.move(source_id, target_id)

    async def wait_until_warm(self) -> None:
        """Return once the pool has reached its target for the first time."""
        async with self._became_warm:
            await self._became_warm.wait_for(lambda: len(self._warm) >= self.figures.target)

    # --- keeping the plan ---

    def _act(self) -> None:
        """Do what the plan says. Called after every change; never awaits."""
        if self._closed:
            return
        self._serve()
        plan = plan_pool(
            warm=[sandbox.id for sandbox in self._warm],
            stale=self._stale,
            starting=self._starting,
            in_use=len(self._in_use),
            waiting=sum(not one.brings_disk for one in self._queue),
            target=self._demand.target(time.monotonic()),
            maximum=self._settings.maximum,
            concurrency=self._pace.limit,
        )
        for sandbox_id in plan.destroy:
            sandbox = next(one for one in self._warm if one.id == sandbox_id)
            self._warm.remove(sandbox)
            self._stale.discard(sandbox_id)
            self._destroy(sandbox)
        for _ in range(plan.start if self._retry is None else 0):
            self._starting += 1
            self._tasks.spawn(self._start_one(), "pool-start")
        self._watch_demand()

    def _serve(self) -> None:
        """Give whoever waits what is there, in their turn."""
        while (waiter := self._queue.next) is not None:
            served: Sandbox | None = None
            if waiter.brings_disk:
                if len(self._in_use) + self._starting >= self._settings.maximum:
                    return
                self._take_place()
            elif (served := self._take_warm()) is None:
                return
            # Nobody in the queue has an answer yet: who gets one, or gives up, is taken out.
            self._queue.pop().answer.set_result(served)

    def _watch_demand(self) -> None:
        """Look again when fewer may be enough."""
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
            sandbox = await self._maker.make()
        except Exception as error:
            self._starting -= 1
            self._on_failed_start(_told(error))
            return
        except asyncio.CancelledError:
            self._starting -= 1
            raise
        if sandbox.lost_because is not None:  # in one breath with its greeting
            self._starting -= 1
            self._destroy(sandbox)
            self._on_failed_start(SandboxLost(sandbox.lost_because))
            return
        seconds = time.monotonic() - began
        self._pace.on_started(seconds, at_once=self._starting)
        self._starts.observe(seconds)
        self._starting -= 1
        self._failures = 0
        self._last_error = None
        log.info("sandbox.started", sandbox_id=sandbox.id, seconds=round(seconds, 3))
        await self._add(sandbox)

    async def _add(self, sandbox: Sandbox) -> None:
        self._warm.append(sandbox)
        sandbox.when_lost(lambda _: self._on_lost_while_warm(sandbox))
        self._act()
        async with self._became_warm:
            self._became_warm.notify_all()

    def _on_failed_start(self, error: SandboxdError) -> None:
        """Tell whoever waits, and try again later and later."""
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
            # Whoever waits for others to close goes on waiting.
            for _ in range(len(self._queue) - max(0, self._beyond)):
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
            # Not at once: one that is lost as soon as it is warm would be replaced without pause.
            self._pause(BACKOFF_SECONDS[0])
            self._act()

    def _destroy(self, sandbox: Sandbox, *, keep: bool = False) -> None:
        self._tasks.spawn(self._maker.destroy(sandbox, keep=keep), "destroy")

    async def _keep_healthy(self) -> None:
        """Ask every warm sandbox from time to time; one that does not answer is replaced."""
        while True:
            await asyncio.sleep(self._settings.health_seconds)
            await asyncio.gather(*(self._check(sandbox) for sandbox in tuple(self._warm)))

    async def _check(self, sandbox: Sandbox) -> None:
        try:
            async with asyncio.timeout(PING_SECONDS):
                await sandbox.link.ping()
        except TimeoutError:
            sandbox.cut_off("the guest did not answer a ping")
        except LinkClosed as error:
            log.debug("sandbox.ping_failed", sandbox_id=sandbox.id, error=str(error))

    async def _keep_swept(self) -> None:
        """Remove what a crash, a cancel or a failed removal left behind."""
        while True:
            interval = self._settings.sweep_seconds
            if await self._sweep():
                # A wait for what is left behind, not for the time only.
                left = asyncio.ensure_future(self._maker.left_behind.wait())
                try:
                    await asyncio.wait([left], timeout=interval)
                finally:
                    left.cancel()
            await asyncio.sleep(min(SWEEP_AGAIN_SECONDS, interval))

    async def _sweep(self) -> bool:
        try:
            count = await self._maker.sweep()
        except SandboxdError as error:
            log.warning("pool.sweep_failed", error=str(error))
            return False
        if count:
            log.info("pool.swept", containers=count)
        return True


def _told(error: Exception) -> SandboxdError:
    """An error that openers may hear; what nobody thought of stays in the log."""
    if isinstance(error, SandboxdError):
        return error
    log.error("sandbox.start_broke", exc_info=error)
    told = EngineFailed(
        "A sandbox could not be started; see the daemon's log.", retry_after_seconds=2.0
    )
    told.__cause__ = error
    return told


def _draining() -> Draining:
    return Draining("The daemon is shutting down; try another one.", retry_after_seconds=5.0)
