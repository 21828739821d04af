"""Takes snapshots of disks and stores them, each as what changed since the one before."""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sandboxd.errors import WorkspaceUnreadable
from sandboxd.snapshots import keys
from sandboxd.snapshots.content import ContentReader, Kept
from sandboxd.snapshots.contract import (
    MAX_MOVING,
    ChunkRef,
    Consistency,
    Line,
    Notes,
    Snapshot,
    WorkspaceDisk,
)
from sandboxd.snapshots.differences import Counts, count, count_delta, differences
from sandboxd.snapshots.looking import Looker, Seen, forgotten
from sandboxd.snapshots.node import Delta, Node, Tree
from sandboxd.snapshots.packs import PackWriter
from sandboxd.snapshots.store import New, SnapshotStore
from sandboxd.snapshots.taking import Taken, Taking
from sandboxd.workspaces.ext4 import Damaged, Image

_MOST_REMEMBERED = 256
_MOST_TABLE_BYTES = 64 << 20
"""Of the inodes that are remembered of all workspaces."""
_OTHER_LINES = 8
"""Lines of the same user in which content is searched that is new to a line."""


@dataclass(frozen=True)
class _Remembered:
    """The last look at the disk of a line."""

    image: tuple[int, int]
    number: int
    """Of the newest snapshot at that time."""
    seen: Seen
    is_stored: bool = True
    """Whether that snapshot has exactly this tree, so that another can be a difference to it."""

    @property
    def table_bytes(self) -> int:
        return sum(map(len, self.seen.tables))


@dataclass(frozen=True)
class _Before:
    """What is known of a workspace before a look."""

    seen: Seen | None = None
    """The last look at the same disk."""
    tree: Tree | None = None
    """The newest snapshot."""
    number: int = 0
    base: int = 0
    """Number of the snapshot that a difference to `tree` can be stored for; 0 for none."""
    following: int = 0
    """Number of the next snapshot."""

    @property
    def is_certainly_same_disk(self) -> bool:
        return self.seen is not None and bool(self.seen.tables)


@dataclass(frozen=True)
class Outcome:
    """A snapshot that was taken, and what it took."""

    snapshot: Snapshot | None
    """None if nothing had changed."""
    kept: Kept
    was_frozen: bool = False


class Taker:
    """Takes snapshots. Calls block; for one line they wait for each other."""

    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._remembered: OrderedDict[Line, _Remembered] = OrderedDict()

    def take(
        self,
        line: Line,
        disk: WorkspaceDisk,
        *,
        notes: Notes,
        consistency: Consistency,
        only_if_changed: bool,
        is_durable: bool,
    ) -> Outcome:
        """See Snapshots.take."""
        with self._store.adding(line), _opened_image(disk) as descriptor:
            started = time.monotonic()
            earlier = self._earlier(line, notes)
            if earlier is not None:
                return Outcome(earlier, Kept())
            image = _identity(descriptor)
            before = self._before(line, image)
            owner = keys.owner_of(line.user_id)
            writer = PackWriter(self._store.objects, owner, is_durable=is_durable)
            known = _KnownChunks(self, line, before.tree)
            content, taken = _taken(descriptor, disk, writer, known, before.seen, consistency)
            delta = _delta(before.tree, taken.seen.tree)
            if only_if_changed and _is_unchanged(before, delta, taken.seen.tree):
                same = _Remembered(image, before.number, taken.seen, is_stored=delta.is_empty)
                self._remember(line, same)
                return Outcome(None, content.kept, taken.was_frozen)
            writer.finish()
            placed = _placed(delta, writer)
            tree = _settled(taken.seen.tree, placed)
            new = New(
                tree=tree,
                delta=placed,
                base=before.base,
                number=before.following,
                counts=_counts(before, placed, tree),
                notes=notes,
                looked_ns=taken.seen.looked_ns,
                started=started,
                stored_bytes=writer.stored_bytes,
                moving=_paths(tree, taken.moving[:MAX_MOVING]),
                moving_count=len(taken.moving),
                is_durable=is_durable,
            )
            snapshot = self._store.add(line, new)
            seen = replace(taken.seen, tree=tree)
            self._remember(line, _Remembered(image, snapshot.number, seen))
            return Outcome(snapshot, content.kept, taken.was_frozen)

    def forget(self, line: Line) -> None:
        """Forget what was seen; the next look is a complete one."""
        with self._lock:
            self._remembered.pop(line, None)

    def others(self, line: Line) -> list[tuple[Line, Tree]]:
        """The newest known snapshots of other lines of the same user."""
        with self._lock:
            found = [
                (other, remembered.number, remembered.seen.tree)
                for other, remembered in reversed(self._remembered.items())
                if other.user_id == line.user_id and other != line
            ]
        # What was deleted may be garbage already.
        return [
            (other, tree)
            for other, number, tree in found[:_OTHER_LINES]
            if self._store.is_live(other, number)
        ]

    def _earlier(self, line: Line, notes: Notes) -> Snapshot | None:
        """The snapshot of an earlier call with the same request id."""
        if not notes.request_id:
            return None
        found = self._store.find(line)
        same = (one for one in found if one.notes.request_id == notes.request_id)
        return next(same, None)

    def _before(self, line: Line, image: tuple[int, int]) -> _Before:
        newest, following = self._store.newest(line)
        if newest is None:
            return _Before(following=following)
        number = newest.snapshot.number
        with self._lock:
            remembered = self._remembered.get(line)
        if remembered is None or remembered.number != number:
            tree = self._store.tree_at(keys.line_prefix(line), number)
            seen: Seen | None = forgotten(tree, newest.looked_ns)
            return _Before(seen, tree, number, number, following)
        seen = remembered.seen if remembered.image == image else None
        base = number if remembered.is_stored else 0
        return _Before(seen, remembered.seen.tree, number, base, following)

    def _remember(self, line: Line, remembered: _Remembered) -> None:
        with self._lock:
            self._remembered[line] = remembered
            self._remembered.move_to_end(line)
            size = sum(known.table_bytes for known in self._remembered.values())
            while len(self._remembered) > 1 and (
                len(self._remembered) > _MOST_REMEMBERED or size > _MOST_TABLE_BYTES
            ):
                size -= self._remembered.popitem(last=False)[1].table_bytes


