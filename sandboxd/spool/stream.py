"""A stream of a command: all of it while there is room, then its beginning and its end."""

from __future__ import annotations

from typing import NamedTuple

from sandboxd.spool.budget import SpoolBudget
from sandboxd.spool.line_index import LineIndex
from sandboxd.spool.record import HEADER_BYTES, MIN_RING, Record
from sandboxd.spool.settings import MIN_FILE_BYTES, PAGE, SpoolSettings
from sandboxd.spool.store import (
    FileStore,
    FoundFile,
    MemoryStore,
    SplitStore,
    SpoolUnreadable,
    Store,
    reason_of,
)

MAX_SLACK = 512 * 1024
MAX_STEP = 64 * 1024
"""Bytes that are read at once to count lines."""
INDEX_STEP = 256
RING_STEP = 4096
"""Bytes of a ring that are dropped at a time, or a sixteenth of a small ring. Smaller steps would
keep a little more, but each costs as much as appending some KiB."""
CHECKPOINT_BYTES = 1 << 20
"""Most bytes that are read to count lines when a file is reopened."""

_BUDGET_USED_UP = "the disk space for kept output is used up"


class Piece(NamedTuple):
    """Bytes of a stream from `offset` on."""

    offset: int
    data: bytes
    skipped: int
    """Number of bytes that were dropped between the requested offset and `offset`."""
    newlines_before: int | None = None
    """Number of lines that ended before `offset`; absent unless bytes were skipped."""


class Gap(NamedTuple):
    """The part of a stream that was dropped; a size of 0 means that nothing was."""

    at: int
    size: int


