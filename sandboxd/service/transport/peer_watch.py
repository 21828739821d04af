"""Calls that wait for another worker, which end when that worker has lost its lease.

A worker that stands still answers nothing and closes no connection, so that a call would wait for
its own deadline while others may have taken the session long ago.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from grpc import aio

from sandboxd.tasks import Tasks

log = structlog.get_logger()

LOOK_SECONDS = 0.5
"""Pause between two questions to a worker on which calls wait."""
ANSWER_SECONDS = 1.0
"""A worker that has not answered for so long is looked up."""
AGAIN_SECONDS = 0.2
"""The same from then on, until it answers or is lost."""


class PeerWatch:
    """Calls that wait, by worker, and for each such worker a task that asks whether it lives.

    The directory is asked only about a worker that does not answer, since it is one for all.
    """

    def __init__(self, is_lost: Callable[[str], Awaitable[bool]]) -> None:
        """`is_lost`: whether the lease of a worker is over, so that others may have its
        sessions."""
        self._is_lost = is_lost
        self._waiting: dict[str, set[Any]] = {}
        self._ended: set[Any] = set()
        self._tasks = Tasks()

    async def aclose(self) -> None:
        await self._tasks.end()

    def has_ended(self, call: Any) -> bool:
        """Whether this call was ended because its worker is lost."""
        return call in self._ended

    @contextmanager
    def waiting(self, worker: str, call: Any, ask: Callable[[], Any]) -> Iterator[None]:
        """A call waits for a worker as long as the block lasts; `ask` asks for its health."""
        waiting = self._waiting.get(worker)
        if waiting is None:
            waiting = self._waiting[worker] = set()
            self._tasks.spawn(self._watch(worker, waiting, ask), "peer-watch")
        waiting.add(call)
        try:
            yield
        finally:
            waiting.discard(call)
            self._ended.discard(call)

    async def _watch(self, worker: str, waiting: set[Any], ask: Callable[[], Any]) -> None:
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                if not waiting:
                    return
                seconds = ANSWER_SECONDS
                while waiting and not await _answers(ask, seconds):
                    seconds = AGAIN_SECONDS
                    if await self._is_lost(worker):
                        self._end(worker, waiting)
        finally:
            if self._waiting.get(worker) is waiting:
                del self._waiting[worker]

    def _end(self, worker: str, waiting: set[Any]) -> None:
        log.warning("cluster.peer_lost", worker=worker, calls=len(waiting))
        for call in tuple(waiting):
            self._ended.add(call)
            call.cancel()


async def _answers(ask: Callable[[], Any], seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await ask()
            return True
    except TimeoutError:
        return False
    except aio.AioRpcError:
        await asyncio.sleep(seconds)  # it was refused at once
        return False
