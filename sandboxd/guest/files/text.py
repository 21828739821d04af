"""Text files by lines: reading, writing and replacing. The last line may lack its newline."""

import os
import stat
import time
from collections.abc import Iterator

from .area import Area, Place, open_regular
from .codec import CHUNK, Failure
from .daemon_connection import DaemonConnection, Refused
from .describe import describe_place, entry_of
from .new_file import NewFile, mode_to_keep, refuse_unwritable
from .request import Request
from .transfer import refuse_without_room

MAX_TEXT = 4 << 20
MAX_EDITED = 16 << 20
"""Largest file in which text can be replaced, since it is held in memory."""
MAX_RESULT = 64 << 20
"""Largest file that an edit can make, for the same reason."""
_BUFFER = 256 << 10


def _blocks(descriptor: int, position: int, end: int | None = None) -> Iterator[memoryview]:
    """The content of a file from `position` on; each block is valid until the next."""
    buffer = memoryview(bytearray(_BUFFER))
    while end is None or position < end:
        wanted = _BUFFER if end is None else min(_BUFFER, end - position)
        count = os.preadv(descriptor, [buffer[:wanted]], position)
        if not count:
            return
        yield buffer[:count]
        position += count


class _Reading:
    """The requested lines, and the number of all lines."""

    def __init__(self, request: Request) -> None:
        self._first = max(1, request.number("first_line"))
        self._max_lines = request.number("max_lines")
        self._max_bytes = request.number("max_bytes")
        self._give_up_at = time.monotonic() + request.seconds("seconds")
        self.newlines = 0
        self._last = b"\n"
        self.text = bytearray()
        self.is_cut = False
        self._is_full = False

    def read(self, descriptor: int) -> None:
        for block in _blocks(descriptor, 0):
            data = bytes(block)
            self._add(data)
            self.newlines += data.count(b"\n")
            self._last = data[-1:]
            if time.monotonic() > self._give_up_at:
                self.is_cut = True
                return

    def _add(self, data: bytes) -> None:
        if self._is_full:
            self.is_cut = True
            return
        begin = _after_lines(data, self._first - 1 - self.newlines)
        if begin is None:
            return
        data = data[begin:]
        if self._max_lines:
            left = self._max_lines - self.text.count(b"\n")
            end = _after_lines(data, left)
            if end is not None:
                self._is_full = True
                self.is_cut = end < len(data)
                data = data[:end]
        room = self._max_bytes - len(self.text)
        if len(data) > room:
            self._is_full = self.is_cut = True
            data = data[:room]
        self.text += data

    @property
    def total_lines(self) -> int:
        return self.newlines + (self._last != b"\n")

    def finish(self) -> None:
        """Remove a partial character where the text was cut."""
        if self.is_cut and not self.text.endswith(b"\n"):
            for back in range(1, min(4, len(self.text)) + 1):
                lead = self.text[-back]
                if lead < 0x80:
                    return
                if lead >= 0xC0:
                    size = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
                    if back < size:
                        del self.text[-back:]
                    return

    @property
    def line_count(self) -> int:
        is_open = bool(self.text) and not self.text.endswith(b"\n")
        return self.text.count(b"\n") + is_open


def _after_lines(data: bytes, count: int) -> int | None:
    """The position in `data` after `count` lines; None if there are fewer."""
    position = 0
    for _ in range(count):
        position = data.find(b"\n", position) + 1
        if not position:
            return None
    return position


def read_text(area: Area, request: Request, daemon: DaemonConnection) -> None:
    descriptor = area.open_file(request.path())
    try:
        reading = _Reading(request)
        reading.read(descriptor)
        reading.finish()
        daemon.entry(entry_of(request.shown, os.fstat(descriptor)))
    finally:
        os.close(descriptor)
    text = memoryview(bytes(reading.text))
    for begin in range(0, len(text), CHUNK):
        daemon.data(text[begin : begin + CHUNK])
    first = max(1, request.number("first_line"))
    daemon.done(first, reading.line_count, reading.total_lines, reading.is_cut)


