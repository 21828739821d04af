"""Messages of ExecService to domain objects and back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol, cast

from sandboxd.code.events import EventParser
from sandboxd.config import Config
from sandboxd.errors import InvalidRequest
from sandboxd.execs.ending import NOT_STARTED, ExitStatus, Reason, reason_of
from sandboxd.execs.exec import Batch, Exec, State
from sandboxd.execs.output import Chunk, Excerpt, Gap
from sandboxd.execs.spec import (
    MAX_VARIABLES,
    MAX_WORDS,
    ExecSpec,
    TerminalSize,
    new_exec_id,
)
from sandboxd.guest.frames import TEXT_STREAMS, Stream, Target
from sandboxd.isolation.meter import Usage
from sandboxd.registry.contract import ExecutionRecord
from sandboxd.service import wire
from sandboxd.service.code_event_wire import fill_event
from sandboxd.service.transport.chunk_messages import OutputPiece, with_output
from sandboxd.spool import Piece, Preview, SearchQuery, SearchResult
from sandboxd_proto.v1 import exec_pb2
from sandboxd_proto.v1 import exec_service_pb2 as pb

MAX_TERMINAL = 1000
MAX_INPUT_BYTES = 1 << 20
MAX_OUTPUT_BYTES = 1 << 20
MUCH_OUTPUT = 16 << 10
"""Bytes of output from which on it pays to avoid a copy."""
DEFAULT_READ = 64 << 10
DEFAULT_PREVIEW = 16 << 10
DEFAULT_MATCHES = 100
MAX_MATCHES = 1000
MAX_CONTEXT = 10
FIRST_LOOK_SECONDS = 0.01
"""How long a stream waits for the report that a run of code has its context."""

EXIT_REASONS = {
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
_STATES = {
    State.QUEUED: exec_pb2.EXEC_STATE_QUEUED,
    State.RUNNING: exec_pb2.EXEC_STATE_RUNNING,
    State.ENDED: exec_pb2.EXEC_STATE_ENDED,
}
_STATES_BY_NUMBER = {number: state for state, number in _STATES.items()}
_OUTPUT_FIELDS = {
    Stream.STDOUT: exec_pb2.ExecEvent.STDOUT_FIELD_NUMBER,
    Stream.STDERR: exec_pb2.ExecEvent.STDERR_FIELD_NUMBER,
}
_STREAMS = {
    Stream.STDOUT: exec_pb2.OUTPUT_STREAM_STDOUT,
    Stream.STDERR: exec_pb2.OUTPUT_STREAM_STDERR,
    Stream.EVENTS: exec_pb2.OUTPUT_STREAM_EVENTS,
}


# --- requests ---


class NamesExec(Protocol):
    """A request about an exec."""

    @property
    def session_id(self) -> str: ...

    @property
    def exec_id(self) -> str: ...


def exec_spec(
    request: pb.ExecRequest,
    config: Config,
    *,
    is_run: bool = False,
    is_detached: bool = False,
) -> ExecSpec:
    # Most requests name a session and a command: fields that they leave out should cost nothing.
    given = {field.name: value for field, value in request.ListFields()}
    if "session_id" not in given:
        raise InvalidRequest("session_id", "required; open a session to get one")
    shell, argv = given.get("shell"), given.get("argv")
    if shell is None and argv is None:
        raise InvalidRequest("command", "give `shell` or `argv`")
    limit = config.max_run_output_bytes
    if given.get("max_output_bytes", 0) > limit:
        raise InvalidRequest("max_output_bytes", f"must be at most {limit}")
    terminal = given.get("terminal")
    has_stdin = "stdin" in given
    if is_run and (terminal is not None or has_stdin):
        raise InvalidRequest(
            "terminal", "a call that answers once takes no input; start the command and write to it"
        )
    longest = config.max_exec_seconds
    timeout = silence = None
    if "timeout" in given:
        is_zero = not given["timeout"].ListFields()
        timeout = longest if is_zero else wire.seconds(request, "timeout", low=0.001, high=longest)
    if "no_output_timeout" in given:
        silence = wire.seconds(request, "no_output_timeout", low=0.001, high=longest)
    exec_id = given.get("exec_id", "")
    survives = "on_disconnect" in given and keeps_running(given["on_disconnect"])
    return ExecSpec(
        exec_id=exec_id or new_exec_id(),
        shell=shell,
        argv=() if argv is None else argv.args[: MAX_WORDS + 1],
        cwd=given.get("cwd", ""),
        env=wire.mapping(request.env, MAX_VARIABLES) if "env" in given else {},
        timeout_seconds=timeout or config.default_exec_seconds,
        no_output_seconds=silence,
        has_stdin=has_stdin and terminal is None,
        merges_stderr="merge_stderr" in given and terminal is None,
        terminal=None if terminal is None else terminal_size(terminal),
        shell_name=given.get("shell_name", ""),
        survives_disconnect=is_detached or survives,
        # Without an id of the caller's choice nobody can ask about a Run later.
        is_kept=bool(exec_id) or not is_run or survives,
        is_chosen=bool(exec_id),
        reports_start=is_detached,
        capture_bytes=given.get("max_output_bytes", limit) if is_run else None,
    )


def keeps_running(policy: pb.OnDisconnect.ValueType) -> bool:
    wire.check_enum("on_disconnect", policy, pb.OnDisconnect.DESCRIPTOR, noun="policy")
    return policy == pb.ON_DISCONNECT_KEEP_RUNNING


def terminal_size(terminal: exec_pb2.Terminal) -> TerminalSize:
    rows, columns = terminal.rows or 24, terminal.columns or 80
    if max(rows, columns) > MAX_TERMINAL:
        raise InvalidRequest("terminal", f"must have at most {MAX_TERMINAL} rows and columns")
    return TerminalSize(rows, columns)


class NamesOffsets(Protocol):
    """A request to follow an exec from where its caller has got to."""

    @property
    def stdout_offset(self) -> int: ...

    @property
    def stderr_offset(self) -> int: ...

    @property
    def events_offset(self) -> int: ...


def offsets(request: NamesOffsets) -> Mapping[Stream, int]:
    return {
        Stream.STDOUT: request.stdout_offset,
        Stream.STDERR: request.stderr_offset,
        Stream.EVENTS: request.events_offset,
    }


def exec_state(value: exec_pb2.ExecState.ValueType) -> State | None:
    """The state that a listing is limited to; None for all."""
    wire.check_enum("state", value, exec_pb2.ExecState.DESCRIPTOR, noun="state")
    return _STATES_BY_NUMBER.get(value)


def signal_number(request: pb.SignalExecRequest) -> int:
    if not 1 <= request.signal <= 64:
        raise InvalidRequest("signal", "must be the number of a signal, 1 to 64")
    return request.signal


def signal_target(request: pb.SignalExecRequest) -> Target:
    wire.check_enum("target", request.target, pb.SignalTarget.DESCRIPTOR, noun="target")
    is_leader = request.target == pb.SIGNAL_TARGET_LEADER
    return Target.LEADER if is_leader else Target.GROUP


def input_offset(request: pb.WriteStdinRequest) -> int | None:
    """None: behind everything that was written."""
    if not request.append:
        return request.offset
    if request.offset:
        raise InvalidRequest("offset", "it does not go with append; leave one of them out")
    return None


def input_data(request: pb.WriteStdinRequest) -> bytes:
    if len(request.data) > MAX_INPUT_BYTES:
        raise InvalidRequest("data", f"must have at most {MAX_INPUT_BYTES} bytes; write in pieces")
    return request.data


def output_stream(value: exec_pb2.OutputStream.ValueType) -> Stream:
    wire.check_enum("stream", value, exec_pb2.OutputStream.DESCRIPTOR, noun="stream")
    if value == exec_pb2.OUTPUT_STREAM_EVENTS:
        raise InvalidRequest("stream", "events have no text; attach to the run to read them")
    return Stream.STDERR if value == exec_pb2.OUTPUT_STREAM_STDERR else Stream.STDOUT


def output_bytes(value: int, *, default: int) -> int:
    """How many bytes of output to return."""
    return wire.bounded("max_bytes", value, default=default, limit=MAX_OUTPUT_BYTES)


def search_query(request: pb.SearchOutputRequest) -> SearchQuery:
    is_one = request.stream != exec_pb2.OUTPUT_STREAM_UNSPECIFIED
    context = wire.bounded("context_lines", request.context_lines, default=0, limit=MAX_CONTEXT)
    return SearchQuery(
        pattern=request.pattern,
        streams=[output_stream(request.stream)] if is_one else list(TEXT_STREAMS),
        max_matches=wire.bounded(
            "max_matches", request.max_matches, default=DEFAULT_MATCHES, limit=MAX_MATCHES
        ),
        before_lines=context,
        after_lines=context,
    )


# --- responses ---


def fill_exit(message: exec_pb2.ExitStatus, status: ExitStatus) -> None:
    message.reason = EXIT_REASONS[status.reason]
    message.duration.seconds, message.duration.nanos = wire.split(status.duration_seconds)
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
    message.cpu_time.seconds, message.cpu_time.nanos = wire.split(usage.cpu_seconds)
    message.peak_processes = usage.peak_processes
    if usage.oom_kills or usage.refused_forks:
        message.oom_kills = usage.oom_kills
        message.refused_forks = usage.refused_forks


async def responses(
    execution: Exec, offsets: Mapping[Stream, int] | None = None
) -> AsyncIterator[pb.ExecResponse]:
    """What an exec reports from these offsets on, until its end."""
    events = EventParser((offsets or {}).get(Stream.EVENTS, 0)) if execution.is_code else None
    async for batch in execution.follow(offsets):
        yield exec_response(batch, execution, events)


def exec_response(
    batch: Batch, execution: Exec, events: EventParser | None = None
) -> pb.ExecResponse:
    """A batch as a message; in serialised form if it is much output and nothing else."""
    if not batch.is_first and batch.exit is None and _is_much(batch.chunks):
        pieces = (
            OutputPiece(_OUTPUT_FIELDS[chunk.stream], chunk.offset, chunk.data)
            for chunk in batch.chunks
            if isinstance(chunk, Chunk)
        )
        written = with_output(pb.ExecResponse.EVENTS_FIELD_NUMBER, pieces)
        return cast(pb.ExecResponse, written)
    # Filled in place: a message given to the constructor of another is copied, with all its bytes.
    response = pb.ExecResponse()
    if batch.is_first:
        started = response.events.add().started
        started.exec_id, started.pid = execution.id, execution.pid
    for chunk in batch.chunks:
        event = response.events.add()
        if isinstance(chunk, Gap):
            event.dropped.stream = _STREAMS[chunk.stream]
            event.dropped.offset = chunk.offset
            event.dropped.bytes = chunk.size
            if events is not None and chunk.stream == Stream.EVENTS:
                events.is_spoiled = True  # where the next event begins is not known
            continue
        if chunk.stream == Stream.EVENTS:
            del response.events[-1]
            _add_code_events(response, chunk, events)
            continue
        piece = event.stdout if chunk.stream == Stream.STDOUT else event.stderr
        piece.offset = chunk.offset
        piece.data = chunk.data
    if batch.exit is not None:
        fill_exit(response.events.add().exited, batch.exit)
    return response


def _add_code_events(response: pb.ExecResponse, chunk: Chunk, events: EventParser | None) -> None:
    for placed in events.feed(chunk.data) if events is not None else ():
        fill_event(response.events.add().code, placed)


def _is_much(chunks: Sequence[Chunk | Gap]) -> bool:
    size = 0
    for chunk in chunks:
        if isinstance(chunk, Gap) or chunk.stream is Stream.EVENTS:
            return False
        size += len(chunk.data)
    return size >= MUCH_OUTPUT


def run_response(execution: Exec, status: ExitStatus, max_bytes: int) -> pb.RunResponse:
    response = pb.RunResponse(exec_id=execution.id)
    fill_exit(response.exit, status)
    for stream, message in (
        (Stream.STDOUT, response.stdout),
        (Stream.STDERR, response.stderr),
    ):
        if not execution.length(stream):
            message.SetInParent()
        else:
            fill_excerpt(message, execution.output.excerpt(stream, max_bytes))
    return response


def fill_excerpt(message: exec_pb2.CapturedOutput, excerpt: Excerpt) -> None:
    message.data = excerpt.data
    if omitted_bytes := excerpt.omitted_bytes:
        message.omitted_bytes = omitted_bytes
        message.omitted_at = excerpt.omitted_at


def describe(execution: Exec) -> exec_pb2.Exec:
    details = execution.details
    message = exec_pb2.Exec(
        exec_id=execution.id,
        command=details.command,
        state=_STATES[execution.state],
        start_time=wire.timestamp(details.started_at),
        timeout=wire.duration(details.timeout_seconds),
        stdout_bytes=execution.length(Stream.STDOUT),
        stderr_bytes=execution.length(Stream.STDERR),
        shell_name=details.shell_name,
        has_terminal=details.has_terminal,
        has_stdin=details.has_stdin or details.has_terminal,
        pid=execution.pid,
        context=details.context,
        events_bytes=execution.length(Stream.EVENTS),
    )
    if execution.exit is not None:
        fill_exit(message.exit, execution.exit)
    return message


def describe_record(record: ExecutionRecord) -> exec_pb2.Execution:
    message = exec_pb2.Execution(
        exec_id=record.exec_id,
        incarnation=record.incarnation,
        command=record.command,
        start_time=wire.timestamp(record.started_at),
        stdin_bytes=record.stdin_bytes,
        not_started=record.ending == NOT_STARTED,
        context=record.context,
    )
    status = ExitStatus(
        reason=reason_of(record.ending),
        code=record.code,
        signal=record.signal,
        duration_seconds=record.duration_seconds,
        stdout_bytes=record.stdout_bytes,
        stderr_bytes=record.stderr_bytes,
        hint=record.hint,
        usage=_recorded_usage(record),
        stdout_dropped=record.stdout_dropped,
        stderr_dropped=record.stderr_dropped,
    )
    fill_exit(message.exit, status)
    return message


def _recorded_usage(record: ExecutionRecord) -> Usage | None:
    if record.cpu_seconds is None:
        return None
    return Usage(
        peak_memory_bytes=record.peak_memory_bytes or 0,
        cpu_seconds=record.cpu_seconds,
        peak_processes=record.peak_processes or 0,
        oom_kills=record.oom_kills or 0,
        refused_forks=record.refused_forks or 0,
    )


def read_response(execution: Exec, stream: Stream, piece: Piece) -> pb.ReadOutputResponse:
    return pb.ReadOutputResponse(
        offset=piece.offset,
        data=piece.data,
        dropped_bytes=piece.skipped,
        total_bytes=execution.length(stream),
        ended=execution.exit is not None,
    )


def search_response(found: SearchResult) -> pb.SearchOutputResponse:
    return pb.SearchOutputResponse(
        matches=[
            exec_pb2.OutputMatch(
                stream=_STREAMS[match.stream],
                line_number=match.line_number,
                offset=match.line_offset,
                line=match.line,
                before=match.before,
                after=match.after,
            )
            for match in found.matches
        ],
        complete=found.is_complete,
        scanned_bytes=found.scanned_bytes,
    )


def output_preview(preview: Preview, total_bytes: int) -> exec_pb2.OutputPreview:
    return exec_pb2.OutputPreview(
        head=preview.head,
        tail=preview.tail,
        omitted_bytes=preview.omitted_bytes,
        total_bytes=total_bytes,
    )
