"""How many calls each caller may make in a while."""

from __future__ import annotations

import time
from collections.abc import Callable

from sandboxd.access.caller import Caller, Scope
from sandboxd.errors import TooManyRequests


class RateLimit:
    """A steady rate with a burst before it. Admins, who call for many users, have none.

    Of each caller only a time is kept: when the calls made so far would all have been due at the
    steady rate. It may lie ahead by as much as the burst takes.
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
        """By the names of callers, of which there are as many as tokens."""

    def take(self, caller: Caller) -> None:
        """Count a call, or refuse it with the time to wait."""
        if not self._interval or caller.scope is Scope.ADMIN:
            return
        now = self._clock()
        due = max(self._due.get(caller.name, now), now)
        wait = due - now - self._ahead
        if wait > 0:
            raise TooManyRequests(
                f"This token makes more calls than the {1 / self._interval:g} per second it may; "
                f"try again in {wait:.2g} s.",
                retry_after_seconds=wait,
            )
        self._due[caller.name] = due + self._interval