def write_text(area: Area, request: Request, daemon: DaemonConnection) -> None:
    path, parents = request.path(), request.flag("make_parents")
    replace, first = request.flag("replace"), request.number("first_line")
    with area.place(path, follow=replace, make_parents=parents, writes=True) as place:
        place.refuse_protected()
        mode = mode_to_keep(place, replace=replace)
        refuse_without_room(place, request.number("size"))
        daemon.ready()
        text = daemon.receive_all(MAX_TEXT)
        with NewFile(place.area, place.parent) as file:
            if first:
                _write_between(file, place, text, first, request.number("line_count"))
            else:
                file.write(text)
            file.commit(place.name, mode, replace=replace)
        daemon.entry(describe_place(place, request.shown))
        daemon.done()


def _write_between(file: NewFile, place: Place, text: bytes, first: int, count: int) -> None:
    """Write the old content with `count` lines from `first` on replaced. Where the text, or what is
    before it, does not end with a newline and more follows, one is added."""
    old = open_regular(place.parent, place.name)
    try:
        begin, lines = _offset_of(old, 0, first - 1)
        if begin is None:
            size = os.fstat(old).st_size
            is_open = size > 0 and os.pread(old, 1, size - 1) != b"\n"
            if first - 1 > lines + is_open:
                raise Refused(Failure.BAD_LINE, first=lines + is_open)
            begin = size
        for block in _blocks(old, 0, begin):
            file.write(block)
        if begin and text and os.pread(old, 1, begin - 1) != b"\n":
            file.write(b"\n")
        file.write(text)
        rest, _ = _offset_of(old, begin, count)
        if rest is not None:
            has_more = bool(os.pread(old, 1, rest))
            if text and has_more and not text.endswith(b"\n"):
                file.write(b"\n")
            for block in _blocks(old, rest):
                file.write(block)
    finally:
        os.close(old)


def _offset_of(descriptor: int, position: int, count: int) -> tuple[int | None, int]:
    """The offset after `count` lines from `position` on, if there are as many, and the number of
    lines seen."""
    seen = 0
    if not count:
        return position, 0
    for block in _blocks(descriptor, position):
        data = bytes(block)
        newlines = data.count(b"\n")
        if seen + newlines >= count:
            end = _after_lines(data, count - seen)
            assert end is not None
            return position + end, count
        seen += newlines
        position += len(data)
    return None, seen


def edit_text(area: Area, request: Request, daemon: DaemonConnection) -> None:
    old_size, expected = request.number("old_size"), request.number("expected")
    with area.place(request.path(), follow=True, writes=True) as place:
        descriptor = open_regular(place.parent, place.name)
        try:
            refuse_unwritable(place)
            status = os.fstat(descriptor)
            if status.st_size > MAX_EDITED:
                raise Refused(Failure.TOO_LARGE, first=MAX_EDITED, second=status.st_size)
            daemon.ready()
            both = daemon.receive_all(2 * MAX_TEXT)
            old, new = both[:old_size], both[old_size:]
            content = b"".join(bytes(block) for block in _blocks(descriptor, 0, MAX_EDITED))
        finally:
            os.close(descriptor)
        count = content.count(old)
        if count != expected if expected else not count:
            raise Refused(Failure.TEXT_NOT_FOUND, first=count)
        size = len(content) + count * (len(new) - len(old))
        limit = min(MAX_RESULT, request.number("max_file_bytes"))
        if size > max(limit, len(content)):
            raise Refused(Failure.TOO_LARGE, first=limit, second=size)
        with NewFile(place.area, place.parent) as file:
            file.write(content.replace(old, new))
            file.commit(place.name, stat.S_IMODE(status.st_mode), replace=True)
        daemon.entry(describe_place(place, request.shown))
        daemon.done(count)
