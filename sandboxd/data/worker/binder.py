"""`:name` parameters of a statement, written as `$1` for PostgreSQL.

The text is read by PostgreSQL's lexical rules, so that nothing in a string, a quoted name, a
comment or a cast is taken for a parameter. A value never becomes part of the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

MAX_NAMES = 1000
_SKIPPED = re.compile(
    r"""
      (?P<escapes>(?<![\w$])[eE]'(?:[^'\\]|\\.|'')*(?:'|\Z))
    | (?P<text>'(?:[^']|'')*(?:'|\Z))
    | (?P<name>"(?:[^"]|"")*(?:"|\Z))
    | (?P<line>--[^\n\r]*)
    | (?P<block>/\*)
    | (?P<dollar>(?<![\w$\x80-\U0010ffff])\$
        (?:[A-Za-z_\x80-\U0010ffff][\w\x80-\U0010ffff]*)?\$)
    | (?P<cast>::|:=)
    | :(?P<parameter>[A-Za-z_][A-Za-z0-9_]*)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")


class Bound(NamedTuple):
    """A statement with numbered parameters."""

    sql: str
    names: Sequence[str]
    """The name of each number, from 1."""


def bind(sql: str) -> Bound:
    """Number the parameters of a statement; a name that occurs twice has one number."""
    numbers: dict[str, int] = {}
    parts: list[str] = []
    start = position = 0
    while match := _SKIPPED.search(sql, position):
        position = _end(sql, match)
        if name := match["parameter"]:
            number = numbers.setdefault(name, len(numbers) + 1)
            parts += sql[start : match.start()], f"${number}"
            start = position
    return Bound("".join([*parts, sql[start:]]), tuple(numbers))


def _end(sql: str, match: re.Match[str]) -> int:
    if match["block"]:
        return _end_of_comment(sql, match.end())
    if tag := match["dollar"]:
        closing = sql.find(tag, match.end())
        return len(sql) if closing < 0 else closing + len(tag)
    return match.end()


def _end_of_comment(sql: str, position: int) -> int:
    """Comments nest."""
    depth = 1
    while depth:
        mark = _COMMENT_MARK.search(sql, position)
        if mark is None:
            return len(sql)
        depth += 1 if mark[0] == "/*" else -1
        position = mark.end()
    return position
