"""Messages to domain objects and back, and the checks that belong to the wire."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from grpc import aio

from sandboxd.config import Config
from sandboxd.errors import ExecNotFound, InvalidRequest
from sandboxd.exec_spec import ExecSpec, TerminalSize, check_env, new_exec_id
from sandboxd.execs import Batch, Exec, ExitStatus, Reason, State
from sandboxd.guest.frames import Stream, Target
from sandboxd.isolation.meter import LiveUsage, Usage
from sandboxd.journal import NOT_STARTED
from sandboxd.output import CapturedStream, Chunk, Gap
from sandboxd.registry.contract import ExecutionRecord, SessionState
from sandboxd.service.chunk_messages import OutputPiece, with_output
from sandboxd.sessions import Outcome, Session, SessionFilter
from sandboxd.spool import SearchQuery, SearchResult, Spool
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
MAX_PAGE_WITH_USAGE = 200
"""For each, files of the kernel are read."""
MAX_PLACE_DIGITS = 18
MAX_TERMINAL = 1000
MAX_INPUT_BYTES = 1 << 20
MAX_OUTPUT_BYTES = 1 << 20
MUCH_OUTPUT = 16 << 10
"""What is worth to be kept from being copied."""
DEFAULT_READ = 64 << 10
DEFAULT_PREVIEW = 16 << 10
DEFAULT_MATCHES = 100
MAX_MATCHES = 1000
MAX_CONTEXT = 10

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
    Reason.NO_OUTPUT: exec_pb2.EXIT_REASON_NO_OUTPUT_TIMEOUT,
}
_EXEC_STATES = {
    State.QUEUED: exec_pb2.EXEC_STATE_QUEUED,
    State.RUNNING: exec_pb2.EXEC_STATE_RUNNING,
    State.ENDED: exec_pb2.EXEC_STATE_ENDED,
}
_ON_DISCONNECT = frozenset(exec_service_pb2.OnDisconnect.values())
_OUTPUT_FIELDS = {
    Stream.STDOUT: exec_pb2.ExecEvent.STDOUT_FIELD_NUMBER,
    Stream.STDERR: exec_pb2.ExecEvent.STDERR_FIELD_NUMBER,
}
_STREAMS = {
    Stream.STDOUT: exec_pb2.OUTPUT_STREAM_STDOUT,
    Stream.STDERR: exec_pb2.OUTPUT_STREAM_STDERR,
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


def session_env(values: Mapping[str, str]) -> dict[str, str]:
    check_env(values)
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
    limit = MAX_PAGE_WITH_USAGE if request.with_usage else MAX_PAGE
    return bounded("page_size", request.page_size, default=DEFAULT_PAGE, limit=limit)


def execution_page(request: exec_service_pb2.ListExecutionsRequest) -> tuple[int, int | None]:
    """How many to show, and before which place."""
    size = bounded("page_size", request.page_size, default=DEFAULT_PAGE, limit=MAX_PAGE)
    if not request.page_token:
        return size, None
    if not request.page_token.isascii() or not request.page_token.isdigit():
        raise InvalidRequest("page_token", "use the token of the page before, unchanged")
    return size, min(int(request.page_token[:MAX_PLACE_DIGITS]), (1 << 62))


def executions(
    found: Sequence[ExecutionRecord], size: int
) -> exec_service_pb2.ListExecutionsResponse:
    """A page; `found` has one more than is shown if there is another."""
    shown = found[:size]
    return exec_service_pb2.ListExecutionsResponse(
        executions=[_execution(one) for one in shown],
        next_page_token=str(shown[-1].place) if len(found) > size else "",
    )


def exec_spec(
    request: exec_service_pb2.ExecRequest,
    config: Config,
    *,
    is_run: bool = False,
    is_detached: bool = False,
) -> ExecSpec:
    # Most requests name a session and a command: what they leave out should cost nothing.
    given = {field.name: value for field, value in request.ListFields()}
    if "session_id" not in given:
        raise InvalidRequest("session_id", "it is required; OpenSession gives one")
    shell, argv = given.get("shell"), given.get("argv")
    if shell is None and argv is None:
        raise InvalidRequest("command", "give `shell` or `argv`")
    on_disconnect = given.get("on_disconnect", exec_service_pb2.ON_DISCONNECT_UNSPECIFIED)
    if on_disconnect not in _ON_DISCONNECT:
        raise InvalidRequest("on_disconnect", "it is no known policy")
    limit = config.max_run_output_bytes
    if given.get("max_output_bytes", 0) > limit:
        raise InvalidRequest("max_output_bytes", f"it may be at most {limit}")
    terminal = given.get("terminal")
    has_stdin = "stdin" in given
    if is_run and (terminal is not None or has_stdin):
        raise InvalidRequest("terminal", "Run takes no input; use StartExec or Exec")
    longest = config.max_exec_seconds
    timeout = silence = None
    if "timeout" in given:
        timeout = seconds(request, "timeout", low=0.001, high=longest)
    if "no_output_timeout" in given:
        silence = seconds(request, "no_output_timeout", low=0.001, high=longest)
    exec_id = given.get("exec_id", "")
    keeps_running = on_disconnect == exec_service_pb2.ON_DISCONNECT_KEEP_RUNNING
    return ExecSpec(
        exec_id=exec_id or new_exec_id(),
        shell=shell,
        argv=() if argv is None else list(argv.args),
        cwd=given.get("cwd", ""),
        env=dict(request.env) if "env" in given else {},
        timeout_seconds=timeout or config.default_exec_seconds,
        no_output_seconds=silence,
        has_stdin=has_stdin and terminal is None,
        terminal=None if terminal is None else terminal_size(terminal),
        shell_name=given.get("shell_name", ""),
        survives_disconnect=is_detached or keeps_running,
        # Without an id of the caller's choice nobody can ask about a Run again.
        is_kept=bool(exec_id) or not is_run or keeps_running,
        is_chosen=bool(exec_id),
        capture_bytes=given.get("max_output_bytes", limit) if is_run else None,
    )


class NamesExec(Protocol):
    """A request about an exec."""

    @property
    def session_id(self) -> str: ...

    @property
    def exec_id(self) -> str: ...


def missing(field: str) -> InvalidRequest:
    return InvalidRequest(field, "it is required")


def terminal_size(terminal: exec_pb2.Terminal) -> TerminalSize:
    rows, columns = terminal.rows or 24, terminal.columns or 80
    if max(rows, columns) > MAX_TERMINAL:
        raise InvalidRequest("terminal", f"it has at most {MAX_TERMINAL} rows and columns")
    return TerminalSize(rows, columns)


def offsets(request: exec_service_pb2.AttachExecRequest) -> Mapping[Stream, int]:
    return {Stream.STDOUT: request.stdout_offset, Stream.STDERR: request.stderr_offset}


def exec_state(value: exec_pb2.ExecState.ValueType) -> State | None:
    states = {number: state for state, number in _EXEC_STATES.items()}
    if value and value not in states:
        raise InvalidRequest("state", "it is no known state")
    return states.get(value)


def page(found: Sequence[Exec], size: int, token: str) -> tuple[Sequence[Exec], str]:
    """A page of execs, newest first, and the token of the next."""
    if size > MAX_PAGE:
        raise InvalidRequest("page_size", f"it may be at most {MAX_PAGE}")
    after = _decode_token(token) if token else None
    rest = [one for one in found if after is None or _place(one) < after]
    shown = rest[: size or DEFAULT_PAGE]
    return shown, _encode_token(_place(shown[-1])) if len(rest) > len(shown) else ""


def _place(one: Exec) -> tuple[float, str]:
    return one.facts.started_at, one.id


def _encode_token(place: tuple[float, str]) -> str:
    # By place and not by name: the exec may be forgotten, or in another state, by the next page.
    return f"{place[0]!r}_{place[1]}"


def _decode_token(token: str) -> tuple[float, str]:
    started_at, _, exec_id = token.partition("_")
    try:
        return float(started_at), exec_id
    except ValueError:
        raise InvalidRequest("page_token", "use the token of the page before, unchanged") from None


def signal_number(request: exec_service_pb2.SignalExecRequest) -> int:
    if not 1 <= request.signal <= 64:
        raise InvalidRequest("signal", "it is the number of a signal, 1 to 64")
    return request.signal


def signal_target(request: exec_service_pb2.SignalExecRequest) -> Target:
    if request.target not in exec_service_pb2.SignalTarget.values():
        raise InvalidRequest("target", "it is no known target")
    is_leader = request.target == exec_service_pb2.SIGNAL_TARGET_LEADER
    return Target.LEADER if is_leader else Target.GROUP


def input_data(request: exec_service_pb2.WriteStdinRequest) -> bytes:
    if len(request.data) > MAX_INPUT_BYTES:
        raise InvalidRequest("data", f"at most {MAX_INPUT_BYTES} bytes at once")
    return request.data


def _stream(value: exec_pb2.OutputStream.ValueType) -> Stream:
    if value not in exec_pb2.OutputStream.values():
        raise InvalidRequest("stream", "it is no known stream")
    return Stream.STDERR if value == exec_pb2.OUTPUT_STREAM_STDERR else Stream.STDOUT


def bounded(field: str, value: int, *, default: int, limit: int) -> int:
    if value > limit:
        raise InvalidRequest(field, f"it may be at most {limit}")
    return value or default


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
        max_file_bytes=config.max_file_bytes,
    )


def session(one: Session, config: Config, *, with_usage: bool = False) -> session_pb2.Session:
    record = one.record
    meter = one.sandbox.meter if with_usage and one.sandbox is not None else None
    usage = meter.now() if meter is not None else None
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
        usage=_session_usage(usage) if usage is not None else None,
    )


def _session_usage(usage: LiveUsage) -> session_pb2.SessionUsage:
    return session_pb2.SessionUsage(
        memory_bytes=usage.memory_bytes,
        cpu_time=duration(usage.cpu_seconds),
        processes=usage.processes,
        workspace_bytes=usage.workspace_bytes,
        workspace_files=usage.workspace_files,
    )


def outcome(value: Outcome) -> session_service_pb2.OpenOutcome.ValueType:
    return _OUTCOMES[value]


def _fill_exit(message: exec_pb2.ExitStatus, status: ExitStatus) -> None:
    message.reason = _REASONS[status.reason]
    message.duration.seconds, message.duration.nanos = _split(status.duration_seconds)
    if status.stdout_bytes or status.stderr_bytes:
        message.stdout_bytes = status.stdout_bytes
        message.stderr_bytes = status.stderr_bytes
    if status.hint:
        message.hint = status.hint
    if status.code is not None:
        message.code = status.code
    if status.signal is not None:
        message.signal = status.signal
    if status.stdout_dropped or status.stderr_dropped:
        message.stdout_dropped_bytes = status.stdout_dropped
        message.stderr_dropped_bytes = status.stderr_dropped
    if status.usage is not None:
        _fill_usage(message.usage, status.usage)


def _fill_usage(message: exec_pb2.ExecUsage, usage: Usage) -> None:
    message.peak_memory_bytes = usage.peak_memory_bytes
    message.cpu_time.seconds, message.cpu_time.nanos = _split(usage.cpu_seconds)
    message.peak_processes = usage.peak_processes
    if usage.oom_kills or usage.refused_forks:
        message.oom_kills = usage.oom_kills
        message.refused_forks = usage.refused_forks


def exec_response(batch: Batch, exec_id: str) -> exec_service_pb2.ExecResponse:
    """Much output and nothing else is given as it goes over the wire."""
    if not batch.is_first and batch.exit is None and _is_much(batch.chunks):
        pieces = (
            OutputPiece(_OUTPUT_FIELDS[one.stream], one.offset, one.data)
            for one in batch.chunks
            if isinstance(one, Chunk)
        )
        written = with_output(exec_service_pb2.ExecResponse.EVENTS_FIELD_NUMBER, pieces)
        return cast(exec_service_pb2.ExecResponse, written)
    # Filled in place: a message given to the constructor of another is copied, with all its bytes.
    response = exec_service_pb2.ExecResponse()
    if batch.is_first:
        response.events.add().started.exec_id = exec_id
    for one in batch.chunks:
        event = response.events.add()
        if isinstance(one, Gap):
            event.dropped.stream = _STREAMS[one.stream]
            event.dropped.offset = one.offset
            event.dropped.bytes = one.size
            continue
        piece = event.stdout if one.stream == Stream.STDOUT else event.stderr
        piece.offset = one.offset
        piece.data = one.data
    if batch.exit is not None:
        _fill_exit(response.events.add().exited, batch.exit)
    return response


def _is_much(chunks: Sequence[Chunk | Gap]) -> bool:
    size = 0
    for one in chunks:
        if isinstance(one, Gap):
            return False
        size += len(one.data)
    return size >= MUCH_OUTPUT


def run_response(
    execution: Exec, status: ExitStatus, max_bytes: int
) -> exec_service_pb2.RunResponse:
    response = exec_service_pb2.RunResponse(exec_id=execution.id)
    _fill_exit(response.exit, status)
    for stream, message in (
        (Stream.STDOUT, response.stdout),
        (Stream.STDERR, response.stderr),
    ):
        if not execution.length(stream):
            message.SetInParent()
        elif execution.is_kept:
            _fill_captured(message, execution.excerpt(stream, max_bytes))
        else:
            _fill_captured(message, execution.captured[stream])
    return response


def execution(one: Exec) -> exec_pb2.Exec:
    facts = one.facts
    message = exec_pb2.Exec(
        exec_id=one.id,
        command=facts.command,
        state=_EXEC_STATES[one.state],
        start_time=timestamp(facts.started_at),
        timeout=duration(facts.timeout_seconds),
        stdout_bytes=one.length(Stream.STDOUT),
        stderr_bytes=one.length(Stream.STDERR),
        shell_name=facts.shell_name,
        has_terminal=facts.has_terminal,
        has_stdin=facts.has_stdin or facts.has_terminal,
    )
    if one.exit is not None:
        _fill_exit(message.exit, one.exit)
    return message


def _execution(record: ExecutionRecord) -> exec_pb2.Execution:
    is_started = record.ending != NOT_STARTED
    message = exec_pb2.Execution(
        exec_id=record.exec_id,
        incarnation=record.incarnation,
        command=record.command,
        start_time=timestamp(record.started_at),
        stdin_bytes=record.stdin_bytes,
        not_started=not is_started,
    )
    usage = None
    if record.cpu_seconds is not None:
        usage = Usage(
            peak_memory_bytes=record.peak_memory_bytes or 0,
            cpu_seconds=record.cpu_seconds,
            peak_processes=record.peak_processes or 0,
            oom_kills=record.oom_kills or 0,
            refused_forks=record.refused_forks or 0,
        )
    _fill_exit(
        message.exit,
        ExitStatus(
            reason=Reason[record.ending] if is_started else Reason.EXITED,
            code=record.code,
            signal=record.signal,
            duration_seconds=record.duration_seconds,
            stdout_bytes=record.stdout_bytes,
            stderr_bytes=record.stderr_bytes,
            hint=record.hint,
            usage=usage,
            stdout_dropped=record.stdout_dropped,
            stderr_dropped=record.stderr_dropped,
        ),
    )
    return message


def spool_of(one: Exec) -> Spool:
    if one.output is None:
        raise ExecNotFound(one.id)
    return one.output.spool


def read_output(
    one: Exec, request: exec_service_pb2.ReadOutputRequest
) -> exec_service_pb2.ReadOutputResponse:
    stream = _stream(request.stream)
    limit = bounded("max_bytes", request.max_bytes, default=DEFAULT_READ, limit=MAX_OUTPUT_BYTES)
    # Beyond the end there is nothing, which is no error: more may come.
    offset = min(request.offset, one.length(stream))
    piece = spool_of(one).read(stream, offset, limit)
    return exec_service_pb2.ReadOutputResponse(
        offset=piece.offset,
        data=piece.data,
        dropped_bytes=piece.skipped,
        total_bytes=one.length(stream),
        ended=one.exit is not None,
    )


def search(request: exec_service_pb2.SearchOutputRequest) -> SearchQuery:
    only = request.stream != exec_pb2.OUTPUT_STREAM_UNSPECIFIED
    context = bounded("context_lines", request.context_lines, default=0, limit=MAX_CONTEXT)
    return SearchQuery(
        pattern=request.pattern,
        streams=[_stream(request.stream)] if only else list(Stream),
        max_matches=bounded(
            "max_matches", request.max_matches, default=DEFAULT_MATCHES, limit=MAX_MATCHES
        ),
        before_lines=context,
        after_lines=context,
    )


def search_response(found: SearchResult) -> exec_service_pb2.SearchOutputResponse:
    return exec_service_pb2.SearchOutputResponse(
        matches=[
            exec_pb2.OutputMatch(
                stream=_STREAMS[one.stream],
                line_number=one.line_number,
                offset=one.line_offset,
                line=one.line,
                before=one.before,
                after=one.after,
            )
            for one in found.matches
        ],
        complete=found.is_complete,
        scanned_bytes=found.scanned_bytes,
    )


def preview(
    one: Exec, request: exec_service_pb2.PreviewOutputRequest
) -> exec_service_pb2.PreviewOutputResponse:
    limit = bounded("max_bytes", request.max_bytes, default=DEFAULT_PREVIEW, limit=MAX_OUTPUT_BYTES)
    spool = spool_of(one)

    def of(stream: Stream) -> exec_pb2.OutputPreview:
        shown = spool.preview(stream, max_bytes=limit, collapse=request.collapse)
        return exec_pb2.OutputPreview(
            head=shown.head,
            tail=shown.tail,
            omitted_bytes=shown.omitted_bytes,
            total_bytes=one.length(stream),
        )

    return exec_service_pb2.PreviewOutputResponse(
        stdout=of(Stream.STDOUT), stderr=of(Stream.STDERR)
    )


def _fill_captured(message: exec_pb2.CapturedOutput, stream: CapturedStream) -> None:
    message.data = stream.data
    if omitted_bytes := stream.omitted_bytes:
        message.omitted_bytes = omitted_bytes
        message.omitted_at = stream.omitted_at
