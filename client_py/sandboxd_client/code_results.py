"""Results of runs of code. Those that are dicts also have their keys as attributes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sandboxd_client.errors import CodeFailedError
from sandboxd_client.records import Record, record
from sandboxd_client.results import (
    Result,
    SessionInfo,
    Usage,
    exit_code_of,
    exit_reason,
    explain,
    iso,
    seconds_of,
    text_of,
    usage_of,
)

if TYPE_CHECKING:
    from sandboxd_proto.v1 import code_pb2
    from sandboxd_proto.v1 import code_service_pb2 as pb

MAIN = "main"
"""The context that runs use unless they name another one."""

CodeStatusName: TypeAlias = Literal[
    "ok", "raised", "interrupted", "timed_out", "context_lost", "refused"
]
"""How a run ended."""
LanguageName: TypeAlias = Literal["python", "javascript"]


class Display(Result):
    """A value in one or more representations: a dict from media type to text or bytes.

    Example:
        run = sandbox.code.run("{'a': 1}")
        print(run.value.text, list(run.value))
    """

    left_out: list[str]
    """Media types that were left out because they exceeded a limit."""
    is_value: bool = False
    """Whether it is the value of the last expression."""

    @property
    def text(self) -> str | None:
        return self._text("text/plain")

    @property
    def html(self) -> str | None:
        return self._text("text/html")

    @property
    def markdown(self) -> str | None:
        return self._text("text/markdown")

    @property
    def svg(self) -> str | None:
        return self._text("image/svg+xml")

    @property
    def latex(self) -> str | None:
        return self._text("text/latex")

    @property
    def json(self) -> Any:
        """The value of the representation `application/json`."""
        found = self._text("application/json")
        return None if found is None else parsed(found)[0]

    @property
    def png(self) -> bytes | None:
        return self._bytes("image/png")

    @property
    def jpeg(self) -> bytes | None:
        return self._bytes("image/jpeg")

    def _text(self, media_type: str) -> str | None:
        found = self.get(media_type)
        return found if isinstance(found, str) else None

    def _bytes(self, media_type: str) -> bytes | None:
        found = self.get(media_type)
        return found if isinstance(found, bytes) else None

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """For a notebook that shows the display."""
        return dict(self)

    @classmethod
    def of(cls, found: code_pb2.Display) -> Display:
        display = cls({part.media_type: _representation(part) for part in found.data})
        display.left_out = list(found.left_out)
        return display


class CodeFrame(Result):
    """A line of a traceback or of a stack."""

    file: str
    """File, or `<run N>` for code of the context's Nth run."""
    line: int
    function: str
    source: str
    """The line without indentation; empty if it is not known."""
    number: int
    """Number of the frame for commands of the debugger; 0 is the innermost."""
    left_out_frames: int
    """Number of frames of libraries directly inside this one that were left out."""

    @classmethod
    def of(cls, found: code_pb2.CodeFrame) -> CodeFrame:
        return cls(
            file=found.file,
            line=found.line,
            function=found.function,
            source=found.source,
            number=found.number,
            left_out_frames=found.left_out_frames,
        )


class CodeException(Result):
    """The exception that ended a run.

    Example:
        run = sandbox.code.run("1 / 0")
        print(run.error.type, run.error.message, run.error.frames[-1].line)
    """

    type: str
    """Name of its class."""
    message: str
    traceback: str
    """As Python prints it, without frames of sandboxd."""
    frames: list[CodeFrame]
    """Frames of the user's code, outermost first."""
    cause: CodeException | None
    """The exception that this one was raised from, or while handling."""

    @classmethod
    def of(cls, found: code_pb2.CodeError) -> CodeException:
        return cls(
            type=found.type,
            message=found.message,
            traceback=found.traceback,
            frames=[CodeFrame.of(frame) for frame in found.frames],
            cause=cls.of(found.cause) if found.HasField("cause") else None,
        )


