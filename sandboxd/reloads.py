"""What is read again while the daemon runs, on SIGHUP."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

log = structlog.get_logger()

RELOAD_SECONDS = 10.0
"""For each part."""


class Reloads:
    """Parts register what they read again; each keeps what it has if that fails."""

    def __init__(self) -> None:
        self._parts: dict[str, Callable[[], Awaitable[None]]] = {}

    def add(self, name: str, read_again: Callable[[], Awaitable[None]]) -> None:
        """Whatever `read_again` raises is logged; it has to leave the part as it was then."""
        self._parts[name] = read_again

    async def run(self) -> bool:
        """Read everything again; False if a part could not and goes on with what it had."""
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
            log.error("part.not_reloaded", part=name, error=str(error), exc_info=error)
            return False
        return True
