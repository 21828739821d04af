"""Changes below a directory, told as they happen.

A directory is watched before it is looked into, so nothing that is made in it falls between: what
the look finds is told as created, and what the kernel tells of the same again is dropped.
"""

import errno
import os
import select
import time
from collections.abc import Iterator

from .area import Area, open_directory
from .codec import BATCH_BYTES, Change, encode_change
from .daemon_end import DaemonEnd, Gone
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
"""As in the protos."""
MAX_WATCHES = 50_000
MAX_GATHERED = 10_000
SIGN_OF_LIFE_SECONDS = 5.0
"""At least so often something is said, so that the daemon sees that nobody stopped this."""
PAIR_SECONDS = 0.01
"""How long one half of a move waits for the other."""


class _Node:
    """A directory that is watched. Its path follows from those above, which may be moved."""

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
    """Changes that were not told yet; quick ones of one file are one."""

    def __init__(self) -> None:
        self._changes: list[Change] = []
        self._last: dict[bytes, int] = {}
        self.overflow = False

    def __bool__(self) -> bool:
        return bool(self._changes) or self.overflow

    def add(self, kind: int, path: bytes | None, *, is_directory: bool, old: bytes = b"") -> None:
        if path is None or len(self._changes) >= MAX_GATHERED:
            self.overflow = True
            return
        last = self._last.get(path)
        if kind == MODIFIED and last in (CREATED, MODIFIED, MOVED):
            return
        if kind == CREATED and last == CREATED:
            return
        self._last[path] = kind
        if old:
            self._last[old] = REMOVED
        self._changes.append(Change(kind, is_directory, path, old))

    def tell(self, daemon: DaemonEnd) -> None:
        overflow, self.overflow = self.overflow, False
        changes, self._changes = self._changes, []
        self._last.clear()
        batch = bytearray()
        for change in changes:
            batch += encode_change(change)
            if len(batch) >= BATCH_BYTES:
                daemon.changes(bytes(batch), overflow=False)
                batch.clear()
        daemon.changes(bytes(batch), overflow=overflow)


class _Watch:
    def __init__(self, top: int, shown: bytes, *, is_recursive: bool) -> None:
        self._top = top
        self._shown = shown
        self._is_recursive = is_recursive
        self.gathered = _Gathered()
        self._found: set[bytes] = set()
        """Paths told because a look found them; the kernel will tell of them as well."""
        self._half: tuple[Event, bytes | None, _Node | None] | None = None
        """Of a move: what left, until the next event says where it went."""
        self._begin()

    def _begin(self) -> None:
        self.inotify = Inotify()
        self._nodes: dict[int, _Node] = {}
        self._enter(None, self._shown, os.dup(self._top), is_told=False)

    def close(self) -> None:
        self.inotify.close()

    # --- which directories ---

    def _enter(self, parent: _Node | None, name: bytes, descriptor: int, *, is_told: bool) -> None:
        """Watch a directory and, if asked to, what is below; closes the descriptor."""
        nodes: dict[bytes, _Node] = {}

        def visit(here: int, path: bytes | None) -> list[bytes]:
            if path is None:
                self.gathered.overflow = True  # its changes could not be told
                return []
            outer, _, own_name = path.rpartition(b"/")
            above = nodes[outer] if path else parent
            node = self._node(above, own_name if path else name, here)
            if node is None:
                return []
            nodes[path] = node
            return self._look(node, here, is_told=is_told) if self._is_recursive else []

        try:
            if not walk(descriptor, visit):
                self.gathered.overflow = True
        finally:
            os.close(descriptor)

    def _node(self, parent: _Node | None, name: bytes, descriptor: int) -> "_Node | None":
        if len(self._nodes) >= MAX_WATCHES:
            self.gathered.overflow = True
            return None
        try:
            watch = self.inotify.add(descriptor)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.ENOMEM, errno.EACCES):
                raise
            self.gathered.overflow = True  # it cannot be told what happens there
            return None
        node = _Node(parent, name, watch)
        self._nodes[watch] = node
        if parent is not None:
            parent.below[name] = node
        return node

    def _look(self, node: _Node, descriptor: int, *, is_told: bool) -> list[bytes]:
        """What is in a directory, told if it is new; the directories among it."""
        directories = []
        above = node.path()
        with os.scandir(descriptor) as entries:
            names = [(os.fsencode(e.name), e.is_dir(follow_symlinks=False)) for e in entries]
        for name, is_directory in names:
            if is_directory:
                directories.append(name)
            if is_told and not name.startswith(TEMPORARY):
                path = joined(above, name)
                self.gathered.add(CREATED, path, is_directory=is_directory)
                if path is not None:
                    self._found.add(path)
        return directories

    def _enter_new(self, parent: _Node, name: bytes) -> None:
        """A directory that was made or moved in."""
        descriptor = self._open(parent, name)
        if descriptor is not None:
            self._enter(parent, name, descriptor, is_told=True)

    def _open(self, parent: _Node, *names: bytes) -> int | None:
        """By its path, each step without following links; None if it is not there any more."""
        steps = list(reversed(names))
        node: _Node | None = parent
        while node is not None and node.parent is not None:
            steps.append(node.name)
            node = node.parent
        here = os.dup(self._top)
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
        """Whether this is the kernel's word for a file that has no name yet, an upload say."""
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

    def _forget(self, node: _Node) -> None:
        for one in list(node.all()):
            self.inotify.remove(one.watch)
            self._nodes.pop(one.watch, None)
        if node.parent is not None:
            node.parent.below.pop(node.name, None)

    # --- what happened ---

    def read(self) -> None:
        """Gather what the kernel tells, all of it."""
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

    def settle(self) -> None:
        """What left and did not arrive in time is gone."""
        if self._half is None:
            return
        event, path, node = self._half
        self._half = None
        if event.name.startswith(TEMPORARY):
            return
        if node is not None:
            self._forget(node)
        self.gathered.add(REMOVED, path, is_directory=bool(event.mask & IS_DIR))

    def _start_over(self) -> None:
        """Some was lost, and with it maybe directories: watch everything anew."""
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
            self.settle()
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
        """Names of our own say nothing, but one that moves replaces something."""
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


def watch(area: Area, request: Request, daemon: DaemonEnd) -> None:
    with area.directory(request.path()) as top:
        watching = _Watch(top, request.shown, is_recursive=request.flag("recursive"))
        try:
            daemon.ready()
            _tell_changes(watching, daemon, request.seconds("gather"))
        finally:
            watching.close()


def _tell_changes(watching: _Watch, daemon: DaemonEnd, gather_seconds: float) -> None:
    tell_at = time.monotonic() + SIGN_OF_LIFE_SECONDS
    while True:
        was_empty = not watching.gathered
        _wait(watching, daemon, tell_at)
        watching.read()
        if watching.has_half:
            _wait(watching, daemon, time.monotonic() + PAIR_SECONDS)
            watching.read()
            watching.settle()
        now = time.monotonic()
        if was_empty and watching.gathered:
            tell_at = min(tell_at, now + gather_seconds)
        if now >= tell_at:
            watching.gathered.tell(daemon)
            tell_at = now + SIGN_OF_LIFE_SECONDS


def _wait(watching: _Watch, daemon: DaemonEnd, until: float) -> None:
    """For news, or for the time; Gone if nobody wants to hear of it any more."""
    poll = select.poll()
    poll.register(watching.inotify.fileno(), select.POLLIN)
    poll.register(daemon.fileno(), select.POLLIN)
    for descriptor, _ in poll.poll(max(0.0, until - time.monotonic()) * 1000):
        if descriptor == daemon.fileno():
            raise Gone
