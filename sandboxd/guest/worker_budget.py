"""Processor time for workers: so much per second, and some of it in advance.

A worker that lasts is moved under the quota of the commands. Most end before that would pay, so a
caller with many short requests could use any number of processors. Each worker is therefore charged
with what it has used, and the next one waits until that is paid for.
"""

import time

ADVANCE_SECONDS = 1.0
"""Seconds whose share may be used at once."""
MOST_SECONDS = 0.1
"""Most that one worker is charged with: one that uses more is under the quota by then."""

STAY_SECONDS = 0.05
"""Most that a worker may use, where it has a whole processor, before it has to end and is charged:
until then nothing is known of it."""


class WorkerBudget:
    """What the workers of a sandbox may use together."""

    def __init__(self) -> None:
        self._share = 0.0
        self._paid_at = 0.0

    def set_share(self, processors: float) -> None:
        """Limit workers to so many processors on average; 0 means no limit."""
        self._share = processors

    def charge(self, seconds: float) -> None:
        """A worker has used this much processor time."""
        if self._share:
            begin = max(self._paid_at, time.monotonic() - ADVANCE_SECONDS)
            self._paid_at = begin + min(seconds, MOST_SECONDS) / self._share

    @property
    def stay_seconds(self) -> float:
        """What a worker may use before it is charged, in proportion to the share."""
        return STAY_SECONDS * min(self._share or 1.0, 1.0)

    @property
    def free_at(self) -> float:
        """When another worker may start; in the past if it may do so now."""
        return self._paid_at if self._share else 0.0
