"""What the pools do next: a pure function, so that every race is a unit test."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PoolState:
    """The pool of one environment, as far as the plan needs it."""

    environment: str
    warm: Sequence[str]
    """Ids of warm sandboxes, oldest first."""
    stale: Collection[str] = ()
    """Ids of those that are to be replaced."""
    starting: int = 0
    """Sandboxes that will become warm."""
    in_use: int = 0
    """Sandboxes that sessions have, or that are started for one opener."""
    target: int
    """Warm sandboxes that there should be beyond those for openers that wait."""
    places: int = 1
    """Places of the maximum that each sandbox takes."""
    is_paused: bool = False
    """Whether nothing may be started now, because the last start failed."""


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """Work for the pools to perform."""

    start: Sequence[str]
    """Environments of sandboxes to start now, in this order."""
    destroy: Sequence[str]
    """Ids of warm sandboxes to destroy."""


def plan_pools(
    pools: Sequence[PoolState], *, waiting: Sequence[str], maximum: int, concurrency: int
) -> PoolPlan:
    """Bring each pool to its target, plus one sandbox for each opener that waits for a warm one.

    `waiting` has the environments of these openers, in their turn. Never more than `maximum` places
    are taken, and never more than `concurrency` starts run at once. Stale sandboxes are replaced;
    warm ones beyond the target are destroyed, oldest first. Openers come first: for them, warm
    sandboxes that others may need later are destroyed, of the environment that has the most.
    """
    plan = _Plan(pools, waiting, maximum=maximum, concurrency=concurrency)
    plan.drop_stale_and_surplus()
    # Or what one opener lacks room for would be taken again and again by smaller sandboxes.
    if plan.start_for_openers():
        plan.start_for_targets()
    return PoolPlan(start=plan.start, destroy=plan.destroy)


class _Plan:
    def __init__(
        self, pools: Sequence[PoolState], waiting: Sequence[str], *, maximum: int, concurrency: int
    ) -> None:
        self._pools = {pool.environment: pool for pool in pools}
        self._waiting = waiting
        self._openers = Counter(waiting)
        self._kept = {
            pool.environment: [id_ for id_ in pool.warm if id_ not in pool.stale] for pool in pools
        }
        self._starting = {pool.environment: pool.starting for pool in pools}
        self._maximum = maximum
        self._slots = concurrency - sum(pool.starting for pool in pools)
        self.start: list[str] = []
        self.destroy: list[str] = []

    def drop_stale_and_surplus(self) -> None:
        for name, pool in self._pools.items():
            kept = self._kept[name]
            surplus = max(0, len(kept) - max(pool.target, self._openers[name]))
            self.destroy += [*sorted(pool.stale), *kept[:surplus]]
            del kept[:surplus]
        self._make_room(0)  # an opener may have taken a place for a start of its own

    def start_for_openers(self) -> bool:
        """Start one for each opener that no warm or starting sandbox will serve; False if there is
        no room for one of them."""
        served = {name: len(kept) + self._starting[name] for name, kept in self._kept.items()}
        for name in self._waiting:
            if served[name] > 0:
                served[name] -= 1
                continue
            pool = self._pools[name]
            if pool.is_paused:
                continue
            if self._slots <= 0 or not self._make_room(pool.places):
                return False
            self._begin(name)
        return True

    def start_for_targets(self) -> None:
        """Start what the targets still lack, the largest gap first, in the room that is left."""
        while self._slots > 0:
            gaps = [
                (self._gap(pool), pool)
                for pool in self._pools.values()
                if not pool.is_paused and pool.places <= self._room
            ]
            gap, pool = max(gaps, key=lambda entry: entry[0], default=(0, None))
            if pool is None or gap <= 0:
                return
            self._begin(pool.environment)

    def _gap(self, pool: PoolState) -> int:
        name = pool.environment
        wanted = pool.target + self._openers[name]
        return wanted - len(self._kept[name]) - self._starting[name]

    @property
    def _room(self) -> int:
        """Places that nothing takes."""
        taken = sum(
            (pool.in_use + self._starting[name] + len(self._kept[name])) * pool.places
            for name, pool in self._pools.items()
        )
        return self._maximum - taken

    def _make_room(self, places: int) -> bool:
        """Destroy warm sandboxes that no opener waits for until there are so many places."""
        victims: list[str] = []
        while self._room < places:
            spare = {
                name: len(kept) - self._openers[name]
                for name, kept in self._kept.items()
                if len(kept) > self._openers[name]
            }
            if not spare:
                return False
            victims.append(self._kept[max(spare, key=lambda name: spare[name])].pop(0))
        self.destroy += victims
        return True

    def _begin(self, name: str) -> None:
        self._starting[name] += 1
        self._slots -= 1
        self.start.append(name)
