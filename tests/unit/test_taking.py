"""Files that grow while the image is brought up to date, which has their size first."""

from __future__ import annotations

from typing import Any, cast

from sandboxd.snapshots.contract import Consistency
from sandboxd.snapshots.looking import file_clock_ns
from sandboxd.snapshots.taking import Taking


class Looker:
    """Of an image that is never still in the end, if `reads` are given."""

    def __init__(self, reads: list[Any] | None = None) -> None:
        self.synced: list[int] = []
        self.reads = reads

    def look(self, before: object, synced_ns: int) -> Any:
        self.synced.append(synced_ns)
        return "seen"

    def is_still(self, seen: object) -> bool:
        return True

    def read_again(self, seen: object, number: int) -> Any:
        assert self.reads
        return self.reads.pop(0)


class Synced(Taking):
    def __init__(self, looker: Looker) -> None:
        super().__init__(cast("Any", looker), workspace=0)
        self.syncs: list[int] = []

    def _sync(self) -> None:
        self.syncs.append(file_clock_ns())


def test_what_changed_since_the_sync_began_is_not_settled() -> None:
    """However long the sync takes: the look is told when it began."""
    looker = Looker()
    taking = Synced(looker)
    taking.take(None, Consistency.ONE_MOMENT)
    assert len(taking.syncs) == 2
    assert looker.synced[0] <= taking.syncs[0]


def test_a_file_is_whole_if_its_content_stood_still() -> None:
    """Its inode alone does not tell."""
    torn, whole = (b"inode", "zeros"), (b"inode", "data")
    looker = Looker([torn, whole, whole, whole])
    assert Synced(looker)._whole(cast("Any", "seen"), 12) == cast("Any", "data")
    assert looker.reads == []
