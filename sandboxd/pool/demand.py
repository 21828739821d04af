"""How many warm sandboxes were needed at once recently."""

from __future__ import annotations

from collections import deque

BURST_SECONDS = 10.0
"""Opens within this time are one burst: the pool is not refilled between them."""
MAX_COUNTED = 256
"""Recent opens that are counted; beyond that, two environments are equally busy."""


class Demand:
    """The largest burst that an environment had recently, and how often it was used.

    Times are those of any one clock that never goes back.
    """

    def __init__(self, *, most: int, memory_seconds: float, first: tuple[float, int] | None = None):
        """`first`: time and size of a burst to begin with."""
        self._most = most
        self._memory_seconds = memory_seconds
        self._opens: deque[float] = deque(maxlen=MAX_COUNTED)
        """Times of the latest opens."""
        self._peaks: deque[tuple[float, int]] = deque([first] if first else ())
        """Times and sizes of bursts that no later one has reached, so the first is the largest."""

    def on_open(self, now: float) -> None:
        """Note that somebody needs a sandbox."""
        self._opens.append(now)
        burst = 0
        for opened in reversed(self._opens):
            if opened <= now - BURST_SECONDS or burst >= self._most:
                break
            burst += 1
        while self._peaks and self._peaks[-1][1] <= burst:
            self._peaks.pop()
        self._peaks.append((now, burst))

    def peak(self, now: float) -> int:
        """Size of the largest burst that is remembered."""
        while self._peaks and self._peaks[0][0] <= now - self._memory_seconds:
            self._peaks.popleft()
        return self._peaks[0][1] if self._peaks else 0

    def opens(self, now: float) -> int:
        """Opens that are remembered."""
        while self._opens and self._opens[0] <= now - self._memory_seconds:
            self._opens.popleft()
        return len(self._opens)

    def seconds_to_fall(self, now: float) -> float | None:
        """Seconds until the peak may fall without another open; None if it cannot fall."""
        if self.peak(now) == 0:
            return None
        return self._peaks[0][0] + self._memory_seconds - now
