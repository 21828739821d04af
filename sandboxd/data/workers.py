"""The workers of one source: started when needed, kept for the next query, ended when idle."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncGenerator

import structlog

from sandboxd.access.turns import Turns
from sandboxd.data.frames import Kind, Request
from sandboxd.data.source import WorkerSettings
from sandboxd.data.worker_process import WorkerLost, WorkerProcess
from sandboxd.errors import DataSourceUnavailable, QueriesBusy, QueryTimedOut
from sandboxd.tasks import Tasks, run_to_end

log = structlog.get_logger()

IDLE_SECONDS = 300.0
"""How long a worker is kept that nobody needs."""
GRACE_SECONDS = 1.0
"""How long after its deadline a query may take to report that it was ended."""
CONNECT_SECONDS = 10.0
"""What a fresh worker may take to connect, in addition."""
CANCEL_SECONDS = 2.0
SLOW_READER_SECONDS = 60.0
"""How long a caller may take to read an answer that is ready."""
RETRY_SECONDS = 1.0
"""Delay after which a query may have ended."""
FIRST_BACKOFF, MAX_BACKOFF = 0.2, 30.0
_LAST = frozenset({Kind.END, Kind.ERROR})


def _too_many(who: str) -> QueriesBusy:
    return QueriesBusy(
        f"{who} has too many queries that wait for this data source; try again in a moment.",
        retry_after_seconds=RETRY_SECONDS,
    )


class Workers:
    """Runs the requests of one source, each in a worker."""

    def __init__(self, settings: WorkerSettings) -> None:
        limits = settings.source.limits
        self._settings = settings
        self._name = settings.source.name
        self.turns = Turns(
            places=limits.connections,
            per_user=limits.user_connections,
            queued=limits.queued,
            refusal=_too_many,
        )
        self._idle: deque[tuple[float, WorkerProcess]] = deque()
        """The one that was used longest ago first: it has had time to clean up."""
        self._all: set[WorkerProcess] = set()
        self._tasks = Tasks()
        self._backoff = 0.0
        self._not_before = 0.0
        self._failure = ""
        """Why the last start failed."""
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def pids(self) -> list[int]:
        return [worker.pid for worker in self._all]

    async def run(
        self, request: Request, seconds: float
    ) -> AsyncGenerator[tuple[Kind, bytes], None]:
        """The frames of the answer; the last one is END or ERROR. DataSourceUnavailable if the
        worker is lost, QueryTimedOut if it had to be killed.

        A caller that leaves before the last frame cancels the query in the database; the place is
        free again when that is done.
        """
        user_id = request.user_id
        await self._take_place(user_id, seconds)
        worker: WorkerProcess | None = None
        is_done = False
        timer: asyncio.TimerHandle | None = None
        try:
            worker = await self._worker()
            loop = asyncio.get_running_loop()
            timer = loop.call_later(seconds + SLOW_READER_SECONDS, worker.kill)
            worker.send(Kind.REQUEST, request.encode())
            deadline = loop.time() + seconds + GRACE_SECONDS
            deadline += CONNECT_SECONDS if worker.is_fresh else 0.0
            while not is_done:
                kind, payload = await self._receive(worker, deadline, seconds)
                is_done = kind in _LAST
                if is_done:
                    self._put_back(worker)
                    self.turns.leave(user_id)
                yield kind, payload
        except WorkerLost as error:
            raise self._lost(str(error)) from error
        finally:
            if timer is not None:
                timer.cancel()
            if not is_done:
                self._tasks.spawn(self._recover(worker, user_id), f"data-recover-{self._name}")

    async def _take_place(self, user_id: str, seconds: float) -> None:
        if self.turns.take_now(user_id):
            return
        try:
            async with asyncio.timeout(seconds):
                await self.turns.take(user_id)
        except TimeoutError:
            raise QueryTimedOut(
                f"The query waited {seconds:g} s for a connection to the data source; try again."
            ) from None

    async def _receive(
        self, worker: WorkerProcess, deadline: float, seconds: float
    ) -> tuple[Kind, bytes]:
        left = deadline - asyncio.get_running_loop().time()
        try:
            # A slow reader may come back late; then what is ready is read at once.
            return await worker.receive(max(left, GRACE_SECONDS))
        except TimeoutError:
            worker.kill()
            raise QueryTimedOut(
                f"The query did not end within {seconds:g} s; make it read less, or allow it more "
                "time."
            ) from None

    async def _worker(self) -> WorkerProcess:
        while self._idle:
            _, worker = self._idle.popleft()
            if not worker.is_broken:
                return worker
            self._tasks.spawn(self._drop(worker), f"data-drop-{self._name}")
        now = time.monotonic()
        if now < self._not_before:
            raise self._lost(f"its worker failed a moment ago: {self._failure}")
        try:
            # A caller that leaves meanwhile must not leave a process behind.
            worker = await run_to_end(WorkerProcess.start(self._settings), WorkerProcess.stop)
        except (WorkerLost, OSError) as error:
            self._backoff = min(max(FIRST_BACKOFF, 2 * self._backoff), MAX_BACKOFF)
            self._not_before, self._failure = now + self._backoff, str(error)
            log.error("data.worker_not_started", source=self._name, why=self._failure)
            raise self._lost(self._failure) from error
        self._backoff = 0.0
        self._all.add(worker)
        return worker

    def _put_back(self, worker: WorkerProcess) -> None:
        if worker.is_broken:
            self._tasks.spawn(self._drop(worker), f"data-drop-{self._name}")
            return
        worker.is_fresh = False
        self._idle.append((time.monotonic(), worker))
        if self._sweep is None:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(IDLE_SECONDS, self._end_idle)

    def _end_idle(self) -> None:
        self._sweep = None
        oldest = time.monotonic() - IDLE_SECONDS
        while self._idle and self._idle[0][0] <= oldest:
            self._tasks.spawn(self._drop(self._idle.popleft()[1]), f"data-drop-{self._name}")
        if self._idle:
            loop = asyncio.get_running_loop()
            self._sweep = loop.call_later(IDLE_SECONDS, self._end_idle)

    async def _recover(self, worker: WorkerProcess | None, user_id: str) -> None:
        """After a query that was left or lost: cancel it, and free its place."""
        try:
            if worker is None:
                return
            if not worker.is_broken:
                await worker.finish(CANCEL_SECONDS)
                self._put_back(worker)
                return
        except WorkerLost as error:
            log.warning("data.worker_ended", source=self._name, why=str(error))
        finally:
            self.turns.leave(user_id)
        assert worker is not None
        await self._drop(worker)

    async def _drop(self, worker: WorkerProcess) -> None:
        self._all.discard(worker)
        await worker.stop()

    def _lost(self, why: str) -> DataSourceUnavailable:
        return DataSourceUnavailable(
            f"The data source {self._name} is not available: {why}; try again.",
            retry_after_seconds=1.0,
        )

    async def aclose(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
        self._tasks.cancel("data-recover")
        await self._tasks.finish()
        for worker in tuple(self._all):
            await self._drop(worker)
        self._idle.clear()
