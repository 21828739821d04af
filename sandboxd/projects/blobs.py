"""Content of project files, each stored once under its SHA-256.

Each user has their own: between users, storing content once would show one of them by time, space
or locks what the other has. A file is complete and on the disk before it has its name here.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import threading
from collections.abc import Collection, Iterator, Mapping
from errno import EMLINK
from pathlib import Path

from sandboxd.projects.content_types import HEAD_BYTES

_READABLE = 0o644
"""Not 0444: a command that copies a file should be able to change its copy."""
_READ_BYTES = 1 << 20


class Upload:
    """Content that arrives, in a file without a name that lasts. Each method blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self.head = b""
        """The first bytes."""
        self._hash = hashlib.sha256()
        self._lock = threading.Lock()  # what was given up may still be writing
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, chunk: bytes | memoryview) -> None:
        with self._lock:
            self._hash.update(chunk)
            if len(self.head) < HEAD_BYTES:
                self.head += bytes(chunk[: HEAD_BYTES - len(self.head)])
            left = memoryview(chunk)
            while left:
                left = left[os.write(self._descriptor, left) :]
            self.size += len(chunk)

    @property
    def sha256(self) -> bytes:
        """Of what has arrived."""
        return self._hash.digest()

    def finish(self) -> str:
        """Bring it to the disk; returns the digest."""
        with self._lock:
            os.fchmod(self._descriptor, _READABLE)
            os.fdatasync(self._descriptor)
            self._close()
            return self._hash.hexdigest()

    def discard(self) -> None:
        """Delete what is left of it; nothing, if it was stored."""
        with self._lock:
            self._close()
            self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Blobs:
    """The content of all users. Not safe to use from two threads at once."""

    def __init__(self, directory: Path, unfinished: Path) -> None:
        """`unfinished` is a directory of the same filesystem for what is not complete."""
        self._directory = directory
        self._unfinished = unfinished
        directory.mkdir(mode=0o700, exist_ok=True)

    def path(self, user_id: str, digest: str) -> Path:
        return self._directory / _owner(user_id) / digest[:2] / digest[2:]

    def store(self, user_id: str, digest: str, finished: Path) -> None:
        """Take a finished file, unless its content is here already."""
        target = self.path(user_id, digest)
        if target.exists():
            finished.unlink()
            return
        is_first = not target.parent.exists()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        finished.rename(target)
        sync_directory(target.parent)
        if is_first:
            sync_directory(target.parent.parent)
            sync_directory(self._directory)

    def discard(self, user_id: str, digest: str) -> None:
        self.path(user_id, digest).unlink(missing_ok=True)

    def link(self, user_id: str, digest: str, target: Path) -> None:
        """Show content under another name, in place of what is there."""
        beside = self._unfinished / secrets.token_hex(8)
        source = self.path(user_id, digest)
        try:
            os.link(source, beside)
        except OSError as error:
            if error.errno != EMLINK:  # it has as many names as the filesystem allows
                raise
            shutil.copyfile(source, beside)
            beside.chmod(_READABLE)
        try:
            beside.rename(target)
        finally:
            beside.unlink(missing_ok=True)  # a rename to another name of the same file does nothing

    def is_shown(self, user_id: str, digest: str, target: Path) -> bool:
        """Whether `target` has this content."""
        source = self.path(user_id, digest)
        try:
            return source.samefile(target) or digest_of(target) == digest
        except FileNotFoundError:
            return False

    def recover(self, user_id: str, digest: str, shown: Path) -> bool:
        """Store content that was lost here from a name under which it is shown."""
        if not shown.is_file() or digest_of(shown) != digest:
            return False
        target = self.path(user_id, digest)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.link(shown, target)
        sync_directory(target.parent)
        return True

    def sweep(self, wanted: Mapping[str, Collection[str]]) -> int:
        """Delete all content but these digests of users; returns how many files it was."""
        owners = {_owner(user_id): digests for user_id, digests in wanted.items()}
        count = 0
        for path in self._all():
            owner, first, rest = path.parts[-3:]
            if f"{first}{rest}" not in owners.get(owner, ()):
                path.unlink()
                count += 1
        return count

    def _all(self) -> Iterator[Path]:
        return (path for path in self._directory.glob("*/*/*") if path.is_file())


def digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(_READ_BYTES):
            digest.update(data)
    return digest.hexdigest()


def sync_directory(directory: Path) -> None:
    """Bring the names in a directory to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _owner(user_id: str) -> str:
    """The name of a user's directory, for any text as user id."""
    return hashlib.sha256(user_id.encode()).hexdigest()[:32]
