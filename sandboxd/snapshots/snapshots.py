"""Snapshots for those who must not block: each call runs in a thread, with a deadline."""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeVar

from sandboxd.access.shares import COMPARISONS, IMPORTS, SNAPSHOT_WORK, NoPlace, Places
from sandboxd.access.turns import Turns
from sandboxd.errors import (
    DiskSpaceLow,
    InvalidArchive,
    InvalidRequest,
    NotAFile,
    SandboxdError,
    SnapshotLimitReached,
    SnapshotStoreFailed,
    TooManyRequests,
)
from sandboxd.side_process import SideProcess, SideProcessFailed
from sandboxd.snapshots import diff_worker, keys
from sandboxd.snapshots.archives import exported
from sandboxd.snapshots.comparing import Comparing
from sandboxd.snapshots.contract import (
    Consistency,
    Diff,
    DiffLimits,
    Entry,
    Figures,
    Garbage,
    Hole,
    Kind,
    Line,
    Notes,
    Restored,
    Snapshot,
    Verification,
    WorkspaceDisk,
)
from sandboxd.snapshots.differences import Counts
from sandboxd.snapshots.garbage import Collector
from sandboxd.snapshots.importing import Importing
from sandboxd.snapshots.node import Node, Tree, entry_of
from sandboxd.snapshots.objects import Objects, snapshots_need_space
from sandboxd.snapshots.packs import ChunkReader, PackWriter, Readahead
from sandboxd.snapshots.restoring import Restoring
from sandboxd.snapshots.store import New, SnapshotStore, StoreSettings
from sandboxd.snapshots.taker import Outcome, Taker
from sandboxd.snapshots.text_diff import TextDiff
from sandboxd.snapshots.verification import verify
from sandboxd.workspaces.thread_work import run_in_thread
from sandboxd.workspaces.user_threads import NOBODY, UserThreads

T = TypeVar("T")

_ZEROS = bytes(1 << 20)
_MAX_PATH_BYTES = 64 << 20
"""Of all paths in a listing: directories can be deep."""
_MUCH_BYTES = 16 << 20
"""Of deleted snapshots of a user: it is worth the effort to give them back soon."""
_MAX_ANSWER_BYTES = 16 << 20
_TAR_OVERHEAD = 4096
"""Most bytes of an archive for each member, beside its content."""
_NO_NOTES = Notes()
_USUAL_LIMITS = DiffLimits()


@dataclass(frozen=True, kw_only=True)
class SnapshotSettings:
    """How snapshots are taken and read."""

    store: StoreSettings
    unfinished: Path
    """Directory for archives that arrive."""
    reserve_bytes: int = 0
    """Free space of its filesystem that archives leave alone."""
    threads: int = 4
    """How many calls run at the same time."""
    call_seconds: float = 120.0
    """Time limit of most calls."""
    long_seconds: float = 3600.0
    """Time limit of checks and garbage collections, which read all there is."""


