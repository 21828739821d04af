"""How many warm sandboxes were needed at once recently."""

from __future__ import annotations

from collections import deque

BURST_SECONDS = 10.0
"""Opens within this time are one burst: the pool is not refilled between them."""


class Demand:
    """The size a pool should have: the largest burst it remembers, within bounds.

    It begins as if a burst of the upper bound had just been. Times are those of any one clock that
    never goes back.
    """

    def __init__(self, *, least: int, most: int, memory_seconds: float, now: float) -> None:
        self._least = least
        self._most = max(least, most)
        self._memory_seconds = memory_seconds
        self._opens: deque[float] = deque(maxlen=self._most)
        """Times of the latest opens, as many as can matter."""
        self._peaks: deque[tuple[float, int]] = deque([(now, self._most)])
        """Times and sizes of bursts that no later one has reached, so the first is the largest."""

    def on_open(self, now: float) -> None:
        """Note that somebody needs a sandbox."""
        self._opens.append(now)
        burst = sum(opened > now - BURST_SECONDS for opened in self._opens)
        while self._peaks and self._peaks[-1][1] <= burst:
            self._peaks.pop()
        self._peaks.append((now, burst))

    def target(self, now: float) -> int:
        """Warm sandboxes there should be."""
        while self._peaks and self._peaks[0][0] <= now - self._memory_seconds:
            self._peaks.popleft()
        return max(self._least, self._peaks[0][1] if self._peaks else 0)

    def seconds_to_fall(self, now: float) -> float | None:
        """Seconds until the target may fall without another open; None if it cannot fall."""
        if self.target(now) == self._least:
            return None
        return self._peaks[0][0] + self._memory_seconds - now
