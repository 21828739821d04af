"""Patterns of file names: checked, and their braces expanded, before a worker gets them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from sandboxd.errors import InvalidRequest

MAX_PATTERN = 1000
MAX_ALTERNATIVES = 256
MAX_EXPANDED = 8192
"""Characters of all alternatives together."""
MAX_NESTING = 8
MAX_EXCLUDED = 32
MAX_NAME = 255
_RANGE = re.compile(r"-?\w+\.\.-?\w+(\.\.-?\w+)?")


def expanded(pattern: str, field: str) -> Sequence[str]:
    """A pattern for each combination of the alternatives in braces, as a shell expands them.

    Braces without a comma, without a partner or in brackets are ordinary characters.
    InvalidRequest for a pattern that matches nothing or has too many alternatives.
    """
    if len(pattern) > MAX_PATTERN:
        raise InvalidRequest(field, f"must have at most {MAX_PATTERN} characters")
    patterns = _Expansion(pattern, field).all()
    for one in patterns:
        parts = [part for part in one.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise InvalidRequest(field, "`..` is not allowed; give the directory as the path")
        if one and not parts:
            raise InvalidRequest(field, "must name something in the directory")
    return patterns


def excluded_names(names: Sequence[str], field: str) -> Sequence[str]:
    """Names of directories, which may have `*`, `?` and brackets."""
    if len(names) > MAX_EXCLUDED:
        raise InvalidRequest(field, f"must have at most {MAX_EXCLUDED} names")
    for name in names:
        if not name or len(name) > MAX_NAME or "/" in name:
            raise InvalidRequest(
                field, f"must be names of directories without `/`, at most {MAX_NAME} characters"
            )
    return list(names)


class _Expansion:
    def __init__(self, pattern: str, field: str) -> None:
        self._pattern = pattern
        self._field = field
        self._groups: dict[int, list[int]] = {}
        """Position of an opening brace to those of its commas and of its closing brace."""
        self._find_groups()

    def all(self) -> Sequence[str]:
        return self._expand(0, len(self._pattern), nesting=0)

    def _find_groups(self) -> None:
        open_groups: list[list[int]] = []
        for position in self._outside_brackets():
            character = self._pattern[position]
            if character == "{":
                open_groups.append([position])
            elif character == "," and open_groups:
                open_groups[-1].append(position)
            elif character == "}" and open_groups:
                begin, *ends = open_groups.pop()
                self._groups[begin] = [*ends, position]

    def _outside_brackets(self) -> Iterator[int]:
        """Positions of the characters that are not in a class such as `[a-z]`."""
        position = 0
        while position < len(self._pattern):
            if self._pattern[position] == "[":
                end = self._pattern.find("]", position + 2)
                slash = self._pattern.find("/", position)
                if end > 0 and not position < slash < end:
                    position = end + 1
                    continue
            yield position
            position += 1

    def _expand(self, begin: int, end: int, *, nesting: int) -> list[str]:
        """The alternatives of a piece of the pattern."""
        if nesting > MAX_NESTING:
            raise InvalidRequest(self._field, f"braces can be nested {MAX_NESTING} levels deep")
        found, literal = [""], begin
        position = begin
        while position < end:
            ends = self._groups.get(position)
            if ends is None:
                position += 1
                continue
            found = self._product(found, [self._pattern[literal:position]])
            found = self._product(found, self._group(position, ends, nesting))
            position = literal = ends[-1] + 1
        return self._product(found, [self._pattern[literal:end]])

    def _group(self, begin: int, ends: Sequence[int], nesting: int) -> list[str]:
        starts = [begin, *ends[:-1]]
        pieces = [
            self._expand(start + 1, end, nesting=nesting + 1)
            for start, end in zip(starts, ends, strict=True)
        ]
        if len(pieces) > 1:
            return [one for piece in pieces for one in piece]
        if _RANGE.fullmatch(self._pattern[begin + 1 : ends[-1]]):
            raise InvalidRequest(
                self._field, "a range such as {1..3} is not supported; use {1,2,3}"
            )
        return [f"{{{one}}}" for one in pieces[0]]

    def _product(self, found: list[str], more: Sequence[str]) -> list[str]:
        count = len(found) * len(more)
        size = sum(map(len, found)) * len(more) + sum(map(len, more)) * len(found)
        if count > MAX_ALTERNATIVES or size > MAX_EXPANDED:
            raise InvalidRequest(
                self._field,
                f"its braces have more than {MAX_ALTERNATIVES} combinations or {MAX_EXPANDED} "
                "characters in all; search several times",
            )
        return [one + other for one in found for other in more]
