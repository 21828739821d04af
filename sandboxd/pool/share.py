"""Which environments are kept warm: a pure function, so that every case is a unit test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class WarmDemand:
    """How many warm sandboxes of an environment were needed recently."""

    environment: str
    peak: int
    """The largest recent burst of opens."""
    opens: int
    """Recent opens."""
    floor: int = 0
    """Warm sandboxes that are always kept."""
    places: int = 1
    """Places of the budget that each sandbox takes."""


def share_warm(demands: Sequence[WarmDemand], *, budget: int) -> Mapping[str, int]:
    """Warm sandboxes by environment, of a budget that all environments share.

    First every environment gets its floor, even beyond the budget. Then the rest is given out in
    rounds: in round k, every environment with a burst of at least k has k, the most used ones
    first. So a second environment gets its first warm sandbox before any other gets its last.
    """
    shares = {demand.environment: demand.floor for demand in demands}
    left = budget - sum(demand.floor * demand.places for demand in demands)
    wanting = [demand for demand in demands if demand.peak > demand.floor]
    by_use = sorted(wanting, key=lambda demand: -demand.opens)
    for count in range(1, max((demand.peak for demand in wanting), default=0) + 1):
        for demand in by_use:
            has_enough = shares[demand.environment] >= min(count, demand.peak)
            if has_enough or demand.places > left:
                continue
            shares[demand.environment] += 1
            left -= demand.places
    return shares
