"""Deletes what no snapshot needs.

It needs no locks between processes. A snapshot refers only to what it stored itself, or to what a
snapshot refers to that was not deleted when this one was begun, and it is stored within
`take_seconds` of its beginning or not at all; on a machine so slow that it could be seen only
after `grace_seconds`, it is deleted again. Something is deleted only if no snapshot refers to it,
none that was deleted less than `grace_seconds` ago refers to it either, and it was there without
being needed `grace_seconds` ago. As that is longer than `take_seconds`, a snapshot that is being
taken can refer to none of it.

A process that has the store alone need not wait for that long: what was seen unneeded before any
use of the user's content began that is under way now is not part of one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from sandboxd.errors import SnapshotDamaged
from sandboxd.snapshots import keys
from sandboxd.snapshots.contract import Garbage
from sandboxd.snapshots.node import Tree
from sandboxd.snapshots.objects import ObjectInfo
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

    def collect(self, owners: Collection[str] | None = None) -> Garbage:
        """Of all users, or of these. Nothing is deleted of a user with a snapshot that cannot be
        read."""
        with self._lock:
            now = time.monotonic()
            used_since = self._store.used_since()  # before the listing
            sizes = {info.key: info.size for info in self._listed(owners)}
            by_owner: dict[str, list[str]] = {}
            for key in sizes:
                by_owner.setdefault(keys.owner_in(key), []).append(key)
            garbage = Garbage(kept=0, waiting=0, deleted=0, deleted_bytes=0)
            for owner, owned in by_owner.items():
                before = self._horizon(now, used_since.get(owner, now))
                garbage = self._collect(owner, owned, sizes, before, garbage)
            self._forget_all_but(sizes, owners)
            return garbage

    def _listed(self, owners: Collection[str] | None) -> list[ObjectInfo]:
        prefixes = [keys.ALL] if owners is None else map(keys.owner_prefix, owners)
        return [info for prefix in prefixes for info in self._store.objects.list(prefix)]

    def _horizon(self, now: float, used_since: float) -> float:
        """What was seen unneeded before this time may be deleted by a look that began `now`."""
        settings = self._store.settings
        long_ago = now - settings.grace_seconds
        return long_ago if settings.is_shared else max(long_ago, min(now, used_since))

    def _collect(
        self,
        owner: str,
        owned: list[str],
        sizes: Mapping[str, int],
        before: float,
        garbage: Garbage,
    ) -> Garbage:
        try:
            needed, held_back = self._needed(owner, owned, before)
        except SnapshotDamaged:
            return replace(garbage, kept=garbage.kept + len(owned))
        garbage = replace(garbage, waiting=garbage.waiting + held_back)
        for key in owned:
            if key in needed:
                self._unneeded_since.pop(key, None)
                garbage = replace(garbage, kept=garbage.kept + 1)
            elif not self._is_old(self._unneeded_since, key, before):
                garbage = replace(garbage, waiting=garbage.waiting + 1)
            else:
                self._store.objects.delete(key)
                deleted_bytes = garbage.deleted_bytes + sizes[key]
                garbage = replace(garbage, deleted=garbage.deleted + 1, deleted_bytes=deleted_bytes)
        return garbage

    def _is_old(self, since: dict[str, float], key: str, before: float) -> bool:
        """Whether something was seen like this before that time."""
        return since.setdefault(key, time.monotonic()) < before

    def _needed(self, owner: str, owned: list[str], before: float) -> tuple[set[str], int]:
        """Keys of all that the snapshots of a user need, and how many of these were deleted
        lately."""
        needed: set[str] = set()
        held_back = 0
        for prefix, listing in keys.listings(owned).items():
            # The highest number stays taken, also if it was deleted.
            needed.add(keys.snapshot_key(prefix, listing.last))
            needed.add(keys.deleted_key(prefix, listing.last))
            lately = set(self._lately_deleted(prefix, listing, before))
            held_back += len(lately)
            held = {*listing.live, *lately}
            for number, tree in self._trees(prefix, held):
                needed.add(keys.snapshot_key(prefix, number))
                needed.add(keys.deleted_key(prefix, number))
                if number in held:
                    needed |= {keys.pack_key(owner, pack) for pack in packs_of(tree)}
        return needed, held_back

    def _lately_deleted(self, prefix: str, listing: keys.Listing, before: float) -> Iterator[int]:
        for number in listing.deleted & listing.stored:
            if not self._is_old(self._deleted_since, keys.deleted_key(prefix, number), before):
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

    def _forget_all_but(self, sizes: Mapping[str, int], owners: Collection[str] | None) -> None:
        for since in (self._unneeded_since, self._deleted_since):
            for key in since.keys() - sizes.keys():
                if owners is None or keys.owner_in(key) in owners:
                    del since[key]


def packs_of(tree: Tree) -> set[str]:
    return {ref.pack for node in tree.nodes.values() for ref in node.chunks}
