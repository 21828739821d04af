"""What workers answer, checked and counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sandboxd.files.entries import Entry, FileType
from sandboxd.files.worker import Worker, WorkerGone, believed
from sandboxd.guest.files import codec
from sandboxd.guest.files.codec import Kind

MAX_SIGNS_OF_LIFE = 10_000
_TYPES = (FileType.OTHER, *FileType)
"""By number; there is none with 0."""


def decoded_entries(payload: bytes) -> list[Entry]:
    with believed():
        return [
            Entry(path, _TYPES[kind], size, modified_ns, mode, target)
            for path, kind, mode, size, modified_ns, target in codec.decode_entries(payload)
        ]


async def one_entry(worker: Worker) -> Entry:
    """The next thing that it says."""
    entries = decoded_entries(await worker.expect(Kind.ENTRIES))
    if len(entries) != 1:
        raise WorkerGone("it told of several entries")
    return entries[0]


async def entry_and_end(worker: Worker) -> tuple[Entry, tuple[int, ...]]:
    return await one_entry(worker), await worker.done()


async def entries_and_end(
    worker: Worker,
    limit: int,
    patience: float,
    as_they_come: Callable[[Sequence[Entry]], None] = lambda _: None,
) -> tuple[Sequence[Entry], tuple[int, ...]]:
    """Entries, at most `limit`, up to the end."""
    entries: list[Entry] = []
    while True:
        kind, payload = await worker.next((Kind.ENTRIES, Kind.DONE), patience=patience)
        if kind == Kind.DONE:
            with believed():
                return entries, codec.decode_done(payload)
        fresh = decoded_entries(payload)
        entries += fresh
        if not fresh or len(entries) > limit:
            raise WorkerGone("it told of more than was asked for")
        as_they_come(fresh)


async def removed_count(worker: Worker) -> int:
    """What a removal says at its end; while it goes on it says now and then that it does."""
    for _ in range(MAX_SIGNS_OF_LIFE):
        kind, payload = await worker.next((Kind.READY, Kind.DONE))
        if kind == Kind.DONE:
            with believed():
                return codec.decode_done(payload)[0]
    raise WorkerGone("it never comes to an end")
