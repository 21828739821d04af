"""Contestants measured in turns, so that a disturbance of the machine affects all alike."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

PAUSE_SECONDS = 0.006
"""Pause between two turns, so that nothing is measured with caches still hot."""
WARM_UP_ROUNDS = 3
MIN_ROUNDS = 10


@dataclass(frozen=True, kw_only=True)
class Contestant:
    name: str
    call: Callable[[], Awaitable[float]]
    """Runs once and returns the measured seconds."""
    every: int = 1
    """Takes part only in every nth round; slow contestants need not be in all."""
    in_a_row: int = 1
    """Number of runs in a turn, without a pause."""
    aftermath_seconds: float = 0.0
    """How long it keeps the machine busy after its answer, at the next one's expense."""


async def race(
    contestants: Sequence[Contestant], *, rounds: int, seconds: float, least: int = MIN_ROUNDS
) -> dict[str, list[float]]:
    """Seconds of every call, by contestant; fewer rounds, but `least`, if they would take too long.

    The order changes from round to round; otherwise each would always run after the same other one.
    """
    samples: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    order = list(contestants)
    shuffler = random.Random(1)
    give_up_at = time.monotonic() + seconds
    for number in range(-WARM_UP_ROUNDS, rounds):
        if number >= least and time.monotonic() > give_up_at:
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
    """The value at a percentage of the sorted samples, interpolated between two of them."""
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
