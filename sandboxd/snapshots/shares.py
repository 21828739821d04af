"""How many bytes each user has in the store, of which none may have more than a share.

Counted is what is stored, with what no snapshot needs until it is deleted: that takes space, too.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sandboxd.errors import SnapshotLimitReached
from sandboxd.snapshots import keys
from sandboxd.snapshots.objects import Calls, ObjectInfo, Objects

SHARED_SECONDS = 60.0
"""How long a count stands in a store to which other workers add, too."""
AGAIN_SECONDS = 1.0
"""How old a count may be that a refusal is based on."""
_REMEMBERED = 10_000


@dataclass
class _Count:
    bytes: int
    at: float


class SharedObjects:
    """See Objects. SnapshotLimitReached instead of storing more for a user than the share."""

    def __init__(self, objects: Objects, *, user_bytes: int, is_shared: bool) -> None:
        self._objects = objects
        self._user_bytes = user_bytes
        self._trust_seconds = SHARED_SECONDS if is_shared else float("inf")
        self._lock = threading.Lock()
        self._counts: OrderedDict[str, _Count] = OrderedDict()
        """By owner, as of the last listing, with what this process has stored since."""

    @property
    def calls(self) -> Calls:
        return self._objects.calls

    def put(self, key: str, data: bytes, *, is_durable: bool = True) -> None:
        with self._counted(key, len(data)):
            self._objects.put(key, data, is_durable=is_durable)

    def create(self, key: str, data: bytes, *, is_durable: bool = True) -> None:
        with self._counted(key, len(data)):
            self._objects.create(key, data, is_durable=is_durable)

    def get(self, key: str) -> bytes:
        return self._objects.get(key)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        return self._objects.get_range(key, offset, length)

    def has(self, key: str) -> bool:
        return self._objects.has(key)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        return self._objects.list(prefix)

    def delete(self, key: str) -> None:
        self._objects.delete(key)
        with self._lock:
            self._counts.pop(keys.owner_in(key), None)  # the size is not known here

    @contextmanager
    def _counted(self, key: str, size: int) -> Iterator[None]:
        """Marks of deletion, which are empty, are always stored."""
        if not size:
            yield
            return
        count = self._take(keys.owner_in(key), size)
        try:
            yield
        except BaseException:
            with self._lock:
                count.bytes -= size
            raise

    def _take(self, owner: str, size: int) -> _Count:
        for trust_seconds in (self._trust_seconds, AGAIN_SECONDS):
            count = self._count(owner, trust_seconds)
            with self._lock:
                if count.bytes + size <= self._user_bytes:
                    count.bytes += size
                    return count
        raise SnapshotLimitReached(
            f"The snapshots of this user take {self._user_bytes >> 20} MiB",
            "delete some, or close sessions that are done or parked, and try again when their "
            "space is free",
            limit=self._user_bytes,
            setting="SANDBOXD_MAX_USER_SNAPSHOT_MB",
        )

    def _count(self, owner: str, trust_seconds: float) -> _Count:
        now = time.monotonic()
        with self._lock:
            known = self._counts.get(owner)
            if known is not None and now - known.at <= trust_seconds:
                return known
        listed = sum(info.size for info in self._objects.list(keys.owner_prefix(owner)))
        with self._lock:
            self._counts[owner] = count = _Count(listed, now)
            self._counts.move_to_end(owner)
            while len(self._counts) > _REMEMBERED:
                self._counts.popitem(last=False)
        return count
