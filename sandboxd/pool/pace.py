"""How many sandboxes to start at once."""

from __future__ import annotations

SLOWED = 2.0
"""A start that takes this many times as long as the best shows that the machine is busy."""
BACK_OFF = 0.8
FORGET = 0.05
"""Weight of a slower start in the best time, if no other start ran beside it."""


class StartPace:
    """As many as the machine can start without taking much longer for each.

    While starts take about the best time, one more at once is tried after each round of starts;
    when they take longer, a fifth fewer.
    """

    def __init__(self, *, first: int, most: int) -> None:
        self._most = most
        self._limit = float(max(1, min(first, most)))
        self._best_seconds: float | None = None
        self._in_flight = 0
        """Starts that had begun when the limit was lowered, and prove nothing about the new one."""

    @property
    def limit(self) -> int:
        """Starts that may run at once."""
        return int(self._limit)

    def on_started(self, seconds: float, *, at_once: int) -> None:
        """Note how long a start took, and how many ran when it ended, itself included."""
        best = self._learn(seconds, is_alone=at_once == 1)
        if self._in_flight > 0:
            self._in_flight -= 1
        elif seconds > SLOWED * best:
            self._limit = max(1.0, self._limit * BACK_OFF)
            self._in_flight = at_once - 1
        elif at_once >= self.limit:  # or it proves nothing about more
            self._limit = min(float(self._most), self._limit + 1 / self._limit)

    def _learn(self, seconds: float, *, is_alone: bool) -> float:
        """The best time. Only a start alone can make it longer: the others slow each other down."""
        best = self._best_seconds
        if best is None or seconds < best:
            best = seconds
        elif is_alone:
            best += FORGET * (seconds - best)
        self._best_seconds = best
        return best
