"""What workers answer, checked and counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from sandboxd.files.entries import Change, ChangeKind, Changes, Entry, FileType, Found, GrepResult
from sandboxd.files.worker import MAX_SIGNS_OF_LIFE, FileWorker, believed
from sandboxd.guest.files import codec
from sandboxd.guest.files.codec import Kind
from sandboxd.link.workers import WorkerGone

MAX_FOUND_BYTES = 4 << 20
"""Bytes of all lines and paths that a search may return."""
REPORT_SECONDS = 0.005
"""Time that a report of changes counts for at least, however fast workers report them."""
CHANGES_PER_SECOND = 10_000
"""Changes of a session that are passed on, a few percent of a processor."""
MAX_REPORT_BYTES = 2 * codec.BATCH_BYTES
_TYPES = (FileType.OTHER, *FileType)
"""File types by number; no type has the number 0."""


def decoded_entries(payload: bytes) -> list[Entry]:
    with believed():
        return [
            Entry(path, _TYPES[kind], size, modified_ns, mode, target)
            for path, kind, mode, size, modified_ns, target in codec.decode_entries(payload)
        ]


async def receive_entry(worker: FileWorker) -> Entry:
    """The next answer, which has to be a single entry."""
    entries = decoded_entries(await worker.expect(Kind.ENTRIES))
    if len(entries) != 1:
        raise WorkerGone("it sent several entries instead of one")
    return entries[0]


async def receive_last_entry(worker: FileWorker) -> tuple[Entry, tuple[int, ...]]:
    """A single entry and the figures of the DONE after it."""
    return await receive_entry(worker), await worker.done()


async def receive_entries(
    worker: FileWorker,
    limit: int,
    patience: float,
    on_entries: Callable[[Sequence[Entry]], None] = lambda _: None,
) -> tuple[Sequence[Entry], tuple[int, ...]]:
    """All entries, at most `limit`, and the figures of DONE; `on_entries` gets each batch as it
    arrives."""
    entries: list[Entry] = []
    while True:
        kind, payload = await worker.next((Kind.ENTRIES, Kind.DONE), patience=patience)
        if kind == Kind.DONE:
            with believed():
                return entries, codec.decode_done(payload)
        batch = decoded_entries(payload)
        entries += batch
        if not batch or len(entries) > limit:
            raise WorkerGone("it sent more entries than were asked for")
        on_entries(batch)


async def receive_removed_count(worker: FileWorker) -> int:
    """The result of a removal, which sends signs of life while it goes on."""
    for _ in range(MAX_SIGNS_OF_LIFE):
        kind, payload = await worker.next((Kind.READY, Kind.DONE))
        if kind == Kind.DONE:
            with believed():
                return codec.decode_done(payload)[0]
    raise WorkerGone("it does not come to an end")


async def receive_matches(worker: FileWorker, max_matches: int, patience: float) -> GrepResult:
    """The lines that a search found; it is silent until it is over."""
    matches: list[Found] = []
    size = 0
    while True:
        kind, payload = await worker.next((Kind.FOUND, Kind.DONE), patience=patience)
        with believed():
            if kind == Kind.DONE:
                complete, searched, *_ = codec.decode_done(payload)
                break
            number, path, line = codec.decode_found(payload)
        text = line.decode(errors="replace")
        matches.append(Found(path=path, line_number=number, line=text))
        size += len(payload)
        if len(matches) > max_matches or size > MAX_FOUND_BYTES:
            raise WorkerGone("it found more than was asked for")
    matches.sort(key=lambda match: (match.path, match.line_number))
    return GrepResult(matches=matches, complete=bool(complete), searched_files=searched)


class ChangePace:
    """Makes the watches of a session wait, so that it costs the daemon a bounded share of its time,
    however fast files change and whatever workers report."""

    def __init__(self) -> None:
        self._free_at = 0.0

    async def wait(self, changes: int) -> None:
        """Wait for as long as this many changes count for, after those that came before."""
        now = asyncio.get_running_loop().time()
        seconds = max(REPORT_SECONDS, changes / CHANGES_PER_SECOND)
        self._free_at = max(self._free_at, now) + seconds
        await asyncio.sleep(self._free_at - now)


async def receive_changes(worker: FileWorker, pace: ChangePace) -> AsyncIterator[Changes]:
    """Changes as they are reported, without the empty reports that are signs of life."""
    while True:
        payload = await worker.expect(Kind.CHANGES)
        if len(payload) > MAX_REPORT_BYTES:
            raise WorkerGone("it sent more changes at once than it gathers")
        with believed():
            overflow, reported = codec.decode_changes(payload)
        if reported or overflow:
            changes = [
                Change(
                    kind=ChangeKind(change.kind),
                    path=change.path,
                    old_path=change.old_path,
                    is_directory=change.is_directory,
                )
                for change in reported
            ]
            yield Changes(changes=changes, overflow=overflow)
        await pace.wait(len(reported))
