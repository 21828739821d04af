"""Changes below a directory, reported as they happen.

A directory is watched before it is read, so nothing that is made in it is missed: what the read
finds is reported as created, and the kernel's event for the same entry is dropped.
"""

import errno
import os
import select
import time
from collections.abc import Iterator

from .area import Area, Directory, open_directory
from .codec import BATCH_BYTES, Change, encode_change
from .daemon_connection import DaemonConnection, Gone
from .inotify import (
    ATTRIB,
    CREATE,
    DELETE,
    IGNORED,
    IS_DIR,
    MODIFY,
    MOVED_FROM,
    MOVED_TO,
    Q_OVERFLOW,
    Event,
    Inotify,
)
from .new_file import TEMPORARY
from .request import Request
from .tree import joined, walk

CREATED, MODIFIED, REMOVED, MOVED = range(1, 5)
"""Numbers as in the protos."""
MAX_WATCHES = 50_000
MAX_GATHERED = 10_000
"""Changes that are reported at once, after a time without any."""
CHANGES_PER_SECOND = 1000
"""Changes that are reported while they go on and on; others are an overflow."""
BATCH_CHANGES = 128
"""Changes in one frame, which the daemon handles without doing anything else."""
REPORT_SECONDS = 0.05
"""Shortest time between two reports."""
SIGN_OF_LIFE_SECONDS = 5.0
"""Longest time without a report, so that the daemon sees that the watch goes on."""
PAIR_SECONDS = 0.01
"""Time that the first half of a move waits for the second."""


class _Node:
    """A watched directory. Its path is not stored, because directories above it may be moved."""

    __slots__ = ("below", "name", "parent", "watch")

    def __init__(self, parent: "_Node | None", name: bytes, watch: int) -> None:
        self.parent = parent
        self.name = name
        self.watch = watch
        self.below: dict[bytes, _Node] = {}

    def path(self) -> bytes | None:
        names = []
        node: _Node | None = self
        while node is not None:
            names.append(node.name)
            node = node.parent
        path: bytes | None = b""
        for name in reversed(names):
            path = joined(path, name)
        return path

    def all(self) -> Iterator["_Node"]:
        ahead = [self]
        while ahead:
            node = ahead.pop()
            yield node
            ahead += node.below.values()


class _Gathered:
    """Changes that were not reported yet; several of the same file become few."""

    def __init__(self) -> None:
        self._changes: dict[int, Change] = {}
        """Changes by number, in order."""
        self._count = 0
        self._last: dict[bytes, tuple[int, int]] = {}
        """Kind and number of the last change of a path."""
        self._made: dict[bytes, int] = {}
        """Number of the change that made what the last change of a path removed."""
        self._room = float(MAX_GATHERED)
        """Changes that may be reported now."""
        self._room_at = time.monotonic()
        self.overflow = False

    def __bool__(self) -> bool:
        return bool(self._changes) or self.overflow

    def add(self, kind: int, path: bytes | None, *, is_directory: bool, old: bytes = b"") -> None:
        if path is None:
            self.overflow = True
            return
        last, number = self._last.get(path, (0, 0))
        if kind == MODIFIED and last in (CREATED, MODIFIED, MOVED):
            return
        if kind == CREATED and last == CREATED:
            return
        if kind == CREATED and path in self._made:
            # It comes and goes: what it was in between is over.
            del self._changes[self._made.pop(path)], self._changes[number]
        if not self._has_room():
            self.overflow = True
            return
        self._made.pop(path, None)
        if kind == REMOVED and last == CREATED:
            self._made[path] = number
        self._count += 1
        self._changes[self._count] = Change(kind, is_directory, path, old)
        self._last[path] = kind, self._count
        if old:
            self._made.pop(old, None)
            self._last[old] = REMOVED, self._count

    def _has_room(self) -> bool:
        if len(self._changes) >= self._room:
            now = time.monotonic()
            more = (now - self._room_at) * CHANGES_PER_SECOND
            self._room, self._room_at = min(MAX_GATHERED, self._room + more), now
        return len(self._changes) < self._room

    def send(self, daemon: DaemonConnection) -> None:
        overflow, self.overflow = self.overflow, False
        changes, self._changes = list(self._changes.values()), {}
        self._last.clear()
        self._made.clear()
        self._room -= len(changes)
        *others, last = _batches(changes)
        for batch in others:
            daemon.changes(batch, overflow=False)
        daemon.changes(last, overflow=overflow)


