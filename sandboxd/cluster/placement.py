"""Which worker a new session should go to. It alone knows its places, and may refuse."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from sandboxd.cluster.contract import Worker, WorkerState

SAMPLE = 3
"""Out of so many, taken at random: reports are seconds old, and all would choose the same."""
MOST_WARM = 3
"""More warm sandboxes than this make a worker no better."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a session would profit from."""

    last_owner: str = ""
    """Worker that had it before, and may have its files."""
    environment: str = ""
    package_set: str = ""


def candidates(workers: Sequence[Worker], wish: Wish, randomness: random.Random) -> list[Worker]:
    """Workers to ask, the best first, then those out of the sample; those that are full last."""
    able = [worker for worker in workers if _is_able(worker)]
    sample = randomness.sample(able, min(SAMPLE, len(able)))
    chosen = {worker.id for worker in sample} | {wish.last_owner}
    return sorted(
        able,
        key=lambda worker: (
            _is_full(worker),
            worker.id != wish.last_owner,
            worker.id not in chosen,
            _pressure(worker),
            not (wish.environment and wish.environment in worker.load.environments),
            not (wish.package_set and wish.package_set in worker.load.package_sets),
            worker.id,
        ),
    )


def _is_able(worker: Worker) -> bool:
    return (
        worker.state is WorkerState.READY and worker.lease_seconds > 0 and worker.load.capacity > 0
    )


def _is_full(worker: Worker) -> bool:
    return worker.load.used + worker.load.starting >= worker.load.capacity


def _pressure(worker: Worker) -> float:
    load = worker.load
    return (load.used + load.starting - min(load.warm, MOST_WARM)) / load.capacity
