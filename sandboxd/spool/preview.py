"""The beginning and the end of a stream, in a size that suits a model."""

from __future__ import annotations

from typing import NamedTuple

from sandboxd.spool.stream import KeptStream
from sandboxd.spool.text import is_plain, plain_line, whole_end, whole_start

COLLAPSED_BYTES = 64 * 1024
"""Bytes that are read from either end to collapse lines..."""
COLLAPSED_LINES = 1000
"""...and most lines of them that are collapsed."""


class Preview(NamedTuple):
    head: bytes
    tail: bytes
    """The end of the stream; empty if nothing is omitted."""
    omitted_bytes: int
    """Bytes of the stream between head and tail; collapsed bytes do not count."""
    omitted_lines: int
    """Lines that end between head and tail."""


class _Part(NamedTuple):
    """The head or the tail of a preview."""

    shown: bytes
    covered: int
    """Bytes of the stream that `shown` represents."""
    cut: int
    """Bytes cut from a collapsed line."""


def preview_of(stream: KeptStream, *, max_bytes: int, collapse: bool) -> Preview:
    """Head and tail in at most `max_bytes`; the tail gets half of that if it needs it."""
    window = max(max_bytes, COLLAPSED_BYTES) if collapse else max_bytes
    whole = _whole(stream, window, collapse=collapse)
    if whole is not None and len(whole) <= max_bytes:
        return Preview(whole, b"", 0, 0)

    gap = stream.gap
    tail_start = gap.at + gap.size if gap.size else 0
    beginning = stream.read(0, window)
    raw = b"" if beginning.skipped else beginning.data
    room = max_bytes - min(max_bytes // 2, stream.length - tail_start)
    head = (_first_collapsed if collapse and not is_plain(raw) else _first)(raw, room)

    start = max(tail_start, head.covered, stream.length - window)
    is_line = start > tail_start and stream.read(start - 1, 1).data == b"\n"
    raw = stream.read(start, window).data
    room = max_bytes - len(head.shown)
    tail = (_last_collapsed if collapse and not is_plain(raw) else _last)(raw, room, is_line)

    shown_lines = head.shown.count(b"\n") + tail.shown.count(b"\n")
    return Preview(
        head.shown,
        tail.shown,
        stream.length - head.covered - tail.covered + head.cut + tail.cut,
        stream.newlines - shown_lines,
    )


def _whole(stream: KeptStream, window: int, *, collapse: bool) -> bytes | None:
    """The whole stream, unless it is too long to be read at once."""
    if stream.gap.size or stream.length > window:
        return None
    data = stream.read(0, window).data
    if not collapse or is_plain(data):
        return data
    if stream.newlines > COLLAPSED_LINES:
        return None
    return b"\n".join(map(plain_line, data.split(b"\n")))


def _first(raw: bytes, room: int) -> _Part:
    """Whole lines from the beginning; a partial line only if they use less than half the room."""
    end = raw.rfind(b"\n", 0, room) + 1
    shown = raw[:end]
    if len(shown) < room // 2:
        shown += whole_end(raw[end:room])
    return _Part(shown, len(shown), 0)


def _last(raw: bytes, room: int, is_line: bool) -> _Part:
    """The same from the end; `is_line` tells whether `raw` begins with a whole line."""
    start = max(0, len(raw) - room)
    if start:
        is_line = raw[start - 1 : start] == b"\n"
    shown = raw[start:]
    if not is_line:
        lines = raw[raw.find(b"\n", start) + 1 or len(raw) :]
        shown = whole_start(shown) if len(lines) < room // 2 else lines
    return _Part(shown, len(shown), 0)


def _first_collapsed(raw: bytes, room: int) -> _Part:
    shown, position = bytearray(), 0
    for _ in range(COLLAPSED_LINES):
        end = raw.find(b"\n", position) + 1 or len(raw)
        line = raw[position:end]
        plain = plain_line(line)
        if not line.endswith(b"\n") or len(shown) + len(plain) > room:
            break
        shown += plain
        position = end
    else:
        return _Part(bytes(shown), position, 0)
    if len(shown) >= room // 2:
        return _Part(bytes(shown), position, 0)
    kept = whole_end(plain[: room - len(shown)])
    covered, cut = _accounted(line, plain, kept)
    return _Part(bytes(shown) + kept, position + covered, cut)


def _last_collapsed(raw: bytes, room: int, is_line: bool) -> _Part:
    lines: list[bytes] = []
    size, end = 0, len(raw)
    while end and len(lines) < COLLAPSED_LINES:
        start = raw.rfind(b"\n", 0, end - 1) + 1
        line = raw[start:end]
        plain = plain_line(line)
        if size + len(plain) > room or not (start or is_line):
            break
        lines.append(plain)
        size += len(plain)
        end = start
    else:
        return _Part(b"".join(reversed(lines)), len(raw) - end, 0)
    covered, cut = 0, 0
    if size < room // 2:
        kept = whole_start(plain[max(0, len(plain) - (room - size)) :])
        lines.append(kept)
        covered, cut = _accounted(line, plain, kept)
    return _Part(b"".join(reversed(lines)), len(raw) - end + covered, cut)


def _accounted(line: bytes, plain: bytes, kept: bytes) -> tuple[int, int]:
    """Bytes of the line that the preview covers, and bytes of its plain form that were cut."""
    if len(plain) == len(line):
        return len(kept), 0
    return len(line), len(plain) - len(kept)