def _batches(changes: list[Change]) -> Iterator[bytes]:
    """The changes as payloads of frames, the last of which may be empty."""
    batch, count = bytearray(), 0
    for change in changes:
        if count == BATCH_CHANGES or len(batch) >= BATCH_BYTES:
            yield bytes(batch)
            batch, count = bytearray(), 0
        batch += encode_change(change)
        count += 1
    yield bytes(batch)


class _Watch:
    def __init__(self, top: Directory, shown: bytes, *, is_recursive: bool) -> None:
        self._top = top
        self._shown = shown
        self._is_recursive = is_recursive
        self.gathered = _Gathered()
        self._found: set[bytes] = set()
        """Paths that were reported because a read found them; their events are still to come."""
        self._half: tuple[Event, bytes | None, _Node | None] | None = None
        """The first half of a move: what left, until the next event shows where it went."""
        self._begin()

    def _begin(self) -> None:
        self.inotify = Inotify()
        self._nodes: dict[int, _Node] = {}
        top = self._top._replace(descriptor=os.dup(self._top.descriptor))
        self._enter(None, self._shown, top, is_reported=False)

    def close(self) -> None:
        self.inotify.close()

    # --- directories ---

    def _enter(
        self, parent: _Node | None, name: bytes, top: Directory, *, is_reported: bool
    ) -> None:
        """Watch a directory and, if recursive, everything below; closes its descriptor."""
        nodes: dict[bytes, _Node] = {}

        def visit(here: int, path: bytes | None) -> list[bytes]:
            if path is None:
                self.gathered.overflow = True  # its changes could not be reported
                return []
            outer, _, own_name = path.rpartition(b"/")
            above = nodes[outer] if path else parent
            node = self._node(above, own_name if path else name, here)
            if node is None:
                return []
            nodes[path] = node
            return self._look(node, here, is_reported=is_reported) if self._is_recursive else []

        try:
            if not walk(top, visit):
                self.gathered.overflow = True
        finally:
            os.close(top.descriptor)

    def _node(self, parent: _Node | None, name: bytes, descriptor: int) -> "_Node | None":
        if len(self._nodes) >= MAX_WATCHES:
            self.gathered.overflow = True
            return None
        try:
            watch = self.inotify.add(descriptor)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EACCES):
                raise
            self.gathered.overflow = True  # changes there go unnoticed
            return None
        node = _Node(parent, name, watch)
        self._nodes[watch] = node
        if parent is not None:
            parent.below[name] = node
        return node

    def _look(self, node: _Node, descriptor: int, *, is_reported: bool) -> list[bytes]:
        """Read a directory, and report its entries if it is new; returns the directories in it."""
        directories = []
        above = node.path()
        with os.scandir(descriptor) as entries:
            names = [(os.fsencode(e.name), e.is_dir(follow_symlinks=False)) for e in entries]
        for name, is_directory in names:
            if is_directory:
                directories.append(name)
            if is_reported and not name.startswith(TEMPORARY):
                path = joined(above, name)
                self.gathered.add(CREATED, path, is_directory=is_directory)
                if path is not None:
                    self._found.add(path)
        return directories

    def _enter_new(self, parent: _Node, name: bytes) -> None:
        """Watch a directory that was made or moved here."""
        descriptor = self._open(parent, name)
        if descriptor is not None:
            self._enter(parent, name, Directory(descriptor), is_reported=True)

    def _open(self, parent: _Node, *names: bytes) -> int | None:
        """Open a directory by its path without following links; None if it no longer exists."""
        steps = list(reversed(names))
        node: _Node | None = parent
        while node is not None and node.parent is not None:
            steps.append(node.name)
            node = node.parent
        here = os.dup(self._top.descriptor)
        try:
            for step in reversed(steps):
                below = open_directory(here, step)
                os.close(here)
                here = below
        except OSError:
            os.close(here)
            return None
        return here

    def _is_unnamed(self, node: _Node, name: bytes) -> bool:
        """Whether this is the kernel's name for a file without a name, such as an upload."""
        if not (name.startswith(b"#") and name[1:].isdigit()):
            return False
        directory = self._open(node)
        if directory is None:
            return False
        try:
            os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return True
        finally:
            os.close(directory)
        return False

    def _unwatch(self, node: _Node) -> None:
        for inner in list(node.all()):
            self.inotify.remove(inner.watch)
            self._nodes.pop(inner.watch, None)
        if node.parent is not None:
            node.parent.below.pop(node.name, None)

    # --- events ---

    def read(self) -> None:
        """Gather all events that the kernel has."""
        while events := self.inotify.read():
            for event in events:
                if event.mask & Q_OVERFLOW:
                    self._start_over()
                    return
                self._on_event(event)
        self._found.clear()

    @property
    def has_half(self) -> bool:
        return self._half is not None

    def give_up_half(self) -> None:
        """Report what left and did not arrive in time as removed."""
        if self._half is None:
            return
        event, path, node = self._half
        self._half = None
        if event.name.startswith(TEMPORARY):
            return
        if node is not None:
            self._unwatch(node)
        self.gathered.add(REMOVED, path, is_directory=bool(event.mask & IS_DIR))

    def _start_over(self) -> None:
        """Watch everything again: events were lost, maybe those of new directories."""
        self._half = None
        self._found.clear()
        self.inotify.close()
        self._begin()
        self.gathered.overflow = True

    def _on_event(self, event: Event) -> None:
        node = self._nodes.get(event.watch)
        is_other_half = (
            event.mask & MOVED_TO and self._half and self._half[0].cookie == event.cookie
        )
        if self._half is not None and not is_other_half:
            self.give_up_half()
        if node is None:
            return
        if event.mask & IGNORED:
            self._nodes.pop(event.watch, None)
            if node.parent is not None and node.parent.below.get(node.name) is node:
                del node.parent.below[node.name]
            return
        if event.name.startswith(TEMPORARY):
            self._on_temporary(event)
        elif event.name:
            self._on_entry(node, event)

    def _on_temporary(self, event: Event) -> None:
        """Temporary names are not reported, but when one is renamed it replaces something."""
        if event.mask & MOVED_FROM:
            self._half = (event, None, None)

    def _on_entry(self, node: _Node, event: Event) -> None:
        path, is_directory = joined(node.path(), event.name), bool(event.mask & IS_DIR)
        if event.mask & CREATE:
            if path in self._found:
                self._found.discard(path)
                return
            self.gathered.add(CREATED, path, is_directory=is_directory)
            if is_directory and self._is_recursive:
                self._enter_new(node, event.name)
        elif event.mask & DELETE:
            self._found.discard(path or b"")
            self.gathered.add(REMOVED, path, is_directory=is_directory)
        elif event.mask & MOVED_FROM:
            self._half = (event, path, node.below.get(event.name))
        elif event.mask & MOVED_TO:
            self._arrive(node, event, path)
        elif event.mask & (MODIFY | ATTRIB) and not self._is_unnamed(node, event.name):
            self.gathered.add(MODIFIED, path, is_directory=is_directory)

    def _arrive(self, node: _Node, event: Event, path: bytes | None) -> None:
        is_directory = bool(event.mask & IS_DIR)
        if self._half is None:
            if path in self._found:
                self._found.discard(path)
                return
            self.gathered.add(CREATED, path, is_directory=is_directory)
            if is_directory and self._is_recursive:
                self._enter_new(node, event.name)
            return
        left, old, moved = self._half
        self._half = None
        if left.name.startswith(TEMPORARY):
            self.gathered.add(MODIFIED, path, is_directory=False)
            return
        self.gathered.add(MOVED, path, is_directory=is_directory, old=old or b"")
        if moved is not None:
            if moved.parent is not None:
                moved.parent.below.pop(moved.name, None)
            moved.parent, moved.name = node, event.name
            node.below[event.name] = moved


