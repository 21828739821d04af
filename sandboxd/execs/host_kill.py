"""How long a guest gets to end a command before the host ends its sandbox."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

from sandboxd.link import GuestLink, PatientTimer

STEP_SECONDS = 0.25
"""Seconds in which the guest has to end the command or report that it is still at it. They grow
with the load of the host, since all that the guest does then takes longer."""
MAX_LOAD = 15.0
"""Largest factor by which they grow."""
LIMIT_SECONDS = 5.0
"""Seconds in all, whatever the guest reports; more if that is less than a few steps."""
LIMIT_STEPS = 4
LOAD_FILE = Path("/proc/loadavg")


class HostKill:
    """Calls `kill` unless the guest ends its command in time; the reports of the guest win it time
    up to a limit."""

    def __init__(
        self,
        link: GuestLink,
        kill: Callable[[], None],
        is_frozen: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_frozen`: whether commands are stopped at the moment, so that they cannot die."""
        self._link = link
        self._kill = kill
        self._is_frozen = is_frozen
        self._loop = asyncio.get_running_loop()
        self._step = STEP_SECONDS * min(max(1.0, host_load()), MAX_LOAD)
        self._limit = max(LIMIT_SECONDS, LIMIT_STEPS * self._step)
        self._limit_at = self._loop.time() + self._limit
        self._is_cancelled = False
        self._timer: PatientTimer | None = None
        self.extend()

    def extend(self) -> None:
        """The guest is still ending the command."""
        left = self._limit_at - self._loop.time()
        if left > 0:
            self._stop_timer()
            self._timer = PatientTimer(min(self._step, left), self._on_overdue)

    def cancel(self) -> None:
        self._is_cancelled = True
        self._stop_timer()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_overdue(self) -> None:
        self._timer = None
        self._link.read_pending()  # which may cancel or extend this
        if self._is_frozen() and not self._is_cancelled:
            self._limit_at = self._loop.time() + self._limit
            self.extend()
            return
        if not self._is_cancelled and self._timer is None:
            self._kill()


def host_load() -> float:
    """Processes of the host that want to run, for each of its processors: on average over the last
    minute or at this moment, whichever is more."""
    average, _, _, running, _ = LOAD_FILE.read_text().split()
    wanting = max(float(average), float(running.partition("/")[0]))
    return wanting / (os.cpu_count() or 1)
