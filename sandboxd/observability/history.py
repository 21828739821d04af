"""The history of ended commands, written in batches soon after they end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from sandboxd.registry.contract import ExecutionFigures, ExecutionRecord, HistoryStore

log = structlog.get_logger()

FLUSH_SECONDS = 1.0
BATCH = 200
"""Records in one statement, which may hold a limited number of values."""
MAX_PENDING = 10_000


class History:
    """Collects records and writes them in batches. `add` never waits."""

    def __init__(self, store: HistoryStore, *, per_session: int, in_all: int) -> None:
        self._store = store
        self._per_session = per_session
        self._in_all = in_all
        self._pending: list[Callable[[], ExecutionRecord]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.lost = 0
        """Records that were not written because too many waited or the store failed."""

    def add(self, record: Callable[[], ExecutionRecord]) -> None:
        """Write a record soon; it is made only then."""
        if len(self._pending) >= MAX_PENDING:
            self.lost += 1
            return
        self._pending.append(record)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FLUSH_SECONDS, self._flush_soon)

    async def page(
        self, session_id: str, *, size: int, before: int | None
    ) -> tuple[Sequence[ExecutionRecord], int | None]:
        """Ended commands of a session before a place, newest first, and the next page's place."""
        # Shielded: a flush that is cancelled with its caller would write its batch again.
        await asyncio.shield(self.flush())
        found = await self._store.executions(session_id, size=size + 1, before=before)
        page = found[:size]
        return page, page[-1].place if len(found) > size else None

    async def figures(self, quantiles: Sequence[float]) -> ExecutionFigures:
        """Figures of all commands that are kept."""
        await asyncio.shield(self.flush())
        return await self._store.execution_figures(quantiles)

    def _flush_soon(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self.flush(), name="history-flush")

    async def flush(self) -> None:
        """Write what is pending."""
        async with self._writing:
            while self._pending:
                batch = [record() for record in self._pending[:BATCH]]
                try:
                    await self._store.add_executions(
                        batch, per_session=self._per_session, in_all=self._in_all
                    )
                except Exception as error:  # a failing store must not stop commands
                    self.lost += len(batch)
                    log.error("history.not_written", records=len(batch), exc_info=error)
                del self._pending[: len(batch)]

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.flush()
