"""Output as a terminal would show it, and cuts that keep characters whole."""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    rb"""\x1b(?:
        \[ [0-?]*+ [ -/]*+ [@-~]?                  # colours, cursor, erase
      | \] [^\x07\x1b\n]*+ (?: \x07 | \x1b\\ )     # title, hyperlink
      | [PX^_] [^\x1b\n]*+ \x1b\\                  # other strings
      | [ -/]*+ [0-~]?                             # the rest
    )""",
    re.VERBOSE,
)
_CHARACTER = re.compile(rb"[\xc2-\xf4][\x80-\xbf]{1,3}|.", re.DOTALL)
_CONTINUATIONS = 3
"""Most bytes of a character after its first."""


def is_plain(data: bytes) -> bool:
    """Whether there is nothing to collapse."""
    return not (b"\x1b" in data or b"\r" in data or b"\b" in data)


def plain_line(line: bytes) -> bytes:
    """A line in its final state: without escape sequences and what was overwritten.

    What was overwritten is removed as a whole, even where a terminal would still show a part of it.
    """
    if b"\x1b" in line:
        line = _ESCAPE.sub(b"", line)
    if b"\r" in line:
        line = _last_state(line)
    if b"\b" in line:
        line = _rubbed_out(line)
    return line


def _last_state(line: bytes) -> bytes:
    body = line.removesuffix(b"\n")
    ending = line[len(body) :]
    body = body.rstrip(b"\r")
    return body[body.rfind(b"\r") + 1 :] + ending


def _rubbed_out(line: bytes) -> bytes:
    characters: list[bytes] = []
    for character in _CHARACTER.findall(line):
        if character != b"\b":
            characters.append(character)
        elif characters:
            characters.pop()
    return b"".join(characters)


def whole_end(data: bytes) -> bytes:
    """The data without a partial character at its end."""
    for count in range(1, min(len(data), _CONTINUATIONS) + 1):
        byte = data[-count]
        if not _is_continuation(byte):
            return data[:-count] if _length_of_character(byte) > count else data
    return data


def whole_start(data: bytes) -> bytes:
    """The data without a partial character at its start."""
    for count in range(min(len(data), _CONTINUATIONS + 1)):
        if not _is_continuation(data[count]):
            return data[count:]
    return data if len(data) > _CONTINUATIONS else b""


def _is_continuation(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _length_of_character(first: int) -> int:
    if first < 0xC2 or first > 0xF4:
        return 1
    return 2 + (first >= 0xE0) + (first >= 0xF0)
