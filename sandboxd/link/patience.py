"""Waiting for a guest without blaming it for a daemon that stood still.

A daemon that was stopped, swapped out or starved finds its timers expired before it has read what
arrived meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

LATE_SECONDS = 0.05
"""A timer that runs this much after its time shows that the daemon stood still."""
GRACE_SECONDS = 0.25
"""Seconds added then, in which the event loop reads what has arrived and the guest can go on."""
MAX_GRACES = 4


class PatientTimer:
    """Calls `on_overdue` when its time is over, not counting a while in which the daemon stood
    still."""

    __slots__ = ("_due_at", "_graces", "_handle", "_loop", "_on_overdue")

    def __init__(self, seconds: float, on_overdue: Callable[[], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_overdue = on_overdue
        self._graces = MAX_GRACES
        self._set(seconds)

    def cancel(self) -> None:
        self._handle.cancel()

    def _set(self, seconds: float) -> None:
        self._due_at = self._loop.time() + seconds
        self._handle = self._loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        if self._graces and self._loop.time() - self._due_at > LATE_SECONDS:
            self._graces -= 1
            self._set(GRACE_SECONDS)
        else:
            self._on_overdue()


@asynccontextmanager
async def patient_timeout(seconds: float) -> AsyncIterator[None]:
    """asyncio.timeout with a PatientTimer."""
    async with asyncio.timeout(None) as wait:
        timer = PatientTimer(seconds, lambda: wait.reschedule(0.0))
        try:
            yield
        finally:
            timer.cancel()
