"""Which environments are kept warm with one budget."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandboxd.pool.share import WarmDemand, share_warm


def wants(
    name: str, peak: int = 0, *, opens: int = 0, floor: int = 0, places: int = 1
) -> WarmDemand:
    return WarmDemand(environment=name, peak=peak, opens=opens, floor=floor, places=places)


def test_environment_alone_gets_its_burst_within_the_budget() -> None:
    """As many as were needed at once, at least the floor, at most the budget."""
    assert share_warm([wants("default", 4, floor=3)], budget=10) == {"default": 4}
    assert share_warm([wants("default", 40, floor=3)], budget=10) == {"default": 10}
    assert share_warm([wants("default", 0, floor=3)], budget=10) == {"default": 3}


def test_second_environment_gets_one_before_the_first_gets_its_last() -> None:
    """A single open is enough to be kept warm beside a busy environment."""
    shares = share_warm([wants("default", 10, opens=99), wants("data", 1, opens=1)], budget=10)
    assert shares == {"default": 9, "data": 1}


def test_most_used_environments_come_first_where_the_budget_is_short() -> None:
    """With more environments than places, those with the most opens are kept."""
    demands = [wants("a", 1, opens=1), wants("b", 1, opens=5), wants("c", 1, opens=3)]
    assert share_warm(demands, budget=2) == {"a": 0, "b": 1, "c": 1}


def test_environment_that_nobody_uses_costs_nothing() -> None:
    """It is started when it is opened."""
    assert share_warm([wants("default", 3), wants("data")], budget=10) == {"default": 3, "data": 0}


def test_floor_is_kept_even_beyond_the_budget() -> None:
    """What an operator always wants warm is not up to demand."""
    assert share_warm([wants("a", 5, floor=2), wants("b", floor=2)], budget=3) == {"a": 2, "b": 2}


def test_environment_that_needs_much_takes_several_places() -> None:
    """One with three times the memory costs three."""
    shares = share_warm([wants("a", 4, opens=9), wants("b", 4, opens=1, places=3)], budget=7)
    assert shares == {"a": 4, "b": 1}


@given(
    demands=st.lists(
        st.tuples(st.integers(0, 12), st.integers(0, 99), st.integers(0, 3), st.integers(1, 4)),
        max_size=6,
    ),
    budget=st.integers(0, 20),
)
def test_shares_are_within_the_budget_and_within_what_is_needed(
    demands: list[tuple[int, int, int, int]], budget: int
) -> None:
    """Beyond the floors the budget holds, nobody gets more than its burst, and what could still be
    given to somebody is given."""
    asked = [
        wants(f"e{number}", peak, opens=opens, floor=floor, places=places)
        for number, (peak, opens, floor, places) in enumerate(demands)
    ]
    shares = share_warm(asked, budget=budget)
    floors = sum(one.floor * one.places for one in asked)
    given_out = sum(shares[one.environment] * one.places for one in asked)

    assert given_out <= max(budget, floors)
    for one in asked:
        share = shares[one.environment]
        assert one.floor <= share <= max(one.floor, one.peak)
        assert share >= one.peak or one.places > budget - given_out
