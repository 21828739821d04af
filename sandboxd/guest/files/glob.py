"""Patterns of file names, as regular expressions on whole paths. Alternatives in braces were
expanded by the daemon."""

import re
from collections.abc import Callable, Sequence

from .codec import Failure
from .daemon_connection import Refused

Matcher = Callable[[bytes], object]
"""Returns something true if a path or a name matches."""
_ANY_DIRECTORIES = "(?:[^/]+/)*"
_ANY_SHOWN_DIRECTORIES = r"(?:(?!\.)[^/]+/)*"
_NOT_HIDDEN = r"(?!\.)"


def matcher(patterns: Sequence[str], *, hidden: bool = True) -> Matcher:
    """Matches paths by any of these patterns: `*`, `?` and `[a-z]` match within a name, `**` any
    number of directories. A pattern without a slash matches the name alone, at any depth.

    Without `hidden` none of them matches a dot at the beginning of a name."""
    return _matcher([_path(pattern, hidden=hidden) for pattern in patterns])


def names_matcher(patterns: Sequence[str]) -> Matcher:
    """Matches single names by any of these patterns."""
    return _matcher([_name(pattern) for pattern in patterns]) if patterns else lambda name: False


def names_hidden(patterns: Sequence[str]) -> bool:
    """Whether a pattern has the dot of a hidden name, so that it may match one."""
    return any(part.startswith(".") for pattern in patterns for part in pattern.split("/"))


def _matcher(expressions: Sequence[str]) -> Matcher:
    try:
        matches = re.compile("|".join(expressions), re.DOTALL).fullmatch
    except (re.error, OverflowError, RecursionError):
        raise Refused(Failure.BAD_PATTERN) from None
    return lambda raw: matches(raw.decode(errors="surrogateescape"))


def _path(pattern: str, *, hidden: bool) -> str:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    if len(parts) == 1 and not pattern.startswith("/"):
        parts.insert(0, "**")
    if parts[-1:] == ["**"]:
        parts.append("*")
    any_directories = _ANY_DIRECTORIES if hidden else _ANY_SHOWN_DIRECTORIES
    pieces: list[str] = []
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        if part != "**":
            pieces.append(_name(part, hidden=hidden) + ("" if is_last else "/"))
        elif pieces[-1:] != [any_directories]:  # two would only make it slow
            pieces.append(any_directories)
    return "".join(pieces)


def _name(part: str, *, hidden: bool = True) -> str:
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
    is_wild = part[:1] in ("*", "?", "[")
    return (_NOT_HIDDEN if is_wild and not hidden else "") + "".join(pieces)


def _class(inside: str) -> str:
    is_negated = inside[0] in "!^"
    members = re.sub(r"([\\\[\]^&~|])", r"\\\1", inside[1:] if is_negated else inside)
    return f"(?!/)[{'^' if is_negated else ''}{members}]" if members else r"\[\]"
