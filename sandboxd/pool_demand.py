"""How many warm sandboxes were needed at once lately."""

from __future__ import annotations

from collections import deque

BURST_SECONDS = 10.0
"""Opens within so short a time are one burst: what they take is not there again before the next."""


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
        """As many of the latest as can matter."""
        self._peaks: deque[tuple[float, int]] = deque([(now, self._most)])
        """Bursts and their sizes that no later one has reached, so the first is the largest."""

    def on_open(self, now: float) -> None:
        """Somebody needs a sandbox."""
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
        """Until the target may be lower without another open; None if it cannot get lower."""
        if self.target(now) == self._least:
            return None
        return self._peaks[0][0] + self._memory_seconds - now
