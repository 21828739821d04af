"""Blocking work in a thread, of which nothing is left behind when its caller gives up."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def to_the_end(
    work: Callable[[], T], *, seconds: float, undo: Callable[[T], object] | None = None
) -> T:
    """Do `work` in a thread; a cancel waits for its end, undoes it, and is raised then.

    A system call cannot be interrupted: one that nobody waits for would leave behind what it
    makes. Work that takes longer than `seconds` is a TimeoutError, and is undone when it ends.
    """
    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(None, work)
    cancel = await _outlasted(running, seconds)
    if not running.done():
        running.add_done_callback(partial(_undo_late, undo))
        raise cancel or TimeoutError(errno.ETIMEDOUT, f"the host took longer than {seconds:g} s")
    if cancel is None:
        return running.result()
    if running.exception() is None and undo is not None:
        await _outlasted(loop.run_in_executor(None, undo, running.result()), seconds)
    raise cancel


async def _outlasted(running: asyncio.Future[T], seconds: float) -> asyncio.CancelledError | None:
    """Wait for the end, also through cancels; returns the last of them."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    cancel = None
    while not running.done() and (left := give_up_at - loop.time()) > 0:
        try:
            await asyncio.wait([running], timeout=left)
        except asyncio.CancelledError as error:
            cancel = error
    return cancel


def _undo_late(undo: Callable[[T], object] | None, ended: asyncio.Future[T]) -> None:
    if undo is not None and not ended.cancelled() and ended.exception() is None:
        ended.get_loop().run_in_executor(None, undo, ended.result())
