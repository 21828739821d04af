"""AdminService."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from sandboxd import __version__
from sandboxd.config import Config
from sandboxd.engine.contract import EngineInfo
from sandboxd.errors import SandboxdError
from sandboxd.histogram import Histogram
from sandboxd.isolation.report import Protection, State
from sandboxd.journal import KeptJournal
from sandboxd.pool import DEFAULT_ENVIRONMENT, PoolFigures, WarmPool
from sandboxd.service import wire
from sandboxd.service.wire import Context
from sandboxd.sessions import Sessions
from sandboxd_proto.v1 import admin_service_pb2 as pb
from sandboxd_proto.v1 import admin_service_pb2_grpc as pb_grpc

_STATES = {
    State.IN_FORCE: pb.PROTECTION_STATE_IN_FORCE,
    State.WEAKER: pb.PROTECTION_STATE_WEAKER,
    State.MISSING: pb.PROTECTION_STATE_MISSING,
}
PERCENTILES = (0.5, 0.95, 0.99)
ENGINE_SECONDS = 3.0
"""How long the status waits for the engine to describe itself; it matters most when that hangs."""


class AdminServicer(pb_grpc.AdminServiceServicer):
    def __init__(
        self,
        sessions: Sessions,
        pools: Mapping[str, WarmPool],
        config: Config,
        *,
        engine_info: Callable[[], Awaitable[EngineInfo]],
        image_id: Callable[[], str | None],
        protections: Callable[[EngineInfo | None], Sequence[Protection]],
        journal: KeptJournal,
    ) -> None:
        self._sessions = sessions
        self._pools = pools
        self._config = config
        self._engine_info = engine_info
        self._image_id = image_id
        self._protections = protections
        self._journal = journal
        self._started_at = time.monotonic()
        self._since = time.time()

    async def GetStatus(
        self, request: pb.GetStatusRequest, context: Context
    ) -> pb.GetStatusResponse:
        engine = await self._ask_engine()
        return pb.GetStatusResponse(
            version=__version__,
            worker_id=self._config.worker_id,
            uptime=wire.duration(time.monotonic() - self._started_at),
            draining=self._sessions.is_draining,
            pool=_pool_status(self._pools[DEFAULT_ENVIRONMENT].figures),
            pools=[_pool_status(pool.figures) for pool in self._pools.values()],
            engine=self._engine_status(engine),
            protections=[
                pb.Protection(
                    name=one.name,
                    state=_STATES[one.state],
                    detail=one.detail,
                    proof=one.proof,
                )
                for one in self._protections(engine)
            ],
            active_sessions=self._sessions.active_count,
            running_execs=self._sessions.running_exec_count,
            ladder=self._ladder_status(),
        )

    async def GetStatistics(
        self, request: pb.GetStatisticsRequest, context: Context
    ) -> pb.GetStatisticsResponse:
        self._journal.settle()
        statistics, audit = self._journal.statistics, self._journal.audit
        figures = [pool.figures for pool in self._pools.values()]
        history = await self._history() if request.with_history else None
        hits, misses = sum(one.hits for one in figures), sum(one.misses for one in figures)
        return pb.GetStatisticsResponse(
            uptime=wire.duration(time.monotonic() - self._started_at),
            active_sandboxes=sum(one.in_use for one in figures),
            running_execs=self._sessions.running_exec_count,
            sessions=pb.SessionStatistics(
                opens=statistics.opens,
                ends=statistics.session_ends,
                reuse_rate=statistics.reuse_rate,
                open_times=_duration_figures(statistics.open_seconds),
            ),
            execs=pb.ExecStatistics(
                ends=statistics.exec_ends,
                total=statistics.execs,
                succeeded=statistics.execs_succeeded,
                success_rate=statistics.success_rate,
                durations=_duration_figures(statistics.exec_seconds),
                cpu_time=wire.duration(statistics.exec_cpu_seconds),
                output_bytes=statistics.output_bytes,
                input_bytes=statistics.input_bytes,
                dropped_bytes=statistics.dropped_bytes,
            ),
            retries=pb.RetryStatistics(
                attempts=statistics.retries,
                succeeded=statistics.retries_succeeded,
                success_rate=statistics.retry_success_rate,
            ),
            limit_violations=statistics.violations,
            refused_calls=statistics.refusals,
            calls=statistics.calls,
            failed_calls=statistics.failed_calls,
            pool_hit_rate=hits / (hits + misses) if hits + misses else 1.0,
            pools=[_pool_status(one) for one in figures],
            audit=pb.AuditStatistics(
                head_sequence=audit.head.sequence,
                head_hash=audit.head.hash,
                lost_entries=audit.gaps,
            ),
            since=wire.timestamp(self._since),
            history=history,
        )

    async def _history(self) -> pb.HistoryStatistics:
        figures = await self._journal.execution_figures(PERCENTILES)
        p50, p95, p99 = (wire.duration(figures.quantiles[part]) for part in PERCENTILES)
        first = figures.first_started_at
        return pb.HistoryStatistics(
            since=wire.timestamp(first) if first is not None else None,
            ends=figures.ends,
            total=figures.total,
            succeeded=figures.succeeded,
            success_rate=figures.success_rate,
            durations=pb.DurationFigures(
                count=figures.total,
                mean=wire.duration(figures.mean_seconds),
                p50=p50,
                p95=p95,
                p99=p99,
                max=wire.duration(figures.longest_seconds),
            ),
        )

    async def _ask_engine(self) -> EngineInfo | None:
        try:
            async with asyncio.timeout(ENGINE_SECONDS):
                return await self._engine_info()
        except (SandboxdError, TimeoutError):
            return None

    def _ladder_status(self) -> pb.LadderStatus:
        ladder = self._sessions.house.ladder
        return pb.LadderStatus(
            by_guest=ladder.by_guest, by_host=ladder.by_host, by_engine=ladder.by_engine
        )

    def _engine_status(self, info: EngineInfo | None) -> pb.EngineStatus:
        if info is None:
            return pb.EngineStatus(reachable=False)
        return pb.EngineStatus(
            reachable=True,
            name=info.name,
            version=info.version,
            api_version=info.api_version,
            runtime=self._config.container_runtime or info.default_runtime,
            image_id=self._image_id() or "",
        )


def _pool_status(figures: PoolFigures) -> pb.PoolStatus:
    return pb.PoolStatus(
        warm=figures.warm,
        starting=figures.starting,
        in_use=figures.in_use,
        target=figures.target,
        max=figures.maximum,
        hits=figures.hits,
        misses=figures.misses,
        failed_starts=figures.failed_starts,
        last_error=figures.last_error,
        environment=figures.environment,
        min=figures.minimum,
        hit_rate=figures.hit_rate,
        waiting=figures.waiting,
        max_queue=figures.max_queue,
        oldest_wait=wire.duration(figures.oldest_wait_seconds),
        waits=_duration_figures(figures.waits),
        gave_up=figures.gave_up,
        refused=figures.refused,
        concurrency=figures.concurrency,
        starts=_duration_figures(figures.starts),
    )


def _duration_figures(histogram: Histogram) -> pb.DurationFigures:
    p50, p95, p99 = (wire.duration(histogram.quantile(part)) for part in PERCENTILES)
    return pb.DurationFigures(
        count=histogram.count,
        mean=wire.duration(histogram.mean_seconds),
        p50=p50,
        p95=p95,
        p99=p99,
        max=wire.duration(histogram.longest_seconds),
    )
