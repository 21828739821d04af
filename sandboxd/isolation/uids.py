"""One uid for each sandbox.

Inotify instances, pipe buffers, message queues and pending signals are counted per uid for the
whole host, so a shared uid would let one session starve another.
"""

from __future__ import annotations

from collections import deque

from sandboxd.errors import PoolExhausted


class UidRange:
    """Hands out uids of a range; the one returned longest ago comes next.

    A uid may be returned only after the last process with it has ended.
    """

    def __init__(self, *, start: int, count: int) -> None:
        self._all = range(start, start + count)
        self._free = deque(self._all)
        self._taken: set[int] = set()

    def has(self, uid: int) -> bool:
        """Whether it is of this range, taken or not."""
        return uid in self._all

    def take(self) -> int:
        if not self._free:
            raise PoolExhausted(
                "All uids for sandboxes are in use; close sessions that are no longer needed, or "
                "try again later. An operator can raise SANDBOXD_UID_COUNT.",
                retry_after_seconds=5.0,
            )
        uid = self._free.popleft()
        self._taken.add(uid)
        return uid

    def reserve(self, uid: int) -> None:
        """Take this uid: files of an earlier sandbox belong to it."""
        if uid in self._free:
            self._free.remove(uid)
        self._taken.add(uid)

    def give_back(self, uid: int) -> None:
        self._taken.remove(uid)
        self._free.append(uid)
