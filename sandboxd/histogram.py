"""Durations counted in classes: means and percentiles in bounded space."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import inf

_SMALLEST_SECONDS = 0.0005
_GROWTH = 1.15
"""Each class is so much wider than the one before, which bounds the error of a percentile."""
_CLASSES = 120
"""The last one begins at over 2 hours."""
_BOUNDS = [_SMALLEST_SECONDS * _GROWTH**number for number in range(_CLASSES)]


class Histogram:
    """How often something took how long."""

    def __init__(self) -> None:
        self._counts = [0] * (_CLASSES + 1)
        self.count = 0
        self.sum_seconds = 0.0
        self.longest_seconds = 0.0

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(_BOUNDS, seconds)] += 1
        self.count += 1
        self.sum_seconds += seconds
        self.longest_seconds = max(self.longest_seconds, seconds)

    @property
    def mean_seconds(self) -> float:
        """0 if there were none."""
        return self.sum_seconds / self.count if self.count else 0.0

    def quantile(self, part: float) -> float:
        """What this part of all did not exceed, to within the width of a class; 0 if none were."""
        seen, wanted = 0, part * self.count
        for bound, count in zip([*_BOUNDS, inf], self._counts, strict=True):
            seen += count
            if seen >= wanted and seen:
                return min(bound, self.longest_seconds)
        return 0.0

    def within(self, limits: list[float]) -> list[int]:
        """How many did not exceed each of these, to within the width of a class."""
        up_to = list(accumulate(self._counts))
        return [up_to[bisect_left(_BOUNDS, limit)] for limit in limits]
