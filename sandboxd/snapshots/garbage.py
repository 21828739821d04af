"""Deletes what no snapshot needs.

It needs no locks between processes. A snapshot refers only to what it stored itself, or to what a
snapshot refers to that was not deleted when this one was begun, and it is stored within
`take_seconds` of its beginning or not at all. Something is deleted only if no snapshot refers to
it, none that was deleted less than `grace_seconds` ago refers to it either, and it was there
without being needed `grace_seconds` ago. As that is longer than `take_seconds`, a snapshot that is
being taken can refer to none of it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from sandboxd.errors import SnapshotDamaged
from sandboxd.snapshots import keys
from sandboxd.snapshots.contract import Garbage
from sandboxd.snapshots.node import Tree
from sandboxd.snapshots.store import SnapshotStore


class Collector:
    """Collects garbage. It remembers since when something is not needed, until the daemon ends."""

    def __init__(self, store: SnapshotStore) -> None:
        settings = store.settings
        if settings.grace_seconds <= settings.take_seconds:
            raise ValueError("grace_seconds has to be longer than take_seconds")
        self._store = store
        self._unneeded_since: dict[str, float] = {}
        self._deleted_since: dict[str, float] = {}
        self._lock = threading.Lock()

    def collect(self) -> Garbage:
        """If a snapshot cannot be read, nothing of its user is deleted."""
        with self._lock:
            now = time.monotonic()
            sizes = {info.key: info.size for info in list(self._store.objects.list(keys.ALL))}
            by_owner: dict[str, list[str]] = {}
            for key in sizes:
                by_owner.setdefault(keys.owner_in(key), []).append(key)
            garbage = Garbage(kept=0, waiting=0, deleted=0, deleted_bytes=0)
            for owner, owned in by_owner.items():
                garbage = self._collect(owner, owned, sizes, now, garbage)
            self._forget_all_but(sizes)
            return garbage

    def _collect(
        self, owner: str, owned: list[str], sizes: Mapping[str, int], now: float, garbage: Garbage
    ) -> Garbage:
        try:
            needed = self._needed(owner, owned, now)
        except SnapshotDamaged:
            return replace(garbage, kept=garbage.kept + len(owned))
        for key in owned:
            if key in needed:
                self._unneeded_since.pop(key, None)
                garbage = replace(garbage, kept=garbage.kept + 1)
            elif not self._is_old(self._unneeded_since, key, now):
                garbage = replace(garbage, waiting=garbage.waiting + 1)
            else:
                self._store.objects.delete(key)
                deleted_bytes = garbage.deleted_bytes + sizes[key]
                garbage = replace(garbage, deleted=garbage.deleted + 1, deleted_bytes=deleted_bytes)
        return garbage

    def _is_old(self, since: dict[str, float], key: str, now: float) -> bool:
        """Whether something was like this `grace_seconds` before a look that began at `now`."""
        first_seen = since.setdefault(key, time.monotonic())
        return now - first_seen > self._store.settings.grace_seconds

    def _needed(self, owner: str, owned: list[str], now: float) -> set[str]:
        """Keys of all that the snapshots of a user need."""
        needed: set[str] = set()
        for prefix, listing in keys.listings(owned).items():
            # The highest number stays taken, also if it was deleted.
            needed.add(keys.snapshot_key(prefix, listing.last))
            needed.add(keys.deleted_key(prefix, listing.last))
            held = {*listing.live, *self._lately_deleted(prefix, listing, now)}
            for number, tree in self._trees(prefix, held):
                needed.add(keys.snapshot_key(prefix, number))
                needed.add(keys.deleted_key(prefix, number))
                if number in held:
                    needed |= {keys.pack_key(owner, pack) for pack in packs_of(tree)}
        return needed

    def _lately_deleted(self, prefix: str, listing: keys.Listing, now: float) -> Iterator[int]:
        for number in listing.deleted & listing.stored:
            if not self._is_old(self._deleted_since, keys.deleted_key(prefix, number), now):
                yield number

    def _trees(self, prefix: str, held: set[int]) -> Iterator[tuple[int, Tree]]:
        """What these snapshots hold, and those that they are differences to."""
        bases = self._bases(prefix, held)
        uses = Counter(bases.values())
        trees: dict[int, Tree] = {}
        for number, base in sorted(bases.items()):
            _record, delta = self._store.read_at(keys.snapshot_key(prefix, number))
            tree = delta.apply(trees[base]) if base else Tree.of(delta.root, delta.changed)
            uses[base] -= 1
            if not uses[base]:
                trees.pop(base, None)
            if uses[number]:
                trees[number] = tree
            yield number, tree

    def _bases(self, prefix: str, held: set[int]) -> dict[int, int]:
        """These snapshots and those that they are differences to, each with its base."""
        bases: dict[int, int] = {}
        waiting = list(held)
        while waiting:
            number = waiting.pop()
            if number and number not in bases:
                record = self._store.record_at(keys.snapshot_key(prefix, number))
                if record.base >= number:
                    raise SnapshotDamaged("it is a difference to something that it cannot be")
                bases[number] = record.base
                waiting.append(record.base)
        return bases

    def _forget_all_but(self, sizes: Mapping[str, int]) -> None:
        for since in (self._unneeded_since, self._deleted_since):
            for key in since.keys() - sizes.keys():
                del since[key]


def packs_of(tree: Tree) -> set[str]:
    return {ref.pack for node in tree.nodes.values() for ref in node.chunks}
