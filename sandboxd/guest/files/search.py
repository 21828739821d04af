"""Searches for entries by pattern, and for lines in files.

Some patterns take forever to match, so a timer ends the search. Its signal needs the main thread of
a process that does nothing else, so this never runs in the daemon.
"""

import os
import re
import signal
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from . import glob as globs
from .area import Area, open_regular
from .codec import MAX_LINE, Failure, Found
from .daemon_connection import DaemonConnection, Refused
from .describe import describe
from .listing import MAX_LOOKED_AT, Page
from .request import Request
from .tree import Enough, joined, walk

_BLOCK = 256 << 10
_LONGEST_LINE = 1 << 20
"""A longer line is searched in pieces of this size."""
_BINARY_LOOK = 8192
_MAX_ANSWER = 2 << 20
"""Bytes of lines and paths in one answer."""


class _TimeIsUp(Exception):
    pass


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    def end(number: int, frame: FrameType | None) -> None:
        raise _TimeIsUp

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


# --- entries by pattern ---


class _Glob:
    def __init__(self, request: Request, daemon: DaemonConnection) -> None:
        self._daemon = daemon
        self._prefix = request.shown
        patterns = request.texts("patterns") or [request.text("pattern")]
        skips_hidden = request.flag("skip_hidden")
        self._matches = globs.matcher(patterns, hidden=not skips_hidden)
        self._passes_over_hidden = skips_hidden and not globs.names_hidden(patterns)
        self._types = frozenset(request.numbers("types"))
        self._is_excluded = globs.names_matcher(request.texts("exclude_dirs"))
        self._looked_at = 0
        self.page = Page(b"", request.number("max_entries"))
        self.shows_all = True

    def visit(self, descriptor: int, path: bytes | None) -> list[bytes]:
        directories = []
        with os.scandir(descriptor) as found:
            for item in found:
                self._count()
                name = os.fsencode(item.name)
                if self._passes_over_hidden and name.startswith(b"."):
                    continue
                if item.is_dir(follow_symlinks=False):
                    if self._is_excluded(name):
                        continue
                    directories.append(name)
                below = joined(path, name)
                if below is None:
                    self.shows_all = False
                elif self._matches(below):
                    self._add(descriptor, name, below)
        return directories

    def _add(self, descriptor: int, name: bytes, below: bytes) -> None:
        full = joined(self._prefix, below)
        if full is None:
            self.shows_all = False
            return
        try:
            entry = describe(descriptor, name, full)
        except FileNotFoundError:
            return  # removed meanwhile
        if not self._types or entry.type in self._types:
            self.page.add([entry])

    def _count(self) -> None:
        self._daemon.check()
        self._looked_at += 1
        if self._looked_at > MAX_LOOKED_AT:
            raise Enough


def glob(area: Area, request: Request, daemon: DaemonConnection) -> None:
    search = _Glob(request, daemon)
    is_complete = False
    with area.directory(request.path()) as top:
        try:
            with limited(request.seconds("seconds")):
                is_complete = walk(top, search.visit)
        except _TimeIsUp:
            pass
    entries, has_more = search.page.finish()
    daemon.entries(entries)
    daemon.done(is_complete and search.shows_all and not has_more)


# --- lines in files ---

Match = Callable[[str], tuple[int, int] | None]


def _matcher(request: Request) -> Match:
    """A function that finds the first match in a line."""
    pattern = request.text("pattern")
    if not request.flag("regex"):
        pattern = re.escape(pattern)
    try:
        compiled = re.compile(pattern, re.IGNORECASE if request.flag("ignore_case") else 0)
    except (re.error, OverflowError, RecursionError):
        raise Refused(Failure.BAD_PATTERN) from None

    def match(line: str) -> tuple[int, int] | None:
        found = compiled.search(line)
        return found.span() if found else None

    return match


