"""Snapshots of workspaces that are a text each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from sandboxd.errors import SandboxdError, SnapshotNotFound
from sandboxd.snapshots.contract import (
    Change,
    ChangeKind,
    Consistency,
    Diff,
    DiffLimits,
    Entry,
    Figures,
    Garbage,
    Kind,
    Line,
    Notes,
    Restored,
    Snapshot,
    Verification,
    WorkspaceDisk,
)

NO_NOTES = Notes()
NO_LIMITS = DiffLimits()


class FakeSnapshots:
    """Keeps the promises of `Snapshots` as far as a caller sees them."""

    def __init__(self) -> None:
        self.workspaces: dict[Path, str] = {}
        """What is in a workspace now, by the image of its disk."""
        self.lines: dict[Line, dict[int, tuple[Snapshot, str]]] = {}
        self.last_numbers: dict[Line, int] = {}
        self.last_contents: dict[Line, str] = {}
        self.restored: list[str] = []
        self.unmounted: list[Path] = []
        """Images of which a snapshot was taken without a mount."""
        self.fails: SandboxdError | None = None
        self.stored_bytes = 10
        self.takes = 0
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        """Clear it to hold every snapshot that is being taken."""
        self.reads_late = False
        """Whether a snapshot that is held has what changes meanwhile."""

    async def take(
        self,
        line: Line,
        disk: WorkspaceDisk,
        *,
        notes: Notes = NO_NOTES,
        consistency: Consistency = Consistency.WHOLE_FILES,
        only_if_changed: bool = False,
        is_durable: bool = True,
    ) -> Snapshot | None:
        self.takes += 1
        content = self.workspaces.get(disk.image, "")
        await self.may_go_on.wait()
        if self.reads_late:
            content = self.workspaces.get(disk.image, "")
        if self.fails is not None:
            raise self.fails
        if disk.workspace is None:
            self.unmounted.append(disk.image)
        for snapshot, _ in self.lines.get(line, {}).values():
            if notes.request_id and snapshot.notes.request_id == notes.request_id:
                return snapshot
        if only_if_changed and self.last_contents.get(line) == content:
            return None
        return self._add(line, content, notes)

    def _add(self, line: Line, content: str, notes: Notes) -> Snapshot:
        number = self.last_numbers.get(line, 0) + 1
        self.last_numbers[line], self.last_contents[line] = number, content
        snapshot = Snapshot(
            line=line,
            number=number,
            created_at=time.time(),
            notes=notes,
            entries=1,
            content_bytes=len(content),
            stored_bytes=self.stored_bytes,
        )
        self.lines.setdefault(line, {})[number] = snapshot, content
        return snapshot

    def content(self, line: Line, number: int) -> str:
        try:
            return self.lines[line][number][1]
        except KeyError:
            raise SnapshotNotFound(str(number)) from None

    async def find(self, line: Line) -> Sequence[Snapshot]:
        return [snapshot for snapshot, _ in self.lines.get(line, {}).values()]

    async def get(self, line: Line, number: int) -> Snapshot:
        self.content(line, number)
        return self.lines[line][number][0]

    async def entries(self, line: Line, number: int) -> Sequence[Entry]:
        size = len(self.content(line, number))
        return [
            Entry(
                path=b"text",
                kind=Kind.FILE,
                mode=0o644,
                is_root=False,
                mtime_ns=0,
                size=size,
                number=1,
                links=1,
            )
        ]

    async def read_file(
        self, line: Line, number: int, path: bytes, *, offset: int = 0, max_bytes: int | None = None
    ) -> AsyncIterator[bytes]:
        yield self.content(line, number).encode()

    async def diff(
        self, line: Line, before: int, after: int, limits: DiffLimits = NO_LIMITS
    ) -> Diff:
        if self.content(line, before) == self.content(line, after):
            return Diff(changes=[], counts={})
        change = Change(kind=ChangeKind.CHANGED, path=b"text")
        return Diff(changes=[change], counts={ChangeKind.CHANGED: 1})

    async def restore(
        self, line: Line, number: int, directory: int, *, uid: int, gid: int
    ) -> Restored:
        content = self.content(line, number)
        if self.fails is not None:
            raise self.fails
        self.restored.append(content)
        return Restored(entries=1, content_bytes=len(content))

    async def copy(self, line: Line, number: int, to: Line, *, notes: Notes = NO_NOTES) -> Snapshot:
        return self._add(to, self.content(line, number), notes)

    async def delete(self, line: Line, number: int) -> None:
        self.lines.get(line, {}).pop(number, None)

    async def delete_line(self, line: Line) -> None:
        if self.fails is not None:
            raise self.fails
        self.lines.pop(line, None)

    async def export(self, line: Line, number: int) -> AsyncIterator[bytes]:
        yield self.content(line, number).encode()

    async def import_archive(
        self,
        line: Line,
        archive: AsyncIterator[bytes],
        *,
        max_bytes: int,
        max_entries: int,
        notes: Notes = NO_NOTES,
    ) -> Snapshot:
        content = b"".join([part async for part in archive])
        return self._add(line, content.decode(), notes)

    async def verify(self, line: Line | None = None) -> Verification:
        return Verification(snapshots=0, packs=0, chunks=0, content_bytes=0, problems=[])

    async def collect_garbage(self) -> Garbage:
        return Garbage(kept=0, waiting=0, deleted=0, deleted_bytes=0)

    def figures(self) -> Figures:
        return Figures()

    async def close(self) -> None:
        pass
