"""SessionService."""

from __future__ import annotations

from sandboxd.config import Config
from sandboxd.service import page_tokens, session_wire
from sandboxd.service.wire import Context
from sandboxd.sessions.session import Outcome
from sandboxd.sessions.sessions import Sessions
from sandboxd_proto.v1 import session_service_pb2 as pb
from sandboxd_proto.v1 import session_service_pb2_grpc as pb_grpc


class SessionServicer(pb_grpc.SessionServiceServicer):
    def __init__(self, sessions: Sessions, config: Config) -> None:
        self._sessions = sessions
        self._config = config

    async def OpenSession(
        self, request: pb.OpenSessionRequest, context: Context
    ) -> pb.OpenSessionResponse:
        session, outcome = await self._sessions.open(
            session_wire.name("user_id", request.user_id),
            session_wire.name("thread_id", request.thread_id),
            idle_seconds=session_wire.idle_seconds(request),
            metadata=session_wire.metadata(request.metadata),
            env=session_wire.session_env(request.env),
            project_id=session_wire.project_id(request),
        )
        return pb.OpenSessionResponse(
            session=session_wire.describe(session, self._config),
            outcome=session_wire.OUTCOMES[outcome],
            workspace_kept=outcome == Outcome.ATTACHED or session.has_earlier_files,
        )

    async def GetSession(
        self, request: pb.GetSessionRequest, context: Context
    ) -> pb.GetSessionResponse:
        session = self._sessions.get(request.session_id)
        return pb.GetSessionResponse(
            session=session_wire.describe(session, self._config, with_usage=True)
        )

    async def ListSessions(
        self, request: pb.ListSessionsRequest, context: Context
    ) -> pb.ListSessionsResponse:
        page, following = self._sessions.list(
            session_wire.session_filter(request),
            page_size=session_wire.page_size(request),
            after=page_tokens.SESSIONS.decode(request.page_token),
        )
        return pb.ListSessionsResponse(
            sessions=[
                session_wire.describe(session, self._config, with_usage=request.with_usage)
                for session in page
            ],
            next_page_token=page_tokens.SESSIONS.encode(following),
        )

    async def TouchSession(
        self, request: pb.TouchSessionRequest, context: Context
    ) -> pb.TouchSessionResponse:
        await self._sessions.wait_until_back(request.session_id)
        session = self._sessions.touch(request.session_id)
        return pb.TouchSessionResponse(session=session_wire.describe(session, self._config))

    async def UpdateSession(
        self, request: pb.UpdateSessionRequest, context: Context
    ) -> pb.UpdateSessionResponse:
        session = await self._sessions.change(
            request.session_id, session_wire.session_change(request)
        )
        return pb.UpdateSessionResponse(session=session_wire.describe(session, self._config))

    async def CloseSession(
        self, request: pb.CloseSessionRequest, context: Context
    ) -> pb.CloseSessionResponse:
        session = self._sessions.close(request.session_id)
        await self._sessions.wait_until_saved(request.session_id)
        return pb.CloseSessionResponse(session=session_wire.describe(session, self._config))

    async def ResetSession(
        self, request: pb.ResetSessionRequest, context: Context
    ) -> pb.ResetSessionResponse:
        session = await self._sessions.reset(request.session_id, incarnation=request.incarnation)
        return pb.ResetSessionResponse(session=session_wire.describe(session, self._config))
