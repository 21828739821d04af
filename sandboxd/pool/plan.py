"""What the pool does next: a pure function, so that every race is a unit test."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """Work for the pool to perform."""

    start: int
    """Sandboxes to start now."""
    destroy: tuple[str, ...]
    """Warm sandboxes to destroy."""


def plan_pool(
    *,
    warm: Collection[str],
    stale: Collection[str],
    starting: int,
    in_use: int,
    waiting: int,
    target: int,
    maximum: int,
    concurrency: int,
) -> PoolPlan:
    """Bring the pool to `target` warm sandboxes, plus one for each opener that `waiting` counts.

    Never more than `maximum` sandboxes in all, never more than `concurrency` starts at once. Stale
    ones are replaced; warm ones beyond the target are destroyed, oldest first.
    """
    fresh = [sandbox_id for sandbox_id in warm if sandbox_id not in stale]
    surplus = max(0, len(fresh) - max(target, waiting))
    kept = len(fresh) - surplus
    wanted = target + waiting - kept - starting
    room = maximum - in_use - starting - kept
    slots = concurrency - starting
    return PoolPlan(
        start=max(0, min(wanted, room, slots)),
        destroy=(*sorted(stale), *fresh[:surplus]),
    )
