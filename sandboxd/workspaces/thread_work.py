"""Blocking work in a thread, which is undone if its caller is cancelled."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

from sandboxd.tasks import outlast

T = TypeVar("T")


async def run_in_thread(
    work: Callable[[], T],
    *,
    seconds: float,
    undo: Callable[[T], object] | None = None,
    threads: Executor | None = None,
) -> T:
    """Do `work` in a thread, of the event loop or of these. A cancel waits for its end, undoes it,
    and is raised then.

    A system call cannot be interrupted: if it was abandoned, what it makes would stay. Work that
    takes longer than `seconds` raises TimeoutError, and is undone when it ends.
    """
    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(threads, work)
    cancel = await outlast(running, seconds)
    if not running.done():
        running.add_done_callback(partial(_undo_late, undo, threads))
        raise cancel or TimeoutError(errno.ETIMEDOUT, f"the host took longer than {seconds:g} s")
    if cancel is None:
        return running.result()
    if running.exception() is None and undo is not None:
        await outlast(loop.run_in_executor(threads, undo, running.result()), seconds)
    raise cancel


def _undo_late(
    undo: Callable[[T], object] | None, threads: Executor | None, ended: asyncio.Future[T]
) -> None:
    if undo is not None and not ended.cancelled() and ended.exception() is None:
        ended.get_loop().run_in_executor(threads, undo, ended.result())
