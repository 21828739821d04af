"""Patterns of file names, as regular expressions on whole paths."""

import re

from .codec import Failure
from .daemon_connection import Refused

_ANY_DIRECTORIES = "(?:[^/]+/)*"


def compiled(pattern: str) -> re.Pattern[str]:
    """`*`, `?` and `[a-z]` match within a name, `**` any number of directories. A pattern without a
    slash matches the name alone, at any depth."""
    parts = pattern.strip("/").split("/")
    if len(parts) == 1 and not pattern.startswith("/"):
        parts.insert(0, "**")
    pieces = []
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        if part == "**":
            pieces.append(f"{_ANY_DIRECTORIES}[^/]+" if is_last else _ANY_DIRECTORIES)
        else:
            pieces.append(_name(part) + ("" if is_last else "/"))
    try:
        return re.compile("".join(pieces), re.DOTALL)
    except re.error:
        raise Refused(Failure.BAD_PATTERN) from None


def _name(part: str) -> str:
    """The expression for one part between slashes."""
    pieces: list[str] = []
    position = 0
    while position < len(part):
        character = part[position]
        position += 1
        if character == "*":
            if pieces[-1:] != ["[^/]*"]:  # two would only make it slow
                pieces.append("[^/]*")
        elif character == "?":
            pieces.append("[^/]")
        elif character == "[" and (end := part.find("]", position + 1)) > 0:
            pieces.append(_class(part[position:end]))
            position = end + 1
        else:
            pieces.append(re.escape(character))
    return "".join(pieces)


def _class(inside: str) -> str:
    is_negated = inside[0] in "!^"
    members = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[1:] if is_negated else inside)
    return f"(?!/)[{'^' if is_negated else ''}{members}]" if members else r"\[\]"