class KeptStream:
    """Keeps the offsets [0, head) and [tail, length); in the store, the head comes first.

    While there is room (`ring` is 0) the store grows; nothing is missing, and head and tail are 0.
    When memory, file or budget is full, the first half of the store becomes the head, and the
    second a ring that is written round and round, beginning with offset `base`. Bytes keep their
    positions when they move from memory to a file.

    A process killed in the middle of a write leaves a correct file: a growing file is as long as
    its output; a ring overwrites only what its record calls dropped, and has as many bytes as the
    record says. Hence `_slack`, the part of the ring that can be overwritten between two records.
    """

    def __init__(self, settings: SpoolSettings, path: str, budget: SpoolBudget) -> None:
        self.length = 0
        self.problem = ""
        """Why less is kept than the settings allow."""
        self._settings = settings
        self._path = path
        self._budget = budget
        memory = MemoryStore()
        self._store: Store = memory
        self._growing: bytearray | None = memory.data
        """The memory that holds everything so far; absent once it is full or written to disk."""
        self._file: FileStore | None = None
        self._granted = 0
        """Bytes reserved in the budget for the file, header included."""
        self._durable_end: int | None = None
        """Offset up to which the file was written before it failed, if it did."""
        self._is_failing = False
        self._head = self._base = self._ring = self._tail = 0
        self._tail_newlines = self._newlines = 0
        self._checkpoint = 0
        self._recorded = 0
        """Offset up to which a new process would find a ring written."""
        self._index: LineIndex
        """Index of lines, made when counting begins: a short command needs none."""

    @classmethod
    def reopen(cls, settings: SpoolSettings, path: str, budget: SpoolBudget) -> KeptStream | None:
        """The stream that an earlier process wrote; None if there is none or it is damaged."""
        found = FileStore.find(settings.disk, path)
        if found is None:
            return None
        stream = cls(settings, path, budget)
        try:
            return stream if stream._adopt(found) else None
        except SpoolUnreadable:
            return None

    @property
    def durable(self) -> int:
        """Number of bytes that a new process would find, or find counted as dropped."""
        if self._file is None:
            return 0
        if self._durable_end is not None:
            return self._durable_end
        return self._recorded if self._ring else self.length

    @property
    def releasable(self) -> int:
        """Number of bytes that the sender need not keep: all of them if the disk fails."""
        return self.length if self._is_failing else self.durable

    @property
    def newlines(self) -> int:
        return self._newlines if self._growing is None else self._growing.count(b"\n")

    @property
    def gap(self) -> Gap:
        return Gap(self._head, self._tail - self._head)

    def append(self, data: bytes) -> None:
        growing = self._growing
        if growing is not None and len(growing) + len(data) <= self._settings.memory_bytes:
            growing += data
            self.length += len(data)
        else:
            self._append_beyond(data)

    def read(self, offset: int, max_bytes: int) -> Piece:
        """The bytes from `offset` on, up to the gap or the end."""
        skipped, newlines_before = 0, None
        if self._head <= offset < self._tail:
            skipped, newlines_before = self._tail - offset, self._tail_newlines
            offset = self._tail
        end = self._head if offset < self._head < self._tail else self.length
        data = self._fetch(offset, min(end, offset + max_bytes))
        return Piece(offset, data, skipped, newlines_before)

    def persist(self) -> None:
        """Make the whole stream durable."""
        if self._file is None and self.length:
            self._move_to_disk()
        self._record_ring()

    def skip(self, count: int) -> None:
        """Count bytes as dropped that are lost; what is appended next follows them."""
        self._count_memory()
        durable_end = self.durable
        if not self._ring and self._tail == self._head:
            self._head = self._base = self.length
        # Positions continue: the kept part of the tail will be overwritten.
        self._base += count
        self.length += count
        self._begin_tail()
        if self._is_on_disk and not self._save():
            self._keep_rest_in_memory(durable_end)

    def close_file(self) -> None:
        """Close the file; it is opened again when it is needed."""
        if self._file is not None:
            self._record_ring()
            self._file.close()

    def delete(self) -> None:
        if self._file is not None:
            self._file.remove()
            self._budget.give_back(self._granted)

    @property
    def _is_on_disk(self) -> bool:
        return self._file is not None and self._durable_end is None

    @property
    def _used(self) -> int:
        """Number of bytes in the store."""
        return self._head + (self._ring or self.length - self._base)

    @property
    def _slack(self) -> int:
        """Bytes of a ring on disk that may be overwritten before the next record."""
        return min(MAX_SLACK, self._ring // 4) if self._is_on_disk else 0

    @property
    def _ring_room(self) -> int:
        """Bytes that can be written into the ring before the next record."""
        return self._slack - (self.length - self._recorded) if self._is_on_disk else self._ring

    @property
    def _index_step(self) -> int:
        return max(INDEX_STEP, min(RING_STEP, self._ring // 16))

    def _append_beyond(self, data: bytes) -> None:
        self._count_memory()
        if not self._ring:
            if self._file is None and self._used + len(data) > self._settings.memory_bytes:
                self._move_to_disk()
            grown = self._grow(data)
            if grown == len(data):
                return
            data = data[grown:]
            self._stop_growing()
        while data:
            if not self._ring_room:
                self._free_slack()
            piece = data[: self._ring_room]
            if self._write_round(piece):
                data = data[len(piece) :]
            else:
                self._keep_rest_in_memory(self.durable)

    def _count_memory(self) -> None:
        """Count the lines so far; from now on each append counts its own."""
        if self._growing is not None:
            self._index = LineIndex(0, 0, step=INDEX_STEP)
            self._newlines = self._index.add(0, 0, self._growing)
            self._growing = None

    def _move_to_disk(self) -> None:
        self._count_memory()
        image = self._store.read(0, self._used)
        wanted = _file_bytes(len(image))
        if not self._budget.reserve(wanted, at_least=wanted):
            self._fail(_BUDGET_USED_UP)
            return
        try:
            file = FileStore.create(self._settings.disk, self._path, self._record(), image)
        except OSError as error:
            self._budget.give_back(wanted)
            self._fail(_not_written(reason_of(error)))
            return
        self._store = self._file = file
        self._granted = wanted
        self._checkpoint = self._recorded = self.length
        self._is_failing = False
        if self._ring:
            self._free_slack()
        else:
            self.problem = ""  # nothing was lost

    def _grow(self, data: bytes) -> int:
        """Append as much of `data` as there is room for."""
        used = self._used
        size = self._room(used + len(data)) - used
        if size <= 0:
            return 0
        written = self._store.write(used, data[:size])
        self._count(data[:written])
        if self._file is not None:
            if written < size:
                self.problem = _not_written(self._file.problem)
            elif self.length - self._checkpoint >= CHECKPOINT_BYTES:
                self._checkpoint = self.length
                self._save()  # if it fails, more is counted when the file is reopened
        return written

    def _room(self, wanted: int) -> int:
        """The size that the store may reach, up to `wanted`."""
        if self._file is None:
            return min(wanted, self._settings.memory_bytes)
        wanted = min(wanted, self._settings.max_bytes)
        missing = HEADER_BYTES + wanted - self._granted
        if missing > 0:
            self._granted += self._budget.reserve(_whole_pages(missing), at_least=1)
        room = self._granted - HEADER_BYTES
        if room < wanted:
            self.problem = _BUDGET_USED_UP
        return min(wanted, room)

    def _stop_growing(self) -> None:
        """Make a ring of the second half of the store."""
        used = self._used
        if used < 2 * MIN_RING:
            self._keep_rest_in_memory(self.length)
            return
        if self._tail == self._head:
            self._head = self._base = self._tail = used // 2
        elif used - self._head < MIN_RING:
            self._head = used // 2
            self._base = self.length
            self._begin_tail()
        self._ring = used - self._head
        self._recorded = self.length
        self._index.widen(self._index_step)
        self._free_slack()

    def _record_ring(self) -> None:
        if self._is_on_disk and self._ring and self._recorded < self.length:
            self._free_slack()

    def _free_slack(self) -> None:
        """Record what is dropped, before any of it is overwritten."""
        durable_end = self.durable
        self._advance_tail()
        if self._is_on_disk and not self._save():
            self._keep_rest_in_memory(durable_end)

    def _write_round(self, piece: bytes) -> bool:
        """Write a piece of at most `_ring_room` into the ring; returns whether it succeeded."""
        position = self._position(self.length)
        first = min(len(piece), self._head + self._ring - position)
        written = self._store.write(position, piece[:first])
        if written == first < len(piece):
            written += self._store.write(self._head, piece[first:])
        if written < len(piece):
            return False
        self._count(piece)
        if not self._is_on_disk:
            self._advance_tail()
        return True

    def _keep_rest_in_memory(self, durable_end: int) -> None:
        """Leave the head where it is, drop the tail, and continue in memory."""
        if not self._ring and self._tail == self._head:
            self._head = self.length
        if self._file is not None:
            self._durable_end = durable_end
            self._fail(_not_written(self._file.problem))
        self._store = SplitStore(self._store, self._head)
        self._base = self.length
        self._ring = self._settings.memory_bytes
        self._begin_tail()

    def _advance_tail(self) -> None:
        """Drop whole steps of the index until the slack is free again."""
        limit = self.length - (self._ring - self._slack)
        if limit <= self._tail:
            return
        try:
            if not self._index.reaches(limit):
                self._index = self._index_again(limit)
            mark = self._index.at_or_after(limit)
        except SpoolUnreadable:
            mark = None
        self._tail, self._tail_newlines = mark or (self.length, self._newlines)
        self._index.drop_before(self._tail)

    def _index_again(self, start: int) -> LineIndex:
        """Index what an earlier process wrote; needed only when the ring advances."""
        index, newlines = LineIndex(start, 0, step=INDEX_STEP), 0
        for offset in range(start, self.length, MAX_STEP):
            data = self._fetch(offset, min(offset + MAX_STEP, self.length))
            newlines = index.add(offset, newlines, data)
        index.shift(self._newlines - newlines)
        return index

    def _adopt(self, found: FoundFile) -> bool:
        record = found.record
        self._head, self._base, self._ring, self._tail, self._tail_newlines, *_ = record
        self._count_memory()
        self.length = record.length if self._ring else self._base + found.size - self._head
        if found.size < self._head + self._ring or self.length < record.length:
            return False
        self._store = self._file = found.file
        self._newlines = record.newlines
        for offset in range(record.length, self.length, MAX_STEP):
            data = self._fetch(offset, min(offset + MAX_STEP, self.length))
            self._newlines += data.count(b"\n")
        self._checkpoint = self._recorded = record.length
        self._start_index()
        self._granted = _file_bytes(found.size)
        self._budget.charge(self._granted)
        return True

    def _position(self, offset: int) -> int:
        if offset < self._head:
            return offset
        distance = offset - self._base
        return self._head + (distance % self._ring if self._ring else distance)

    def _fetch(self, offset: int, end: int) -> bytes:
        parts = []
        while offset < end:
            position = self._position(offset)
            size = end - offset
            if offset < self._head:
                size = min(size, self._head - position)
            elif self._ring:
                size = min(size, self._head + self._ring - position)
            parts.append(self._store.read(position, size))
            offset += size
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _count(self, data: bytes) -> None:
        self._newlines = self._index.add(self.length, self._newlines, data)
        self.length += len(data)

    def _begin_tail(self) -> None:
        """Drop the tail; it begins again with the next append."""
        self._tail, self._tail_newlines = self.length, self._newlines
        self._start_index()

    def _start_index(self) -> None:
        self._index = LineIndex(self.length, self._newlines, step=self._index_step)

    def _record(self) -> Record:
        return Record(
            head=self._head,
            base=self._base,
            ring=self._ring,
            tail=self._tail,
            tail_newlines=self._tail_newlines,
            length=self.length,
            newlines=self._newlines,
        )

    def _save(self) -> bool:
        if self._file is None or not self._file.save(self._record()):
            return False
        self._recorded = self.length
        return True

    def _fail(self, problem: str) -> None:
        self.problem = problem
        self._is_failing = True


def _whole_pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


def _file_bytes(size: int) -> int:
    """Bytes that a file with this much output counts for in the budget."""
    return max(HEADER_BYTES + _whole_pages(size), MIN_FILE_BYTES)


def _not_written(why: str) -> str:
    return f"output could not be written to disk: {why}"
