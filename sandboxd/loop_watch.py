"""Notices when the event loop stops turning, and logs what holds it up."""

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
"""Calls wait that long for a loop that does not turn: a fault, whatever the load."""
STACK_FRAMES = 12
"""The innermost ones."""


class LoopWatch:
    """Watches the running loop from a thread of its own, for as long as the block lasts."""

    def __init__(self, *, blocked_seconds: float = BLOCKED_SECONDS) -> None:
        self._limit = blocked_seconds
        self._period = blocked_seconds / 4
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)
        self._ended = threading.Event()
        self._turned_at = time.monotonic()
        self._loop_thread = 0
        self._timer: asyncio.TimerHandle | None = None
        self.blockages = 0
        """How often it stood still for too long."""

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
                continue  # the whole process stood still, not the loop alone
            if now - turned_at <= self._limit:
                if reported_at:
                    log.warning("loop.turns_again", seconds=round(turned_at - reported_at, 3))
                    reported_at = 0.0
            elif not reported_at:
                reported_at = turned_at
                self.blockages += 1
                frame = sys._current_frames().get(self._loop_thread)
                seconds = round(now - turned_at, 3)
                log.error("loop.blocked", seconds=seconds, stack=_innermost(frame))


def _innermost(frame: FrameType | None) -> list[str]:
    """Where it stands, without values: those hold requests, and requests hold secrets."""
    found = traceback.extract_stack(frame, STACK_FRAMES) if frame else []
    return [f"{one.filename}:{one.lineno} {one.name}" for one in found]
