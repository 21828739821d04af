"""Logs when the event loop is blocked, and by what."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from types import FrameType

import structlog

log = structlog.get_logger()

BLOCKED_SECONDS = 2.0
"""Calls wait for as long as the loop is blocked; this long is a fault, whatever the load."""
STACK_FRAMES = 12
"""Frames in the log, counted from the innermost."""


class LoopWatch:
    """Watches the running loop from another thread, for as long as the `with` block lasts."""

    def __init__(self, *, blocked_seconds: float = BLOCKED_SECONDS) -> None:
        self._limit = blocked_seconds
        self._period = blocked_seconds / 4
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)
        self._ended = threading.Event()
        self._turned_at = time.monotonic()
        self._loop_thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self.blockages = 0
        """Number of times that the loop was blocked for too long."""

    def __enter__(self) -> LoopWatch:
        self._loop_thread = threading.get_ident()
        self._turn(asyncio.get_running_loop())
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._ended.set()
        self._thread.join()

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._turned_at = time.monotonic()
        self._timer = loop.call_later(self._period, self._turn, loop)

    def _watch(self) -> None:
        reported_at = 0.0
        slept_at = time.monotonic()
        while not self._ended.wait(self._period):
            now, before = time.monotonic(), slept_at
            slept_at = now
            turned_at = self._turned_at
            if now - before > self._limit:
                continue  # the whole process was stopped, not only the loop
            if now - turned_at <= self._limit:
                if reported_at:
                    log.warning("loop.recovered", seconds=round(turned_at - reported_at, 3))
                    reported_at = 0.0
            elif not reported_at:
                reported_at = turned_at
                self.blockages += 1
                frame = sys._current_frames().get(self._loop_thread)
                seconds = round(now - turned_at, 3)
                log.error("loop.blocked", seconds=seconds, stack=_innermost(frame))


def _innermost(frame: FrameType | None) -> list[str]:
    """The stack without values: those hold requests, and requests hold secrets."""
    entries = traceback.extract_stack(frame, STACK_FRAMES) if frame else []
    return [f"{entry.filename}:{entry.lineno} {entry.name}" for entry in entries]