class CodeLog(Result):
    """A line that `debug`, `inspect_var` or the `logging` module wrote."""

    time: str
    """ISO 8601 time by the sandbox's clock."""
    level: str
    """DEBUG, INFO, WARNING, ERROR or CRITICAL."""
    message: str
    variable: str
    """Name of the inspected variable; empty unless `inspect_var` wrote the line."""
    value: str
    """Summary of the inspected variable."""
    type: str
    """Type of the inspected variable."""

    @classmethod
    def of(cls, found: code_pb2.CodeLog) -> CodeLog:
        return cls(
            time=_sandbox_time(found),
            level=found.level,
            message=found.message,
            variable=found.variable,
            value=found.value,
            type=found.type,
        )


@record(frozen=True)
class CodeNote(Record):
    """A fact about a run that its reader should know."""

    text: str


@record(frozen=True)
class Conversion(Record):
    """A part of a result that JSON cannot express."""

    path: str
    """Place in the value, such as `$.rows[3].when`."""
    what: str
    """What was converted to what, such as `NaN to null`."""


class CodeRun(Result):
    """How a run of code ended, and what it returned, displayed and wrote.

    Example:
        run = sandbox.code.run("x = [1, 2]\\nprint(len(x))\\n__result__ = {'sum': sum(x)}")
        print(run.status, run["result"], run.result["sum"], run.stdout)
    """

    status: CodeStatusName
    """`ok`, `raised`, `interrupted`, `timed_out`, `context_lost` or `refused`."""
    result: Any
    """`__result__`, or the value of the last expression, as JSON has it; None if there is none."""
    value: Display | None
    """The last expression as it is shown."""
    displays: list[Display]
    """What the code displayed, in order: figures, tables, `display(...)`."""
    error: CodeException | None
    logs: list[CodeLog]
    notes: list[str]
    """Facts about the run that its reader should know."""
    stdout: str
    stderr: str
    context: str
    """Name of the context."""
    execution_time_ms: int

    exec_id: str
    generation: int
    """Number of the process in a row that the context is on."""
    outcome: str
    """`created`, `kept`, or `recreated` if the context had been lost before this run."""
    is_state_kept: bool
    """Whether the next run finds the variables."""
    conversions: list[Conversion]
    """What JSON cannot express and was converted in `result`."""
    is_result_truncated: bool
    """True if the result exceeded a limit and was left out or cut."""
    left_out_displays: int
    left_out_logs: int
    exit_code: int
    """What a program would exit with: 0, 1 for an exception, what `sys.exit` was given."""
    reason: str
    """Why it ended, as for a command: `exited`, `timed_out`, `out_of_memory`, ... Also a key of the
    dict, as `hint` is, unless there is nothing to explain."""
    hint: str
    """One line for a model: what happened and what to do next; empty for a plain end."""
    usage: Usage | None
    stdout_bytes: bytes
    stderr_bytes: bytes
    stdout_omitted_bytes: int
    stderr_omitted_bytes: int
    session: SessionInfo | None = None
    """The session if it had to be opened again for this run."""

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def text(self) -> str | None:
        """The value of the last expression as text."""
        return self.value.text if self.value is not None else None

    def check(self) -> CodeRun:
        """Return this run if its status is `ok`, otherwise raise CodeFailedError."""
        if self.ok:
            return self
        what = f"{self.error.type}: {self.error.message}" if self.error else self.hint
        message = f"the run ended as {self.status}"
        raise CodeFailedError(f"{message}: {what}" if what else message, self)

    @classmethod
    def of(cls, found: pb.RunCodeResponse) -> CodeRun:
        from sandboxd_proto.v1 import code_service_pb2 as pb

        result, problem = parsed(found.result.json) if found.result.json else (None, None)
        run = cls(
            status=name_of(pb.CodeStatus, found.status, "CODE_STATUS_"),
            result=result,
            value=Display.of(found.value) if found.HasField("value") else None,
            displays=[Display.of(display) for display in found.displays],
            error=CodeException.of(found.error) if found.HasField("error") else None,
            logs=[CodeLog.of(line) for line in found.logs],
            notes=[*found.notes, *([problem] if problem else [])],
            stdout=text_of(found.stdout),
            stderr=text_of(found.stderr),
            context=found.context.name,
            execution_time_ms=round(seconds_of(found.exit.duration) * 1000),
        )
        run.exec_id = found.exec_id
        run.generation = found.context.generation
        run.outcome = name_of(pb.ContextOutcome, found.outcome, "CONTEXT_OUTCOME_")
        run.is_state_kept = found.context.state != pb.CONTEXT_STATE_LOST
        run.conversions = [Conversion(one.path, one.what) for one in found.result.conversions]
        run.is_result_truncated = found.result.truncated or problem is not None
        run.left_out_displays = found.left_out_displays
        run.left_out_logs = found.left_out_logs
        run.exit_code = exit_code_of(found.exit)
        explain(run, found.exit)
        run.usage = usage_of(found.exit)
        run.stdout_bytes, run.stderr_bytes = found.stdout.data, found.stderr.data
        run.stdout_omitted_bytes = found.stdout.omitted_bytes
        run.stderr_omitted_bytes = found.stderr.omitted_bytes
        return run