class _KnownChunks:
    """Chunks that are stored already: of the snapshot before, and of other lines of the user."""

    def __init__(self, taker: Taker, line: Line, before: Tree | None) -> None:
        self._taker = taker
        self._line = line
        self._before = before
        self._refs: dict[bytes, ChunkRef] | None = None

    def __call__(self, digest: bytes, size: int) -> ChunkRef | None:
        if self._refs is None:
            self._refs = {}
            for _line, tree in reversed(self._taker.others(self._line)):
                self._refs |= _chunks(tree)
            if self._before is not None:
                self._refs |= _chunks(self._before)
        found = self._refs.get(digest)
        return found if found is not None and found.size == size else None


def _chunks(tree: Tree) -> dict[bytes, ChunkRef]:
    return {
        piece.digest: piece
        for node in tree.nodes.values()
        for piece in node.pieces
        if isinstance(piece, ChunkRef)
    }


def _taken(
    descriptor: int,
    disk: WorkspaceDisk,
    writer: PackWriter,
    known: _KnownChunks,
    before: Seen | None,
    consistency: Consistency,
) -> tuple[ContentReader, Taken]:
    try:
        image = Image(descriptor)
        content = ContentReader(image, writer, known)
        looker = Looker(image, content)
    except Damaged as error:
        raise WorkspaceUnreadable(str(error)) from error
    return content, Taking(looker, disk.workspace).take(before, consistency)


def _delta(before: Tree | None, after: Tree) -> Delta:
    if before is None:
        return Delta(after.root, after.nodes)
    old = before.nodes
    changed = {
        number: node
        for number, node in after.nodes.items()
        if (known := old.get(number)) is not node and known != node
    }
    return Delta(after.root, changed, [number for number in old if number not in after.nodes])


def _is_unchanged(before: _Before, delta: Delta, after: Tree) -> bool:
    if before.tree is None:
        return False
    if delta.is_empty:
        return True
    return not before.is_certainly_same_disk and not differences(before.tree, after)


def _counts(before: _Before, delta: Delta, after: Tree) -> Counts:
    if before.tree is None:
        return Counts(added=after.totals.entries)
    if before.is_certainly_same_disk:
        return count_delta(before.tree.nodes, delta)
    return count(before.tree, after)


def _placed(delta: Delta, writer: PackWriter) -> Delta:
    """The same, with the places of chunks that were stored meanwhile."""
    changed = {number: _placed_node(node, writer) for number, node in delta.changed.items()}
    return Delta(delta.root, changed, delta.removed)


def _placed_node(node: Node, writer: PackWriter) -> Node:
    if all(ref.pack for ref in node.chunks):
        return node
    pieces = tuple(
        writer.placed(piece) if isinstance(piece, ChunkRef) else piece for piece in node.pieces
    )
    return replace(node, pieces=pieces)


def _settled(tree: Tree, placed: Delta) -> Tree:
    nodes: Mapping[int, Node] = {**tree.nodes, **placed.changed}
    return Tree(tree.root, nodes, tree.totals)


def _paths(tree: Tree, numbers: tuple[int, ...]) -> tuple[bytes, ...]:
    if not numbers:
        return ()
    wanted = set(numbers)
    return tuple(path for path, node in tree.walk() if node.number in wanted)[:MAX_MOVING]


def _identity(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


@contextmanager
def _opened_image(disk: WorkspaceDisk) -> Iterator[int]:
    try:
        descriptor = os.open(disk.image, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise WorkspaceUnreadable(f"its disk cannot be opened ({error.strerror})") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
