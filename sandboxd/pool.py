"""Warm sandboxes, each for one session and then never again."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import structlog

from sandboxd.errors import Draining, EngineFailed, PoolExhausted, SandboxdError
from sandboxd.isolation.disks import DiskDamaged
from sandboxd.link import LinkClosed
from sandboxd.pool_plan import plan_pool
from sandboxd.sandbox import Belongings, Sandbox, SandboxMaker
from sandboxd.tasks import Tasks

log = structlog.get_logger()

PING_SECONDS = 5.0
SWEEP_AGAIN_SECONDS = 5.0
"""After a sweep or a removal that failed."""
BACKOFF_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    target: int
    maximum: int
    concurrency: int
    wait_seconds: float
    health_seconds: float
    sweep_seconds: float


@dataclass(frozen=True, kw_only=True)
class PoolFigures:
    """The pool in numbers."""

    warm: int
    starting: int
    in_use: int
    target: int
    maximum: int
    hits: int
    misses: int
    failed_starts: int
    last_error: str


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
        self._waiting: deque[asyncio.Future[Sandbox]] = deque()
        self._tasks = Tasks()
        self._failures = 0
        self._retry: asyncio.TimerHandle | None = None
        self._last_error: SandboxdError | None = None
        self._hits = self._misses = self._failed_starts = 0
        self._closed = False
        self._became_warm = asyncio.Condition()

    def __repr__(self) -> str:
        return (
            f"<WarmPool warm={len(self._warm)} starting={self._starting} "
            f"in_use={len(self._in_use)} waiting={len(self._waiting)}>"
        )

    @property
    def figures(self) -> PoolFigures:
        return PoolFigures(
            warm=len(self._warm),
            starting=self._starting,
            in_use=len(self._in_use),
            target=self._settings.target,
            maximum=self._settings.maximum,
            hits=self._hits,
            misses=self._misses,
            failed_starts=self._failed_starts,
            last_error=str(self._last_error) if self._last_error else "",
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
        if self._retry is not None:
            self._retry.cancel()
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(_draining())
        self._tasks.cancel("pool-")
        await self._tasks.finish()
        # Whoever holds one now has not said that its files may go.
        used = [self._maker.destroy(sandbox, keep=True) for sandbox in self._in_use]
        unused = [self._maker.destroy(sandbox) for sandbox in self._warm]
        self._warm.clear()
        self._in_use.clear()
        await asyncio.gather(*used, *unused)
        await self._sweep()

    async def acquire(self, kept: Belongings | None = None) -> Sandbox:
        """Take a warm sandbox, or wait for one; PoolExhausted when there may be no more.

        With a disk that an earlier sandbox left, one is started for it and for its project files.
        """
        if self._closed:
            raise _draining()
        if kept is not None and kept.disk is not None and self._maker.has(kept.disk):
            try:
                return await self._start_with(kept)
            except DiskDamaged:
                log.error("disk.damaged", disk_id=kept.disk.id)
                self.discard(Belongings(disk=kept.disk))
        while self._warm:
            sandbox = self._warm.pop()
            if not sandbox.is_lost:
                self._hits += 1
                self._in_use.add(sandbox)
                self._act()
                return sandbox
        self._misses += 1
        self._check_room()
        if self._retry is not None and self._last_error is not None and not self._starting:
            # Nothing is started before the back-off is over. Raised many times over, an error would
            # collect the frames of all whom it was told.
            raise self._last_error.with_traceback(None)
        return await self._wait_for_one()

    def _check_room(self) -> None:
        # Starts that openers already wait for count as in use.
        if len(self._in_use) + len(self._waiting) >= self._settings.maximum:
            raise PoolExhausted(
                f"All {self._settings.maximum} sandboxes are in use; close sessions that are done, "
                "try again later, or raise MAX_POOL_SIZE.",
                retry_after_seconds=5.0,
            )

    async def _start_with(self, kept: Belongings) -> Sandbox:
        self._misses += 1
        self._check_room()
        self._starting += 1
        try:
            sandbox = await self._maker.make(kept)
        except DiskDamaged:
            raise
        except Exception as error:
            self._failed_starts += 1
            raise _told(error) from error
        finally:
            self._starting -= 1
            self._act()
        self._in_use.add(sandbox)
        return sandbox

    async def _wait_for_one(self) -> Sandbox:
        waiter: asyncio.Future[Sandbox] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._act()
        try:
            # Not a timeout around it: a sandbox that comes in the same moment would be lost.
            await asyncio.wait([waiter], timeout=self._settings.wait_seconds)
            if waiter.done():
                return waiter.result()
            raise self._last_error or EngineFailed(
                "No sandbox became ready in time; see the daemon's log.", retry_after_seconds=2.0
            )
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.release(waiter.result())  # it came, and so did the cancel
            raise
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            self._act()

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
            await self._became_warm.wait_for(lambda: len(self._warm) >= self._settings.target)

    # --- keeping the plan ---

    def _act(self) -> None:
        """Do what the plan says. Called after every change; never awaits."""
        if self._closed:
            return
        plan = plan_pool(
            warm=[sandbox.id for sandbox in self._warm],
            stale=self._stale,
            starting=self._starting,
            in_use=len(self._in_use),
            waiting=len(self._waiting),
            target=self._settings.target,
            maximum=self._settings.maximum,
            concurrency=self._settings.concurrency,
        )
        for sandbox_id in plan.destroy:
            sandbox = next(one for one in self._warm if one.id == sandbox_id)
            self._warm.remove(sandbox)
            self._stale.discard(sandbox_id)
            self._destroy(sandbox)
        for _ in range(plan.start if self._retry is None else 0):
            self._starting += 1
            self._tasks.spawn(self._start_one(), "pool-start")

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
        self._starting -= 1
        self._failures = 0
        self._last_error = None
        log.info(
            "sandbox.started", sandbox_id=sandbox.id, seconds=round(time.monotonic() - began, 3)
        )
        await self._add(sandbox)

    async def _add(self, sandbox: Sandbox) -> None:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._in_use.add(sandbox)
                waiter.set_result(sandbox)
                break
        else:
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
            waiting, self._waiting = self._waiting, deque()
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_exception(error)
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
