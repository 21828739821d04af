"""A search through kept output: linear in what it reads, bounded in time, memory and result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandboxd.guest.frames import Stream
from sandboxd.spool.pattern import LinePattern
from sandboxd.spool.query import Match, SearchQuery, SearchResult, StoppedBy
from sandboxd.spool.stream import Piece
from sandboxd.spool.text import whole_end, whole_start

BLOCK_BYTES = 64 * 1024
LONG_LINE_BYTES = 64 * 1024
"""Length from which a line is searched in parts..."""
OVERLAP_BYTES = 16 * 1024
"""...and the overlap of these; a match longer than that may be missed."""
SHOWN_BYTES = 2048
"""Most bytes of a line that are returned."""

Read = Callable[[Stream, int, int], Piece]
Span = tuple[int, int]


def search(
    query: SearchQuery, ends: Mapping[Stream, int], read: Read, clock: Callable[[], float]
) -> SearchResult:
    """Search each stream from its start to its present end."""
    running = _Search(query, read, clock)
    for stream, end in ends.items():
        if running.stopped_by is None:
            running.search_stream(stream, end)
    return SearchResult(
        matches=running.matches,
        scanned_bytes=running.scanned_bytes,
        long_lines=running.long_lines,
        stopped_by=running.stopped_by,
    )


class _Search:
    """The matches so far, and whether to go on."""

    def __init__(self, query: SearchQuery, read: Read, clock: Callable[[], float]) -> None:
        self.query = query
        self.pattern = LinePattern(query.pattern)
        self.matches: list[Match] = []
        self.result_bytes = 0
        self.scanned_bytes = 0
        self.long_lines = 0
        self.stopped_by: StoppedBy | None = None
        self._read = read
        self._clock = clock
        self._deadline = clock() + query.timeout_seconds

    def search_stream(self, stream: Stream, end: int) -> None:
        lines = _StreamLines(stream, self)
        offset = 0
        while offset < end:
            if not self._may_go_on(lines):
                return
            room = self.query.max_scan_bytes - self.scanned_bytes
            piece = self._read(stream, offset, min(BLOCK_BYTES, room))
            if not piece.data:
                self.stopped_by = StoppedBy.DELETED
                return
            if piece.newlines_before is not None:
                lines.jump(piece.offset, piece.newlines_before)
            lines.feed(piece.data)
            self.scanned_bytes += len(piece.data)
            offset = piece.offset + len(piece.data)
        lines.finish()

    def add(self, match: Match) -> None:
        self.matches.append(match)
        self.result_bytes += len(match.line) + sum(map(len, [*match.before, *match.after]))

    def has_room(self) -> bool:
        """Whether one more match may be added; if not, the search is over."""
        if self.stopped_by is None:
            if len(self.matches) >= self.query.max_matches:
                self.stopped_by = StoppedBy.MATCHES
            elif self.result_bytes >= self.query.max_result_bytes:
                self.stopped_by = StoppedBy.RESULT_BYTES
        return self.stopped_by is None

    def _may_go_on(self, lines: _StreamLines) -> bool:
        if self.stopped_by is not None:
            return lines.is_context_missing
        if self.scanned_bytes >= self.query.max_scan_bytes:
            self.stopped_by = StoppedBy.SCANNED_BYTES
        elif self._clock() >= self._deadline:
            self.stopped_by = StoppedBy.DEADLINE
        return self.stopped_by is None


class _StreamLines:
    """Cuts a stream into lines, and searches many of them at once."""

    def __init__(self, stream: Stream, search: _Search) -> None:
        self._stream = stream
        self._search = search
        self._before = search.query.before_lines
        self._after = search.query.after_lines
        self._text = b""
        """Bytes that no newline has followed yet."""
        self._offset = 0
        """Offset of `_text`; `_number` is that of its first line."""
        self._number = 1
        self._is_after_gap = False
        """Whether the line that `_text` begins with may have begun in a gap."""
        self._is_before_gap = False
        self._long_line: _LongLine | None = None
        """The line that `_text` continues."""
        self._previous: list[bytes] = []
        """The lines before `_text`, as many as a match returns."""
        self._incomplete: list[list[bytes]] = []
        """The lines after recent matches that still lack some."""

    @property
    def is_context_missing(self) -> bool:
        return bool(self._incomplete)

    def jump(self, offset: int, newlines_before: int) -> None:
        """Continue after a gap."""
        self._is_before_gap = True
        self.finish()
        self._is_before_gap, self._is_after_gap = False, True
        self._previous = []
        self._incomplete = []
        self._offset = offset
        self._number = newlines_before + 1

    def feed(self, data: bytes) -> None:
        text = self._text + data
        end = text.rfind(b"\n")
        if end >= 0:
            self._search_lines(text[:end])
            self._offset += end + 1
            self._is_after_gap = False
            text = text[end + 1 :]
        if len(text) > LONG_LINE_BYTES:
            text = self._search_part(text)
        self._text = text

    def finish(self) -> None:
        """Search a last line that has no newline."""
        if self._text:
            self._search_lines(self._text)
            self._text = b""

    def _search_lines(self, block: bytes) -> None:
        """Search whole lines; the newline of the last is already removed."""
        first = self._end_long_line(block)
        if first > len(block):
            return
        self._complete(_lines_from(block, first, self._after))
        position = counted = first
        while position <= len(block):
            span = self._search.pattern.find(block, position, len(block))
            if span is None or not self._search.has_room():
                break
            start = block.rfind(b"\n", first, span[0]) + 1 or first
            end = _line_end(block, span[1])
            self._number += block.count(b"\n", counted, start)
            counted, position = start, end + 1
            self._add(
                block,
                span,
                line=(start, end),
                before=self._lines_before(block, first, start),
                after=_lines_from(block, position, self._after),
            )
        self._number += block.count(b"\n", counted) + 1
        self._previous = self._lines_before(block, first, len(block) + 1)

    def _search_part(self, text: bytes) -> bytes:
        """Search a part of a long line; returns its end, to be searched with the next part."""
        start = 1  # a byte of the part before, so that `^` and `\b` see it
        if self._long_line is None:
            start = 0
            self._long_line = _LongLine(self._offset, whole_end(text[:SHOWN_BYTES]))
            self._search.long_lines += 1
            self._complete([self._long_line.beginning])
        # The last byte is left to the next part, so that `$` and `\b` see it.
        self._search_long_line(self._long_line, text, (start, len(text) - 1))
        self._offset += len(text) - OVERLAP_BYTES
        return text[-OVERLAP_BYTES:]

    def _end_long_line(self, block: bytes) -> int:
        """Search the last part of a long line, if this is one; returns where the next begins."""
        if self._long_line is None:
            return 0
        end = _line_end(block, 0)
        self._search_long_line(self._long_line, block, (1, end))
        if self._before:
            self._previous = [*self._previous, self._long_line.beginning][-self._before :]
        self._long_line = None
        self._number += 1
        return end + 1

    def _search_long_line(self, line: _LongLine, text: bytes, part: Span) -> None:
        if line.has_matched:
            return
        span = self._search.pattern.find(text, *part)
        if span is not None and self._search.has_room():
            line.has_matched = True
            self._add(
                text,
                span,
                line=(line.offset - self._offset, part[1]),
                before=self._previous,
                after=[],
            )

    def _add(
        self, text: bytes, span: Span, *, line: Span, before: list[bytes], after: list[bytes]
    ) -> None:
        shown = _excerpt(text, span, line)
        is_at_gap = (self._is_after_gap and line[0] <= 0) or (
            self._is_before_gap and line[1] == len(text)
        )
        match = Match(
            stream=self._stream,
            line_number=self._number,
            line_offset=self._offset + line[0],
            match_offset=self._offset + span[0],
            line=shown,
            is_cut=is_at_gap or len(shown) < line[1] - line[0],
            before=before,
            after=after,
        )
        if len(after) < self._after:
            self._incomplete.append(after)
        self._search.add(match)

    def _complete(self, lines: list[bytes]) -> None:
        """Add the lines that follow to matches that lack some."""
        for after in self._incomplete:
            more = lines[: self._after - len(after)]
            after.extend(more)
            self._search.result_bytes += sum(map(len, more))
        self._incomplete = [after for after in self._incomplete if len(after) < self._after]

    def _lines_before(self, block: bytes, first: int, start: int) -> list[bytes]:
        """The lines before the one at `start`; those in the block begin at `first`."""
        lines: list[bytes] = []
        end = start - 1
        while end >= first and len(lines) < self._before:
            begin = block.rfind(b"\n", first, end) + 1 or first
            lines.append(whole_end(block[begin : min(end, begin + SHOWN_BYTES)]))
            end = begin - 1
        missing = self._before - len(lines)
        earlier = self._previous[-missing:] if missing else []
        return [*earlier, *reversed(lines)]


@dataclass
class _LongLine:
    offset: int
    beginning: bytes
    has_matched: bool = False


def _line_end(block: bytes, position: int) -> int:
    end = block.find(b"\n", position)
    return len(block) if end < 0 else end


def _lines_from(block: bytes, start: int, count: int) -> list[bytes]:
    lines: list[bytes] = []
    while start <= len(block) and len(lines) < count:
        end = _line_end(block, start)
        lines.append(whole_end(block[start : min(end, start + SHOWN_BYTES)]))
        start = end + 1
    return lines


def _excerpt(text: bytes, span: Span, line: Span) -> bytes:
    """The line, or the part of it around the match."""
    start, end = max(0, line[0]), line[1]
    if end - line[0] <= SHOWN_BYTES:
        return text[start:end]
    begin = max(start, min(span[0] - SHOWN_BYTES // 4, end - SHOWN_BYTES))
    shown = whole_end(text[begin : begin + SHOWN_BYTES])
    return whole_start(shown) if begin > line[0] else shown
