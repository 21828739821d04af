"""Exceptions as records: frames of the user's code, libraries counted, hostile texts bounded."""

from __future__ import annotations

import sys
from typing import Any

from .interrupts import Interrupts, Limit, TimeLimit
from .records import MAX_CAUSES, MAX_FRAMES, Error, Frame
from .summaries import cut, type_name

MAX_MESSAGE = 10_000
MAX_TRACEBACK = 64_000
_SHOWN_FRAMES = 50
_MAX_SOURCES = 4 << 20
_OWN = "sandboxd_code."


class Sources:
    """The text of the runs, for tracebacks and the debugger; the oldest ones are forgotten."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        self._size = 0

    def add(self, file: str, code: str) -> None:
        lines = code.splitlines()
        self._lines[file] = lines
        self._size += len(code)
        while self._size > _MAX_SOURCES and len(self._lines) > 1:
            oldest = next(iter(self._lines))
            self._size -= sum(len(line) + 1 for line in self._lines.pop(oldest))
        self._tell_linecache(file, code)

    def _tell_linecache(self, file: str, code: str) -> None:
        """For `traceback`, `inspect` and `warnings`."""
        cache = getattr(sys.modules.get("linecache"), "cache", None)
        if type(cache) is dict:
            cache[file] = (len(code), None, code.splitlines(True), file)

    def line(self, file: str, number: int) -> str:
        lines = self._lines.get(file)
        if lines is None:
            lines = _file_lines(file)
        return cut(lines[number - 1].strip(), 500) if 0 < number <= len(lines) else ""


_files: dict[str, list[str]] = {}


def _file_lines(file: str) -> list[str]:
    """Lines of a source file; none if it is no such file."""
    if file not in _files and len(_files) < 100:
        try:
            with open(file, "rb") as source:
                _files[file] = source.read(1 << 20).decode("utf-8", "replace").splitlines()
        except (OSError, ValueError):
            _files[file] = []
    return _files.get(file, [])


def is_own(frame: Any) -> bool:
    """Whether a frame is the runner's."""
    name = frame.f_globals.get("__name__")
    return type(name) is str and name.startswith(_OWN)


def is_users(file: str) -> bool:
    """Whether a file is the user's: code of a run, or a module outside of Python's directories."""
    known = _users.get(file)
    if known is None:
        known = _users[file] = file.startswith("<run ") or (
            file.startswith("/")
            and not file.startswith(_LIBRARIES)
            and "-packages/" not in file
            and "/node_modules/" not in file
        )
        if len(_users) > 5000:
            _users.clear()
    return known


_users: dict[str, bool] = {}
_LIBRARIES = tuple(
    path + "/"
    for path in (sys.prefix, sys.base_prefix, "/usr", __file__.rpartition("/")[0])
    if path != "/"
)


class Tracebacks:
    def __init__(self, sources: Sources, interrupts: Interrupts) -> None:
        self._sources = sources
        self._interrupts = interrupts

    def chain(
        self, raised: BaseException, stack: list[tuple[Any, int]] | None = None
    ) -> list[Error]:
        """The exception and its causes. `stack` has the frames if the exception has none."""
        found: list[Error] = []
        seen: set[int] = set()
        one: BaseException | None = raised
        while one is not None and id(one) not in seen and len(found) < MAX_CAUSES:
            seen.add(id(one))
            found.append(self._error(one, stack if one is raised else None))
            one = _cause(one)
        return found

    def _error(self, raised: BaseException, stack: list[tuple[Any, int]] | None) -> Error:
        places = _places(raised)
        if stack and not any(is_users(frame.f_code.co_filename) for frame, _ in places):
            places = stack
        frames = self.frames(places)
        name, message = type_name(raised), self._message(raised)
        if isinstance(raised, SyntaxError):
            frames += _syntax_frame(raised)
        return Error(name, message, frames, self._text(name, message, frames, raised))

    def frames(self, places: list[tuple[Any, int]]) -> list[Frame]:
        """Frames of the user's code, and the innermost one whatever it is."""
        found: list[Frame] = []
        for index, (frame, line) in enumerate(places):
            code = frame.f_code
            if is_users(code.co_filename) or index == len(places) - 1:
                found.append(self.frame(code, line))
            elif found:
                found[-1] = found[-1]._replace(left_out=found[-1].left_out + 1)
        half = MAX_FRAMES // 2
        return found if len(found) <= MAX_FRAMES else found[:half] + found[-half:]

    def frame(self, code: Any, line: int, number: int = 0) -> Frame:
        file = code.co_filename
        return Frame(file, line, code.co_name, self._sources.line(file, line), 0, number)

    def _message(self, raised: BaseException) -> str:
        if isinstance(raised, SyntaxError) and type(raised.msg) is str:
            return cut(raised.msg, MAX_MESSAGE)
        try:
            with Limit(self._interrupts, 0.5):
                text = str(raised)
        except (Exception, TimeLimit) as error:
            return f"<its text cannot be made: {type_name(error)}>"
        return cut(str.__str__(text), MAX_MESSAGE)

    def _text(self, name: str, message: str, frames: list[Frame], raised: BaseException) -> str:
        lines = ["Traceback (most recent call last):"] if frames else []
        shown = frames
        if len(frames) > 2 * _SHOWN_FRAMES:
            shown = frames[:_SHOWN_FRAMES] + frames[-_SHOWN_FRAMES:]
        for index, frame in enumerate(shown):
            if index == _SHOWN_FRAMES and shown is not frames:
                lines.append("  [%s frames left out]" % (len(frames) - len(shown)))
            lines += _frame_lines(frame)
        if isinstance(raised, SyntaxError):
            lines += _caret(raised)
        lines.append(f"{name}: {message}" if message else name)
        return cut("\n".join(lines), MAX_TRACEBACK)


def _cause(raised: BaseException) -> BaseException | None:
    if raised.__cause__ is not None:
        return raised.__cause__
    return None if raised.__suppress_context__ else raised.__context__


def _places(raised: BaseException) -> list[tuple[Any, int]]:
    """Frames and lines of its traceback, outermost first, without the runner's."""
    found = []
    trace = raised.__traceback__
    while trace is not None:
        if not is_own(trace.tb_frame):
            found.append((trace.tb_frame, trace.tb_lineno or 0))
        trace = trace.tb_next
    return found


places = _places


def _frame_lines(frame: Frame) -> list[str]:
    lines = [f'  File "{frame.file}", line {frame.line}, in {frame.function}']
    if frame.source:
        lines.append("    " + frame.source)
    if frame.left_out:
        lines.append(f"  [{frame.left_out} frames of libraries left out]")
    return lines


def _syntax_frame(error: SyntaxError) -> list[Frame]:
    file, line = error.filename, error.lineno
    if type(file) is not str or type(line) is not int:
        return []
    source = error.text.strip() if type(error.text) is str else ""
    return [Frame(cut(file), line, "<module>", cut(source, 500))]


def _caret(error: SyntaxError) -> list[str]:
    if type(error.text) is not str or type(error.offset) is not int:
        return []
    margin = len(error.text) - len(error.text.lstrip())
    column = error.offset - 1 - margin
    return ["    " + " " * column + "^"] if 0 <= column < 500 else []
