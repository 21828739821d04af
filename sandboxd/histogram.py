"""Durations counted in buckets: means and percentiles in bounded space."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import inf

_SMALLEST_SECONDS = 0.0005
_GROWTH = 1.15
"""Ratio of the widths of two adjacent buckets, which bounds the error of a percentile."""
_BUCKETS = 120
"""Number of buckets; the last one starts above 2 hours."""
_BOUNDS = [_SMALLEST_SECONDS * _GROWTH**number for number in range(_BUCKETS)]


class Histogram:
    """Distribution of durations."""

    def __init__(self) -> None:
        self._counts = [0] * (_BUCKETS + 1)
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
        """Mean of all durations; 0 if there are none."""
        return self.sum_seconds / self.count if self.count else 0.0

    def quantile(self, part: float) -> float:
        """Duration that this part of all did not exceed, to within a bucket's width; 0 if none."""
        seen, wanted = 0, part * self.count
        for bound, count in zip([*_BOUNDS, inf], self._counts, strict=True):
            seen += count
            if seen >= wanted and seen:
                return min(bound, self.longest_seconds)
        return 0.0

    def within(self, limits: list[float]) -> list[int]:
        """Number of durations that did not exceed each limit, to within a bucket's width."""
        up_to = list(accumulate(self._counts))
        return [up_to[bisect_left(_BOUNDS, limit)] for limit in limits]
