"""The pool's decisions, for every state it can be in."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.pool.plan import PoolPlan, plan_pool

ids = [f"s{number}" for number in range(40)]


@dataclass(frozen=True, kw_only=True)
class State:
    warm: list[str] = field(default_factory=list)
    stale: set[str] = field(default_factory=set)
    starting: int = 0
    in_use: int = 0
    waiting: int = 0
    target: int = 0
    maximum: int = 80
    concurrency: int = 4

    def plan(self) -> PoolPlan:
        return plan_pool(**vars(self))

    @property
    def total(self) -> int:
        return len(self.warm) + self.starting + self.in_use


@st.composite
def states(draw: st.DrawFn) -> State:
    """Any state a pool can get into: it holds at most its maximum, and nobody waits while a good
    one is warm."""
    maximum = draw(st.integers(1, 30))
    warm = draw(st.integers(0, maximum))
    starting = draw(st.integers(0, maximum - warm))
    in_use = draw(st.integers(0, maximum - warm - starting))
    stale = draw(st.sets(st.sampled_from(ids[:warm]))) if warm else set()
    return State(
        warm=ids[:warm],
        stale=stale,
        starting=starting,
        in_use=in_use,
        waiting=draw(st.integers(0, maximum)) if len(stale) == warm else 0,
        target=draw(st.integers(0, maximum)),
        maximum=maximum,
        concurrency=draw(st.integers(1, 8)),
    )


def carried_out(state: State, *, all_start: bool) -> State:
    """The state once the plan is done; waiting openers take what has started."""
    plan = state.plan()
    warm = [one for one in state.warm if one not in plan.destroy]
    started = state.starting + plan.start if all_start else 0
    handed_over = min(started, state.waiting)
    fresh = [f"n{state.in_use}-{number}" for number in range(started - handed_over)]
    return replace(
        state,
        warm=[*warm, *fresh],
        stale=set(),
        starting=state.starting + plan.start - started,
        waiting=state.waiting - handed_over,
        in_use=state.in_use + handed_over,
    )


@given(state=states())
def test_plan_stays_within_its_limits(state: State) -> None:
    """Never more sandboxes than the maximum, never more starts than allowed at once."""
    plan = state.plan()
    after = carried_out(state, all_start=False)

    assert after.total <= state.maximum
    assert plan.start == 0 or after.starting <= state.concurrency


@given(state=states())
def test_plan_destroys_the_stale_and_the_surplus_only(state: State) -> None:
    """Every stale one goes, once, and no fresh one that the target needs."""
    plan = state.plan()
    fresh = [one for one in state.warm if one not in state.stale]
    kept = [one for one in fresh if one not in plan.destroy]

    assert state.stale <= set(plan.destroy) <= set(state.warm)
    assert len(plan.destroy) == len(set(plan.destroy))
    assert len(kept) >= min(state.target, len(fresh))
    assert kept == fresh[len(fresh) - len(kept) :], "the oldest go first"


@given(state=states())
def test_plan_converges_to_its_target(state: State) -> None:
    """Carried out again and again, it serves all it can and then rests at the target."""
    for _ in range(100):
        after = carried_out(state, all_start=True)
        if after == state:
            break
        state = after
    else:
        pytest.fail(f"no rest in {state}")

    assert (state.starting, state.plan()) == (0, PoolPlan(start=0, destroy=()))
    room = state.maximum - state.in_use
    if state.waiting:
        assert room == 0, "nobody waits while there may be one more"
    else:
        assert len(state.warm) == min(state.target, room)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({"target": 3}, PoolPlan(start=3, destroy=()), id="empty"),
        pytest.param({"target": 9}, PoolPlan(start=4, destroy=()), id="a few at a time"),
        pytest.param({"target": 3, "starting": 3}, PoolPlan(start=0, destroy=()), id="on its way"),
        pytest.param(
            {"target": 2, "warm": ids[:2], "stale": {"s0"}},
            PoolPlan(start=1, destroy=("s0",)),
            id="a stale one is replaced",
        ),
        pytest.param(
            {"target": 1, "warm": ids[:3]}, PoolPlan(start=0, destroy=("s0", "s1")), id="surplus"
        ),
        pytest.param({"waiting": 2}, PoolPlan(start=2, destroy=()), id="openers without a target"),
        pytest.param(
            {"target": 5, "in_use": 78, "maximum": 80}, PoolPlan(start=2, destroy=()), id="maximum"
        ),
        pytest.param(
            {"target": 5, "in_use": 80, "waiting": 3}, PoolPlan(start=0, destroy=()), id="full"
        ),
    ],
)
def test_plan_of_a_known_state(given: dict[str, Any], expected: PoolPlan) -> None:
    """The decisions that matter, spelled out."""
    assert State(**given).plan() == expected
