"""Descriptions of files, and the results of operations on them."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple


class FileType(IntEnum):
    """Numbers as in the protos."""

    FILE = 1
    DIRECTORY = 2
    SYMLINK = 3
    FIFO = 4
    SOCKET = 5
    OTHER = 6


_BITS = {
    FileType.FILE: stat.S_IFREG,
    FileType.DIRECTORY: stat.S_IFDIR,
    FileType.SYMLINK: stat.S_IFLNK,
    FileType.FIFO: stat.S_IFIFO,
    FileType.SOCKET: stat.S_IFSOCK,
    FileType.OTHER: stat.S_IFCHR,
}
_TO_SECONDS = len("2026-03-01T12:00:00")
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


class Entry(NamedTuple):
    """A file, directory or anything else with a name. A tuple, since listings make thousands."""

    path: bytes
    """Path from the workspace on; empty for the workspace itself."""
    type: FileType
    size: int
    modified_ns: int
    """Nanoseconds since 1970; negative where a command set an earlier time."""
    mode: int
    """Permission bits only."""
    link_target: bytes = b""

    @property
    def name(self) -> bytes:
        return self.path.rpartition(b"/")[2]

    @property
    def permissions(self) -> str:
        """As `ls -l` shows them."""
        return _permissions(self.type, self.mode)


def iso_time(seconds: int, nanoseconds: int) -> str:
    """A time since 1970 in ISO 8601, in UTC and to the microsecond; the nearest one that ISO 8601
    can express."""
    moment = _second(seconds)
    return f"{moment}.{nanoseconds // 1000:06}Z" if len(moment) == _TO_SECONDS else moment


# Among a thousand files many share a second, and nearly all share their permissions.


@lru_cache(maxsize=256)
def _permissions(type_: FileType, mode: int) -> str:
    return stat.filemode(_BITS[type_] | mode)


@lru_cache(maxsize=256)
def _second(seconds: int) -> str:
    """The time up to the second; with microseconds where the time cannot be expressed."""
    try:
        moment = datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        moment = datetime.max.replace(tzinfo=UTC) if seconds > 0 else _LONG_AGO
        return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    return moment.isoformat()[:_TO_SECONDS]


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Limits of a workspace, and what is used of them."""

    used_bytes: int
    max_bytes: int
    used_files: int
    max_files: int
    max_file_bytes: int


@dataclass(frozen=True, kw_only=True)
class Uploaded:
    entry: Entry
    sha256: bytes


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A page of entries, sorted by the bytes of their paths."""

    entries: Sequence[Entry]
    next_after: bytes
    """Path after which the next page begins; empty on the last page. A large page ends early."""
    total_files: int
    total_bytes: int
    complete: bool
    usage: Usage


@dataclass(frozen=True, kw_only=True)
class MadeDirectory:
    entry: Entry
    created: bool


@dataclass(frozen=True, kw_only=True)
class TextRead:
    text: str
    first_line: int
    line_count: int
    total_lines: int
    truncated: bool
    invalid_utf8: bool
    """Whether bytes that are not UTF-8 were replaced."""
    entry: Entry


@dataclass(frozen=True, kw_only=True)
class Edited:
    replaced: int
    entry: Entry


@dataclass(frozen=True, kw_only=True)
class Found:
    """A line that a search found."""

    path: bytes
    line_number: int
    line: str


@dataclass(frozen=True, kw_only=True)
class GrepResult:
    matches: Sequence[Found]
    complete: bool
    searched_files: int


@dataclass(frozen=True, kw_only=True)
class GlobResult:
    entries: Sequence[Entry]
    complete: bool


class ChangeKind(IntEnum):
    """Numbers as in the protos."""

    CREATED = 1
    MODIFIED = 2
    REMOVED = 3
    MOVED = 4


@dataclass(frozen=True, kw_only=True)
class Change:
    kind: ChangeKind
    path: bytes
    old_path: bytes = b""
    is_directory: bool = False


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Changes since the report before."""

    changes: Sequence[Change]
    overflow: bool


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """A member of an archive that was refused or skipped."""

    name: bytes
    why: str
