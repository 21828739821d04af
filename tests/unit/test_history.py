"""Records of ended commands on their way to the registry."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sandboxd import history as history_module
from sandboxd.history import History
from sandboxd.registry.contract import ExecutionRecord
from tests.fakes.waiting import eventually
from tests.unit.test_registry import an_execution


class SlowRegistry:
    """Keeps executions once its gate is open, or fails."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.kept: list[ExecutionRecord] = []
        self.failures = 0

    async def add_executions(
        self, records: Sequence[ExecutionRecord], *, per_session: int, in_all: int
    ) -> None:
        await self.gate.wait()
        if self.failures:
            self.failures -= 1
            raise OSError("no")
        self.kept += records

    async def executions(
        self, session_id: str, *, size: int, before: int | None
    ) -> list[ExecutionRecord]:
        return list(self.kept)


@pytest.fixture
def registry() -> SlowRegistry:
    return SlowRegistry()


@pytest.fixture
def history(registry: SlowRegistry) -> History:
    return History(registry, per_session=10, in_all=100)  # type: ignore[arg-type]  # what is used


async def test_records_are_written_by_themselves(
    history: History, registry: SlowRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon after a command has ended its record is in the registry, without being asked for."""
    monkeypatch.setattr(history_module, "FLUSH_SECONDS", 0.01)
    registry.gate.set()
    history.add(lambda: an_execution(1))
    await eventually(lambda: len(registry.kept) == 1)
    history.add(lambda: an_execution(2))
    await eventually(lambda: len(registry.kept) == 2)


async def test_reader_that_goes_away_has_nothing_written_twice(
    history: History, registry: SlowRegistry
) -> None:
    """A cancelled look at the history neither loses nor doubles what was pending."""
    history.add(lambda: an_execution(1))
    reading = asyncio.ensure_future(history.page("ses_1", size=9, before=None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    registry.gate.set()
    await history.aclose()

    assert registry.kept == [an_execution(1)]


async def test_records_beyond_the_bound_are_counted(
    history: History, registry: SlowRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry that does not keep up costs records, never memory without end."""
    monkeypatch.setattr(history_module, "MAX_PENDING", 3)
    for number in range(5):
        history.add(lambda number=number: an_execution(number))
    registry.gate.set()
    await history.aclose()

    assert (len(registry.kept), history.lost) == (3, 2)


async def test_registry_that_fails_costs_one_batch(
    history: History, registry: SlowRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be written is counted, and the next is tried."""
    monkeypatch.setattr(history_module, "BATCH", 2)
    registry.failures = 1
    registry.gate.set()
    for number in range(3):
        history.add(lambda number=number: an_execution(number))
    await history.aclose()

    assert (registry.kept, history.lost) == ([an_execution(2)], 2)
