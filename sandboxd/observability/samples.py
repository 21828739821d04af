"""Figures of the daemon over time, so that a chart that is opened has a past."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from sandboxd.observability.journal import KeptJournal
from sandboxd.pool.pools import Pools
from sandboxd.sessions.sessions import Sessions

SECONDS_KEPT = 300
"""Samples of a second that are kept."""
MINUTES_KEPT = 1440
"""Samples of a minute that are kept: a day."""
INTERVAL_SECONDS = 1.0
_PER_MINUTE = 60


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The daemon at a moment. Counts are since its start, so that two samples give a rate."""

    time: float
    active_sessions: int
    running_execs: int
    warm: int
    starting: int
    in_use: int
    waiting: int
    opens: int
    execs: int
    failed_execs: int
    calls: int
    failed_calls: int
    output_bytes: int
    input_bytes: int
    exec_seconds: float
    """Sum of the durations of all ended commands."""
    open_seconds: float
    """Sum of the durations of all opens that got a new sandbox."""
    new_sandboxes: int
    """Number of those opens."""


class Samples:
    """Takes a sample each second, and keeps the last ones, with one of each minute for a day."""

    def __init__(self, take: Callable[[], Sample]) -> None:
        self._take = take
        self._seconds: deque[Sample] = deque(maxlen=SECONDS_KEPT)
        self._minutes: deque[Sample] = deque(maxlen=MINUTES_KEPT)
        self._count = 0
        self._news = asyncio.Condition()

    async def __aenter__(self) -> Samples:
        self._task = asyncio.create_task(self._run(), name="samples")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await self.add(self._take())
            await asyncio.sleep(INTERVAL_SECONDS)

    async def add(self, sample: Sample) -> None:
        self._seconds.append(sample)
        if self._count % _PER_MINUTE == 0:
            self._minutes.append(sample)
        self._count += 1
        async with self._news:
            self._news.notify_all()

    async def follow(self) -> AsyncIterator[tuple[Sequence[Sample], Sequence[Sample]]]:
        """First what is kept, as samples of minutes and of seconds; then each new one of a second.

        A slow reader gets several at once, and misses those that are no longer kept.
        """
        while not self._seconds:
            await self._wait()
        yield tuple(self._minutes), tuple(self._seconds)
        seen = self._count
        while True:
            while seen == self._count:
                await self._wait()
            new = min(self._count - seen, len(self._seconds))
            seen = self._count
            yield (), tuple(self._seconds)[-new:]

    async def _wait(self) -> None:
        async with self._news:
            await self._news.wait()


def sample_of(sessions: Sessions, pools: Pools, journal: KeptJournal) -> Sample:
    """The daemon as it is now."""
    journal.flush()
    statistics, figures = journal.statistics, pools.figures
    return Sample(
        time=time.time(),
        active_sessions=sessions.active_count,
        running_execs=sessions.running_exec_count,
        warm=sum(pool.warm for pool in figures),
        starting=sum(pool.starting for pool in figures),
        in_use=sum(pool.in_use for pool in figures),
        waiting=sum(pool.waiting for pool in figures),
        opens=statistics.opens.total(),
        execs=statistics.execs,
        failed_execs=statistics.execs - statistics.execs_succeeded,
        calls=statistics.calls.total(),
        failed_calls=statistics.failed_calls.total(),
        output_bytes=statistics.output_bytes,
        input_bytes=statistics.input_bytes,
        exec_seconds=statistics.exec_seconds.sum_seconds,
        open_seconds=statistics.open_seconds.sum_seconds,
        new_sandboxes=statistics.open_seconds.count,
    )
