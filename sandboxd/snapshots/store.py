"""The store of snapshots: which there are, and what each holds.

Content is stored before the snapshot that needs it, so a snapshot that is there is complete.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from sandboxd.errors import SnapshotDamaged, SnapshotNotFound, SnapshotStoreFailed
from sandboxd.snapshots import keys
from sandboxd.snapshots.contract import Line, Notes, Snapshot
from sandboxd.snapshots.differences import Counts
from sandboxd.snapshots.encoding import Record, decode, encode
from sandboxd.snapshots.node import Delta, Tree
from sandboxd.snapshots.objects import ObjectExists, ObjectMissing, Objects
from sandboxd.snapshots.packs import ChunkReader
from sandboxd.snapshots.shares import SharedObjects

COMPLETE_EVERY = 64
"""At most this many snapshots have to be read for one."""
_CACHED_TREES = 64
_CACHED_NODES = 400_000
_CACHED_RECORDS = 20_000
_TRIES = 16
_LOCKS = 256
"""For all lines: two that share one wait for each other."""


@dataclass(frozen=True, kw_only=True)
class StoreSettings:
    secret: bytes
    """Seals snapshots; the same in every daemon that uses the store."""
    take_seconds: float = 600.0
    """Longest time from the start of a snapshot until it is stored."""
    grace_seconds: float = 3600.0
    """How long something has to be unneeded before it is deleted; more than `take_seconds`."""
    is_shared: bool = True
    """Whether other processes use the store. One that has it alone knows what is in use, and
    deletes what is unneeded as soon as nothing of its user is."""
    user_bytes: int = 0
    """Most bytes that a user may have in the store; 0 means no limit."""


@dataclass(frozen=True, kw_only=True)
class New:
    """A snapshot to be stored."""

    tree: Tree
    delta: Delta | None = None
    """To the snapshot `base`; None for a complete one."""
    base: int = 0
    number: int = 0
    """Its number, unless that was given to another meanwhile; 0 means the next."""
    counts: Counts
    notes: Notes
    looked_ns: int
    started: float
    """By the monotonic clock."""
    stored_bytes: int = 0
    moving: tuple[bytes, ...] = ()
    moving_count: int = 0
    is_durable: bool = True


class SnapshotStore:
    """All snapshots. Calls block, and may come from several threads."""

    def __init__(self, objects: Objects, settings: StoreSettings) -> None:
        self.objects: Objects = objects
        if settings.user_bytes:
            self.objects = SharedObjects(
                objects, user_bytes=settings.user_bytes, is_shared=settings.is_shared
            )
        self.settings = settings
        self._uses: dict[object, tuple[str, float]] = {}
        """Owners whose content is being used, and since when."""
        self._lock = threading.Lock()
        self._adding = [threading.Lock() for _ in range(_LOCKS)]
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._trees: OrderedDict[str, Tree] = OrderedDict()

    def chunks(self, line: Line) -> ChunkReader:
        return ChunkReader(self.objects, keys.owner_of(line.user_id))

    def find(self, line: Line) -> list[Snapshot]:
        """The snapshots of a line, oldest first."""
        prefix = keys.line_prefix(line)
        numbers = self._listing(prefix).live
        return [self.record_at(keys.snapshot_key(prefix, number)).snapshot for number in numbers]

    def newest(self, line: Line) -> tuple[Record | None, int]:
        """The newest snapshot of a line, and the number that the next one gets."""
        prefix = keys.line_prefix(line)
        listing = self._listing(prefix)
        live = listing.live
        record = self.record_at(keys.snapshot_key(prefix, live[-1])) if live else None
        return record, listing.last + 1

    def is_live(self, line: Line, number: int) -> bool:
        prefix = keys.line_prefix(line)
        is_stored = self.objects.has(keys.snapshot_key(prefix, number))
        return is_stored and not self.objects.has(keys.deleted_key(prefix, number))

    def get(self, line: Line, number: int) -> Record:
        """SnapshotNotFound if there is none, or it was deleted."""
        if not 0 < number <= keys.MAX_NUMBER or not self.is_live(line, number):
            raise SnapshotNotFound(str(number))
        return self.record_at(keys.snapshot_key(keys.line_prefix(line), number))

    def tree(self, line: Line, number: int) -> Tree:
        """Everything in a snapshot. SnapshotNotFound, SnapshotDamaged."""
        self.get(line, number)
        return self.tree_at(keys.line_prefix(line), number)

    def record_at(self, key: str) -> Record:
        with self._lock:
            record = self._records.get(key)
        if record is None:
            record, _delta = self.read_at(key)
            self._remember_record(key, record)
        return record

    def read_at(self, key: str) -> tuple[Record, Delta]:
        """What is stored under a key. SnapshotDamaged if it is missing or not ours."""
        try:
            data = self.objects.get(key)
        except ObjectMissing:
            raise SnapshotDamaged("a part of it is missing in the store") from None
        return decode(data, key=key, secret=self.settings.secret)

    def tree_at(self, prefix: str, number: int) -> Tree:
        deltas: list[Delta] = []
        at = number
        while (tree := self._cached_tree(keys.snapshot_key(prefix, at))) is None:
            record, delta = self.read_at(keys.snapshot_key(prefix, at))
            if record.base == 0:
                tree = Tree.of(delta.root, delta.changed)
                tree.check()
                break
            if record.base >= at or len(deltas) > COMPLETE_EVERY:
                raise SnapshotDamaged("it is a difference to something that it cannot be")
            deltas.append(delta)
            at = record.base
        for delta in reversed(deltas):
            tree = delta.apply(tree)
        if deltas:
            tree.check()
        self._remember_tree(keys.snapshot_key(prefix, number), tree)
        return tree

    @contextmanager
    def using(self, line: Line) -> Iterator[None]:
        """Content of this user is read, or new snapshots refer to it: no garbage collection of this
        process deletes what was needed when this began."""
        use = object()
        with self._lock:
            self._uses[use] = keys.owner_of(line.user_id), time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._uses[use]

    def used_since(self) -> Mapping[str, float]:
        """Owners whose content is in use, and since when."""
        with self._lock:
            newest_first = sorted(self._uses.values(), key=lambda use: -use[1])
        return dict(newest_first)

    @contextmanager
    def adding(self, line: Line) -> Iterator[None]:
        """Only one thread of this process at a time adds to a line."""
        with self.using(line), self._adding[hash(line) % len(self._adding)]:
            yield

    def add(self, line: Line, new: New) -> Snapshot:
        """Store a snapshot; what it refers to has to be stored already."""
        prefix = keys.line_prefix(line)
        number = new.number
        for _ in range(_TRIES):
            number = number or self._listing(prefix).last + 1
            key = keys.snapshot_key(prefix, number)
            record, delta = self._to_add(line, number, new)
            data = encode(record, delta, key=key, secret=self.settings.secret)
            if time.monotonic() - new.started > self.settings.take_seconds:
                raise SnapshotStoreFailed("the snapshot took too long")
            try:
                self.objects.create(key, data, is_durable=new.is_durable)
            except ObjectExists:  # another process was faster
                number = 0
                continue
            if time.monotonic() - new.started > self.settings.grace_seconds:
                # What it refers to may have been deleted before it could be seen.
                self.delete(line, number)
                raise SnapshotStoreFailed("the snapshot took too long")
            record = record.with_own_bytes(len(data))
            self._remember_record(key, record)
            self._remember_tree(key, new.tree)
            return record.snapshot
        raise SnapshotStoreFailed("too many snapshots are added to one line")

    def delete(self, line: Line, number: int) -> int:
        """Delete a snapshot, if there is one; returns the bytes that it had added."""
        if not 0 < number <= keys.MAX_NUMBER or not self.is_live(line, number):
            return 0
        prefix, stored_bytes = keys.line_prefix(line), 0
        with suppress(SnapshotDamaged):
            stored_bytes = self.record_at(keys.snapshot_key(prefix, number)).snapshot.stored_bytes
        self.objects.put(keys.deleted_key(prefix, number), b"")
        return stored_bytes

    def delete_line(self, line: Line) -> int:
        """Delete all snapshots of a line; returns the bytes that they had added."""
        numbers = self._listing(keys.line_prefix(line)).live
        return sum(self.delete(line, number) for number in numbers)

    def _listing(self, prefix: str) -> keys.Listing:
        found = keys.listings(info.key for info in self.objects.list(prefix))
        return found.get(prefix, keys.Listing())

    def _to_add(self, line: Line, number: int, new: New) -> tuple[Record, Delta]:
        snapshot = Snapshot(
            line=line,
            number=number,
            created_at=time.time(),
            notes=new.notes,
            entries=new.tree.totals.entries,
            content_bytes=new.tree.totals.content_bytes,
            stored_bytes=new.stored_bytes,
            added=new.counts.added,
            changed=new.counts.changed,
            removed=new.counts.removed,
            moving=new.moving,
            moving_count=new.moving_count,
            left_out=new.tree.totals.left_out,
        )
        record = Record(snapshot, 0, 0, 0, new.looked_ns)
        complete = Delta(new.tree.root, new.tree.nodes)
        if not new.base or new.delta is None:
            return record, complete
        base = self.record_at(keys.snapshot_key(keys.line_prefix(line), new.base))
        depth, weight = base.depth + 1, base.weight + len(new.delta.changed)
        if depth >= COMPLETE_EVERY or weight > len(new.tree.nodes):
            return record, complete
        return replace(record, base=new.base, depth=depth, weight=weight), new.delta

    def _cached_tree(self, key: str) -> Tree | None:
        with self._lock:
            tree = self._trees.get(key)
            if tree is not None:
                self._trees.move_to_end(key)
            return tree

    def _remember_tree(self, key: str, tree: Tree) -> None:
        with self._lock:
            self._trees[key] = tree
            self._trees.move_to_end(key)
            nodes = sum(len(cached.nodes) for cached in self._trees.values())
            while len(self._trees) > 1 and (
                len(self._trees) > _CACHED_TREES or nodes > _CACHED_NODES
            ):
                nodes -= len(self._trees.popitem(last=False)[1].nodes)

    def _remember_record(self, key: str, record: Record) -> None:
        with self._lock:
            self._records[key] = record
            while len(self._records) > _CACHED_RECORDS:
                self._records.popitem(last=False)
