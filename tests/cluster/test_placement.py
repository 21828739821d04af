"""Where a new session goes."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sandboxd.cluster.contract import Load, Worker, WorkerState
from sandboxd.cluster.placement import Wish, candidates


def make(
    name: str,
    *,
    state: WorkerState = WorkerState.READY,
    lease_seconds: float = 10,
    capacity: int = 10,
    used: int = 0,
    starting: int = 0,
    warm: int = 0,
    environments: tuple[str, ...] = (),
    package_sets: tuple[str, ...] = (),
) -> Worker:
    return Worker(
        id=name,
        address=name,
        generation=1,
        state=state,
        lease_seconds=lease_seconds,
        load=Load(
            warm=warm,
            used=used,
            starting=starting,
            capacity=capacity,
            environments=environments,
            package_sets=package_sets,
        ),
    )


ANY = Wish()


def order(workers: list[Worker], wish: Wish = ANY) -> str:
    return "".join(found.id for found in candidates(workers, wish, random.Random(1)))


@pytest.mark.parametrize(
    ("workers", "expected"),
    [
        ([make("a", used=5), make("b", used=2)], "ba"),
        ([make("a", used=5), make("b", used=5, capacity=100)], "ba"),
        ([make("a", used=2), make("b", used=3, warm=3)], "ba"),
        ([make("a", used=5, warm=9), make("b", used=4, warm=3)], "ba"),
        ([make("a", starting=3), make("b", used=2)], "ba"),
        ([make("a", used=10, warm=3), make("b", used=9)], "ba"),
    ],
    ids=["used", "share of capacity", "warm", "many warm", "starting", "full ones last"],
)
def test_the_least_loaded_comes_first(workers: list[Worker], expected: str) -> None:
    assert order(workers) == expected


@pytest.mark.parametrize(
    "unable",
    [
        make("a", state=WorkerState.DRAINING),
        make("a", state=WorkerState.LOST),
        make("a", lease_seconds=0),
        make("a", capacity=0),
    ],
    ids=["draining", "lost", "lease over", "no capacity"],
)
def test_a_worker_that_cannot_is_not_asked(unable: Worker) -> None:
    assert order([unable, make("b", used=9)], Wish(last_owner="a")) == "b"
    assert order([unable]) == ""


def test_the_last_owner_is_preferred_unless_it_is_full() -> None:
    workers = [make("a"), make("b", used=8)]
    assert order(workers, Wish(last_owner="b")) == "ba"
    workers = [make("a"), make("b", used=10)]
    assert order(workers, Wish(last_owner="b")) == "ab"


def test_what_is_already_there_breaks_ties() -> None:
    workers = [make("a"), make("b", environments=("data",)), make("c", package_sets=("p",))]
    assert order(workers, Wish(environment="data"))[0] == "b"
    assert order(workers, Wish(package_set="p"))[0] == "c"
    assert order(workers, Wish())[0] == "a"


def test_many_placements_by_one_report_do_not_all_go_to_one_worker() -> None:
    """Between two reports everybody sees the same figures."""
    workers = [make(f"w{number:02}", used=number % 5) for number in range(50)]
    randomness = random.Random(7)

    first = Counter(candidates(workers, Wish(), randomness)[0].id for _ in range(1000))

    assert max(first.values()) < 100
    assert all(len(candidates(workers, Wish(), randomness)) == 50 for _ in range(3))
