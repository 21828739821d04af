"""The pools of a daemon, one for each environment, and the sweep of what they leave behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack

import structlog

from sandboxd.environments.environment import DEFAULT_ENVIRONMENT, Environment
from sandboxd.errors import InvalidRequest, SandboxdError, quoted
from sandboxd.pool.pool import PoolFigures, WarmPool
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.tasks import Tasks

log = structlog.get_logger()

SWEEP_AGAIN_SECONDS = 5.0
"""Seconds until the next sweep after a sweep or a removal that failed."""
SECOND_SWEEP_SECONDS = 10.0
"""Seconds until the second sweep: the engine may still create what a killed daemon asked for."""


class Pools:
    """Warm pools over one maker. The sweep runs here: it covers the containers of all pools."""

    def __init__(
        self, maker: SandboxMaker, pools: Iterable[WarmPool], *, sweep_seconds: float
    ) -> None:
        self._maker = maker
        self._pools = {pool.environment.name: pool for pool in pools}
        self._sweep_seconds = sweep_seconds
        self._tasks = Tasks()
        self._opened = AsyncExitStack()

    async def __aenter__(self) -> Pools:
        for pool in self._pools.values():
            await self._opened.enter_async_context(pool)
        self._tasks.spawn(self._keep_swept(), "sweep")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Destroy every sandbox of every pool."""
        self._tasks.cancel("sweep")
        await self._tasks.finish()
        await self._opened.aclose()
        await self._sweep()

    @property
    def default(self) -> WarmPool:
        """The pool of sessions that ask for no other environment."""
        return self.get(DEFAULT_ENVIRONMENT)

    @property
    def figures(self) -> Sequence[PoolFigures]:
        return [pool.figures for pool in self._pools.values()]

    def get(self, environment_name: str) -> WarmPool:
        """The pool of an environment; InvalidRequest if this daemon does not have it."""
        pool = self._pools.get(environment_name)
        if pool is None:
            raise InvalidRequest(
                "environment",
                f"{quoted(environment_name)} is not configured on this daemon; it has "
                f"{', '.join(sorted(self._pools))}",
            )
        return pool

    def environment(self, name: str) -> Environment | None:
        """The environment of this name; None if this daemon does not have it."""
        pool = self._pools.get(name)
        return pool.environment if pool else None

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
