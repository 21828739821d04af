"""Calls that wait for another worker, which end when that worker has lost its lease.

A worker that stands still answers nothing and closes no connection, so that a call would wait for
its own deadline while others may have taken the session long ago.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import structlog
from grpc import aio

from sandboxd.tasks import Tasks

log = structlog.get_logger()

LOOK_SECONDS = 0.5
"""Pause between two looks at a worker on which calls wait, and that has not answered of late."""
ANSWER_SECONDS = 1.0
"""A worker that has not answered a question about its health for so long is looked up."""


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
                if not await _answers(ask) and await self._is_lost(worker):
                    log.warning("cluster.peer_lost", worker=worker, calls=len(waiting))
                    for call in tuple(waiting):
                        self._ended.add(call)
                        call.cancel()
        finally:
            if self._waiting.get(worker) is waiting:
                del self._waiting[worker]


async def _answers(ask: Callable[[], Any]) -> bool:
    with suppress(aio.AioRpcError, TimeoutError):
        async with asyncio.timeout(ANSWER_SECONDS):
            await ask()
            return True
    return False
