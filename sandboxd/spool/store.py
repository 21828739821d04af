"""Stores for the bytes of a stream: memory, a file, or both."""

from __future__ import annotations

import os
import stat
from typing import NamedTuple, Protocol

from sandboxd.spool.record import (
    HEADER_BYTES,
    Record,
    decode_page,
    encode_page,
    encode_slot,
    slot_position,
)


class Disk:
    """The system calls that a spool makes; tests replace it by a disk that fails."""

    def open(self, path: str, flags: int) -> int:
        # Never through a link, and never waiting for the other end of a pipe.
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)

    def write(self, file: int, data: bytes, position: int) -> int:
        return os.pwrite(file, data, position)

    def read(self, file: int, size: int, position: int) -> bytes:
        return os.pread(file, size, position)


def reason_of(error: OSError) -> str:
    """The reason of an error, without the path."""
    return error.strerror or "unknown error"


class SpoolUnreadable(Exception):
    """Kept output cannot be read back from the disk."""


class Store(Protocol):
    def write(self, position: int, data: bytes) -> int:
        """Write as much as possible, and return how much."""

    def read(self, position: int, size: int) -> bytes: ...


class MemoryStore:
    def __init__(self) -> None:
        self.data = bytearray()

    def write(self, position: int, data: bytes) -> int:
        self.data[position : position + len(data)] = data
        return len(data)

    def read(self, position: int, size: int) -> bytes:
        return bytes(self.data[position : position + size])


class SplitStore:
    """The beginning in another store and the rest in memory, for when that store is full."""

    def __init__(self, beginning: Store, size: int) -> None:
        self._beginning = beginning
        self._size = size
        self._rest = MemoryStore()

    def write(self, position: int, data: bytes) -> int:
        return self._rest.write(position - self._size, data)

    def read(self, position: int, size: int) -> bytes:
        if position < self._size:
            return self._beginning.read(position, size)
        return self._rest.read(position - self._size, size)


class FoundFile(NamedTuple):
    file: FileStore
    record: Record
    size: int
    """Number of bytes of output in the file."""


class FileStore:
    """A file: a page for the record, then the bytes.

    A write leaves it open until `close`; a read does not.
    """

    def __init__(self, disk: Disk, path: str, *, sequence: int) -> None:
        self.problem = ""
        """Why the last write was short."""
        self._disk = disk
        self._path = path
        self._sequence = sequence
        self._held: int | None = None

    @classmethod
    def create(cls, disk: Disk, path: str, record: Record, data: bytes) -> FileStore:
        """Make the file with its first bytes; if that fails, it is removed and OSError raised."""
        store = cls(disk, path, sequence=0)
        store._held = _open_new(disk, path)
        page = encode_page(0, record)
        if store._write_at(0, page + data) < HEADER_BYTES + len(data):
            store.remove()
            raise OSError(None, store.problem)
        return store

    @classmethod
    def find(cls, disk: Disk, path: str) -> FoundFile | None:
        """The file that an earlier process left; None if there is none or it is damaged."""
        try:
            file = disk.open(path, os.O_RDWR)
        except OSError:
            return None
        try:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                return None
            decoded = decode_page(disk.read(file, HEADER_BYTES, 0))
        except OSError:
            return None
        finally:
            os.close(file)
        if decoded is None:
            return None
        sequence, record = decoded
        return FoundFile(cls(disk, path, sequence=sequence), record, status.st_size - HEADER_BYTES)

    def write(self, position: int, data: bytes) -> int:
        return self._write_at(HEADER_BYTES + position, data)

    def save(self, record: Record) -> bool:
        """Write the record; returns whether a new process would find it."""
        slot = encode_slot(self._sequence + 1, record)
        if self._write_at(slot_position(self._sequence + 1), slot) < len(slot):
            return False
        self._sequence += 1
        return True

    def read(self, position: int, size: int) -> bytes:
        try:
            file = self._open() if self._held is None else self._held
            try:
                data = self._read_at(file, HEADER_BYTES + position, size)
            finally:
                if self._held is None:
                    os.close(file)
        except OSError as error:
            raise SpoolUnreadable(f"kept output cannot be read: {reason_of(error)}") from error
        if len(data) < size:
            raise SpoolUnreadable("kept output cannot be read: its file was truncated")
        return data

    def close(self) -> None:
        if self._held is not None:
            file, self._held = self._held, None
            os.close(file)

    def remove(self) -> None:
        self.close()
        try:
            os.unlink(self._path)
        except OSError:
            pass  # it is gone, or the sweep removes it

    def _hold(self) -> int:
        if self._held is None:
            self._held = self._open()
        return self._held

    def _open(self) -> int:
        return self._disk.open(self._path, os.O_RDWR)

    def _write_at(self, position: int, data: bytes) -> int:
        written = 0
        try:
            file = self._hold()
            while written < len(data):
                rest = data[written:] if written else data
                count = self._disk.write(file, rest, position + written)
                if not count:
                    break
                written += count
        except OSError as error:
            self.problem = reason_of(error)
        return written

    def _read_at(self, file: int, position: int, size: int) -> bytes:
        data = self._disk.read(file, size, position)
        while data and len(data) < size:
            more = self._disk.read(file, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data


def _open_new(disk: Disk, path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    try:
        return disk.open(path, flags)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    except FileExistsError:
        os.unlink(path)  # damaged, or it would have been found at start
    return disk.open(path, flags)
