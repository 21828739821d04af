"""What the daemon reads again on SIGHUP, without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger()

RELOAD_SECONDS = 10.0
"""Time limit of each part."""


class Reloads:
    """Parts register what they read again; if that fails, a part keeps what it has."""

    def __init__(self) -> None:
        self._parts: dict[str, Callable[[], Awaitable[None]]] = {}

    def add(self, name: str, read_again: Callable[[], Awaitable[None]]) -> None:
        """Register a part. If `read_again` raises, it must leave the part as it was."""
        self._parts[name] = read_again

    async def run(self) -> bool:
        """Read everything again; False if a part failed and continues with what it had."""
        failed = [name for name in self._parts if not await self._reload(name)]
        if failed:
            log.error("daemon.reload_failed", parts=failed)
        else:
            log.info("daemon.reloaded", parts=list(self._parts))
        return not failed

    async def _reload(self, name: str) -> bool:
        try:
            async with asyncio.timeout(RELOAD_SECONDS):
                await self._parts[name]()
        except Exception as error:
            log.error("part.reload_failed", part=name, error=str(error), exc_info=error)
            return False
        return True
