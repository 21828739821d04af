"""A run of code in the shape that other SDKs return: results, logs and error."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field
from typing import Any, TypeAlias

from sandboxd_client.code_results import CodeRun, Display
from sandboxd_client.records import Record, record


class OutputMessage(str):
    """A piece of output; also text."""

    __slots__ = ("error",)
    error: bool

    @classmethod
    def of(cls, text: str, *, error: bool) -> OutputMessage:
        message = cls(text)
        message.error = error
        return message

    @property
    def line(self) -> str:
        """The text."""
        return str(self)


@record(frozen=True)
class ExecutionResult(Record):
    """A value in its representations; images are base64 text."""

    text: str | None = None
    html: str | None = None
    markdown: str | None = None
    svg: str | None = None
    png: str | None = None
    jpeg: str | None = None
    latex: str | None = None
    json: Any = None
    is_main_result: bool = False
    """Whether it is the value of the last expression."""

    def formats(self) -> Iterable[str]:
        """Names of the representations that there are."""
        return [name for name in _FORMATS if getattr(self, name) is not None]

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    @classmethod
    def of(cls, display: Display, *, is_main: bool) -> ExecutionResult:
        return cls(
            text=display.text,
            html=display.html,
            markdown=display.markdown,
            svg=display.svg,
            png=_base64(display.png),
            jpeg=_base64(display.jpeg),
            latex=display.latex,
            json=display.json,
            is_main_result=is_main,
        )


_FORMATS = ("text", "html", "markdown", "svg", "png", "jpeg", "latex", "json")


@record(frozen=True)
class ExecutionLogs(Record):
    """What was written."""

    stdout: list[str] = field(default_factory=list)
    stderr: list[str] = field(default_factory=list)


@record(frozen=True)
class ExecutionError(Record):
    """The exception that ended a run, or what else kept it from its end."""

    name: str
    value: str
    traceback: str


@record(frozen=True)
class Execution(Record):
    """A run of code: results, logs and error.

    Example:
        execution = sandbox.run_code("print('hello')\\n6 * 7")
        print(execution.text, execution.logs.stdout, execution.error)
    """

    results: list[ExecutionResult]
    """What the code displayed, and the value of the last expression, which is the last one."""
    logs: ExecutionLogs
    error: ExecutionError | None
    run: CodeRun
    """The run with everything that sandboxd knows about it."""

    @property
    def text(self) -> str | None:
        """The value of the last expression as text."""
        return next((one.text for one in self.results if one.is_main_result), None)

    @classmethod
    def of(cls, run: CodeRun) -> Execution:
        results = [ExecutionResult.of(display, is_main=False) for display in run.displays]
        if run.value is not None:
            results.append(ExecutionResult.of(run.value, is_main=True))
        logs = ExecutionLogs([run.stdout] if run.stdout else [], [run.stderr] if run.stderr else [])
        return cls(results, logs, _error(run), run)


OutputMessageCallback: TypeAlias = Callable[[OutputMessage], Awaitable[object] | object]
"""Receives pieces of output; may be a coroutine function."""
ResultCallback: TypeAlias = Callable[[ExecutionResult], Awaitable[object] | object]
"""Receives results as they come; may be a coroutine function."""
ErrorCallback: TypeAlias = Callable[[ExecutionError], Awaitable[object] | object]
"""Receives the error; may be a coroutine function."""


def _error(run: CodeRun) -> ExecutionError | None:
    if run.error is not None:
        return ExecutionError(run.error.type, run.error.message, run.error.traceback)
    return None if run.ok else ExecutionError(run.status, run.hint, "")


def _base64(data: bytes | None) -> str | None:
    return None if data is None else b2a_base64(data, newline=False).decode()
