"""AdminService."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from sandboxd import __version__
from sandboxd.config import Config
from sandboxd.engine.contract import EngineInfo
from sandboxd.errors import SandboxdError
from sandboxd.isolation.report import Protection, State
from sandboxd.pool import WarmPool
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
ENGINE_SECONDS = 3.0
"""How long the status waits for the engine to describe itself; it matters most when that hangs."""


class AdminServicer(pb_grpc.AdminServiceServicer):
    def __init__(
        self,
        sessions: Sessions,
        pool: WarmPool,
        config: Config,
        *,
        engine_info: Callable[[], Awaitable[EngineInfo]],
        image_id: Callable[[], str | None],
        protections: Callable[[EngineInfo | None], Sequence[Protection]],
    ) -> None:
        self._sessions = sessions
        self._pool = pool
        self._config = config
        self._engine_info = engine_info
        self._image_id = image_id
        self._protections = protections
        self._started_at = time.monotonic()

    async def GetStatus(
        self, request: pb.GetStatusRequest, context: Context
    ) -> pb.GetStatusResponse:
        engine = await self._ask_engine()
        return pb.GetStatusResponse(
            version=__version__,
            worker_id=self._config.worker_id,
            uptime=wire.duration(time.monotonic() - self._started_at),
            draining=self._sessions.is_draining,
            pool=self._pool_status(),
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

    def _pool_status(self) -> pb.PoolStatus:
        figures = self._pool.figures
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
