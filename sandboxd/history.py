"""Commands that have ended, written to the registry a moment later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import structlog

from sandboxd.registry.contract import ExecutionFigures, ExecutionRecord, Registry

log = structlog.get_logger()

FLUSH_SECONDS = 1.0
BATCH = 200
"""Records that are written at once: a statement has a limited number of values."""
MAX_PENDING = 10_000


class History:
    """Collects records and writes them in batches. `add` never waits."""

    def __init__(self, registry: Registry, *, per_session: int, in_all: int) -> None:
        self._registry = registry
        self._per_session = per_session
        self._in_all = in_all
        self._pending: list[Callable[[], ExecutionRecord]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self.lost = 0
        """Records that were not written: too many waited, or the registry failed."""

    def add(self, record: Callable[[], ExecutionRecord]) -> None:
        """Have a record written soon; it is made when that is done."""
        if len(self._pending) >= MAX_PENDING:
            self.lost += 1
            return
        self._pending.append(record)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FLUSH_SECONDS, self._flush_soon)

    async def page(
        self, session_id: str, *, size: int, before: int | None
    ) -> list[ExecutionRecord]:
        """Commands of a session that ended, newest first, those before a place."""
        # Shielded: a caller that goes away would have it written twice.
        await asyncio.shield(self.flush())
        return await self._registry.executions(session_id, size=size, before=before)

    async def figures(self, quantiles: Sequence[float]) -> ExecutionFigures:
        """All that are kept, in numbers."""
        await asyncio.shield(self.flush())
        return await self._registry.execution_figures(quantiles)

    def _flush_soon(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self.flush(), name="history-flush")

    async def flush(self) -> None:
        """Write what is pending."""
        async with self._writing:
            while self._pending:
                batch = [record() for record in self._pending[:BATCH]]
                try:
                    await self._registry.add_executions(
                        batch, per_session=self._per_session, in_all=self._in_all
                    )
                except Exception as error:  # whatever it suffers from, commands go on
                    self.lost += len(batch)
                    log.error("history.not_written", records=len(batch), exc_info=error)
                del self._pending[: len(batch)]

    async def aclose(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self.flush()
