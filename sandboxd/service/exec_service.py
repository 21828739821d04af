"""ExecService."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandboxd.config import Config
from sandboxd.service import wire
from sandboxd.service.wire import Context
from sandboxd.sessions import Sessions
from sandboxd_proto.v1 import exec_service_pb2 as pb
from sandboxd_proto.v1 import exec_service_pb2_grpc as pb_grpc


class ExecServicer(pb_grpc.ExecServiceServicer):
    def __init__(self, sessions: Sessions, config: Config) -> None:
        self._sessions = sessions
        self._config = config

    async def Exec(
        self, request: pb.ExecRequest, context: Context
    ) -> AsyncIterator[pb.ExecResponse]:
        execution = self._sessions.start_exec(
            request.session_id,
            wire.exec_spec(request, self._config, captures=False),
            incarnation=request.incarnation,
        )
        try:
            async for batch in execution.follow():
                yield wire.exec_response(batch, execution.id)
        finally:
            execution.abandon()

    async def Run(self, request: pb.ExecRequest, context: Context) -> pb.RunResponse:
        execution = self._sessions.start_exec(
            request.session_id,
            wire.exec_spec(request, self._config, captures=True),
            incarnation=request.incarnation,
        )
        try:
            status = await execution.wait()
        finally:
            execution.abandon()
        return wire.run_response(execution, status)
