"""The calls of SessionService."""

from __future__ import annotations

from sandboxd_client.methods.method import Method
from sandboxd_proto.v1 import session_service_pb2 as pb

SERVICE = "SessionService"

OPEN_SESSION = Method(SERVICE, "OpenSession", pb.OpenSessionRequest, pb.OpenSessionResponse, True)
CREATE_CONSOLE_LINK = Method(
    SERVICE,
    "CreateConsoleLink",
    pb.CreateConsoleLinkRequest,
    pb.CreateConsoleLinkResponse,
    True,
)
GET_SESSION = Method(SERVICE, "GetSession", pb.GetSessionRequest, pb.GetSessionResponse, True)
LIST_SESSIONS = Method(
    SERVICE, "ListSessions", pb.ListSessionsRequest, pb.ListSessionsResponse, True
)
TOUCH_SESSION = Method(
    SERVICE, "TouchSession", pb.TouchSessionRequest, pb.TouchSessionResponse, True
)
UPDATE_SESSION = Method(
    SERVICE, "UpdateSession", pb.UpdateSessionRequest, pb.UpdateSessionResponse, True
)
CLOSE_SESSION = Method(
    SERVICE, "CloseSession", pb.CloseSessionRequest, pb.CloseSessionResponse, True
)
RESET_SESSION = Method(SERVICE, "ResetSession", pb.ResetSessionRequest, pb.ResetSessionResponse)
WHO_AM_I = Method(SERVICE, "WhoAmI", pb.WhoAmIRequest, pb.WhoAmIResponse, True)
