"""Output whose every byte is known by its offset, and disks that fail."""

from __future__ import annotations

import errno
import os
import random
from pathlib import Path
from typing import NamedTuple

from sandboxd.guest.frames import Stream
from sandboxd.spool import Disk, Spool, SpoolBudget, SpoolSettings

OUT, ERR = Stream.STDOUT, Stream.STDERR
KEY = "exe_1"

_random = random.Random(1)
OUTPUT = bytes(_random.choices(b"\nabcdefghij", k=1 << 20))


def settings_in(
    directory: Path,
    *,
    memory_bytes: int = 4096,
    max_bytes: int = 16 * 1024,
    disk: Disk | None = None,
) -> SpoolSettings:
    return SpoolSettings(
        directory=directory, memory_bytes=memory_bytes, max_bytes=max_bytes, disk=disk or Disk()
    )


def ample() -> SpoolBudget:
    return SpoolBudget(1 << 40)


def kill(spool: Spool) -> None:
    """End it as a kill of its process does: descriptors are closed, nothing more is written."""
    for kept in spool._streams:
        if kept is not None and kept._file is not None:
            kept._file.close()


def write(spool: Spool, count: int, stream: Stream = OUT, *, step: int = 1000) -> None:
    """Append the next `count` bytes of OUTPUT."""
    end = spool.length(stream) + count
    while (length := spool.length(stream)) < end:
        spool.append(stream, OUTPUT[length : min(length + step, end)])


def read_all(spool: Spool, stream: Stream = OUT, *, step: int = 3000) -> bytes:
    """What is kept, the gap left out."""
    parts, offset = [], 0
    while piece := spool.read(stream, offset, step):
        if not piece.data:
            break
        parts.append(piece.data)
        offset = piece.offset + len(piece.data)
    return b"".join(parts)


def assert_is_output(spool: Spool, expected: bytes = b"", stream: Stream = OUT) -> None:
    """The spool is right about every byte it has, about those it has not, and about the lines."""
    whole = expected or OUTPUT[: spool.length(stream)]
    gap = spool.dropped(stream)
    assert spool.length(stream) == len(whole)
    assert 0 <= gap.at <= gap.at + gap.size <= len(whole)
    assert read_all(spool, stream) == whole[: gap.at] + whole[gap.at + gap.size :]
    if gap.size:
        after = spool.read(stream, gap.at, 1)
        assert (after.offset, after.skipped) == (gap.at + gap.size, gap.size)
        assert after.newlines_before == whole[: after.offset].count(b"\n")
    shown = spool.preview(stream, max_bytes=100, collapse=False)
    assert shown.omitted_bytes == len(whole) - len(shown.head) - len(shown.tail)
    assert whole.startswith(shown.head)
    assert whole.endswith(shown.tail)
    lines = (shown.head + shown.tail).count(b"\n")
    assert shown.omitted_lines == whole.count(b"\n") - lines


class FailingDisk(Disk):
    """Fails while the test wants it to, in the middle of a write."""

    def __init__(self) -> None:
        self.fails_writes: int | None = None
        """The error of every write."""
        self.room = 0
        """Bytes that are written all the same."""
        self.fails_reads: int | None = None

    def open(self, path: str, flags: int) -> int:
        if self.fails_writes is not None and flags & os.O_CREAT and not self.room:
            raise OSError(self.fails_writes, os.strerror(self.fails_writes), path)
        return super().open(path, flags)

    def write(self, file: int, data: bytes, position: int) -> int:
        if self.fails_writes is None:
            return super().write(file, data, position)
        if not self.room:
            raise OSError(self.fails_writes, os.strerror(self.fails_writes))
        written = super().write(file, data[: self.room], position)
        self.room -= written
        return written

    def read(self, file: int, size: int, position: int) -> bytes:
        if self.fails_reads is not None:
            raise OSError(self.fails_reads, os.strerror(self.fails_reads))
        return super().read(file, size, position)


class FullDisk(Disk):
    """Takes no file beyond a size, like a filesystem without space: overwriting still works."""

    def __init__(self, max_file_bytes: int) -> None:
        self._max_file_bytes = max_file_bytes

    def write(self, file: int, data: bytes, position: int) -> int:
        room = self._max_file_bytes - position
        if room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(file, data[:room], position)


class Change(NamedTuple):
    """A write to the file of a spool."""

    position: int
    data: bytes


class RecordingDisk(Disk):
    """Remembers every change, so that a kill between any two of them can be played."""

    def __init__(self) -> None:
        self.changes: list[Change] = []

    def write(self, file: int, data: bytes, position: int) -> int:
        self.changes.append(Change(position, data))
        return super().write(file, data, position)
