"""Threads for blocking work of users, of which none can take all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from sandboxd.access.shares import Share
from sandboxd.access.turns import Turns
from sandboxd.errors import TooManyRequests
from sandboxd.workspaces.thread_work import run_in_thread

T = TypeVar("T")

NOBODY = ""
"""The user of work that the daemon does for all."""


class UserThreads:
    """Users are served in turn, and much work of one leaves a thread to others."""

    def __init__(self, share: Share, count: int, name: str) -> None:
        """`share`: of what waits."""
        self._share = share
        self._threads = ThreadPoolExecutor(count, thread_name_prefix=name)
        self.turns = Turns.of(share, refusal=self._refusal, places=count)

    async def run(
        self,
        user_id: str,
        work: Callable[[], T],
        *,
        seconds: float,
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """See run_in_thread; TooManyRequests. The wait for a turn has as much time."""
        async with self._turn(user_id, seconds):
            return await self.run_now(work, seconds=seconds, undo=undo)

    async def run_now(
        self,
        work: Callable[[], T],
        *,
        seconds: float,
        undo: Callable[[T], object] | None = None,
    ) -> T:
        """For work that may not be refused, such as what gives something back."""
        return await run_in_thread(work, seconds=seconds, undo=undo, threads=self._threads)

    def shutdown(self, *, wait: bool) -> None:
        self._threads.shutdown(wait=wait)

    @asynccontextmanager
    async def _turn(self, user_id: str, seconds: float) -> AsyncIterator[None]:
        async with asyncio.timeout(seconds):
            await self.turns.take(user_id)
        try:
            yield
        finally:
            self.turns.leave(user_id)

    def _refusal(self, who: str) -> TooManyRequests:
        return TooManyRequests(
            f"{who} already has too much {self._share.name}; try again in a moment.",
            retry_after_seconds=1.0,
        )
