"""How many warm sandboxes an environment needed recently."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.pool.demand import BURST_SECONDS, MAX_COUNTED, Demand

MEMORY = 300.0


def demand(*, most: int = 10, first: int = 0) -> Demand:
    return Demand(most=most, memory_seconds=MEMORY, first=(0.0, first) if first else None)


def test_first_burst_is_remembered_like_any_other() -> None:
    """A pool that nobody uses is full at first and shrinks once, after its idle time."""
    idle = demand(first=10)
    assert [idle.peak(now) for now in (0.0, MEMORY - 1, MEMORY, 9 * MEMORY)] == [10, 10, 0, 0]


def test_environment_that_nobody_used_needs_nothing() -> None:
    """Only an open, or a first burst, is demand."""
    idle = demand()
    assert (idle.peak(0.0), idle.opens(0.0), idle.seconds_to_fall(0.0)) == (0, 0, None)


def test_time_of_the_next_fall_is_known() -> None:
    """And there is none once nothing is remembered."""
    idle = demand(first=3)
    assert idle.seconds_to_fall(100.0) == pytest.approx(MEMORY - 100.0)
    assert idle.seconds_to_fall(MEMORY) is None


def test_demand_follows_the_largest_burst_of_its_memory() -> None:
    """Opens far apart need few; a burst is remembered as long as the idle time."""
    used = demand()
    for number in range(5):
        used.on_open(MEMORY + number)
    assert used.peak(2 * MEMORY) == 5
    used.on_open(2 * MEMORY)
    assert used.peak(2 * MEMORY + 3.9) == 5
    assert used.peak(2 * MEMORY + 4.0) == 1, "the burst is forgotten, the single open is not"


def test_opens_far_apart_are_no_burst() -> None:
    """One open after another, each with time to refill, never needs more than one."""
    used = demand()
    for number in range(100):
        used.on_open(MEMORY + number * (BURST_SECONDS + 0.1))
    assert used.peak(MEMORY + 100 * (BURST_SECONDS + 0.1)) == 1


def test_opens_are_counted_as_long_as_bursts_and_up_to_a_limit() -> None:
    """The figure by which environments are compared is bounded."""
    used = demand()
    for number in range(2 * MAX_COUNTED):
        used.on_open(number * 0.001)
    assert used.opens(1.0) == MAX_COUNTED
    assert used.opens(2 * MEMORY) == 0


@given(
    opens=st.lists(st.floats(0.0, 2000.0), max_size=200).map(sorted),
    first=st.integers(0, 12),
    most=st.integers(0, 12),
)
def test_demand_is_the_largest_burst(opens: list[float], first: int, most: int) -> None:
    """Whatever comes, the peak is what counting everything anew would give."""
    used = demand(most=most, first=first)
    for now in opens:
        used.on_open(now)
    now = (opens[-1] if opens else 0.0) + 50.0
    bursts = [
        min(most, sum(end - BURST_SECONDS < one <= end for one in opens[: number + 1]))
        for number, end in enumerate(opens)
        if end > now - MEMORY
    ]
    if now < MEMORY:
        bursts.append(first)
    assert used.peak(now) == max(bursts, default=0)
