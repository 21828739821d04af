"""Background tasks with an owner, and work that a cancel must not leave half done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVar

import structlog

log = structlog.get_logger()

T = TypeVar("T")

CANCEL_AGAIN_SECONDS = 1.0
END_SECONDS = 30.0
"""How long a task that was cancelled may take to end before it is left alone."""


class Tasks:
    """The tasks of one part of the daemon: none is lost, none fails unseen."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        # In an empty context: its log lines do not belong to the call that started it.
        task = asyncio.get_running_loop().create_task(work, name=name, context=Context())
        self._tasks.add(task)
        task.add_done_callback(self._on_done)

    def cancel(self, prefix: str) -> None:
        """Cancel the tasks whose names start with `prefix`."""
        for task in self._tasks:
            if task.get_name().startswith(prefix):
                task.cancel()

    async def finish(self) -> None:
        """Wait until all tasks have ended, including those started in the meantime."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def end(self) -> None:
        """Cancel all tasks, and wait until they have ended."""
        await end_tasks(self._tasks)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task.failed", task=task.get_name(), exc_info=error)


async def end_tasks(tasks: Collection[asyncio.Task[Any]], seconds: float = END_SECONDS) -> None:
    """Cancel tasks until they have ended: what they wait for may have swallowed a cancel."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    pending = {task for task in tasks if not task.done()}
    while pending and loop.time() < give_up_at:
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=CANCEL_AGAIN_SECONDS)
    for task in pending:
        log.error("task.does_not_end", task=task.get_name())


@contextmanager
def cancel_kept() -> Iterator[None]:
    """Raise a cancel that the block has swallowed.

    asyncio.wait_for of Python 3.11 does so if what it waited for has just ended, and libraries use
    it: a task that goes on for ever would not end then.
    """
    task = asyncio.current_task()
    assert task is not None
    before = task.cancelling()
    try:
        yield
    except asyncio.CancelledError:
        raise
    except Exception as error:
        if task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise
    if task.cancelling() > before:
        raise asyncio.CancelledError


async def run_to_end(
    work: Coroutine[Any, Any, T], undo: Callable[[T], Coroutine[Any, Any, None]] | None = None
) -> T:
    """Finish work that must not be left half done; its own deadlines bound it.

    A cancel is raised when the work has ended and its result, if it has one, is undone.
    """
    running = asyncio.ensure_future(work)
    cancel = await outlast(running)
    if cancel is None:
        return running.result()
    is_done = not running.cancelled() and running.exception() is None
    if is_done and undo is not None:
        undoing = asyncio.ensure_future(undo(running.result()))
        await outlast(undoing)
        if not undoing.cancelled() and (error := undoing.exception()) is not None:
            log.warning("task.undo_failed", error=str(error))
    raise cancel


async def outlast(
    running: asyncio.Future[T], seconds: float | None = None
) -> asyncio.CancelledError | None:
    """Wait for its end, at most for `seconds`, also through cancels; returns the last of them."""
    loop = asyncio.get_running_loop()
    give_up_at = None if seconds is None else loop.time() + seconds
    cancel = None
    while not running.done():
        left = None if give_up_at is None else give_up_at - loop.time()
        if left is not None and left <= 0:
            break
        try:
            await asyncio.wait([running], timeout=left)
        except asyncio.CancelledError as error:
            cancel = error
    return cancel
