"""Takes what a workspace holds while commands may be writing to it."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, replace

from sandboxd.errors import WorkspaceBusy, WorkspaceUnreadable
from sandboxd.snapshots import keeper
from sandboxd.snapshots.contract import Consistency, Kind
from sandboxd.snapshots.looking import Looker, Seen, file_clock_ns
from sandboxd.snapshots.node import Delta, Node
from sandboxd.workspaces.ext4 import Damaged

LOOKS = 3
"""How often to look before writers are stopped, and how often to read a file that is written to."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Taken:
    seen: Seen
    moving: tuple[int, ...] = ()
    """Files that changed while they were read. Each is as it was at one moment."""
    was_frozen: bool = False


class _Moving(Exception):
    """It changes too fast to be read."""


class Taking:
    """One snapshot being taken. Blocks."""

    def __init__(self, looker: Looker, workspace: int | None) -> None:
        """`workspace` is a descriptor in the mounted filesystem, None if it is not mounted."""
        self._looker = looker
        self._workspace = workspace

    def take(self, before: Seen | None, consistency: Consistency) -> Taken:
        """WorkspaceBusy if writers could not be stopped, WorkspaceUnreadable if it is damaged."""
        if self._workspace is None:
            return Taken(self._look_at_rest(before))
        seen, is_whole = before, False
        for _ in range(LOOKS):
            synced_ns = file_clock_ns()
            self._sync()
            try:
                seen = self._looker.look(seen, synced_ns)
                self._sync()
                is_whole = True
                if self._looker.is_still(seen):
                    return Taken(seen)
            except Damaged:  # or it changed while it was read
                is_whole = False
        if seen is not None and is_whole and consistency is Consistency.WHOLE_FILES:
            try:
                return self._with_whole_files(seen)
            except (_Moving, Damaged):
                pass
        return self._frozen(seen)

    def _with_whole_files(self, seen: Seen) -> Taken:
        """Read the files that moved, one by one, until each was still while it was read."""
        moved = [
            number
            for number in self._looker.moved(seen)
            if number in seen.tree.nodes and seen.tree.nodes[number].kind is Kind.FILE
        ]
        fresh = {number: self._whole(seen, number) for number in moved}
        tree = Delta(seen.tree.root, fresh).apply(seen.tree)
        # At the next look they are read in any case.
        again = replace(seen, tree=tree, unsettled=seen.unsettled | fresh.keys())
        return Taken(again, tuple(moved))

    def _whole(self, seen: Seen, number: int) -> Node:
        for _ in range(LOOKS):
            self._sync()
            read = self._looker.read_again(seen, number)
            self._sync()
            # The content too: the image may have had the size of a file before all of its data.
            if read[1] is not None and self._looker.read_again(seen, number) == read:
                return read[1]
        raise _Moving

    def _frozen(self, seen: Seen | None) -> Taken:
        assert self._workspace is not None
        try:
            with keeper.frozen(self._workspace):
                now = self._look_at_rest(seen)
        except (keeper.NotFrozen, OSError) as error:
            raise WorkspaceBusy from error
        return Taken(now, was_frozen=True)

    def _look_at_rest(self, before: Seen | None) -> Seen:
        """Look at a filesystem that does not change: damage is damage."""
        try:
            return self._looker.look(before)
        except Damaged as error:
            raise WorkspaceUnreadable(str(error)) from error

    def _sync(self) -> None:
        """Bring what commands have written into the image: from memory to memory."""
        assert self._workspace is not None
        if _libc.syncfs(self._workspace) != 0:
            number = ctypes.get_errno()
            raise WorkspaceUnreadable(os.strerror(number))
