"""Work that a cancelled caller must not leave half done.

A cancelled caller is cancelled with the exception that it got first: a cancel scope of anyio knows
its own by the message in it. Such a scope cancels again and again until its block is left, so what
has to be finished runs in a task that the scope does not reach.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

CLOSING_SECONDS = 10.0
"""How long a cancelled caller waits until its connection is closed."""
CLEAN_UP_SECONDS = 2.0
"""How long a cancelled caller waits for other work, which then continues without it."""

_left_behind: set[asyncio.Task[Any]] = set()
"""Keeps tasks that no caller waits for from being collected."""


async def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """The result of the work, which a cancelled caller waits for up to CLOSING_SECONDS."""
    task = asyncio.ensure_future(work)
    cancel = await outlast(task, CLOSING_SECONDS)
    if cancel is None:
        return task.result()
    abandon(task)
    raise cancel


async def run_or_undo(work: Coroutine[Any, Any, T], undo: Callable[[T], Awaitable[object]]) -> T:
    """The result of the work. If the caller is cancelled, the work continues and is then undone;
    the caller waits for that up to CLEAN_UP_SECONDS."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        undoing = asyncio.create_task(_undo(task, undo), name="undo")
        _left_behind.add(undoing)
        undoing.add_done_callback(_left_behind.discard)
        await outlast(undoing, CLEAN_UP_SECONDS)
        raise
    return task.result()


async def _undo(task: asyncio.Future[T], undo: Callable[[T], Awaitable[object]]) -> None:
    try:
        await undo(await task)
    except Exception:
        pass  # it has failed, so there is nothing to undo; or nothing more can be done


async def outlast(work: asyncio.Future[Any], seconds: float) -> asyncio.CancelledError | None:
    """Wait for its end; once the caller is cancelled, up to `seconds` more, whatever else cancels
    it. Returns the first cancel."""
    loop = asyncio.get_running_loop()
    cancel: asyncio.CancelledError | None = None
    give_up_at = 0.0
    while not work.done():
        left = give_up_at - loop.time() if cancel else None
        if left is not None and left <= 0:
            break
        try:
            await asyncio.wait([work], timeout=left)
        except asyncio.CancelledError as error:
            if cancel is None:
                cancel, give_up_at = error, loop.time() + seconds
    return cancel


def abandon(task: asyncio.Future[Any]) -> None:
    """Cancel it if it still runs, and keep asyncio from logging a failure nobody waits for."""
    task.cancel()
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
