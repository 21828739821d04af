"""Listings of directories, and single entries."""

import os
import time
from collections.abc import Iterator
from itertools import islice
from operator import itemgetter

from .area import Area
from .codec import MAX_PATH, Entry
from .daemon_connection import DaemonConnection
from .describe import DIRECTORY, FILE, SYMLINK, describe_place, entry_of
from .request import Request
from .tree import Enough, joined, lead, walk

MAX_LOOKED_AT = 1_000_000
MAX_PAGE_BYTES = 1 << 20
"""Size at which a page ends early."""
_ENTRY_BYTES = 64
_LOOK_EVERY = 512
MAX_SORTED = 20_000
"""Most names that are sorted before the first entry is sent."""
BATCH_ENTRIES = 128
"""Entries in a batch, which the daemon processes while the next is read."""
_PATH = itemgetter(0)
"""The path of an entry."""


def stat(area: Area, request: Request, daemon: DaemonConnection) -> None:
    with area.place(request.path(), follow=request.flag("follow_links")) as place:
        daemon.entry(describe_place(place, request.shown))
        daemon.done()


class Page:
    """The first entries after a path, out of all that are added, in the order of their paths."""

    def __init__(self, after: bytes, size: int) -> None:
        self._after = after
        self._size = size
        self._entries: list[Entry] = []
        self._bytes = 0
        self._last: bytes | None = None
        """The last path that can still belong to this page."""
        self._is_cut = False

    def add(self, entries: list[Entry]) -> None:
        """Add a few entries: the page is cut only afterwards, so all of them are held."""
        after, last = self._after, self._last
        if after or last is not None:
            entries = [
                entry
                for entry in entries
                if entry.path > after and (last is None or entry.path <= last)
            ]
        self._entries += entries
        self._bytes += sum(map(_size, entries))
        if len(self._entries) >= 2 * self._size + 64 or self._bytes > 4 * MAX_PAGE_BYTES:
            self._cut()

    def _cut(self) -> None:
        self._entries.sort(key=_PATH)
        self._bytes = count = 0
        for entry in self._entries[: self._size]:
            if count and self._bytes + _size(entry) > MAX_PAGE_BYTES:
                break
            self._bytes += _size(entry)
            count += 1
        if count < len(self._entries):
            self._is_cut = True
            del self._entries[count:]
            self._last = self._entries[-1].path

    def finish(self) -> tuple[list[Entry], bool]:
        """The entries, and whether there are more."""
        self._cut()
        return self._entries, self._is_cut


def _size(entry: Entry) -> int:
    return len(entry.path) + len(entry.target) + _ENTRY_BYTES


class _Listing:
    def __init__(self, request: Request, daemon: DaemonConnection) -> None:
        self._daemon = daemon
        self._prefix = request.shown
        self._depth = request.number("depth") if request.flag("recursive") else 1
        """Levels to list; 0 means all."""
        self._give_up_at = time.monotonic() + request.seconds("seconds")
        self._looked_at = 0
        self._after = request.raw("after")
        self._page_size = request.number("page_size")
        self.page = Page(self._after, self._page_size)
        self.files = 0
        self.bytes = 0
        self.shows_all = True

    def visit(self, descriptor: int, path: bytes | None) -> list[bytes]:
        directories = []
        level = 1 + (path.count(b"/") + 1 if path else 0)
        is_entered = not self._depth or (path is not None and level < self._depth)
        shown: list[Entry] = []
        above = joined(self._prefix, path)
        before = lead(above or b"")
        self._look(1)
        with os.scandir(descriptor) as found:
            for count, item in enumerate(found, 1):
                if count % _LOOK_EVERY == 0:
                    self._look(_LOOK_EVERY)
                    self.page.add(shown)
                    shown = []
                name = os.fsencode(item.name)
                try:
                    status = item.stat(follow_symlinks=False)
                except OSError:
                    continue  # gone since
                entry = self._counted(descriptor, name, before, status)
                if entry.type == DIRECTORY and is_entered:
                    directories.append(name)
                if above is None or len(entry.path) > MAX_PATH:
                    self.shows_all = False
                else:
                    shown.append(entry)
        self.page.add(shown)
        return directories

    def send_in_order(self, descriptor: int, names: list[bytes]) -> bool:
        """Send entries as they are read; returns whether there are more than fit into a page."""
        batch: list[Entry] = []
        count = size = 0
        has_more = False
        for entry in self._in_order(descriptor, names):
            if entry.path <= self._after or has_more:
                continue  # only counted
            size += _size(entry)
            if count == self._page_size or (count and size > MAX_PAGE_BYTES):
                has_more = True
                continue
            count += 1
            batch.append(entry)
            if len(batch) == BATCH_ENTRIES:
                self._daemon.entries(batch)
                batch = []
        self._daemon.entries(batch)
        return has_more

    def _in_order(self, descriptor: int, names: list[bytes]) -> Iterator[Entry]:
        before = lead(self._prefix)
        for place, name in enumerate(sorted(names)):
            if place % _LOOK_EVERY == 0:
                try:
                    self._look(_LOOK_EVERY)
                except Enough:
                    self.shows_all = False
                    return
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except OSError:
                continue  # gone since
            entry = self._counted(descriptor, name, before, status)
            if len(entry.path) > MAX_PATH:
                self.shows_all = False
            else:
                yield entry

    def _counted(
        self, descriptor: int, name: bytes, before: bytes, status: os.stat_result
    ) -> Entry:
        entry = entry_of(before + name, status)
        if entry.type == FILE:
            self.files += 1
            self.bytes += entry.size
        elif entry.type == SYMLINK:
            return entry._replace(target=_target(descriptor, name))
        return entry

    def _look(self, count: int) -> None:
        self._daemon.look()
        self._looked_at += count
        if self._looked_at > MAX_LOOKED_AT or time.monotonic() > self._give_up_at:
            raise Enough


def _target(parent: int, name: bytes) -> bytes:
    try:
        return os.readlink(name, dir_fd=parent)
    except OSError:
        return b""  # it is something else by now


def _few_names(directory: int) -> list[bytes] | None:
    """All names in a directory; None if they are too many to be sorted."""
    with os.scandir(directory) as found:
        names = [os.fsencode(item.name) for item in islice(found, MAX_SORTED + 1)]
    return names if len(names) <= MAX_SORTED else None


def list_directory(area: Area, request: Request, daemon: DaemonConnection) -> None:
    listing = _Listing(request, daemon)
    with area.directory(request.path()) as top:
        names = None if request.flag("recursive") else _few_names(top.descriptor)
        if names is not None:
            has_more, is_complete = listing.send_in_order(top.descriptor, names), True
        else:
            is_complete = walk(top, listing.visit)
            entries, has_more = listing.page.finish()
            daemon.entries(entries)
    there = os.fstatvfs(area.root)
    daemon.done(
        listing.files,
        listing.bytes,
        is_complete and listing.shows_all,
        has_more,
        there.f_bavail * there.f_frsize,
        there.f_favail,
    )