class _Grep:
    def __init__(self, request: Request, daemon: DaemonConnection) -> None:
        self._daemon = daemon
        self._prefix = request.shown
        self._match = _matcher(request)
        # Bytes that every matching line contains, to skip whole blocks quickly.
        is_plain = not request.flag("regex") and not request.flag("ignore_case")
        self._needle = request.raw("pattern") if is_plain else b""
        patterns = request.texts("globs") or [request.text("glob")]
        self._is_wanted = globs.matcher(patterns) if any(patterns) else None
        self._is_excluded = globs.names_matcher(request.texts("exclude_dirs"))
        self._left = request.number("max_matches")
        self._answer_bytes = 0
        self._looked_at = 0
        self.searched = 0
        self.saw_all = True
        self.found: list[Found] = []
        """Matches, which are sent at the end: the timer must not interrupt a frame."""

    def visit(self, descriptor: int, path: bytes | None) -> list[bytes]:
        files, directories = [], []
        with os.scandir(descriptor) as found:
            for item in found:
                self._daemon.check()
                self._looked_at += 1
                if self._looked_at > MAX_LOOKED_AT:
                    raise Enough
                if item.is_dir(follow_symlinks=False):
                    name = os.fsencode(item.name)
                    if not self._is_excluded(name):
                        directories.append(name)
                elif item.is_file(follow_symlinks=False):
                    files.append(os.fsencode(item.name))
        for name in sorted(files):
            self._consider(descriptor, name, joined(path, name))
        return sorted(directories, reverse=True)

    def _consider(self, parent: int, name: bytes, below: bytes | None) -> None:
        full = joined(self._prefix, below)
        if below is None or full is None:
            self.saw_all = False
            return
        if self._is_wanted is not None and not self._is_wanted(below):
            return
        try:
            descriptor = open_regular(parent, name)
        except (OSError, Refused):
            self.saw_all = False
            return
        try:
            self.search(descriptor, full)
        except OSError:
            self.saw_all = False  # there are files in /proc and /sys that cannot be read
        finally:
            os.close(descriptor)

    def search(self, descriptor: int, path: bytes) -> None:
        """Search one file, line by line."""
        first = os.pread(descriptor, _BINARY_LOOK, 0)
        if b"\0" in first:
            return
        self.searched += 1
        number, rest = 1, b""
        while block := os.read(descriptor, _BLOCK):
            self._daemon.look()
            data = rest + block
            cut = data.rfind(b"\n") + 1
            if not cut and len(data) < _LONGEST_LINE:
                rest = data
                continue
            whole, rest = (data[:cut], data[cut:]) if cut else (data, b"")
            self._search_lines(whole, number, path)
            number += whole.count(b"\n")
        if rest:
            self._search_lines(rest, number, path)

    def _search_lines(self, data: bytes, number: int, path: bytes) -> None:
        if self._needle and self._needle not in data:
            return
        lines = data.split(b"\n")
        if not lines[-1]:
            lines.pop()
        for offset, raw in enumerate(lines):
            if self._needle and self._needle not in raw:
                continue
            line = raw.decode(errors="replace")
            span = self._match(line)
            if span is not None:
                self._add_match(Found(number + offset, path, _around(line, *span)))

    def _add_match(self, found: Found) -> None:
        if not self._left or self._answer_bytes > _MAX_ANSWER:
            self.saw_all = False
            raise Enough
        self._left -= 1
        self._answer_bytes += len(found.path) + len(found.line)
        self.found.append(found)


def _around(line: str, begin: int, end: int) -> bytes:
    """The part of a line that is returned, with the match in it."""
    raw = line.encode(errors="replace")
    if len(raw) <= MAX_LINE:
        return raw
    before = len(line[:begin].encode(errors="replace"))
    start = max(0, min(before - MAX_LINE // 4, len(raw) - MAX_LINE))
    piece = raw[start : start + MAX_LINE].decode(errors="ignore")
    return piece.encode()


def grep(area: Area, request: Request, daemon: DaemonConnection) -> None:
    search = _Grep(request, daemon)
    is_complete = False
    with area.place(request.path(), follow=True) as place:
        there = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
        is_directory = stat.S_ISDIR(there.st_mode)
        try:
            with limited(request.seconds("seconds")):
                if is_directory:
                    with area.directory(request.path()) as top:
                        is_complete = walk(top, search.visit)
                else:
                    is_complete = _search_one(search, place.parent, place.name, request.shown)
        except _TimeIsUp:
            pass
    for found in search.found:
        daemon.found(found)
    daemon.done(is_complete and search.saw_all, search.searched)


def _search_one(search: _Grep, parent: int, name: bytes, shown: bytes) -> bool:
    descriptor = open_regular(parent, name)
    try:
        search.search(descriptor, shown)
        return True
    except Enough:
        return False
    finally:
        os.close(descriptor)
