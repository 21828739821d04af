"""The decisions of the pools, for every state that they can be in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.pool.plan import PoolPlan, PoolState, plan_pools

NAMES = ("default", "data", "node")
REST = PoolPlan(start=[], destroy=[])


@dataclass(frozen=True, kw_only=True)
class State:
    """Pools, openers and limits."""

    pools: Sequence[PoolState]
    waiting: Sequence[str] = ()
    maximum: int = 80
    concurrency: int = 4

    def plan(self) -> PoolPlan:
        return plan_pools(
            self.pools,
            waiting=self.waiting,
            maximum=self.maximum,
            concurrency=self.concurrency,
        )

    @property
    def taken(self) -> int:
        return sum(
            (len(pool.warm) + pool.starting + pool.in_use) * pool.places for pool in self.pools
        )


def ids(name: str, count: int) -> list[str]:
    return [f"{name}{number}" for number in range(count)]


def pool(
    name: str = "default",
    *,
    warm: int = 0,
    stale: Sequence[int] = (),
    starting: int = 0,
    in_use: int = 0,
    target: int = 0,
    places: int = 1,
    is_paused: bool = False,
) -> PoolState:
    return PoolState(
        environment=name,
        warm=ids(name, warm),
        stale={f"{name}{number}" for number in stale},
        starting=starting,
        in_use=in_use,
        target=target,
        places=places,
        is_paused=is_paused,
    )


@st.composite
def states(draw: st.DrawFn) -> State:
    """Any state that pools can get into: they hold at most the maximum, and nobody waits for an
    environment of which a good one is warm."""
    maximum = draw(st.integers(1, 24))
    left = maximum
    pools, waiting = [], []
    for name in NAMES[: draw(st.integers(1, 3))]:
        places = draw(st.integers(1, 3))
        parts = [draw(st.integers(0, 6)) for _ in range(3)]
        for index, count in enumerate(parts):
            parts[index] = min(count, left // places)
            left -= parts[index] * places
        warm, starting, in_use = parts
        stale = draw(st.sets(st.integers(0, warm - 1))) if warm else set()
        if len(stale) == warm:
            waiting += [name] * draw(st.integers(0, 6))
        pools.append(
            pool(
                name,
                warm=warm,
                stale=sorted(stale),
                starting=starting,
                in_use=in_use,
                target=draw(st.integers(0, 8)),
                places=places,
                is_paused=draw(st.booleans()),
            )
        )
    return State(
        pools=pools,
        waiting=draw(st.permutations(waiting)),
        maximum=maximum,
        concurrency=draw(st.integers(1, 8)),
    )


def carried_out(state: State, *, all_start: bool) -> State:
    """The state once the plan is done; waiting openers take what has started."""
    plan = state.plan()
    begun, waiting = Counter(plan.start), list(state.waiting)
    pools = []
    for before in state.pools:
        name = before.environment
        warm = [one for one in before.warm if one not in plan.destroy]
        started = before.starting + begun[name] if all_start else 0
        served = min(started, waiting.count(name))
        for _ in range(served):
            waiting.remove(name)
        fresh = [f"{name}-n{before.in_use}-{number}" for number in range(started - served)]
        pools.append(
            replace(
                before,
                warm=[*warm, *fresh],
                stale=(),
                starting=before.starting + begun[name] - started,
                in_use=before.in_use + served,
            )
        )
    return replace(state, pools=pools, waiting=waiting)


@given(state=states())
def test_plan_stays_within_its_limits(state: State) -> None:
    """Never more places than the maximum, never more starts at once than allowed, and none of an
    environment whose starts fail."""
    plan = state.plan()
    after = carried_out(state, all_start=False)

    assert after.taken <= state.maximum
    assert not plan.start or sum(pool.starting for pool in after.pools) <= state.concurrency
    assert not {pool.environment for pool in state.pools if pool.is_paused} & set(plan.start)


@given(state=states())
def test_plan_destroys_what_is_stale_and_nothing_that_an_opener_waits_for(state: State) -> None:
    """Every stale one goes, once; of the others the oldest of an environment go first."""
    plan = state.plan()
    stale = {one for pool in state.pools for one in pool.stale}

    assert stale <= set(plan.destroy) <= {one for pool in state.pools for one in pool.warm}
    assert len(plan.destroy) == len(set(plan.destroy))
    for before in state.pools:
        fresh = [one for one in before.warm if one not in before.stale]
        kept = [one for one in fresh if one not in plan.destroy]
        assert kept == fresh[len(fresh) - len(kept) :]


@given(state=states())
def test_plan_destroys_what_the_target_needs_only_for_an_opener(state: State) -> None:
    """Without openers, and within the maximum, only what is beyond the target goes."""
    quiet = replace(state, waiting=())
    plan = quiet.plan()
    for before in quiet.pools:
        fresh = [one for one in before.warm if one not in before.stale]
        kept = [one for one in fresh if one not in plan.destroy]
        assert len(kept) == min(before.target, len(fresh))


@given(state=states())
def test_plan_converges(state: State) -> None:
    """Carried out again and again, it serves all it can and then rests."""
    for _ in range(200):
        after = carried_out(state, all_start=True)
        if after == state:
            break
        state = after
    else:
        pytest.fail(f"no rest in {state}")

    assert state.plan() == REST
    paused = {pool.environment for pool in state.pools if pool.is_paused}
    places = {pool.environment: pool.places for pool in state.pools}
    room = state.maximum - sum(pool.in_use * pool.places for pool in state.pools)
    able = [name for name in state.waiting if name not in paused]
    if able:
        assert places[able[0]] > room, "the first who can be served does not wait beside room"


def test_empty_pool_is_filled_a_few_at_a_time() -> None:
    """As many as may start at once."""
    assert State(pools=[pool(target=3)]).plan().start == ["default"] * 3
    assert State(pools=[pool(target=9)]).plan().start == ["default"] * 4
    assert State(pools=[pool(target=3, starting=3)]).plan() == REST


def test_stale_and_surplus_sandboxes_go() -> None:
    """A stale one is replaced; beyond the target the oldest go."""
    replaced = State(pools=[pool(target=2, warm=2, stale=[0])]).plan()
    assert (replaced.start, replaced.destroy) == (["default"], ["default0"])
    surplus = State(pools=[pool(target=1, warm=3)]).plan()
    assert (surplus.start, surplus.destroy) == ([], ["default0", "default1"])


def test_maximum_counts_all_environments() -> None:
    """The room that is left is what no environment has."""
    pools = [pool(target=5, in_use=40), pool("data", in_use=38)]
    assert State(pools=pools).plan().start == ["default"] * 2
    pools = [pool(target=5, in_use=40), pool("data", in_use=40)]
    assert State(pools=pools, waiting=["data"]).plan() == REST


def test_burst_on_one_environment_takes_what_another_keeps_warm() -> None:
    """Openers come before what may be needed later; the environment with the most gives."""
    pools = [pool(warm=3, target=3), pool("node", warm=1, target=1), pool("data")]
    plan = State(pools=pools, waiting=["data", "data"], maximum=4).plan()

    assert plan.start == ["data", "data"]
    assert plan.destroy == ["default0", "default1"]


def test_failing_environment_does_not_hold_up_another() -> None:
    """Nothing of it is started, and the others are served as if it were not there."""
    pools = [pool("data", target=2, is_paused=True), pool("node")]
    plan = State(pools=pools, waiting=["data", "node"]).plan()

    assert plan.start == ["node"]


def test_opener_that_needs_much_is_not_passed_by_those_that_need_little() -> None:
    """What becomes free is kept for it, neither given to a later opener nor to a target."""
    pools = [pool(in_use=3, target=1), pool("data", places=2)]
    plan = State(pools=pools, waiting=["data", "default"], maximum=4).plan()

    assert plan == REST


def test_environment_that_needs_much_takes_several_places() -> None:
    """One with twice the memory counts as two."""
    pools = [pool(in_use=2), pool("data", places=2, target=5)]
    assert State(pools=pools, maximum=6, concurrency=9).plan().start == ["data", "data"]


def test_largest_gap_is_filled_first() -> None:
    """With few starts at once, the environment that lacks the most comes first."""
    pools = [pool(target=3, warm=2), pool("data", target=3)]
    assert State(pools=pools, concurrency=2).plan().start == ["data", "data"]
