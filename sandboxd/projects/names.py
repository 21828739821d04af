"""Names of project files: what a caller sends becomes a name that is safe to show and to type."""

from __future__ import annotations

import re
import unicodedata

from sandboxd.errors import InvalidRequest

MAX_GIVEN = 1024
"""Characters of a name that a caller may send."""
MAX_BYTES = 200
"""Bytes of a name that is stored; the kernel allows 255."""
MAX_EXTENSION = 24
"""Bytes of an extension; what is longer is part of the name."""
_SEPARATORS = re.compile(r"[/\\]")
_COMPRESSED_TAR = re.compile(r"\.tar\.[a-z0-9]+$", re.IGNORECASE)
_DROPPED = {"Cc", "Cf", "Co", "Cs"}
"""Categories of Unicode: controls, format characters such as those that turn the direction of
text around, private ones and surrogates."""


def clean(given: str) -> str:
    """The name to store for a file that a caller calls so, without the directories before it.

    InvalidRequest for what nobody calls a file by accident, and if nothing is left.
    """
    if not given:
        raise InvalidRequest("name", "required")
    if len(given) > MAX_GIVEN:
        raise InvalidRequest("name", f"must have at most {MAX_GIVEN} characters")
    if "\0" in given:
        raise InvalidRequest("name", "must not contain NUL characters")
    *directories, last = _SEPARATORS.split(given)
    if ".." in directories or last == "..":
        raise InvalidRequest("name", "`..` is not allowed; send the name of the file alone")
    spaced = re.sub(r"\s+", " ", unicodedata.normalize("NFC", last))
    visible = "".join(c for c in spaced if unicodedata.category(c) not in _DROPPED)
    # A leading dot hides a file, a leading dash makes it an option of many programs.
    name = _shortened(visible.lstrip(" .-").rstrip(" ."))
    if not name:
        raise InvalidRequest("name", "contains no character that can be part of a file's name")
    return name


def numbered(name: str, number: int) -> str:
    """The same name with a number, as file managers number copies: `report (1).pdf`."""
    stem, extension = split(name)
    return _joined(stem, f" ({number})", extension)


def key(name: str) -> str:
    """Equal for names that are one to people, or to a file system that ignores case."""
    return unicodedata.normalize("NFC", name.casefold())


def split(name: str) -> tuple[str, str]:
    """The name and its extension with the dot, which is empty if there is none."""
    tar = _COMPRESSED_TAR.search(name)
    position = tar.start() if tar else name.rfind(".")
    if position <= 0 or len(name[position:].encode()) > MAX_EXTENSION:
        return name, ""
    return name[:position], name[position:]


def _shortened(name: str) -> str:
    stem, extension = split(name)
    return _joined(stem, "", extension)


def _joined(stem: str, number: str, extension: str) -> str:
    room = MAX_BYTES - len((number + extension).encode())
    cut = stem.encode()[:room].decode(errors="ignore").rstrip(" .")
    return f"{cut}{number}{extension}"
