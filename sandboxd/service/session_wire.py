"""Messages of SessionService to domain objects and back."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from sandboxd.config import Config
from sandboxd.environments.environment import Environment
from sandboxd.errors import InvalidRequest, quoted
from sandboxd.execs.spec import check_env
from sandboxd.isolation.meter import LiveUsage
from sandboxd.packages import requests
from sandboxd.registry.contract import SessionState
from sandboxd.service import door_wire, wire
from sandboxd.sessions.changing import MAX_LABELS, SessionChange
from sandboxd.sessions.lines import AutoSnapshot
from sandboxd.sessions.opening import EnvironmentConfig, OpenRequest
from sandboxd.sessions.session import Outcome, Session, SessionFilter
from sandboxd_proto.v1 import session_pb2, snapshot_pb2, snapshot_service_pb2
from sandboxd_proto.v1 import session_service_pb2 as pb

MAX_NAME = 256
MAX_KEY = 64
MAX_VALUE = 256
MAX_IDLE_SECONDS = 7 * 24 * 3600.0
MAX_DATA_SOURCES = 32
MAX_BUILD_WAIT_SECONDS = 3600.0
MAX_PAGE_WITH_USAGE = 200
"""Sessions with usage in a page: for each, files of the kernel are read."""

_STATES = {
    SessionState.ACTIVE: session_pb2.SESSION_STATE_ACTIVE,
    SessionState.EXPIRED: session_pb2.SESSION_STATE_EXPIRED,
    SessionState.LOST: session_pb2.SESSION_STATE_LOST,
    SessionState.CLOSED: session_pb2.SESSION_STATE_CLOSED,
    SessionState.PARKED: session_pb2.SESSION_STATE_PARKED,
    SessionState.STOPPED: session_pb2.SESSION_STATE_STOPPED,
}
_STATES_BY_NUMBER = {number: state for state, number in _STATES.items()}
OUTCOMES = {
    Outcome.CREATED: pb.OPEN_OUTCOME_CREATED,
    Outcome.ATTACHED: pb.OPEN_OUTCOME_ATTACHED,
    Outcome.RECREATED: pb.OPEN_OUTCOME_RECREATED,
    Outcome.UNPARKED: pb.OPEN_OUTCOME_UNPARKED,
}
AUTO_SNAPSHOTS = {
    AutoSnapshot.OFF: snapshot_pb2.AUTO_SNAPSHOT_OFF,
    AutoSnapshot.COMMANDS: snapshot_pb2.AUTO_SNAPSHOT_COMMANDS,
    AutoSnapshot.TURNS: snapshot_pb2.AUTO_SNAPSHOT_TURNS,
}
_AUTO_BY_NUMBER = {number: auto for auto, number in AUTO_SNAPSHOTS.items()}


# --- requests ---


def name(field: str, value: str) -> str:
    """The id of a user, a thread or a project."""
    if not value:
        raise wire.missing(field)
    if len(value) > MAX_NAME:
        raise InvalidRequest(field, f"must have at most {MAX_NAME} characters")
    if not value.isprintable():
        raise InvalidRequest(field, "must not contain control characters")
    return value


def metadata(values: Mapping[str, str]) -> dict[str, str]:
    if len(values) > MAX_LABELS:
        raise InvalidRequest("metadata", f"must have at most {MAX_LABELS} labels")
    for key, value in values.items():
        _check_key("metadata", key)
        if len(value) > MAX_VALUE:
            raise InvalidRequest("metadata", f"a value must have at most {MAX_VALUE} characters")
    return dict(values)


def open_request(request: pb.OpenSessionRequest) -> OpenRequest:
    check_env(request.env)
    return OpenRequest(
        idle_seconds=idle_seconds(request),
        metadata=metadata(request.metadata),
        env=dict(request.env),
        project_id=name("project_id", request.project_id) if request.project_id else "",
        environment=_optional_name("environment", request.environment),
        environment_config=_environment_config(request),
        command_policy=_optional_name("command_policy", request.command_policy),
        default_command_policy=_optional_name(
            "default_command_policy", request.default_command_policy
        ),
        data_sources=data_sources(request.data_sources),
        egress=door_wire.rules(request.egress) if request.HasField("egress") else None,
        build_wait_seconds=(
            wire.seconds(request, "build_wait", low=0.0, high=MAX_BUILD_WAIT_SECONDS) or 0.0
        ),
        auto_snapshot=auto_snapshot(request.auto_snapshot),
        park_seconds=park_seconds(request),
    )


def data_sources(names: Sequence[str]) -> Sequence[str]:
    if len(names) > MAX_DATA_SOURCES:
        raise InvalidRequest("data_sources", f"must name at most {MAX_DATA_SOURCES}")
    return [wire.configured_name("data_sources", name) for name in names]


def _environment_config(request: pb.OpenSessionRequest) -> EnvironmentConfig | None:
    if not request.HasField("environment_config"):
        return None
    config = request.environment_config
    check_env(config.env_vars)
    requests.check_bounds(config.packages)  # what they mean depends on the environment
    return EnvironmentConfig(tuple(config.packages), dict(config.env_vars))


def _optional_name(field: str, value: str) -> str:
    return wire.configured_name(field, value) if value else ""


def session_change(request: pb.UpdateSessionRequest) -> SessionChange:
    labels, removed = metadata(request.metadata), request.remove_metadata
    if len(removed) > MAX_LABELS:
        raise InvalidRequest("remove_metadata", f"must name at most {MAX_LABELS} labels")
    for key in removed:
        _check_key("remove_metadata", key)
        if key in labels:
            raise InvalidRequest("remove_metadata", f"{quoted(key)} is also to be set")
    return SessionChange(
        idle_seconds(request),
        labels,
        tuple(removed),
        auto_snapshot(request.auto_snapshot),
        park_seconds(request),
    )


def _check_key(field: str, key: str) -> None:
    if not 1 <= len(key) <= MAX_KEY:
        raise InvalidRequest(field, f"a key must have 1 to {MAX_KEY} characters")


def idle_seconds(
    request: pb.OpenSessionRequest
    | pb.UpdateSessionRequest
    | snapshot_service_pb2.ForkSessionRequest,
) -> float | None:
    return wire.seconds(request, "idle_timeout", low=1.0, high=MAX_IDLE_SECONDS)


def park_seconds(request: pb.OpenSessionRequest | pb.UpdateSessionRequest) -> float | None:
    """Idle time until a session is parked; 0 means never, None as before."""
    value = wire.seconds(request, "park_after", low=0.0, high=MAX_IDLE_SECONDS)
    if value is not None and 0.0 < value < 1.0:
        raise InvalidRequest("park_after", "must be 0, or at least 1 second")
    return value


def auto_snapshot(value: snapshot_pb2.AutoSnapshot.ValueType) -> AutoSnapshot | None:
    wire.check_enum(
        "auto_snapshot", value, snapshot_pb2.AutoSnapshot.DESCRIPTOR, noun="automatic snapshot"
    )
    return _AUTO_BY_NUMBER.get(value)


def session_filter(request: pb.ListSessionsRequest) -> SessionFilter:
    wire.check_enum("state", request.state, session_pb2.SessionState.DESCRIPTOR, noun="state")
    return SessionFilter(
        user_id=request.user_id or None,
        thread_id=request.thread_id or None,
        state=_STATES_BY_NUMBER.get(request.state),
        metadata=wire.mapping(request.metadata, MAX_LABELS),
    )


def page_size(request: pb.ListSessionsRequest) -> int:
    limit = MAX_PAGE_WITH_USAGE if request.with_usage else wire.MAX_PAGE
    return wire.page_size(request.page_size, limit=limit)


# --- responses ---


def describe(session: Session, config: Config, *, with_usage: bool = False) -> session_pb2.Session:
    record, state = session.record, session.state
    usage = session.usage() if with_usage else None
    expires = time.time() + session.seconds_left if session.is_active else record.changed_at
    if state == SessionState.PARKED:
        expires += config.parked_days * 86400
    elif state == SessionState.STOPPED:
        expires += record.idle_seconds
    return session_pb2.Session(
        session_id=record.session_id,
        user_id=record.user_id,
        thread_id=record.thread_id,
        state=_STATES[state],
        incarnation=record.incarnation,
        workspace_dir=config.workspace_dir,
        limits=limits(session.environment, config) if session.environment else None,
        create_time=wire.timestamp(record.created_at),
        expire_time=wire.timestamp(expires),
        idle_timeout=wire.duration(record.idle_seconds),
        metadata=record.metadata,
        running_execs=len(session.execs),
        environment=record.environment,
        environment_config=session_pb2.EnvironmentConfig(
            packages=record.packages,
            # Only the names: the values may be secrets.
            env_vars=dict.fromkeys(record.env_vars, ""),
        ),
        command_policy=session.command_policy,
        egress=record.egress or (),
        end_reason=record.end_reason,
        usage=_usage(usage) if usage is not None else None,
        project_id=record.project,
        data_sources=record.data_sources,
        auto_snapshot=AUTO_SNAPSHOTS[AutoSnapshot(record.auto_snapshot)],
        park_after=wire.duration(record.park_seconds) if record.park_seconds else None,
        parked_snapshot=record.parked_number,
        restored_snapshot=record.restored_number,
        forked_from=record.forked_from,
        snapshots_paused_because=session.snapshots_paused_because,
    )


def limits(environment: Environment, config: Config) -> session_pb2.SessionLimits:
    return session_pb2.SessionLimits(
        memory_bytes=environment.memory_bytes,
        max_processes=environment.max_processes,
        cpu_millis=environment.cpu_quota_us // 100,
        workspace_bytes=environment.workspace_bytes,
        workspace_files=environment.workspace_files,
        max_running_execs=config.max_running_execs,
        default_exec_timeout=wire.duration(config.default_exec_seconds),
        max_exec_timeout=wire.duration(config.max_exec_seconds),
        max_run_output_bytes=config.max_run_output_bytes,
        max_file_bytes=environment.max_file_bytes,
        tmp_bytes=environment.tmp_bytes,
        tmp_files=environment.tmp_files,
    )


def _usage(usage: LiveUsage) -> session_pb2.SessionUsage:
    return session_pb2.SessionUsage(
        memory_bytes=usage.memory_bytes,
        cpu_time=wire.duration(usage.cpu_seconds),
        processes=usage.processes,
        workspace_bytes=usage.workspace_bytes,
        workspace_files=usage.workspace_files,
        tmp_bytes=usage.tmp_bytes,
        tmp_files=usage.tmp_files,
    )
