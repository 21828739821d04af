"""Records of ended commands, until they are in the store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from sandboxd.observability import history as history_module
from sandboxd.observability.history import History
from sandboxd.registry.contract import ExecutionRecord
from tests.fakes.waiting import eventually
from tests.unit.test_history_store import an_execution


class SlowStore:
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
def store() -> SlowStore:
    return SlowStore()


@pytest.fixture
def history(store: SlowStore) -> History:
    return History(store, per_session=10, in_all=100)  # type: ignore[arg-type]  # what is used


async def test_records_are_written_by_themselves(
    history: History, store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon after a command has ended its record is in the store, without a read."""
    monkeypatch.setattr(history_module, "FLUSH_SECONDS", 0.01)
    store.gate.set()
    history.add(lambda: an_execution(1))
    await eventually(lambda: len(store.kept) == 1)
    history.add(lambda: an_execution(2))
    await eventually(lambda: len(store.kept) == 2)


async def test_cancelled_read_writes_nothing_twice(history: History, store: SlowStore) -> None:
    """A cancelled read neither loses nor doubles pending records."""
    history.add(lambda: an_execution(1))
    reading = asyncio.ensure_future(history.page("ses_1", size=9, before=None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    store.gate.set()
    await history.aclose()

    assert store.kept == [an_execution(1)]


async def test_records_beyond_the_bound_are_counted(
    history: History, store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is too slow costs records, but the memory stays bounded."""
    monkeypatch.setattr(history_module, "MAX_PENDING", 3)
    for number in range(5):
        history.add(lambda number=number: an_execution(number))
    store.gate.set()
    await history.aclose()

    assert (len(store.kept), history.lost) == (3, 2)


async def test_store_that_fails_costs_one_batch(
    history: History, store: SlowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records that could not be written are counted, and the next batch is tried."""
    monkeypatch.setattr(history_module, "BATCH", 2)
    store.failures = 1
    store.gate.set()
    for number in range(3):
        history.add(lambda number=number: an_execution(number))
    await history.aclose()

    assert (store.kept, history.lost) == ([an_execution(2)], 2)
