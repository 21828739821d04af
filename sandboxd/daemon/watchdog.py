"""Keep-alives for the service manager, which restarts a daemon that sends none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import structlog

from sandboxd.daemon.notify import ServiceManager

log = structlog.get_logger()

STATUS_SECONDS = 10.0
"""Seconds between reports of the status where no keep-alive is expected."""


class Watchdog:
    """Sends keep-alives from the event loop, so a blocked loop sends none.

    A daemon whose `check` does not return in time sends none either. The engine is not part of the
    check: a restart of the daemon would not bring it back.
    """

    def __init__(self, manager: ServiceManager) -> None:
        self._manager = manager
        self._check: Callable[[], Awaitable[None]] | None = None
        self._status: Callable[[], str] | None = None

    @contextmanager
    def checking(
        self, *, check: Callable[[], Awaitable[None]], status: Callable[[], str]
    ) -> Iterator[None]:
        """Within the block, send keep-alives only as long as `check` returns in time."""
        self._check, self._status = check, status
        try:
            yield
        finally:
            self._check = self._status = None

    async def run(self) -> None:
        limit = self._manager.watchdog_seconds
        period = limit / 3 if limit else STATUS_SECONDS
        while True:
            if await self._is_healthy(period):
                self._manager.alive()
            if self._status is not None:
                self._manager.status(self._status())
            await asyncio.sleep(period)

    async def _is_healthy(self, seconds: float) -> bool:
        if self._check is None:
            return True
        try:
            async with asyncio.timeout(seconds):
                await self._check()
        except TimeoutError:
            log.error("watchdog.check_timed_out", seconds=seconds)
            return False
        return True
