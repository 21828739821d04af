"""The contract of history stores, for every implementation."""

from __future__ import annotations

import pytest

from sandboxd.registry.contract import ExecutionRecord, HistoryStore
from tests.unit.test_session_registry import ODD_TEXT


@pytest.fixture
def store(registry: HistoryStore) -> HistoryStore:
    return registry


def an_execution(number: int, session_id: str = "ses_1") -> ExecutionRecord:
    return ExecutionRecord(
        session_id=session_id,
        incarnation=2,
        exec_id=f"exe_{number}",
        command=ODD_TEXT,
        started_at=1000.5 + number,
        duration_seconds=0.25,
        ending="EXITED",
        code=number,
        signal=None,
        hint="",
        stdin_bytes=1,
        stdout_bytes=1 << 40,
        stderr_bytes=3,
        stdout_dropped=4,
        stderr_dropped=5,
        cpu_seconds=None if number % 2 else 0.125,
        peak_memory_bytes=6,
        peak_processes=7,
        oom_kills=8,
        refused_forks=9,
    )


async def test_executions_come_back_newest_first_and_bounded(store: HistoryStore) -> None:
    """Every field survives; the newest stay, of each session and of all together."""
    for begin in range(0, 12, 4):
        batch = [an_execution(number) for number in range(begin, begin + 4)]
        await store.add_executions(batch, per_session=5, in_all=100)
    await store.add_executions([an_execution(99, "ses_2")], per_session=5, in_all=100)

    found = await store.executions("ses_1", size=100, before=None)
    assert [record._replace(place=0) for record in found] == [
        an_execution(n) for n in range(11, 6, -1)
    ]
    page = await store.executions("ses_1", size=2, before=found[1].place)
    assert page == found[2:4]

    await store.add_executions([an_execution(100, "ses_2")], per_session=5, in_all=2)
    assert await store.executions("ses_1", size=100, before=None) == []
    assert len(await store.executions("ses_2", size=100, before=None)) == 2


async def test_figures_are_of_all_executions(store: HistoryStore) -> None:
    """Ends, success and durations are counted over the commands of all sessions."""
    took = [
        an_execution(number, f"ses_{number % 2}")._replace(duration_seconds=number / 10)
        for number in range(1, 101)
    ]
    took[0] = took[0]._replace(code=0)
    took[1] = took[1]._replace(code=0, ending="TIMED_OUT")
    await store.add_executions(took, per_session=100, in_all=100)

    figures = await store.execution_figures([0.5, 0.99])
    assert (figures.first_started_at, figures.total) == (1001.5, 100)
    assert figures.ends == {"EXITED": 99, "TIMED_OUT": 1}
    assert (figures.succeeded, figures.success_rate) == (1, 0.01)
    assert figures.quantiles == {0.5: 5.0, 0.99: 9.9}
    assert (figures.mean_seconds, figures.longest_seconds) == (pytest.approx(5.05), 10.0)


async def test_history_without_executions_has_figures(store: HistoryStore) -> None:
    """All of them are 0, but for the success rate, which is 1."""
    figures = await store.execution_figures([0.5])
    assert (figures.first_started_at, figures.total, figures.success_rate) == (None, 0, 1.0)
    assert (figures.quantiles, figures.mean_seconds) == ({0.5: 0.0}, 0.0)
