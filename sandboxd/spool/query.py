"""The request and the result of a search through kept output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from sandboxd.errors import InvalidRequest
from sandboxd.guest.frames import TEXT_STREAMS, Stream

MAX_CONTEXT_LINES = 50


class StoppedBy(Enum):
    """Why a search ended early."""

    MATCHES = auto()
    RESULT_BYTES = auto()
    SCANNED_BYTES = auto()
    DEADLINE = auto()
    DELETED = auto()


@dataclass(frozen=True, kw_only=True)
class SearchQuery:
    pattern: str
    """Expression in RE2 syntax, which matches within a line."""
    streams: Sequence[Stream] = TEXT_STREAMS
    max_matches: int = 100
    before_lines: int = 0
    after_lines: int = 0
    max_result_bytes: int = 1 << 20
    max_scan_bytes: int = 256 << 20
    timeout_seconds: float = 5.0

    def __post_init__(self) -> None:
        for name in ("before_lines", "after_lines"):
            if not 0 <= getattr(self, name) <= MAX_CONTEXT_LINES:
                raise InvalidRequest(name, f"give 0 to {MAX_CONTEXT_LINES}")
        for name in ("max_matches", "max_result_bytes", "max_scan_bytes", "timeout_seconds"):
            if getattr(self, name) <= 0:
                raise InvalidRequest(name, "give more than 0")


@dataclass(frozen=True, kw_only=True)
class Match:
    """A line that matched."""

    stream: Stream
    line_number: int
    """Number from 1 in the whole output; dropped lines count."""
    line_offset: int
    match_offset: int
    line: bytes
    """The line without its newline, or the part of a long line around the match."""
    is_cut: bool
    """Whether the line is longer, or may be because it touches the gap."""
    before: Sequence[bytes]
    after: Sequence[bytes]


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    matches: Sequence[Match]
    scanned_bytes: int
    long_lines: int
    """Number of lines that were searched in parts, so that a very long match may be missing."""
    stopped_by: StoppedBy | None

    @property
    def is_complete(self) -> bool:
        """Whether everything that is kept was searched."""
        return self.stopped_by is None
