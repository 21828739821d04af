"""Breakpoints of a run: by line or by function, with conditions."""

from __future__ import annotations

from typing import Any

from .records import Breakpoint
from .tracebacks import Sources

MAX_BREAKPOINTS = 200


class Breakpoints:
    def __init__(self, file: str, sources: Sources) -> None:
        self._file = file
        self._sources = sources
        self._codes: list[Any] = []
        self._next = 1
        self._points: dict[int, Breakpoint] = {}
        self._lines: dict[tuple[str, int], list[int]] = {}
        self._functions: dict[str, int] = {}
        self._of_code: dict[Any, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._points)

    def learn(self, codes: list[Any]) -> None:
        """Code of the run, to find the lines on which something can stop."""
        self._codes = codes

    def add(self, given: dict[str, Any]) -> Breakpoint:
        """Raises ValueError with the reason."""
        if len(self._points) >= MAX_BREAKPOINTS:
            raise ValueError(f"there are {MAX_BREAKPOINTS} breakpoints already, the most")
        function, condition = str(given.get("function") or ""), str(given.get("condition") or "")
        file, line = str(given.get("file") or self._file), int(given.get("line") or 0)
        if condition:
            _check_condition(condition)
        if not function:
            line = self._next_line(file, line)
        point = Breakpoint(self._next, file, line, condition, function)
        self._next += 1
        self._points[point.id] = point
        self._index()
        return point

    def _next_line(self, file: str, line: int) -> int:
        """The line itself or the next one that has code. Of other files it is taken as it is."""
        if line < 1:
            raise ValueError("a breakpoint needs a line from 1 on, or the name of a function")
        if file != self._file:
            return line
        later = [one for one in _lines_of(self._codes) if one >= line]
        if not later:
            raise ValueError(f"there is no code on line {line} or after it")
        return min(later)

    def remove(self, number: int) -> bool:
        found = self._points.pop(number, None)
        self._index()
        return found is not None

    def _index(self) -> None:
        self._lines, self._functions = {}, {}
        self._of_code.clear()
        for point in self._points.values():
            if point.function:
                self._functions[point.function] = point.id
            else:
                self._lines.setdefault((point.file, point.line), []).append(point.id)

    def at_line(self, file: str, line: int) -> list[Breakpoint]:
        return [self._points[one] for one in self._lines.get((file, line), ())]

    def of_function(self, code: Any) -> Breakpoint | None:
        if not self._functions:
            return None
        found = self._functions.get(code.co_name)
        if found is None:
            found = self._functions.get(getattr(code, "co_qualname", code.co_name))
        return None if found is None else self._points[found]

    def are_in(self, code: Any) -> bool:
        """Whether a breakpoint by line is in this function itself."""
        known = self._of_code.get(code)
        if known is None:
            file = code.co_filename
            known = any((file, line) in self._lines for line in _own_lines(code))
            if len(self._of_code) > 5000:
                self._of_code.clear()
            self._of_code[code] = known
        return known


def _check_condition(condition: str) -> None:
    try:
        compile(condition, "<condition>", "eval")
    except SyntaxError as error:
        raise ValueError(f"the condition is not an expression: {error.msg}") from None


def _own_lines(code: Any) -> set[int]:
    if hasattr(code, "co_lines"):
        return {line for _, _, line in code.co_lines() if line}
    return _lines_of_table(code)


def _lines_of_table(code: Any) -> set[int]:
    """Python 3.9: pairs of increments."""
    lines, line = set(), code.co_firstlineno
    table = code.co_lnotab
    for index in range(0, len(table), 2):
        if table[index]:
            lines.add(line)
        step = table[index + 1]
        line += step if step < 128 else step - 256
    lines.add(line)
    return lines


def _lines_of(codes: list[Any]) -> set[int]:
    """Lines of code objects and of those inside them. A frame's first one is no line to stop on."""
    found: set[int] = set()
    waiting = list(codes)
    while waiting:
        code = waiting.pop()
        found |= _own_lines(code)
        waiting += [one for one in code.co_consts if type(one) is type(code)]
    found.discard(0)
    return found
