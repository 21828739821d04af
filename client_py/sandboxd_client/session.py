"""The session that a sandbox object works in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from google.protobuf.duration_pb2 import Duration

from sandboxd_client.arguments import either
from sandboxd_client.command_policy import CommandCheck
from sandboxd_client.connection import Connection
from sandboxd_client.errors import InvalidRequestError
from sandboxd_client.methods.sessions import (
    CLOSE_SESSION,
    GET_SESSION,
    LIST_SESSIONS,
    OPEN_SESSION,
    UPDATE_SESSION,
)
from sandboxd_client.results import SessionInfo, SessionList, StateName
from sandboxd_client.snapshot_results import AutoSnapshotName
from sandboxd_proto.v1 import session_pb2, snapshot_pb2
from sandboxd_proto.v1 import session_service_pb2 as pb

_OUTCOMES = {
    pb.OPEN_OUTCOME_CREATED: "created",
    pb.OPEN_OUTCOME_ATTACHED: "attached",
    pb.OPEN_OUTCOME_RECREATED: "recreated",
    pb.OPEN_OUTCOME_UNPARKED: "unparked",
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
    environment: str = "",
    environment_type: str = "",
    packages: Sequence[str] | None = None,
    env_vars: Mapping[str, str] | None = None,
    environment_config: Mapping[str, object] | None = None,
    command_policy: str = "",
    default_policy: str = "",
    egress: Sequence[str] | None = None,
    build_wait: float = 0.0,
    auto_snapshot: AutoSnapshotName | None = None,
    park_after: float | None = None,
    data_sources: Sequence[str] = (),
) -> SessionInfo:
    """The session of a (user, thread), created if there is none."""
    named = either(environment=environment or None, environment_type=environment_type or None)
    config = _environment_config(environment_config, packages=packages, env_vars=env_vars)
    request = pb.OpenSessionRequest(
        user_id=user_id,
        thread_id=thread_id,
        metadata=metadata or {},
        env=env or {},
        project_id=project,
        environment=named or "",
        command_policy=command_policy,
        default_command_policy=default_policy,
        data_sources=data_sources,
    )
    if idle_seconds is not None:
        request.idle_timeout.CopyFrom(duration(idle_seconds))
    if config is not None:
        request.environment_config.CopyFrom(config)
    if egress is not None:
        request.egress.SetInParent()
        request.egress.rules.extend(egress)
    if build_wait:
        request.build_wait.CopyFrom(duration(build_wait))
    if auto_snapshot is not None:
        request.auto_snapshot = auto_snapshot_value(auto_snapshot)
    if park_after is not None:
        request.park_after.CopyFrom(duration(park_after))
    timeout = connection.timeouts.open + build_wait
    opened = await connection.call(OPEN_SESSION, request, timeout=timeout)
    return SessionInfo.of(
        opened.session, status=_OUTCOMES[opened.outcome], is_kept=opened.workspace_kept
    )


def _environment_config(
    document: Mapping[str, object] | None,
    *,
    packages: Sequence[str] | None,
    env_vars: Mapping[str, str] | None,
) -> session_pb2.EnvironmentConfig | None:
    """What is added to an environment, by two parameters or by one document with both."""
    if document is None:
        if packages is None and env_vars is None:
            return None
        return session_pb2.EnvironmentConfig(packages=packages or (), env_vars=env_vars or {})
    if packages is not None or env_vars is not None:
        raise InvalidRequestError(
            "environment_config: give it, or packages and env_vars, not both; they mean the same"
        )
    if unknown := sorted(document.keys() - {"packages", "env_vars"}):
        raise InvalidRequestError(
            f"environment_config: {', '.join(map(repr, unknown))} is unknown; it has packages and "
            "env_vars"
        )
    try:
        return session_pb2.EnvironmentConfig(**document)  # type: ignore[arg-type]
    except (TypeError, ValueError, AttributeError):
        raise InvalidRequestError(
            'environment_config: write {"packages": [names], "env_vars": {name: text}}, not '
            f"{dict(document)!r:.200}"
        ) from None


async def get_session(connection: Connection, session_id: str) -> SessionInfo:
    """A session as it is now, including one that ended recently."""
    request = pb.GetSessionRequest(session_id=session_id)
    return SessionInfo.of((await connection.call(GET_SESSION, request)).session)


async def list_sessions(
    connection: Connection,
    *,
    user_id: str = "",
    thread_id: str = "",
    state: StateName | None = None,
    metadata: Mapping[str, str] | None = None,
    with_usage: bool = False,
) -> SessionList:
    """All sessions that match, oldest first."""
    request = pb.ListSessionsRequest(
        user_id=user_id, thread_id=thread_id, metadata=metadata or {}, with_usage=with_usage
    )
    if state is not None:
        request.state = session_pb2.SessionState.Value(f"SESSION_STATE_{state.upper()}")
    found: list[SessionInfo] = []
    missing: set[str] = set()
    while True:
        page = await connection.call(LIST_SESSIONS, request)
        found += map(SessionInfo.of, page.sessions)
        missing.update(page.missing_workers)
        request.page_token = page.next_page_token
        if not request.page_token:
            return SessionList(found, missing)


async def update_session(
    hold: SessionHold,
    *,
    idle_seconds: float | None = None,
    labels: Mapping[str, str | None] | None = None,
    auto_snapshot: AutoSnapshotName | None = None,
    park_after: float | None = None,
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
    if auto_snapshot is not None:
        request.auto_snapshot = auto_snapshot_value(auto_snapshot)
    if park_after is not None:
        request.park_after.CopyFrom(duration(park_after))
    return SessionInfo.of((await hold.connection.call(UPDATE_SESSION, request)).session)


async def close_session(connection: Connection, session_id: str) -> SessionInfo:
    """End a session and delete everything in it."""
    request = pb.CloseSessionRequest(session_id=session_id)
    return SessionInfo.of((await connection.call(CLOSE_SESSION, request)).session)


def auto_snapshot_value(name: AutoSnapshotName) -> snapshot_pb2.AutoSnapshot.ValueType:
    return snapshot_pb2.AutoSnapshot.Value(f"AUTO_SNAPSHOT_{name.upper()}")


def in_seconds(minutes: float | None) -> float | None:
    return None if minutes is None else minutes * 60


def duration(seconds: float) -> Duration:
    whole = int(seconds)
    return Duration(seconds=whole, nanos=round((seconds - whole) * 1e9))
