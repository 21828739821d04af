"""Signs of life for the service manager, which restarts a daemon that gives none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import structlog

from sandboxd.notify import ServiceManager

log = structlog.get_logger()

STATUS_SECONDS = 10.0
"""How often the status is told where nobody waits for a sign of life."""


class Watchdog:
    """Tells the service manager that we are alive, from the loop itself: one that is stuck says
    nothing. So does a daemon whose parts do not answer; an engine that is away is no such part,
    because a restart would not bring it back."""

    def __init__(self, manager: ServiceManager) -> None:
        self._manager = manager
        self._check: Callable[[], Awaitable[None]] | None = None
        self._status: Callable[[], str] | None = None

    @contextmanager
    def over(
        self, *, check: Callable[[], Awaitable[None]], status: Callable[[], str]
    ) -> Iterator[None]:
        """While the block lasts, give signs of life only as long as `check` returns in time."""
        self._check, self._status = check, status
        try:
            yield
        finally:
            self._check = self._status = None

    async def keep_telling(self) -> None:
        limit = self._manager.watchdog_seconds
        period = limit / 3 if limit else STATUS_SECONDS
        while True:
            if await self._is_well(period):
                self._manager.alive()
            if self._status is not None:
                self._manager.status(self._status())
            await asyncio.sleep(period)

    async def _is_well(self, seconds: float) -> bool:
        if self._check is None:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._check()
        except TimeoutError:
            log.error("watchdog.no_answer", seconds=seconds)
            return False
        return True
