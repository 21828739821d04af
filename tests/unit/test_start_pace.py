"""How many starts at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sandboxd.pool.pace import StartPace


def machine(pace: StartPace, *, cores: int, rounds: int) -> None:
    """Starts of one second each, as long as there is a core for each."""
    for _ in range(rounds):
        at_once = pace.limit
        for _ in range(at_once):
            pace.on_started(max(1.0, at_once / cores), at_once=at_once)


def test_pace_grows_while_starts_stay_quick() -> None:
    """A large machine is used up to the setting, not beyond."""
    pace = StartPace(first=2, most=8)
    machine(pace, cores=64, rounds=50)
    assert pace.limit == 8


def test_pace_settles_where_more_would_only_be_slower() -> None:
    """A small machine is not given many times the starts that it has cores for."""
    pace = StartPace(first=2, most=64)
    machine(pace, cores=4, rounds=200)
    assert 4 <= pace.limit <= 10


def test_pace_falls_when_the_machine_gets_busy_and_recovers() -> None:
    """Starts that take long for whatever reason become fewer at once, and more again after."""
    pace = StartPace(first=4, most=8)
    machine(pace, cores=8, rounds=20)
    for _ in range(40):
        pace.on_started(10.0, at_once=pace.limit)
    assert pace.limit <= 2
    machine(pace, cores=8, rounds=60)
    assert pace.limit == 8


def test_starts_alone_prove_nothing_about_more() -> None:
    """A pool that starts one now and then does not conclude that many at once are fine."""
    pace = StartPace(first=2, most=8)
    for _ in range(100):
        pace.on_started(1.0, at_once=1)
    assert pace.limit == 2


@given(
    starts=st.lists(st.tuples(st.floats(0.0, 60.0), st.integers(1, 40)), max_size=100),
    first=st.integers(0, 50),
    most=st.integers(1, 32),
)
def test_pace_stays_within_its_bounds(
    starts: list[tuple[float, int]], first: int, most: int
) -> None:
    """Whatever is measured, at least one start is allowed and never more than the setting."""
    pace = StartPace(first=first, most=most)
    for seconds, at_once in starts:
        pace.on_started(seconds, at_once=at_once)
        assert 1 <= pace.limit <= most
