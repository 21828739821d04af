"""Reads everything that snapshots need, and checks it."""

from __future__ import annotations

from collections.abc import Iterable

from sandboxd.errors import SnapshotDamaged
from sandboxd.snapshots import keys
from sandboxd.snapshots.contract import ChunkRef, Line, Problem, Verification
from sandboxd.snapshots.packs import ChunkReader
from sandboxd.snapshots.store import SnapshotStore

MAX_PROBLEMS = 1000


class _Check:
    def __init__(self, store: SnapshotStore) -> None:
        self._store = store
        self._good: set[tuple[str, ChunkRef]] = set()
        self._packs: set[tuple[str, str]] = set()
        self.snapshots = 0
        self.content_bytes = 0
        self.problems: list[Problem] = []

    def line(self, prefix: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.snapshots += 1
            try:
                self._snapshot(prefix, number)
            except SnapshotDamaged as error:
                self._report(keys.snapshot_key(prefix, number), error)

    def _snapshot(self, prefix: str, number: int) -> None:
        owner = keys.owner_in(prefix)
        self._store.read_at(keys.snapshot_key(prefix, number))  # not what is remembered of it
        tree = self._store.tree_at(prefix, number)
        reader = ChunkReader(self._store.objects, owner)
        refs = {ref for node in tree.nodes.values() for ref in node.chunks}
        for ref in sorted(refs, key=lambda ref: (ref.pack, ref.offset)):
            if (owner, ref) not in self._good:
                reader.read(ref)
                self._good.add((owner, ref))
                self._packs.add((owner, ref.pack))
                self.content_bytes += ref.size

    def _report(self, key: str, error: SnapshotDamaged) -> None:
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(Problem(key=key, problem=error.problem))

    def result(self) -> Verification:
        return Verification(
            snapshots=self.snapshots,
            packs=len(self._packs),
            chunks=len(self._good),
            content_bytes=self.content_bytes,
            problems=self.problems,
        )


def verify(store: SnapshotStore, line: Line | None) -> Verification:
    """Check the snapshots of a line, or all there are."""
    prefix = keys.line_prefix(line) if line is not None else keys.ALL
    found = keys.listings(info.key for info in store.objects.list(prefix))
    check = _Check(store)
    for at, listing in found.items():
        check.line(at, listing.live)
    return check.result()
