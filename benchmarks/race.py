"""Contestants measured in turns, so that whatever disturbs the machine disturbs them all alike."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

PAUSE_SECONDS = 0.006
"""Between two turns: nothing is measured on a pipeline that is still hot from the one before."""
WARM_UP_ROUNDS = 3
MIN_ROUNDS = 10


@dataclass(frozen=True, kw_only=True)
class Contestant:
    name: str
    call: Callable[[], Awaitable[float]]
    """Does it once and returns the seconds that count."""
    every: int = 1
    """Takes part in every nth round only; slow ones need not be in all."""
    in_a_row: int = 1
    """How often in its turn, without a pause."""
    aftermath_seconds: float = 0.0
    """How long it keeps the machine busy after its answer; the next one must not pay for that."""


async def race(
    contestants: Sequence[Contestant], *, rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Seconds of every call, by contestant; fewer rounds where they would take too long.

    The order changes from round to round: each would otherwise always run in the wake of the same
    other one.
    """
    samples: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    order = list(contestants)
    shuffler = random.Random(1)
    give_up_at = time.monotonic() + seconds
    for number in range(-WARM_UP_ROUNDS, rounds):
        if number >= MIN_ROUNDS and time.monotonic() > give_up_at:
            break
        shuffler.shuffle(order)
        for contestant in order:
            if number % contestant.every == 0:
                taken = [await contestant.call() for _ in range(contestant.in_a_row)]
                if number >= 0:
                    samples[contestant.name] += taken
                await asyncio.sleep(PAUSE_SECONDS + contestant.aftermath_seconds)
    return samples


def percentile(samples: Sequence[float], percent: float) -> float:
    """The value at a percentage of the sorted samples, between two of them where it falls there."""
    ordered = sorted(samples)
    position = (len(ordered) - 1) * percent / 100
    below = math.floor(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def median(samples: Sequence[float]) -> float:
    return percentile(samples, 50)


def milliseconds(samples: Sequence[float], *percents: int) -> dict[str, float]:
    """Percentiles as columns of a table."""
    row = {f"p{percent}_ms": percentile(samples, percent) * 1000 for percent in percents}
    return {**row, "samples": len(samples)}
