"""Background tasks with an owner: none is lost, none fails unseen."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context

import structlog

log = structlog.get_logger()


class Tasks:
    """The tasks of one part of the daemon."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        # Not in the context of whoever caused it: its log lines are not about that call.
        task = asyncio.get_running_loop().create_task(work, name=name, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def cancel(self, prefix: str) -> None:
        """Cancel those whose name begins with `prefix`."""
        for task in self._tasks:
            if task.get_name().startswith(prefix):
                task.cancel()

    async def finish(self) -> None:
        """Wait until all have ended, also those started meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task.failed", task=task.get_name(), exc_info=error)
