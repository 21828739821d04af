"""Means and percentiles in bounded space."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.histogram import Histogram


def test_histogram_of_nothing_is_zero() -> None:
    """Before the first observation every figure is 0."""
    empty = Histogram()
    assert (empty.count, empty.mean_seconds, empty.quantile(0.99)) == (0, 0.0, 0.0)


@given(
    seconds=st.lists(st.floats(0.0005, 7200.0), min_size=1, max_size=300),
    part=st.sampled_from([0.5, 0.95, 0.99, 1.0]),
)
def test_quantile_is_off_by_less_than_a_class(seconds: list[float], part: float) -> None:
    """A percentile is at most 15 % above the true one and never below it."""
    histogram = Histogram()
    for one in seconds:
        histogram.observe(one)
    ordered = sorted(seconds)
    true = next(one for n, one in enumerate(ordered, 1) if n >= part * len(ordered))

    assert true <= histogram.quantile(part) * 1.000001
    assert histogram.quantile(part) <= true * 1.1501
    assert histogram.mean_seconds == pytest.approx(sum(seconds) / len(seconds))
    assert histogram.longest_seconds == ordered[-1]


def test_within_counts_what_did_not_exceed_a_limit() -> None:
    """Counts up to each limit grow to all of them; those far from a limit are counted right."""
    histogram = Histogram()
    for one in (0.001, 0.01, 0.1, 1.0, 10.0, 100_000.0):
        histogram.observe(one)
    assert histogram.within([0.005, 0.05, 0.5, 5.0, 50.0]) == [1, 2, 3, 4, 5]
