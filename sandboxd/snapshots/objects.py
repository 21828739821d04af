"""Where objects are kept: what a store of bytes has to do, and a directory that does it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from sandboxd.errors import DiskSpaceLow, SnapshotStoreFailed


class ObjectMissing(Exception):
    """There is no object with this key."""


class ObjectExists(Exception):
    """There is an object with this key already."""


class ObjectInfo(NamedTuple):
    key: str
    size: int


@dataclass
class Calls:
    """Calls of a store, for the metrics."""

    made: int = 0
    repeated: int = 0
    """Tries after one that failed."""


class Objects(Protocol):
    """Keeps objects, which never change. Each call blocks, for a limited time.

    SnapshotStoreFailed if it does not answer or refuses, DiskSpaceLow if it may not grow.
    """

    @property
    def calls(self) -> Calls: ...

    def put(self, key: str, data: bytes, *, is_durable: bool = True) -> None:
        """Store an object: all of it, or nothing. Without `is_durable`, a power cut may lose it."""
        ...

    def create(self, key: str, data: bytes, *, is_durable: bool = True) -> None:
        """The same; ObjectExists if there is one with this key."""
        ...

    def get(self, key: str) -> bytes:
        """ObjectMissing if there is none."""
        ...

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        """A part of an object; shorter if the object is."""
        ...

    def has(self, key: str) -> bool: ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """The objects whose keys begin with these components; ends with a slash, or is empty."""
        ...

    def delete(self, key: str) -> None:
        """Delete an object, if there is one."""
        ...


class DirectoryObjects:
    """Objects as files of a directory."""

    def __init__(self, directory: Path, *, reserve_bytes: int = 0) -> None:
        """Never uses the last `reserve_bytes` of the filesystem."""
        self.calls = Calls()
        self._directory = directory
        self._unfinished = directory / "unfinished"
        self._reserve_bytes = reserve_bytes
        with _failures():
            self._unfinished.mkdir(mode=0o700, parents=True, exist_ok=True)
            for path in self._unfinished.iterdir():
                path.unlink()

    def put(self, key: str, data: bytes, *, is_durable: bool = True) -> None:
        with self._calling(), self._written(key, data, is_durable) as (unfinished, target):
            unfinished.rename(target)

    def create(self, key: str, data: bytes, *, is_durable: bool = True) -> None:
        with self._calling(), self._written(key, data, is_durable) as (unfinished, target):
            try:
                os.link(unfinished, target)
            except FileExistsError:
                raise ObjectExists(key) from None

    def get(self, key: str) -> bytes:
        with self._calling():
            return self._path(key).read_bytes()

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        with self._calling(), self._path(key).open("rb", buffering=0) as file:
            return os.pread(file.fileno(), length, offset)

    def has(self, key: str) -> bool:
        with self._calling():
            return self._path(key).exists()

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        top = f"{self._directory / 'objects'}/"
        waiting = [prefix]
        while waiting:
            below = waiting.pop()
            for found in _scan(top + below):
                if found.is_dir(follow_symlinks=False):
                    waiting.append(f"{below}{found.name}/")
                else:
                    yield ObjectInfo(below + found.name, _size(found))

    def delete(self, key: str) -> None:
        with self._calling():
            self._path(key).unlink(missing_ok=True)

    @contextmanager
    def _calling(self) -> Iterator[None]:
        self.calls.made += 1
        with _failures():
            yield

    def _path(self, key: str) -> Path:
        if any(part in ("", ".", "..") for part in key.split("/")):
            raise ValueError(f"{key!r} is not a key")
        return self._directory / "objects" / key

    @contextmanager
    def _written(self, key: str, data: bytes, is_durable: bool) -> Iterator[tuple[Path, Path]]:
        """A complete file, and the name that it is to get."""
        if not self._unfinished.exists():
            raise SnapshotStoreFailed("its directory was removed")
        self._check_space(len(data))
        target, unfinished = self._path(key), self._unfinished / secrets.token_hex(8)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _write(unfinished, data, is_durable)
            yield unfinished, target
            if is_durable:
                _sync_directories(target.parent, self._directory)
        finally:
            unfinished.unlink(missing_ok=True)

    def _check_space(self, size: int) -> None:
        """Marks of deletion, which are empty, are always stored: they free space."""
        found = os.statvfs(self._unfinished)
        free = found.f_bavail * found.f_frsize
        if size and free - size < self._reserve_bytes:
            raise snapshots_need_space(free, self._reserve_bytes)


def snapshots_need_space(free_bytes: int, reserve_bytes: int) -> DiskSpaceLow:
    return DiskSpaceLow(
        free_bytes,
        reserve_bytes,
        thing="snapshot",
        what_to_do="delete snapshots or close sessions that are done, and try again in a minute; "
        "an operator can free space, or lower SANDBOXD_DISK_RESERVE_MB.",
    )


def _scan(directory: str) -> list[os.DirEntry[str]]:
    with _failures():
        try:
            with os.scandir(directory) as found:
                return list(found)
        except FileNotFoundError:
            return []


def _size(found: os.DirEntry[str]) -> int:
    try:
        return found.stat(follow_symlinks=False).st_size
    except FileNotFoundError:  # deleted meanwhile
        return 0


def _write(path: Path, data: bytes, is_durable: bool) -> None:
    with path.open("xb", buffering=0) as file:
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]
        if is_durable:
            os.fdatasync(file.fileno())


def _sync_directories(directory: Path, top: Path) -> None:
    while True:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if directory == top:
            return
        directory = directory.parent


@contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectMissing from error
    except OSError as error:
        raise SnapshotStoreFailed(error.strerror or "it cannot be read or written") from error
