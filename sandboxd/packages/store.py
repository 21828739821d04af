"""The sets of packages on this host, and which of them to delete.

A set is a directory named by its key, beside a file that describes it. It exists once it has both:
whatever else a crash leaves is deleted at the next start.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from sandboxd.environments.environment import PackageKind
from sandboxd.packages import lock as locks
from sandboxd.packages import tree
from sandboxd.packages.lock import Lock
from sandboxd.packages.target import Target
from sandboxd.packages.tree import TreeSize

log = structlog.get_logger()

MAX_REQUESTS = 10_000
"""Requests whose locks are remembered."""
NOTE_SECONDS = 60.0
"""How exact the order of use is after a restart."""
_KEY = re.compile("[0-9a-f]{32}")
_MAX_FILE_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class PackageSet:
    """A set that can be attached."""

    key: str
    target: Target
    packages: Sequence[tuple[str, str]]
    """Names and versions, sorted. npm may install a package in several versions."""
    size_bytes: int
    files: int


class Resolved(NamedTuple):
    """What a request was resolved to."""

    lock: Lock
    at: float
    """Seconds since the epoch."""


class PackageStore:
    """Keeps sets and locks in a directory of its own. Calls block for no longer than a rename,
    except those that say so."""

    def __init__(self, directory: Path) -> None:
        self._sets_dir = directory / "sets"
        self._new_dir = directory / "new"
        self._trash_dir = directory / "trash"
        self._requests_dir = directory / "requests"
        self._sets: dict[str, PackageSet] = {}
        self._used_at: dict[str, float] = {}
        """When each set was last used, seconds since the epoch."""
        self._noted_at: dict[str, float] = {}
        """What of that is on the disk."""
        self._resolved: dict[str, Resolved] = {}
        """What requests of this daemon were resolved to."""

    def open(self) -> None:
        """Read what is there, and delete what a killed daemon left; blocks."""
        # Sandboxes reach sets through mounts, and nobody else has any business here.
        for directory in (self._sets_dir, self._new_dir, self._trash_dir, self._requests_dir):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self._sets_dir.iterdir():
            key = path.stem
            if key in self._sets:
                continue
            found = self._read(key) if _KEY.fullmatch(key) else None
            if found is not None and self.path(key).is_dir():
                self._sets[key] = found
                self._used_at[key] = self._description(key).stat().st_mtime
        for path in list(self._sets_dir.iterdir()):
            if path.stem not in self._sets:
                self._move_to_trash(path)
        unfinished = self._requests_dir.glob(".*")
        for path in (*self._new_dir.iterdir(), *self._trash_dir.iterdir(), *unfinished):
            _delete(path)

    # --- sets ---

    @property
    def sets(self) -> Collection[PackageSet]:
        return self._sets.values()

    @property
    def size_bytes(self) -> int:
        return sum(found.size_bytes for found in self._sets.values())

    def path(self, key: str) -> Path:
        return self._sets_dir / key

    def get(self, key: str) -> PackageSet | None:
        return self._sets.get(key)

    def use(self, key: str) -> None:
        """Note that a set is used now; on the disk only now and then."""
        now = self._used_at[key] = time.time()
        if now - self._noted_at.get(key, 0.0) < NOTE_SECONDS:
            return
        self._noted_at[key] = now
        try:
            os.utime(self._description(key))
        except OSError as error:
            log.warning("packages.use_not_noted", key=key, error=str(error))

    def new_path(self) -> Path:
        """Path for a set that is being made; `open` deletes it if the daemon is killed."""
        return self._new_dir / secrets.token_hex(8)

    def add(self, key: str, made: Path, target: Target, lock: Lock, size: TreeSize) -> PackageSet:
        """Give a finished directory its name; from here on it is a set."""
        found = PackageSet(
            key=key,
            target=target,
            packages=sorted({(archive.name, archive.version) for archive in lock.archives}),
            size_bytes=size.size_bytes,
            files=size.files,
        )
        made.rename(self.path(key))
        _write(self._description(key), json.dumps(asdict(found)))
        self._sets[key] = found
        self._used_at[key] = time.time()
        return found

    def in_order_of_use(self) -> Sequence[PackageSet]:
        """All sets, the one that was used longest ago first."""
        return sorted(self._sets.values(), key=lambda found: self._used_at[found.key])

    def used_at(self, key: str) -> float:
        return self._used_at[key]

    def remove(self, key: str) -> Path:
        """Make a set unknown; its files are still to be deleted from the returned path."""
        del self._sets[key], self._used_at[key]
        self._noted_at.pop(key, None)
        self._description(key).unlink(missing_ok=True)
        return self._move_to_trash(self.path(key))

    def _description(self, key: str) -> Path:
        return self._sets_dir / f"{key}.json"

    def _read(self, key: str) -> PackageSet | None:
        try:
            fields = _load(self._description(key))
            kind, *rest = fields["target"]
            fields["target"] = Target(PackageKind(kind), *rest)
            fields["packages"] = [(str(name), str(version)) for name, version in fields["packages"]]
            found = PackageSet(**fields)
        except (OSError, ValueError, TypeError, KeyError):
            return None
        return found if found.key == key else None

    def _move_to_trash(self, path: Path) -> Path:
        trash = self._trash_dir / secrets.token_hex(8)
        path.rename(trash)
        return trash

    # --- requests ---

    def recall(self, request_key: str) -> Resolved | None:
        """What the request was resolved to last; None if that is unknown."""
        if request_key not in self._resolved:
            found = self._recall_from_disk(request_key)
            if found is None:
                return None
            self._resolved[request_key] = found
        return self._resolved[request_key]

    def _recall_from_disk(self, request_key: str) -> Resolved | None:
        path = self._requests_dir / f"{request_key}.json"
        try:
            with path.open() as file:
                lock = locks.loads(file.read(_MAX_FILE_BYTES))
                return Resolved(lock, os.fstat(file.fileno()).st_mtime)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            log.warning("packages.request_unreadable", error=str(error))
            return None

    def remember(self, request_key: str, lock: Lock) -> None:
        self._resolved[request_key] = Resolved(lock, time.time())
        _write(self._requests_dir / f"{request_key}.json", locks.dumps(lock))
        self._forget_oldest()

    def _forget_oldest(self) -> None:
        paths = list(self._requests_dir.iterdir())
        if len(paths) > MAX_REQUESTS:
            paths.sort(key=lambda path: path.stat().st_mtime)
            for path in paths[: len(paths) - MAX_REQUESTS]:
                path.unlink(missing_ok=True)
                self._resolved.pop(path.stem, None)


def superfluous(
    in_order_of_use: Iterable[PackageSet],
    in_use: Collection[str],
    *,
    size_bytes: int,
    max_bytes: int,
) -> Iterator[PackageSet]:
    """Sets to delete so that the others fit: those used longest ago, and none that is in use."""
    for found in in_order_of_use:
        if size_bytes <= max_bytes:
            return
        if found.key not in in_use:
            size_bytes -= found.size_bytes
            yield found


def _load(path: Path) -> dict[str, Any]:
    with path.open() as file:
        loaded = json.loads(file.read(_MAX_FILE_BYTES))
    if not isinstance(loaded, dict):
        raise ValueError("not a table")
    return loaded


def _write(path: Path, text: str) -> None:
    """Replace a file, at once and as a whole."""
    new = path.with_name(f".{path.name}.new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.rename(path)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        tree.delete(path)
    else:
        path.unlink(missing_ok=True)
