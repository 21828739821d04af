"""The session that a sandbox object works in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.duration_pb2 import Duration

from sandboxd_client import methods
from sandboxd_client.command_policy import CommandCheck
from sandboxd_client.connection import Connection
from sandboxd_client.results import SessionInfo, StateName
from sandboxd_proto.v1 import session_pb2
from sandboxd_proto.v1 import session_service_pb2 as pb

_OUTCOMES = {
    pb.OPEN_OUTCOME_CREATED: "created",
    pb.OPEN_OUTCOME_ATTACHED: "attached",
    pb.OPEN_OUTCOME_RECREATED: "recreated",
}


class SessionHold:
    """A session as this client last saw it.

    Calls name its incarnation, so a replaced workspace never goes unnoticed.
    """

    def __init__(
        self, connection: Connection, info: SessionInfo, *, check: CommandCheck | None = None
    ) -> None:
        """`check`: the policy that commands must pass before they are sent."""
        self.connection = connection
        self.info = info
        self.check = check

    @property
    def id(self) -> str:
        return self.info.session_id

    @property
    def incarnation(self) -> int:
        return self.info.incarnation


async def open_session(
    connection: Connection,
    user_id: str,
    thread_id: str,
    *,
    idle_seconds: float | None = None,
    metadata: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    project: str = "",
) -> SessionInfo:
    """The session of a (user, thread), created if there is none."""
    request = pb.OpenSessionRequest(
        user_id=user_id,
        thread_id=thread_id,
        metadata=metadata or {},
        env=env or {},
        project_id=project,
    )
    if idle_seconds is not None:
        request.idle_timeout.CopyFrom(duration(idle_seconds))
    opened = await connection.call(methods.OPEN_SESSION, request, timeout=connection.timeouts.open)
    return SessionInfo.of(
        opened.session, status=_OUTCOMES[opened.outcome], is_kept=opened.workspace_kept
    )


async def get_session(connection: Connection, session_id: str) -> SessionInfo:
    """A session as it is now, including one that ended recently."""
    request = pb.GetSessionRequest(session_id=session_id)
    return SessionInfo.of((await connection.call(methods.GET_SESSION, request)).session)


async def list_sessions(
    connection: Connection,
    *,
    user_id: str = "",
    thread_id: str = "",
    state: StateName | None = None,
    metadata: Mapping[str, str] | None = None,
    with_usage: bool = False,
) -> Sequence[SessionInfo]:
    """All sessions that match, oldest first."""
    request = pb.ListSessionsRequest(
        user_id=user_id, thread_id=thread_id, metadata=metadata or {}, with_usage=with_usage
    )
    if state is not None:
        request.state = session_pb2.SessionState.Value(f"SESSION_STATE_{state.upper()}")
    found: list[SessionInfo] = []
    while True:
        page = await connection.call(methods.LIST_SESSIONS, request)
        found += map(SessionInfo.of, page.sessions)
        request.page_token = page.next_page_token
        if not request.page_token:
            return found


async def update_session(
    hold: SessionHold,
    *,
    idle_seconds: float | None = None,
    labels: Mapping[str, str | None] | None = None,
) -> SessionInfo:
    """Change idle time and labels; a label whose value is None is removed."""
    labels = labels or {}
    request = pb.UpdateSessionRequest(
        session_id=hold.id,
        metadata={key: value for key, value in labels.items() if value is not None},
        remove_metadata=[key for key, value in labels.items() if value is None],
    )
    if idle_seconds is not None:
        request.idle_timeout.CopyFrom(duration(idle_seconds))
    return SessionInfo.of((await hold.connection.call(methods.UPDATE_SESSION, request)).session)


async def close_session(connection: Connection, session_id: str) -> SessionInfo:
    """End a session and delete everything in it."""
    request = pb.CloseSessionRequest(session_id=session_id)
    return SessionInfo.of((await connection.call(methods.CLOSE_SESSION, request)).session)


def in_seconds(minutes: float | None) -> float | None:
    return None if minutes is None else minutes * 60


def duration(seconds: float) -> Duration:
    whole = int(seconds)
    return Duration(seconds=whole, nanos=round((seconds - whole) * 1e9))
