"""How large a pool should be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.pool.demand import BURST_SECONDS, Demand

MEMORY = 300.0


def demand(*, least: int = 3, most: int = 10) -> Demand:
    return Demand(least=least, most=most, memory_seconds=MEMORY, now=0.0)


def test_demand_begins_at_its_upper_bound_and_falls_to_the_lower_one() -> None:
    """A pool that nobody uses is full at first and shrinks once, after its idle time."""
    idle = demand()
    assert [idle.target(now) for now in (0.0, MEMORY - 1, MEMORY, 9 * MEMORY)] == [10, 10, 3, 3]


def test_demand_tells_when_to_look_again() -> None:
    """The time of the next fall is known, and there is none below the lower bound."""
    idle = demand()
    assert idle.seconds_to_fall(100.0) == pytest.approx(MEMORY - 100.0)
    assert idle.seconds_to_fall(MEMORY) is None


def test_demand_follows_the_largest_burst_of_its_memory() -> None:
    """Opens far apart need few; a burst is remembered as long as the idle time."""
    used = demand()
    for number in range(5):
        used.on_open(MEMORY + number)
    assert used.target(2 * MEMORY) == 5
    used.on_open(2 * MEMORY)
    assert used.target(2 * MEMORY + 3.9) == 5
    assert used.target(2 * MEMORY + 4.0) == 3, "the burst is forgotten, a single open needs no more"


def test_opens_far_apart_are_no_burst() -> None:
    """One open after another, each with time to refill, never needs more than the minimum."""
    used = demand(least=1)
    for number in range(100):
        used.on_open(MEMORY + number * (BURST_SECONDS + 0.1))
    assert used.target(MEMORY + 100 * (BURST_SECONDS + 0.1)) == 1


def test_minimum_above_the_initial_size_counts() -> None:
    """A lower bound above the upper one is both."""
    assert demand(least=5, most=2).target(0.0) == 5


@given(
    opens=st.lists(st.floats(0.0, 2000.0), max_size=200).map(sorted),
    least=st.integers(0, 5),
    most=st.integers(0, 12),
)
def test_demand_is_the_largest_burst_within_its_bounds(
    opens: list[float], least: int, most: int
) -> None:
    """Whatever comes, the target is what counting everything anew would give."""
    used = demand(least=least, most=most)
    for now in opens:
        used.on_open(now)
    now = (opens[-1] if opens else 0.0) + 50.0
    bursts = [
        sum(end - BURST_SECONDS < one <= end for one in opens[: number + 1])
        for number, end in enumerate(opens)
        if end > now - MEMORY
    ]
    if now < MEMORY:
        bursts.append(most)
    assert used.target(now) == max(least, min(max(most, least), max(bursts, default=0)))
