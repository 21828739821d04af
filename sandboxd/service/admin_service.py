"""AdminService."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

from sandboxd import __version__
from sandboxd.audit.check import check
from sandboxd.audit.reading import newest
from sandboxd.config import Config
from sandboxd.engine.contract import EngineInfo
from sandboxd.errors import SandboxdError
from sandboxd.observability.journal import KeptJournal
from sandboxd.observability.samples import Samples
from sandboxd.pool.pools import Pools
from sandboxd.protections.report import Protection
from sandboxd.service import admin_wire, page_tokens, wire
from sandboxd.service.wire import Context
from sandboxd.sessions.sessions import Sessions
from sandboxd_proto.v1 import admin_service_pb2 as pb
from sandboxd_proto.v1 import admin_service_pb2_grpc as pb_grpc

ENGINE_SECONDS = 3.0
"""How long the status waits for the engine to describe itself; it matters most when that hangs."""


class AdminServicer(pb_grpc.AdminServiceServicer):
    def __init__(
        self,
        sessions: Sessions,
        pools: Pools,
        config: Config,
        *,
        engine_info: Callable[[], Awaitable[EngineInfo]],
        image_id: Callable[[], str | None],
        protections: Callable[[EngineInfo | None], Sequence[Protection]],
        journal: KeptJournal,
        samples: Samples,
    ) -> None:
        self._sessions = sessions
        self._pools = pools
        self._config = config
        self._engine_info = engine_info
        self._image_id = image_id
        self._protections = protections
        self._journal = journal
        self._samples = samples
        self._started_at = time.monotonic()
        self._since = time.time()
        self._verifying = asyncio.Lock()

    async def GetStatus(
        self, request: pb.GetStatusRequest, context: Context
    ) -> pb.GetStatusResponse:
        engine = await self._ask_engine()
        return pb.GetStatusResponse(
            version=__version__,
            worker_id=self._config.worker_id,
            uptime=wire.duration(time.monotonic() - self._started_at),
            draining=self._sessions.is_draining,
            pool=admin_wire.pool_status(self._pools.default.figures),
            pools=[admin_wire.pool_status(figures) for figures in self._pools.figures],
            engine=admin_wire.engine_status(
                engine,
                runtime=self._config.container_runtime,
                image_id=self._image_id() or "",
            ),
            protections=admin_wire.protections(self._protections(engine)),
            active_sessions=self._sessions.active_count,
            running_execs=self._sessions.running_exec_count,
            kill_counts=admin_wire.kill_counts(self._sessions.exec_state.kill_counts),
        )

    async def GetStatistics(
        self, request: pb.GetStatisticsRequest, context: Context
    ) -> pb.GetStatisticsResponse:
        self._journal.flush()
        statistics = self._journal.statistics
        figures = self._pools.figures
        hits, misses = sum(pool.hits for pool in figures), sum(pool.misses for pool in figures)
        history = None
        if request.with_history:
            history = await self._journal.execution_figures(admin_wire.PERCENTILES)
        return pb.GetStatisticsResponse(
            uptime=wire.duration(time.monotonic() - self._started_at),
            active_sandboxes=sum(pool.in_use for pool in figures),
            running_execs=self._sessions.running_exec_count,
            sessions=admin_wire.session_statistics(statistics),
            execs=admin_wire.exec_statistics(statistics),
            retries=admin_wire.retry_statistics(statistics),
            limit_violations=statistics.violations,
            refused_calls=statistics.refusals,
            calls=statistics.calls,
            failed_calls=statistics.failed_calls,
            pool_hit_rate=hits / (hits + misses) if hits + misses else 1.0,
            pools=[admin_wire.pool_status(pool) for pool in figures],
            audit=admin_wire.audit_statistics(self._journal.audit),
            since=wire.timestamp(self._since),
            history=None if history is None else admin_wire.history_statistics(history),
        )

    async def WatchFigures(
        self, request: pb.WatchFiguresRequest, context: Context
    ) -> AsyncIterator[pb.WatchFiguresResponse]:
        async for minutes, seconds in self._samples.follow():
            yield pb.WatchFiguresResponse(
                minutes=map(admin_wire.sample, minutes), seconds=map(admin_wire.sample, seconds)
            )

    async def ListAudit(
        self, request: pb.ListAuditRequest, context: Context
    ) -> pb.ListAuditResponse:
        journal = self._journal
        log = journal.strangers.audit if request.strangers else journal.audit
        page = await asyncio.to_thread(
            newest,
            log.directory,
            before=page_tokens.AUDIT.decode(request.page_token) or 0,
            count=wire.page_size(request.page_size),
            matches=partial(admin_wire.is_asked_for, request),
        )
        return pb.ListAuditResponse(
            lines=map(admin_wire.audit_line, page.entries),
            next_page_token=page_tokens.AUDIT.encode(page.next_before or None),
        )

    async def VerifyAudit(
        self, request: pb.VerifyAuditRequest, context: Context
    ) -> pb.VerifyAuditResponse:
        async with self._verifying:  # one at a time: it reads the whole log
            verdict = await asyncio.to_thread(check, self._journal.audit.directory)
        return admin_wire.audit_verdict(verdict)

    async def _ask_engine(self) -> EngineInfo | None:
        try:
            async with asyncio.timeout(ENGINE_SECONDS):
                return await self._engine_info()
        except (SandboxdError, TimeoutError):
            return None
