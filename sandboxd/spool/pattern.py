"""Patterns that match within a line, in time linear in its length."""

from __future__ import annotations

import re
from typing import Any

import re2  # type: ignore[import-untyped]

from sandboxd.errors import InvalidRequest

MAX_CHARACTERS = 1000
MAX_PROGRAM_SIZE = 2000
"""Most steps of a compiled pattern; at worst each costs some nanoseconds per byte."""
_MAX_MEMORY_BYTES = 4 << 20

_SYNTAX = re.compile(r"\\(?P<escaped>.)|\(\?(?P<flags>[A-Za-z]*-[A-Za-z]+)", re.DOTALL)


class LinePattern:
    """A pattern in RE2 syntax; `^` and `$` match the ends of a line, nothing matches a newline."""

    def __init__(self, pattern: str) -> None:
        _check(pattern)
        options = re2.Options()
        options.never_nl = True
        options.never_capture = (
            True  # only the position of a match is needed, which is faster to find
        )
        options.log_errors = False
        options.max_mem = _MAX_MEMORY_BYTES
        try:
            self._expression: Any = re2.compile(f"(?m){pattern}", options)
        except re2.error as error:
            raise InvalidRequest("pattern", f"{_in_words(error)}; use RE2 syntax") from None
        finally:
            re2.purge()  # its cache would hold many patterns in memory
        if self._expression.programsize > MAX_PROGRAM_SIZE:
            raise InvalidRequest("pattern", "it is too complex; use fewer or smaller repetitions")

    def find(self, text: bytes, start: int, end: int) -> tuple[int, int] | None:
        """The first match within [start, end); only `^`, `$` and `\\b` see the bytes around it."""
        match = self._expression.search(text, start, end)
        return None if match is None else match.span()


def _check(pattern: str) -> None:
    if not pattern:
        raise InvalidRequest("pattern", "it is empty")
    if len(pattern) > MAX_CHARACTERS:
        raise InvalidRequest("pattern", f"it has more than {MAX_CHARACTERS} characters")
    try:
        pattern.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("pattern", "it is not valid Unicode") from None
    for found in _SYNTAX.finditer(pattern):
        # Many lines are searched at once, so these would not match the ends of a line.
        if found["escaped"] in ("A", "z"):
            raise InvalidRequest("pattern", "use ^ and $ for the ends of a line, not \\A and \\z")
        if found["escaped"] == "C":
            raise InvalidRequest("pattern", "\\C is not supported; use `.`")
        if found["flags"] and "m" in found["flags"].partition("-")[2]:
            raise InvalidRequest("pattern", "the flag m cannot be turned off")


def _in_words(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
