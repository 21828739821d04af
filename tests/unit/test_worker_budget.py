"""The processor time of workers, on a clock that a test moves."""

from __future__ import annotations

import pytest

from sandboxd.guest import worker_budget
from sandboxd.guest.worker_budget import ADVANCE_SECONDS, MOST_SECONDS, WorkerBudget


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(worker_budget, "time", clock)
    return clock


def used_in(budget: WorkerBudget, clock: Clock, seconds: float, *, each: float) -> float:
    """What workers use that start whenever they may, one after the other and without pause."""
    used, until = 0.0, clock.now + seconds
    while clock.now < until:
        if budget.free_at <= clock.now:
            clock.now += each / 4  # four of them run at the same time
            budget.charge(each)
            used += each
        else:
            clock.now = budget.free_at
    return used


@pytest.mark.parametrize("share", [0.25, 1.0, 2.0])
@pytest.mark.parametrize("each", [0.001, 0.01, 0.05])
def test_share_is_kept_over_time(share: float, each: float, clock: Clock) -> None:
    """However short workers are, they use what they may, and the advance once."""
    budget = WorkerBudget()
    budget.set_share(share)
    used = used_in(budget, clock, 60, each=each)

    assert 60 * share * 0.95 <= used <= (60 + ADVANCE_SECONDS) * share + 2 * each


def test_a_pause_gives_the_advance_back_and_no_more(clock: Clock) -> None:
    """What was not used is not saved up."""
    budget = WorkerBudget()
    budget.set_share(0.5)
    clock.now += 3600
    used = used_in(budget, clock, 1, each=0.001)

    assert used <= (1 + ADVANCE_SECONDS) * 0.5 + 0.01


def test_a_long_worker_is_not_paid_for_twice(clock: Clock) -> None:
    """It was under the quota of the commands for most of its time."""
    budget = WorkerBudget()
    budget.set_share(1.0)
    budget.charge(ADVANCE_SECONDS)
    budget.charge(1000.0)

    assert budget.free_at <= clock.now - ADVANCE_SECONDS + 2 * MOST_SECONDS


def test_without_a_share_nothing_waits(clock: Clock) -> None:
    """Also once a daemon has taken the limit away."""
    budget = WorkerBudget()
    budget.charge(1000.0)
    assert budget.free_at <= clock.now
    budget.set_share(1e-6)
    budget.charge(1.0)
    assert budget.free_at > clock.now
    budget.set_share(0.0)
    assert budget.free_at <= clock.now