class DiskSnapshots:
    """See contract.Snapshots."""

    def __init__(self, objects: Objects, settings: SnapshotSettings) -> None:
        self._settings = settings
        self._store = SnapshotStore(objects, settings.store)
        self._taker = Taker(self._store)
        self._collector = Collector(self._store)
        self._threads = UserThreads(SNAPSHOT_WORK, settings.threads, "snapshots")
        self._differ = SideProcess(
            diff_worker.__name__, seconds=settings.call_seconds, max_answer=_MAX_ANSWER_BYTES
        )
        self._diffs = Turns.of(COMPARISONS, refusal=_too_many_diffs)
        self._imports = Places(IMPORTS)
        self._counting = threading.Lock()
        self._figures = Figures()
        self._deleted_bytes: Counter[str] = Counter()
        """Of snapshots that were deleted since the last garbage collection, by owner."""
        self._has_much = asyncio.Event()

    async def take(
        self,
        line: Line,
        disk: WorkspaceDisk,
        *,
        notes: Notes = _NO_NOTES,
        consistency: Consistency = Consistency.WHOLE_FILES,
        only_if_changed: bool = False,
        is_durable: bool = True,
    ) -> Snapshot | None:
        """See Snapshots."""
        own = None if disk.workspace is None else os.dup(disk.workspace)

        def work() -> Outcome:
            try:
                return self._taker.take(
                    line,
                    replace(disk, workspace=own),
                    notes=notes,
                    consistency=consistency,
                    only_if_changed=only_if_changed,
                    is_durable=is_durable,
                )
            finally:
                if own is not None:
                    os.close(own)

        with self._leaving_parts(line):
            outcome: Outcome = await self._run(line, work, undo=partial(self._undo_taken, line))
        self._count_taken(outcome)
        return outcome.snapshot

    async def find(self, line: Line) -> Sequence[Snapshot]:
        """See Snapshots."""
        return await self._run(line, partial(self._store.find, line))

    async def get(self, line: Line, number: int) -> Snapshot:
        """See Snapshots."""
        return (await self._run(line, partial(self._store.get, line, number))).snapshot

    async def entries(self, line: Line, number: int) -> Sequence[Entry]:
        """See Snapshots."""
        return await self._run(line, lambda: list(_entries(self._store.tree(line, number))))

    async def read_file(
        self,
        line: Line,
        number: int,
        path: bytes,
        *,
        offset: int = 0,
        max_bytes: int | None = None,
    ) -> AsyncIterator[bytes]:
        """See Snapshots."""
        with self._store.using(line):
            node = await self._run(line, lambda: _file(self._store.tree(line, number), path))
            end = node.size if max_bytes is None else min(node.size, offset + max_bytes)
            parts = _content(node, self._store.chunks(line), offset, end)
            async for part in self._stream(line, parts):
                yield part

    async def diff(
        self, line: Line, before: int, after: int, limits: DiffLimits = _USUAL_LIMITS
    ) -> Diff:
        """See Snapshots."""

        def compare() -> Diff:
            trees = self._store.tree(line, before), self._store.tree(line, after)
            return comparing.compare(*trees)

        comparing = Comparing(self._store.chunks(line), limits)
        try:
            async with (
                asyncio.timeout(self._settings.call_seconds),
                self._diffs.turn(line.user_id),
            ):
                with self._store.using(line):
                    return await self._with_texts(line, await self._run(line, compare), comparing)
        except TimeoutError as error:
            raise SnapshotStoreFailed("the comparison took too long") from error

    async def _with_texts(self, line: Line, diff: Diff, comparing: Comparing) -> Diff:
        changes = list(diff.changes)
        for place, difference in comparing.texts.items():
            request = await self._run(line, partial(comparing.request, changes[place], difference))
            text = await self._diff_of(request, comparing) if request is not None else None
            changes[place] = comparing.with_text(changes[place], text)
        return replace(diff, changes=changes)

    async def _diff_of(self, request: bytes, comparing: Comparing) -> TextDiff | None:
        try:
            return diff_worker.decode_answer(await self._differ.ask(request))
        except SideProcessFailed as failed:
            if not failed.is_too_much:
                raise SnapshotStoreFailed("the texts could not be compared") from None
            comparing.use_up()
            return None

    async def restore(
        self, line: Line, number: int, directory: int, *, uid: int, gid: int
    ) -> Restored:
        """See Snapshots."""
        own = os.dup(directory)

        def work() -> Restored:
            try:
                with self._store.using(line):
                    tree = self._store.tree(line, number)
                    return Restoring(tree, self._store.chunks(line), uid=uid, gid=gid).into(own)
            finally:
                os.close(own)

        restored = await self._run(line, work)
        self._count(restored=1)
        return restored

    async def copy(
        self, line: Line, number: int, to: Line, *, notes: Notes = _NO_NOTES
    ) -> Snapshot:
        """See Snapshots."""
        if line.user_id != to.user_id:
            raise ValueError("content is not shared between users")

        def work() -> Snapshot:
            with self._store.adding(to):
                started = time.monotonic()
                tree = self._store.tree(line, number)
                # A complete look at the next disk: nothing of this one is known there.
                new = _complete(tree, notes, started=started, looked_ns=0)
                return self._store.add(to, new)

        return await self._run(line, work)

    async def delete(self, line: Line, number: int) -> None:
        """See Snapshots."""
        self._on_deleted(line, await self._run(line, partial(self._store.delete, line, number)))

    async def delete_line(self, line: Line) -> None:
        """See Snapshots."""
        self._on_deleted(line, await self._run(line, partial(self._store.delete_line, line)))
        self._taker.forget(line)

    async def export(self, line: Line, number: int) -> AsyncIterator[bytes]:
        """See Snapshots."""
        with self._store.using(line):
            tree = await self._run(line, partial(self._store.tree, line, number))
            parts = exported(tree, Readahead(self._store.chunks(line), tree))
            async for part in self._stream(line, parts):
                yield part

    async def import_archive(
        self,
        line: Line,
        archive: AsyncIterator[bytes],
        *,
        max_bytes: int,
        max_entries: int,
        notes: Notes = _NO_NOTES,
    ) -> Snapshot:
        """See Snapshots."""
        try:
            with self._imports.place(line.user_id):
                return await self._imported(line, archive, notes, max_bytes, max_entries)
        except NoPlace as error:
            raise TooManyRequests(
                f"Archives arrive already, and {error}; try again when one has arrived.",
                retry_after_seconds=1.0,
            ) from None

    async def _imported(
        self,
        line: Line,
        archive: AsyncIterator[bytes],
        notes: Notes,
        max_bytes: int,
        max_entries: int,
    ) -> Snapshot:
        directory = self._settings.unfinished
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        left = max_bytes + max_entries * _TAR_OVERHEAD
        with tempfile.TemporaryFile(dir=directory) as file:
            async for chunk in archive:
                left -= len(chunk)
                if left < 0:
                    raise InvalidArchive("it is larger than a workspace has room for")
                await self._run(line, partial(_write, file, chunk, self._settings.reserve_bytes))
            file.seek(0)
            limits = {"max_bytes": max_bytes, "max_entries": max_entries}
            own = os.fdopen(os.dup(file.fileno()), "rb")
            with self._leaving_parts(line):
                return await self._run(
                    line,
                    partial(self._import, line, own, notes, **limits),
                    undo=lambda snapshot: self._store.delete(line, snapshot.number),
                )

    async def verify(self, line: Line | None = None) -> Verification:
        """See Snapshots."""
        return await self._run(
            line, partial(verify, self._store, line), seconds=self._settings.long_seconds
        )

    async def collect_garbage(self, owners: Collection[str] | None = None) -> Garbage:
        """See Snapshots."""
        work = partial(self._collector.collect, owners)
        before = dict(self._deleted_bytes)
        garbage = await self._run(None, work, seconds=self._settings.long_seconds)
        self._count(garbage_bytes=garbage.deleted_bytes)
        if not garbage.waiting:
            for owner in before.keys() if owners is None else owners:
                self._forget_deleted(owner, before.get(owner, 0))
        return garbage

    def _forget_deleted(self, owner: str, size: int) -> None:
        """What was deleted after the collection began is left to the next one."""
        self._deleted_bytes[owner] -= size
        if self._deleted_bytes[owner] <= 0:
            del self._deleted_bytes[owner]

    async def much_deleted(self, seconds: float) -> Collection[str]:
        """Owners that have deleted so much that its space should be free soon; waits for the first
        one, for so many seconds at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._has_much.wait()
        self._has_much.clear()
        return {owner for owner, size in self._deleted_bytes.items() if size >= _MUCH_BYTES}

    def figures(self) -> Figures:
        """See Snapshots."""
        return replace(
            self._figures,
            store_calls=self._store.objects.calls.made,
            store_retries=self._store.objects.calls.repeated,
        )

    async def close(self) -> None:
        """Wait for what is in progress."""
        await self._differ.aclose()
        await run_in_thread(
            partial(self._threads.shutdown, wait=True), seconds=self._settings.call_seconds
        )

    def _import(
        self, line: Line, archive: BinaryIO, notes: Notes, *, max_bytes: int, max_entries: int
    ) -> Snapshot:
        with archive, self._store.adding(line):
            started = time.monotonic()
            writer = PackWriter(self._store.objects, keys.owner_of(line.user_id))
            importing = Importing(writer, max_bytes=max_bytes, max_entries=max_entries)
            tree = importing.read(archive)
            new = _complete(tree, notes, started=started, looked_ns=0)
            return self._store.add(line, replace(new, stored_bytes=writer.stored_bytes))

    @contextmanager
    def _leaving_parts(self, line: Line) -> Iterator[None]:
        """What is refused in the middle has stored parts, of which none is needed."""
        try:
            yield
        except (SnapshotLimitReached, DiskSpaceLow):
            self._on_deleted(line, _MUCH_BYTES)
            raise

    def _on_deleted(self, line: Line, size: int) -> None:
        if self._store.settings.is_shared:
            return  # nothing of it can be deleted soon
        owner = keys.owner_of(line.user_id)
        self._deleted_bytes[owner] += size
        if self._deleted_bytes[owner] >= _MUCH_BYTES:
            self._has_much.set()

    def _undo_taken(self, line: Line, outcome: Outcome) -> None:
        if outcome.snapshot is not None:
            self._store.delete(line, outcome.snapshot.number)

    async def _run(
        self,
        line: Line | None,
        work: Callable[[], T],
        *,
        undo: Callable[[T], object] | None = None,
        seconds: float | None = None,
    ) -> T:
        """`line`: whose content it is about; None for that of all."""
        limit = self._settings.call_seconds if seconds is None else seconds
        try:
            user_id = NOBODY if line is None else line.user_id
            return await self._threads.run(user_id, work, seconds=limit, undo=undo)
        except TimeoutError as error:
            self._count(failed=1)
            raise SnapshotStoreFailed(f"it took longer than {limit:g} s") from error
        except SandboxdError:
            self._count(failed=1)
            raise

    async def _stream(self, line: Line, parts: Iterator[bytes]) -> AsyncIterator[bytes]:
        while (part := await self._run(line, partial(next, parts, None))) is not None:
            yield part

    def _count_taken(self, outcome: Outcome) -> None:
        snapshot = outcome.snapshot
        self._count(
            taken=int(snapshot is not None),
            moving=int(snapshot is not None and snapshot.moving_count > 0),
            freezes=int(outcome.was_frozen),
            stored_bytes=snapshot.stored_bytes if snapshot is not None else 0,
            deduplicated_bytes=outcome.kept.known_bytes,
        )

    def _count(self, **more: int) -> None:
        with self._counting:
            sums = {name: getattr(self._figures, name) + count for name, count in more.items()}
            self._figures = replace(self._figures, **sums)


def _complete(tree: Tree, notes: Notes, *, started: float, looked_ns: int) -> New:
    return New(
        tree=tree,
        counts=Counts(added=tree.totals.entries),
        notes=notes,
        looked_ns=looked_ns,
        started=started,
    )


def _too_many_diffs(who: str) -> TooManyRequests:
    return TooManyRequests(
        f"{who} already has too many comparisons of snapshots that wait; try again in a moment.",
        retry_after_seconds=1.0,
    )


def _entries(tree: Tree) -> Iterator[Entry]:
    left = _MAX_PATH_BYTES
    for path, node in tree.walk():
        left -= len(path)
        if left < 0:
            raise InvalidRequest("number", "its directories are too deep to be listed; export it")
        if path:
            yield entry_of(path, node)


def _file(tree: Tree, path: bytes) -> Node:
    node = tree.find(path)
    if node.kind is not Kind.FILE:
        raise NotAFile(path.decode(errors="replace"))
    return node


def _content(node: Node, chunks: ChunkReader, start: int, end: int) -> Iterator[bytes]:
    """The bytes of a file from `start` to `end`."""
    position = 0
    for piece in node.pieces:
        first, last = max(start - position, 0), min(end - position, piece.size)
        position += piece.size
        if first >= last:
            continue
        if not isinstance(piece, Hole):
            yield chunks.read(piece)[first:last]
            continue
        while first < last:
            zeros = _ZEROS[: last - first]
            first += len(zeros)
            yield zeros


def _write(file: BinaryIO, data: bytes, reserve_bytes: int) -> None:
    try:
        found = os.fstatvfs(file.fileno())
        free = found.f_bavail * found.f_frsize
        if free - len(data) < reserve_bytes:
            raise snapshots_need_space(free, reserve_bytes)
        file.write(data)
    except OSError as error:
        raise SnapshotStoreFailed(error.strerror or "the archive cannot be kept") from error