def watch(area: Area, request: Request, daemon: DaemonConnection) -> None:
    with area.directory(request.path()) as top:
        watching = _Watch(top, request.shown, is_recursive=request.flag("recursive"))
        try:
            daemon.ready()
            _report_changes(watching, daemon, request.seconds("gather"))
        finally:
            watching.close()


def _report_changes(watching: _Watch, daemon: DaemonConnection, gather_seconds: float) -> None:
    reported_at = time.monotonic()
    report_at = reported_at + SIGN_OF_LIFE_SECONDS
    while True:
        was_empty = not watching.gathered
        _wait(watching, daemon, report_at)
        watching.read()
        if watching.has_half:
            _wait(watching, daemon, time.monotonic() + PAIR_SECONDS)
            watching.read()
            watching.give_up_half()
        now = time.monotonic()
        if was_empty and watching.gathered:
            soon = max(now + gather_seconds, reported_at + REPORT_SECONDS)
            report_at = min(report_at, soon)
        if now >= report_at:
            watching.gathered.send(daemon)
            reported_at, report_at = now, now + SIGN_OF_LIFE_SECONDS


def _wait(watching: _Watch, daemon: DaemonConnection, until: float) -> None:
    """Wait for an event or until the time; Gone if the daemon gave up."""
    poll = select.poll()
    poll.register(watching.inotify.fileno(), select.POLLIN)
    poll.register(daemon.fileno(), select.POLLIN)
    for descriptor, _ in poll.poll(max(0.0, until - time.monotonic()) * 1000):
        if descriptor == daemon.fileno():
            raise Gone
