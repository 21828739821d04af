"""Messages to domain objects and back, and the checks that belong to the wire."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, TypeAlias

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import aio

from sandboxd.config import Config
from sandboxd.errors import InvalidRequest
from sandboxd.execs import Batch, Exec, ExecSpec, ExitStatus, Reason, new_exec_id
from sandboxd.guest.frames import Stream
from sandboxd.isolation.meter import Usage
from sandboxd.output import CapturedStream
from sandboxd.registry.contract import SessionState
from sandboxd.sessions import Outcome, Session, SessionFilter
from sandboxd_proto.v1 import (
    exec_pb2,
    exec_service_pb2,
    session_pb2,
    session_service_pb2,
)

# Quoted: the class is generic for the type checker only.
Context: TypeAlias = "aio.ServicerContext[Any, Any]"

MAX_NAME = 256
MAX_IDLE_SECONDS = 7 * 24 * 3600.0
MAX_METADATA = 32
DEFAULT_PAGE = 100
MAX_PAGE = 1000

_STATES = {
    SessionState.ACTIVE: session_pb2.SESSION_STATE_ACTIVE,
    SessionState.EXPIRED: session_pb2.SESSION_STATE_EXPIRED,
    SessionState.LOST: session_pb2.SESSION_STATE_LOST,
    SessionState.CLOSED: session_pb2.SESSION_STATE_CLOSED,
}
_OUTCOMES = {
    Outcome.CREATED: session_service_pb2.OPEN_OUTCOME_CREATED,
    Outcome.ATTACHED: session_service_pb2.OPEN_OUTCOME_ATTACHED,
    Outcome.RECREATED: session_service_pb2.OPEN_OUTCOME_RECREATED,
}
_REASONS = {
    Reason.EXITED: exec_pb2.EXIT_REASON_EXITED,
    Reason.SIGNALLED: exec_pb2.EXIT_REASON_SIGNALLED,
    Reason.TIMED_OUT: exec_pb2.EXIT_REASON_TIMED_OUT,
    Reason.CANCELLED: exec_pb2.EXIT_REASON_CANCELLED,
    Reason.SESSION_CLOSED: exec_pb2.EXIT_REASON_SESSION_CLOSED,
    Reason.SANDBOX_LOST: exec_pb2.EXIT_REASON_SANDBOX_LOST,
    Reason.SWEPT: exec_pb2.EXIT_REASON_SWEPT,
    Reason.OUT_OF_MEMORY: exec_pb2.EXIT_REASON_OUT_OF_MEMORY,
    Reason.PROCESS_LIMIT: exec_pb2.EXIT_REASON_PROCESS_LIMIT,
    Reason.DISK_FULL: exec_pb2.EXIT_REASON_DISK_FULL,
}


# --- requests ---


def name(field: str, value: str) -> str:
    """A user or thread id."""
    if not value:
        raise InvalidRequest(field, "it is required")
    if len(value) > MAX_NAME:
        raise InvalidRequest(field, f"it has over {MAX_NAME} characters")
    if not value.isprintable():
        raise InvalidRequest(field, "it holds control characters")
    return value


def seconds(message: Message, field: str, *, low: float, high: float) -> float | None:
    """A Duration field in seconds; None when it is absent."""
    if not message.HasField(field):
        return None
    duration: Duration = getattr(message, field)
    value = duration.seconds + duration.nanos / 1e9
    if not low <= value <= high:
        raise InvalidRequest(field, f"it must be from {low:g} to {high:g} seconds, not {value:g}")
    return value


def metadata(values: Mapping[str, str]) -> dict[str, str]:
    if len(values) > MAX_METADATA:
        raise InvalidRequest("metadata", f"there may be at most {MAX_METADATA} labels")
    for key, value in values.items():
        if not 1 <= len(key) <= 64 or len(value) > 256:
            raise InvalidRequest("metadata", "a key has 1 to 64 characters, a value at most 256")
    return dict(values)


def idle_seconds(request: session_service_pb2.OpenSessionRequest) -> float | None:
    return seconds(request, "idle_timeout", low=1.0, high=MAX_IDLE_SECONDS)


def session_filter(request: session_service_pb2.ListSessionsRequest) -> SessionFilter:
    states = {number: state for state, number in _STATES.items()}
    if request.state and request.state not in states:
        raise InvalidRequest("state", "it is no known state")
    return SessionFilter(
        user_id=request.user_id or None,
        thread_id=request.thread_id or None,
        state=states.get(request.state),
        metadata=dict(request.metadata),
    )


def page_size(request: session_service_pb2.ListSessionsRequest) -> int:
    if request.page_size > MAX_PAGE:
        raise InvalidRequest("page_size", f"it may be at most {MAX_PAGE}")
    return request.page_size or DEFAULT_PAGE


def exec_spec(request: exec_service_pb2.ExecRequest, config: Config, *, captures: bool) -> ExecSpec:
    if not request.session_id:
        raise InvalidRequest("session_id", "it is required; OpenSession gives one")
    kind = request.WhichOneof("command")
    if kind is None:
        raise InvalidRequest("command", "give `shell` or `argv`")
    timeout = seconds(request, "timeout", low=0.001, high=config.max_exec_seconds)
    if request.on_disconnect not in exec_service_pb2.OnDisconnect.values():
        raise InvalidRequest("on_disconnect", "it is no known policy")
    limit = config.max_run_output_bytes
    if request.max_output_bytes > limit:
        raise InvalidRequest("max_output_bytes", f"it may be at most {limit}")
    return ExecSpec(
        exec_id=request.exec_id or new_exec_id(),
        shell=request.shell if kind == "shell" else None,
        argv=list(request.argv.args),
        cwd=request.cwd,
        env=dict(request.env),
        timeout_seconds=timeout or config.default_exec_seconds,
        survives_disconnect=(request.on_disconnect == exec_service_pb2.ON_DISCONNECT_KEEP_RUNNING),
        capture_bytes=(request.max_output_bytes or limit) if captures else None,
    )


# --- responses ---


def duration(value: float) -> Duration:
    seconds, nanos = _split(value)
    return Duration(seconds=seconds, nanos=nanos)


def timestamp(value: float) -> Timestamp:
    seconds, nanos = _split(value)
    return Timestamp(seconds=seconds, nanos=nanos)


def _split(value: float) -> tuple[int, int]:
    whole = int(value)
    return whole, int((value - whole) * 1e9)


def limits(config: Config) -> session_pb2.SessionLimits:
    return session_pb2.SessionLimits(
        memory_bytes=config.memory_limit_bytes,
        max_processes=config.max_processes,
        cpu_millis=config.cpu_quota_us // 100,
        workspace_bytes=config.workspace_bytes,
        workspace_files=config.max_total_files,
        max_running_execs=config.max_running_execs,
        default_exec_timeout=duration(config.default_exec_seconds),
        max_exec_timeout=duration(config.max_exec_seconds),
        max_run_output_bytes=config.max_run_output_bytes,
    )


def session(one: Session, config: Config) -> session_pb2.Session:
    record = one.record
    expires = time.time() + one.seconds_left if one.is_active else record.changed_at
    return session_pb2.Session(
        session_id=record.session_id,
        user_id=record.user_id,
        thread_id=record.thread_id,
        state=_STATES[record.state],
        incarnation=record.incarnation,
        workspace_dir=config.workspace_dir,
        limits=limits(config),
        create_time=timestamp(record.created_at),
        expire_time=timestamp(expires),
        idle_timeout=duration(record.idle_seconds),
        metadata=record.metadata,
        running_execs=len(one.execs),
        end_reason=record.end_reason,
    )


def outcome(value: Outcome) -> session_service_pb2.OpenOutcome.ValueType:
    return _OUTCOMES[value]


def _fill_exit(message: exec_pb2.ExitStatus, status: ExitStatus) -> None:
    message.reason = _REASONS[status.reason]
    message.duration.seconds, message.duration.nanos = _split(status.duration_seconds)
    message.stdout_bytes = status.stdout_bytes
    message.stderr_bytes = status.stderr_bytes
    message.hint = status.hint
    if status.code is not None:
        message.code = status.code
    if status.signal is not None:
        message.signal = status.signal
    if status.usage is not None:
        _fill_usage(message.usage, status.usage)


def _fill_usage(message: exec_pb2.ExecUsage, usage: Usage) -> None:
    message.peak_memory_bytes = usage.peak_memory_bytes
    message.cpu_time.seconds, message.cpu_time.nanos = _split(usage.cpu_seconds)
    message.peak_processes = usage.peak_processes
    message.oom_kills = usage.oom_kills
    message.refused_forks = usage.refused_forks


def exec_response(batch: Batch, exec_id: str) -> exec_service_pb2.ExecResponse:
    # Filled in place: a message given to the constructor of another is copied, with all its bytes.
    response = exec_service_pb2.ExecResponse()
    if batch.is_first:
        response.events.add().started.exec_id = exec_id
    for chunk in batch.chunks:
        event = response.events.add()
        piece = event.stdout if chunk.stream == Stream.STDOUT else event.stderr
        piece.offset = chunk.offset
        piece.data = chunk.data
    if batch.exit is not None:
        _fill_exit(response.events.add().exited, batch.exit)
    return response


def run_response(execution: Exec, status: ExitStatus) -> exec_service_pb2.RunResponse:
    response = exec_service_pb2.RunResponse(exec_id=execution.id)
    _fill_exit(response.exit, status)
    _fill_captured(response.stdout, execution.captured[Stream.STDOUT])
    _fill_captured(response.stderr, execution.captured[Stream.STDERR])
    return response


def _fill_captured(message: exec_pb2.CapturedOutput, stream: CapturedStream) -> None:
    message.data = stream.data
    message.omitted_bytes = stream.omitted_bytes
    message.omitted_at = stream.omitted_at