class ContextInfo(Result):
    """A context: a process of the sandbox that keeps its variables from one run to the next."""

    name: str
    state: str
    """`idle`, `busy` or `lost`."""
    language: str
    version: str
    """Version of the interpreter; empty until the context has run."""
    generation: int
    """Number of the process in a row; it grows when the context was lost or restarted."""
    runs: int
    """Number of runs in this generation."""
    cwd: str
    policy: str
    """Name of the code policy in force."""
    exec_id: str
    """Id of the run that it is busy with; empty if it is idle."""

    started_at: str | None
    """ISO 8601 time of the start of this generation; None until then."""
    lost: str | None
    """How the previous generation ended; None for the first one."""
    background_output: bytes
    """The end of what was written between runs."""

    @classmethod
    def of(cls, found: pb.Context) -> ContextInfo:
        from sandboxd_proto.v1 import code_service_pb2 as pb

        info = cls(
            name=found.name,
            state=name_of(pb.ContextState, found.state, "CONTEXT_STATE_"),
            language=found.language,
            version=found.version,
            generation=found.generation,
            runs=found.runs,
            cwd=found.cwd,
            policy=found.policy,
            exec_id=found.exec_id,
        )
        info.started_at = iso(found.start_time) if found.HasField("start_time") else None
        info.lost = (found.lost.hint or exit_reason(found.lost)) if found.HasField("lost") else None
        info.background_output = found.background_output
        return info


DisplayCallback: TypeAlias = Callable[[Display], Awaitable[object] | object]
"""Receives what code displays; may be a coroutine function."""
LogCallback: TypeAlias = Callable[[CodeLog], Awaitable[object] | object]
"""Receives lines of the log of a run; may be a coroutine function."""


def parsed(text: str) -> tuple[Any, str | None]:
    """A JSON value that a sandbox wrote, or a sentence that says why it cannot be read."""
    import json

    try:
        return json.loads(text), None
    except RecursionError:
        return None, "The result is nested too deeply for this client."
    except ValueError as error:
        return None, f"The result is not valid JSON ({error})."


def name_of(kind: Any, value: int, prefix: str) -> Any:
    """The name of an enum's value in lower case; its number if a newer daemon sent it."""
    names: dict[int, str] = kind.DESCRIPTOR.values_by_number
    known = names.get(value)
    return str(getattr(known, "name", value)).removeprefix(prefix).lower()


def _sandbox_time(found: code_pb2.CodeLog) -> str:
    try:
        return iso(found.time)
    except (OverflowError, OSError, ValueError):
        return ""  # a sandbox may send any number


def _representation(part: code_pb2.DisplayData) -> str | bytes:
    is_text = part.media_type.startswith("text/") or part.media_type in _TEXT_TYPES
    return part.data.decode("utf-8", "replace") if is_text else part.data


_TEXT_TYPES = {"image/svg+xml", "application/json", "application/javascript"}
