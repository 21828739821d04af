"""Warm sandboxes of one environment, each for one session and then never again."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import structlog

from sandboxd.environments.environment import Environment
from sandboxd.errors import Draining, EngineFailed, ImageNotFound, SandboxdError, SandboxLost
from sandboxd.histogram import Histogram
from sandboxd.isolation.attachment import Attachment
from sandboxd.link import LinkClosed
from sandboxd.pool.demand import Demand
from sandboxd.pool.plan import PoolState
from sandboxd.pool.room import Room, Waiter
from sandboxd.pool.share import WarmDemand
from sandboxd.sandboxes.kept_files import KeptFiles
from sandboxd.sandboxes.maker import NotMoved, SandboxMaker
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.tasks import Tasks
from sandboxd.workspaces.disks import Disk, DiskDamaged

log = structlog.get_logger()

BACKOFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


class Patience(Enum):
    """What an opener does when all sandboxes are in use."""

    QUEUES = auto()
    NONE = auto()
    """It is refused at once."""
    GOES_FIRST = auto()
    """It waits before all others: it has just given up a sandbox to get another."""


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    """Settings of all pools together."""

    target: int
    """Warm sandboxes at the start, and the most that are kept for later openers."""
    minimum: int = 0
    """Warm sandboxes of the default environment that are always kept."""
    maximum: int
    """Sandboxes in all: warm, starting and in use. One with more memory than those of the default
    environment counts as several."""
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
    """A pool in numbers."""

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


class WarmPool:
    """Keeps sandboxes of one environment warm, hands each out once, destroys what comes back.

    How many it keeps, and when it starts them, is decided for all pools together: by `Pools`.
    """

    def __init__(
        self,
        maker: SandboxMaker,
        environment: Environment,
        settings: PoolSettings,
        room: Room,
        *,
        places: int,
        minimum: int,
        first_peak: int,
        expected: int,
    ) -> None:
        """`first_peak`: the burst of opens to be ready for at the start. `expected`: sandboxes that
        sessions of an earlier daemon hold."""
        self.environment = environment
        self.is_ready = True
        """Whether the environment has an image, and so sandboxes may be kept warm."""
        self.on_image_missing: Callable[[], None] = lambda: None
        self.target = 0
        """Warm sandboxes there should be; set by the plan."""
        self.places = places
        self.minimum = minimum
        self._maker = maker
        self._settings = settings
        self._room = room
        self._act = room.act
        self._warm: deque[Sandbox] = deque()
        self._stale: set[str] = set()
        self._in_use: set[Sandbox] = set()
        self._expected = expected
        """Sandboxes of an earlier daemon that are still to be adopted; they count as in use."""
        self.becoming_warm = 0
        """Sandboxes that are being started and will be warm."""
        self.reserved = 0
        """Sandboxes that openers start themselves."""
        self.demand = Demand(
            most=settings.target,
            memory_seconds=settings.idle_seconds,
            first=(time.monotonic(), first_peak) if first_peak else None,
        )
        self._waits, self._starts = Histogram(), Histogram()
        self._tasks = Tasks()
        self._failures = 0
        self._retry: asyncio.TimerHandle | None = None
        self._last_error: SandboxdError | None = None
        self._hits = self._misses = self._failed_starts = 0
        self._gave_up = self._refused = 0
        self.is_closed = False
        """Whether it hands out nothing any more."""
        self._became_warm = asyncio.Condition()

    def __repr__(self) -> str:
        waiting = len(self._room.waiting_for(self.environment.name))
        return (
            f"<WarmPool warm={len(self._warm)} starting={self.starting} "
            f"in_use={self._used} waiting={waiting}>"
        )

    @property
    def figures(self) -> PoolFigures:
        now = time.monotonic()
        waiting = self._room.waiting_for(self.environment.name)
        return PoolFigures(
            environment=self.environment.name,
            warm=len(self._warm),
            starting=self.starting,
            in_use=self._used,
            waiting=len(waiting),
            oldest_wait_seconds=now - min((waiter.since for waiter in waiting), default=now),
            target=self.target,
            minimum=self.minimum if self.is_ready else 0,
            maximum=self._settings.maximum,
            max_queue=self._settings.max_queue,
            concurrency=self._room.pace.limit,
            hits=self._hits,
            misses=self._misses,
            gave_up=self._gave_up,
            refused=self._refused,
            failed_starts=self._failed_starts,
            last_error=str(self._last_error) if self._last_error else "",
            waits=self._waits,
            starts=self._starts,
        )

    # --- what the plan has to know ---

    @property
    def held_places(self) -> int:
        return (self._used + self.reserved) * self.places

    @property
    def starting(self) -> int:
        """Starts that are under way, also those for one opener."""
        return self.becoming_warm + self.reserved

    @property
    def state(self) -> PoolState:
        return PoolState(
            environment=self.environment.name,
            warm=[sandbox.id for sandbox in self._warm],
            stale=frozenset(self._stale),
            starting=self.becoming_warm,
            in_use=self._used + self.reserved,
            target=self.target,
            places=self.places,
            is_paused=self.is_paused,
        )

    @property
    def is_paused(self) -> bool:
        """Whether nothing is started now, because the last start failed."""
        return self._retry is not None

    def demand_at(self, now: float) -> WarmDemand:
        is_kept = self.is_ready
        return WarmDemand(
            environment=self.environment.name,
            peak=self.demand.peak(now) if is_kept else 0,
            opens=self.demand.opens(now),
            floor=self.minimum if is_kept else 0,
            places=self.places,
        )

    @property
    def is_used(self) -> bool:
        """Whether sessions have sandboxes of it, or wait for one."""
        return bool(self.held_places or self._room.waiting_for(self.environment.name))

    @property
    def _used(self) -> int:
        return len(self._in_use) + self._expected

    # --- sandboxes of an earlier daemon ---

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

    # --- the environment ---

    def use(self, environment: Environment) -> None:
        """Make sandboxes from this environment from here on; warm ones of another are replaced."""
        if environment != self.environment:
            self._stale |= {sandbox.id for sandbox in self._warm}
        self.environment = environment
        self.is_ready = True
        self._forget_failures()
        self._act()

    def withdraw(self) -> None:
        """Keep nothing warm: the environment has no image."""
        self.is_ready = False
        self._stale |= {sandbox.id for sandbox in self._warm}
        self._forget_failures()
        self._act()

    def _forget_failures(self) -> None:
        self._failures = 0
        self._last_error = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    # --- close ---

    async def aclose(self) -> None:
        """Destroy every sandbox, including those that sessions hold and those being started."""
        self.is_closed = True
        if self._retry is not None:
            self._retry.cancel()
        self._tasks.cancel("pool-")
        await self._tasks.finish()
        # The sessions that still hold one have not given up their files.
        used = [self._maker.destroy(sandbox, keep=True) for sandbox in self._in_use]
        unused = [self._maker.destroy(sandbox) for sandbox in self._warm]
        self._warm.clear()
        self._in_use.clear()
        await asyncio.gather(*used, *unused)

    # --- opens ---

    async def acquire(
        self,
        kept: KeptFiles | None = None,
        *,
        user_id: str = "",
        patience: Patience = Patience.QUEUES,
        attachments: Sequence[Attachment] = (),
    ) -> Sandbox:
        """A warm sandbox, or the next one that is free; PoolExhausted if none is free in time.

        It shows these directories of the host. One is started for those that the host cannot
        attach, and for kept files on a disk that cannot be moved. Users who wait take turns.
        """
        if self.is_closed:
            raise Draining
        self.demand.on_open(time.monotonic())
        if kept is not None and kept.disk is not None and self._maker.kept_files.has(kept.disk):
            try:
                return await self._acquire_with(kept, kept.disk, user_id, attachments)
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

    async def _acquire_with(
        self, kept: KeptFiles, disk: Disk, user_id: str, attachments: Sequence[Attachment]
    ) -> Sandbox:
        """A warm sandbox that the disk is moved into, or one that is started with it."""
        if self._maker.can_move_disks:
            try:
                # Before a sandbox is taken: the one that the disk was lost with may not be gone.
                await self._maker.kept_files.wait_until_free(disk)
            except TimeoutError as error:
                raise _public_error(error) from error
            if (sandbox := self.take_warm()) is not None:
                self._act()
                try:
                    await self._maker.move_in(sandbox, kept)
                    await sandbox.attach(attachments)
                except BaseException as error:
                    self.destroy(sandbox, keep=sandbox.disk == disk)
                    if not isinstance(error, NotMoved):
                        raise
                    log.warning("disk.not_moved", sandbox_id=sandbox.id, error=str(error))
                else:
                    self._hits += 1
                    return sandbox
        return await self._start_with(kept, user_id, Patience.QUEUES, attachments)

    async def _acquire_warm(self, user_id: str, patience: Patience) -> Sandbox:
        if (sandbox := self.take_warm()) is not None:
            self._hits += 1
            self._act()
            return sandbox
        self._misses += 1
        is_pausing = self._retry is not None and not self.starting
        if is_pausing and self._last_error is not None and self._room.has_places(self.places):
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
        if patience is Patience.NONE and not self._room.has_places(self.places):
            self._refused += 1
            raise self._room.full_error()

    def take_warm(self) -> Sandbox | None:
        # No await in between, or it would belong to nobody. The newest one, because surplus
        # sandboxes are destroyed oldest first.
        for sandbox in reversed(self._warm):
            if not sandbox.is_lost and sandbox.id not in self._stale:
                self._warm.remove(sandbox)
                self._in_use.add(sandbox)
                return sandbox
        return None

    async def _start_with(
        self,
        kept: KeptFiles | None,
        user_id: str,
        patience: Patience,
        attachments: Sequence[Attachment],
    ) -> Sandbox:
        self._misses += 1
        if self._room.has_places(self.places):
            self.reserve()
            self._act()
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
            self._note_missing_image(error)
            raise _public_error(error) from error
        finally:
            if sandbox is not None:
                self._in_use.add(sandbox)
            self._free_reserved()
        return sandbox

    def reserve(self) -> None:
        """Take a place for an opener that starts a sandbox itself. If that is one too many, the
        plan destroys a warm one."""
        self.reserved += 1

    def _free_reserved(self) -> None:
        self.reserved -= 1
        self._act()

    async def _wait(
        self, user_id: str, *, starts_own: bool, goes_first: bool = False
    ) -> Sandbox | None:
        """Wait in the queue for a sandbox, or for a place in which one can be started."""
        if not self._room.may_wait(self.places) and not goes_first:
            self._refuse_one(user_id)
        queue = self._room.queue
        answer: asyncio.Future[Sandbox | None] = asyncio.get_running_loop().create_future()
        waiter = Waiter(
            user_id=user_id,
            environment=self.environment.name,
            places=self.places,
            starts_own=starts_own,
            answer=answer,
        )
        if goes_first:
            queue.go_first(user_id, waiter)
        else:
            queue.join(user_id, waiter)
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
            queue.leave(user_id, waiter)
            self._act()

    def _refuse_one(self, user_id: str) -> None:
        """The queue is full: refuse the newest opener of the user with the most, or this one."""
        evicted = self._room.queue.evict_for(user_id)
        self._refused += 1
        if evicted is None:
            raise self._room.full_error()
        evicted.answer.set_exception(self._room.full_error())

    def _timed_out_error(self) -> SandboxdError:
        if self._room.held + self.places > self._room.maximum:
            return self._room.full_error()
        return self._last_error or EngineFailed(
            "No sandbox became ready in time; see the daemon's log.", retry_after_seconds=2.0
        )

    def _return_unused(self, served: Sandbox | None) -> None:
        if served is None:
            self._free_reserved()
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
            await self._became_warm.wait_for(lambda: len(self._warm) >= self.target)

    # --- carrying out the plan ---

    def destroy_warm(self, sandbox_id: str) -> bool:
        """Destroy a warm sandbox; False if it is not one of this pool."""
        sandbox = next((warm for warm in self._warm if warm.id == sandbox_id), None)
        if sandbox is None:
            return False
        self._warm.remove(sandbox)
        self._stale.discard(sandbox_id)
        self._destroy_soon(sandbox)
        return True

    def start_one(self) -> None:
        """Start a sandbox that will be warm."""
        self.becoming_warm += 1
        self._tasks.spawn(self._start_one(self.environment), "pool-start")

    async def _start_one(self, environment: Environment) -> None:
        began = time.monotonic()
        try:
            sandbox = await self._maker.make(environment)
        except Exception as error:
            self.becoming_warm -= 1
            self._note_missing_image(error)
            self._on_failed_start(_public_error(error))
            return
        except asyncio.CancelledError:
            self.becoming_warm -= 1
            raise
        if sandbox.lost_because is not None:  # right after its greeting
            self.becoming_warm -= 1
            self._destroy_soon(sandbox)
            self._on_failed_start(SandboxLost(sandbox.lost_because))
            return
        seconds = time.monotonic() - began
        self._room.pace.on_started(seconds, at_once=self._room.starting)
        self._starts.observe(seconds)
        self.becoming_warm -= 1
        self._failures = 0
        self._last_error = None
        log.info(
            "sandbox.started",
            sandbox_id=sandbox.id,
            environment=environment.name,
            seconds=round(seconds, 3),
        )
        await self._add_warm(sandbox)

    async def _add_warm(self, sandbox: Sandbox) -> None:
        self._warm.append(sandbox)
        if sandbox.environment != self.environment or not self.is_ready:  # it changed meanwhile
            self._stale.add(sandbox.id)
        sandbox.when_lost(lambda _: self._on_lost_while_warm(sandbox))
        self._act()
        async with self._became_warm:
            self._became_warm.notify_all()

    def _note_missing_image(self, error: Exception) -> None:
        if isinstance(error, ImageNotFound):
            self.on_image_missing()

    def _on_failed_start(self, error: SandboxdError) -> None:
        """Report the error to those who wait, and try again after longer and longer pauses."""
        self._failed_starts += 1
        self._last_error = error
        delay = BACKOFF_SECONDS[min(self._failures, len(BACKOFF_SECONDS) - 1)]
        self._failures += 1
        log.warning(
            "sandbox.start_failed",
            environment=self.environment.name,
            error=str(error),
            cause=repr(error.__cause__)[:500] if error.__cause__ else None,
            retry_seconds=delay,
        )
        if self.starting == 0:
            self._fail_openers(error)
        self._pause(delay)
        self._act()  # others need not wait for this environment

    def _fail_openers(self, error: SandboxdError) -> None:
        """Report the error to those for whom a sandbox would have been started; openers that wait
        for others to close go on waiting."""
        waiting = [
            waiter
            for waiter in self._room.waiting_for(self.environment.name)
            if not waiter.starts_own
        ]
        spared = -(-max(0, self._room.excess) // self.places)
        for waiter in waiting[: max(0, len(waiting) - spared)]:
            self._room.queue.leave(waiter.user_id, waiter)
            waiter.answer.set_exception(error)

    def _pause(self, seconds: float) -> None:
        """Start nothing for a while."""
        if self._retry is None and not self.is_closed:
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

    async def check_health(self) -> None:
        """Ping every warm sandbox; one that does not answer is replaced."""
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
