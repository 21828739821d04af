"""The pools of a daemon, one for each environment, and the sweep of what they leave behind."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

import structlog

from sandboxd.environments.environment import DEFAULT_ENVIRONMENT, Environment
from sandboxd.errors import Draining, EnvironmentNotFound, SandboxdError
from sandboxd.pool.pace import StartPace
from sandboxd.pool.plan import plan_pools
from sandboxd.pool.pool import PoolFigures, PoolSettings, WarmPool
from sandboxd.pool.room import Room, Waiter
from sandboxd.pool.share import share_warm
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.tasks import Tasks

log = structlog.get_logger()

SWEEP_AGAIN_SECONDS = 5.0
"""Seconds until the next sweep after a sweep or a removal that failed."""
SECOND_SWEEP_SECONDS = 10.0
"""Seconds until the second sweep: the engine may still create what a killed daemon asked for."""


class Pools:
    """Warm pools over one maker, with one budget: demand decides which environments are kept warm.

    The sweep runs here: it covers the containers of all pools.
    """

    def __init__(
        self,
        maker: SandboxMaker,
        environments: Iterable[Environment],
        settings: PoolSettings,
        *,
        sweep_seconds: float,
        expected: Mapping[str, int] | None = None,
    ) -> None:
        """The default environment comes first. `expected`: sandboxes that sessions of an earlier
        daemon hold, by environment."""
        self._maker = maker
        self._settings = settings
        self._sweep_seconds = sweep_seconds
        # A start keeps about one core busy.
        cores = len(os.sched_getaffinity(0))
        self._room = Room(
            maximum=settings.maximum,
            max_queue=settings.max_queue,
            pace=StartPace(first=max(2, cores), most=settings.concurrency),
            act=self._act,
        )
        self._tasks = Tasks()
        self._shrink: asyncio.TimerHandle | None = None
        self._is_open = False
        self.on_image_missing: Callable[[str], None] = lambda _: None
        """Is called with the name of an environment whose image the engine does not have."""
        self._pools: dict[str, WarmPool] = {}
        for environment in environments:
            self._add(environment, (expected or {}).get(environment.name, 0))

    def _add(self, environment: Environment, expected: int) -> None:
        first = next(iter(self._pools.values()), None)
        unit = first.environment.memory_bytes if first else environment.memory_bytes
        is_default = first is None
        settings = self._settings
        minimum = max(environment.min_warm, settings.minimum if is_default else 0)
        pool = WarmPool(
            self._maker,
            environment,
            settings,
            self._room,
            places=max(1, -(-environment.memory_bytes // unit)),
            minimum=minimum,
            first_peak=max(minimum, settings.target) if is_default else 0,
            expected=expected,
        )
        pool.on_image_missing = lambda: self.on_image_missing(environment.name)
        self._pools[environment.name] = pool
        self._room.holders.append(pool)

    async def __aenter__(self) -> Pools:
        self._is_open = True
        self._tasks.spawn(self._keep_healthy(), "pool-health")
        self._tasks.spawn(self._keep_swept(), "sweep")
        self._act()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Destroy every sandbox of every pool."""
        self._is_open = False
        for pool in self._pools.values():
            pool.is_closed = True
        if self._shrink is not None:
            self._shrink.cancel()
        for waiter in tuple(self._room.queue):
            self._room.queue.leave(waiter.user_id, waiter)
            waiter.answer.set_exception(Draining())
        self._tasks.cancel("")
        await self._tasks.finish()
        await asyncio.gather(*(pool.aclose() for pool in self._pools.values()))
        await self._sweep()

    @property
    def default(self) -> WarmPool:
        """The pool of sessions that ask for no other environment."""
        return self.get(DEFAULT_ENVIRONMENT)

    @property
    def figures(self) -> Sequence[PoolFigures]:
        """Of every environment that has an image, or that somebody uses."""
        return [pool.figures for pool in self._pools.values() if pool.is_ready or pool.is_used]

    def get(self, environment_name: str) -> WarmPool:
        """The pool of an environment; EnvironmentNotFound if this daemon does not have it."""
        pool = self._pools.get(environment_name)
        if pool is None:
            raise EnvironmentNotFound(environment_name, sorted(self._pools))
        return pool

    def environment(self, name: str) -> Environment | None:
        """The environment of this name; None if this daemon does not have it."""
        pool = self._pools.get(name)
        return pool.environment if pool else None

    def use(self, environment: Environment) -> None:
        """Make sandboxes from this environment from here on: it has a new image."""
        self.get(environment.name).use(environment)

    def withdraw(self, environment_name: str) -> None:
        """Keep nothing of this environment warm: it has no image."""
        self.get(environment_name).withdraw()

    def destroy(self, sandbox: Sandbox, *, keep: bool = False) -> None:
        """Destroy a sandbox that a pool handed out; its files too, unless they are to be kept."""
        self.get(sandbox.environment.name).destroy(sandbox, keep=keep)

    def add_expected(self, sandbox: Sandbox) -> None:
        """Count a sandbox in use that a session of an earlier daemon holds."""
        self.get(sandbox.environment.name).add_expected(sandbox)

    def give_up_expected(self, environment_name: str) -> None:
        """Stop waiting for one of the expected sandboxes."""
        self.get(environment_name).give_up_expected()

    def leave_used(self) -> None:
        """Leave the sandboxes that sessions hold to the next daemon."""
        for pool in self._pools.values():
            pool.leave_used()

    # --- keeping the plan ---

    def _act(self) -> None:
        """Carry out the plan. Called after every change; never awaits."""
        if not self._is_open:
            return
        self._serve()
        self._share()
        pools = self._pools
        plan = plan_pools(
            [pool.state for pool in pools.values()],
            waiting=[waiter.environment for waiter in self._room.queue if not waiter.starts_own],
            maximum=self._settings.maximum,
            concurrency=self._room.pace.limit - sum(pool.reserved for pool in pools.values()),
        )
        for sandbox_id in plan.destroy:
            any(pool.destroy_warm(sandbox_id) for pool in pools.values())
        for name in plan.start:
            pools[name].start_one()
        self._watch_demand()

    def _serve(self) -> None:
        """Hand out what is free to those who wait, in their turn. Who waits for a sandbox to start
        does not delay others, but nobody takes a place that is somebody else's turn."""
        while (waiter := self._next_served()) is not None:
            self._room.queue.serve(waiter.user_id, waiter)

    def _next_served(self) -> Waiter | None:
        """The first opener that can be served; it has its answer."""
        becoming_warm = {name: pool.becoming_warm for name, pool in self._pools.items()}
        # A warm sandbox takes no place here: it is destroyed if its place is needed.
        taken = self._room.held + sum(
            pool.becoming_warm * pool.places for pool in self._pools.values()
        )
        for waiter in self._room.queue:
            pool = self._pools[waiter.environment]
            # No waiter in the queue has an answer yet: an answer, or giving up, takes it out.
            if waiter.starts_own:
                if taken + waiter.places <= self._settings.maximum:
                    pool.reserve()
                    waiter.answer.set_result(None)
                    return waiter
            elif (sandbox := pool.take_warm()) is not None:
                waiter.answer.set_result(sandbox)
                return waiter
            elif becoming_warm[waiter.environment]:
                becoming_warm[waiter.environment] -= 1
                continue
            elif pool.is_paused:
                continue
            taken += waiter.places
        return None

    def _share(self) -> None:
        """Give each pool its part of the warm sandboxes."""
        now = time.monotonic()
        demands = [pool.demand_at(now) for pool in self._pools.values()]
        shares = share_warm(demands, budget=self._settings.target)
        for name, share in shares.items():
            self._pools[name].target = share

    def _watch_demand(self) -> None:
        """Plan again when a target may have fallen."""
        now = time.monotonic()
        falls = [pool.demand.seconds_to_fall(now) for pool in self._pools.values()]
        seconds = min((fall for fall in falls if fall is not None), default=None)
        if self._shrink is None and seconds is not None:
            loop = asyncio.get_running_loop()
            self._shrink = loop.call_later(max(seconds, 0.01), self._shrink_if_idle)

    def _shrink_if_idle(self) -> None:
        self._shrink = None
        self._act()

    async def _keep_healthy(self) -> None:
        while True:
            await asyncio.sleep(self._settings.health_seconds)
            await asyncio.gather(*(pool.check_health() for pool in self._pools.values()))

    # --- the sweep ---

    async def _keep_swept(self) -> None:
        """Remove what a crash, a cancel or a failed removal left behind."""
        seconds = min(SECOND_SWEEP_SECONDS, self._sweep_seconds)
        while True:
            if await self._sweep():
                await self._wait_for_work(seconds)
                seconds = self._sweep_seconds
            await asyncio.sleep(min(SWEEP_AGAIN_SECONDS, self._sweep_seconds))

    async def _wait_for_work(self, seconds: float) -> None:
        """Wait for that long, or until a removal fails."""
        left_behind = asyncio.ensure_future(self._maker.left_behind.wait())
        try:
            await asyncio.wait([left_behind], timeout=seconds)
        finally:
            left_behind.cancel()

    async def _sweep(self) -> bool:
        try:
            count = await self._maker.sweep()
        except SandboxdError as error:
            log.warning("sweep.failed", error=str(error))
            return False
        if count:
            log.info("sweep.removed_containers", count=count)
        return True
