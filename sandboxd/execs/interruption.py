"""How a run of code is interrupted, and how long it gets to stop before its context is killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from signal import SIGINT, SIGRTMAX

from sandboxd.execs.host_kill import MAX_LOAD, host_load
from sandboxd.guest.frames import Target
from sandboxd.link import GuestLink, LinkClosed, PatientTimer

INSISTENT_SIGNAL = SIGRTMAX - 2
"""Interrupts code that ignores, blocks or swallows SIGINT; only contexts know it."""
INTERRUPTS = ((0.0, SIGINT), (0.2, SIGINT), (0.4, INSISTENT_SIGNAL), (0.6, INSISTENT_SIGNAL))
"""Signals to a run of code, and when."""
KILL_SECONDS = 1.0
"""Seconds from the first of them to the kill. They grow with the load of the host: code that had no
processor time could not stop, and with its context its variables would be lost."""


class Interruption:
    """Signals a run of code, and calls `kill`, if there is one, unless the run stops in time."""

    def __init__(
        self, link: GuestLink, number: int, kill: Callable[[], None] | None = None
    ) -> None:
        self._link = link
        self._number = number
        self._kill = kill
        loop = asyncio.get_running_loop()
        self._signals = [
            loop.call_later(seconds, self._send, signal) for seconds, signal in INTERRUPTS
        ]
        self._timer: PatientTimer | None = None
        if kill is not None:
            patience = min(max(1.0, host_load()), MAX_LOAD)
            self._timer = PatientTimer(KILL_SECONDS * patience, self._on_overdue)

    def cancel(self) -> None:
        self._kill = None
        for timer in self._signals:
            timer.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _send(self, signal: int) -> None:
        with suppress(LinkClosed):
            self._link.signal(self._number, signal, Target.LEADER)

    def _on_overdue(self) -> None:
        self._link.read_pending()  # which may cancel this
        if self._kill is not None:
            self._kill()
