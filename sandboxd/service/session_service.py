"""SessionService."""

from __future__ import annotations

from collections.abc import Callable

from sandboxd.access import Caller, current_caller
from sandboxd.config import Config
from sandboxd.errors import ConsoleOff
from sandboxd.service import page_tokens, session_wire
from sandboxd.service.wire import Context
from sandboxd.sessions.session import Outcome
from sandboxd.sessions.sessions import Sessions
from sandboxd_proto.v1 import session_service_pb2 as pb
from sandboxd_proto.v1 import session_service_pb2_grpc as pb_grpc


class SessionServicer(pb_grpc.SessionServiceServicer):
    def __init__(
        self,
        sessions: Sessions,
        config: Config,
        console: Callable[[Caller], str] | None = None,
    ) -> None:
        """`console` makes a link that logs in as a caller; ConsoleOff."""
        self._sessions = sessions
        self._config = config
        self._console = console

    async def OpenSession(
        self, request: pb.OpenSessionRequest, context: Context
    ) -> pb.OpenSessionResponse:
        user_id = session_wire.name("user_id", request.user_id)
        thread_id = session_wire.name("thread_id", request.thread_id)
        wanted = session_wire.open_request(request)
        session, outcome = await self._sessions.open(user_id, thread_id, wanted)
        return pb.OpenSessionResponse(
            session=session_wire.describe(session, self._config),
            outcome=session_wire.OUTCOMES[outcome],
            workspace_kept=outcome == Outcome.ATTACHED or session.has_earlier_files,
        )

    async def WhoAmI(self, request: pb.WhoAmIRequest, context: Context) -> pb.WhoAmIResponse:
        caller = current_caller()
        return pb.WhoAmIResponse(
            name=caller.name, scope=caller.scope.value, user_id=caller.user_id or ""
        )

    async def CreateConsoleLink(
        self, request: pb.CreateConsoleLinkRequest, context: Context
    ) -> pb.CreateConsoleLinkResponse:
        if self._console is None:
            raise ConsoleOff
        return pb.CreateConsoleLinkResponse(url=self._console(current_caller()))

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
        await self._sessions.claim_parked(request.session_id)
        session = self._sessions.close(request.session_id)
        await self._sessions.wait_until_saved(request.session_id)
        return pb.CloseSessionResponse(session=session_wire.describe(session, self._config))

    async def ResetSession(
        self, request: pb.ResetSessionRequest, context: Context
    ) -> pb.ResetSessionResponse:
        session = await self._sessions.reset(request.session_id, incarnation=request.incarnation)
        return pb.ResetSessionResponse(session=session_wire.describe(session, self._config))
