"""Limit on the rate of calls of each caller."""

from __future__ import annotations

import time
from collections.abc import Callable

from sandboxd.access.caller import Caller, Scope
from sandboxd.errors import TooManyRequests


class RateLimit:
    """A steady rate after a burst. Admins, who call for many users, are not limited.

    It keeps one time for each caller: when the calls so far would have been due at the steady
    rate. That time may lie ahead by as much as the burst takes.
    """

    def __init__(
        self,
        *,
        calls_per_second: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval = 1 / calls_per_second if calls_per_second else 0.0
        self._ahead = (burst - 1) * self._interval
        self._clock = clock
        self._due: dict[str, float] = {}
        """Due time by name of the caller; there are as many names as tokens."""

    def take(self, caller: Caller) -> None:
        """Count a call, or refuse it with the time to wait."""
        if not self._interval or caller.scope is Scope.ADMIN:
            return
        now = self._clock()
        due = max(self._due.get(caller.name, now), now)
        wait = due - now - self._ahead
        if wait > 0:
            raise TooManyRequests(
                f"This token may make {1 / self._interval:g} calls per second and made more; try "
                f"again in {wait:.2g} s.",
                retry_after_seconds=wait,
            )
        self._due[caller.name] = due + self._interval
