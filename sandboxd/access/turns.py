"""Places for work that waits: bounded in all and for each user, and given to users in turn."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from sandboxd.access.shares import Share


class Turns:
    """Who waits is served in turn by user, so much work of one user delays another by one."""

    def __init__(
        self,
        *,
        places: int,
        queued: int,
        refusal: Callable[[str], Exception],
        per_user: int | None = None,
        queued_per_user: int | None = None,
    ) -> None:
        """Of the queue, a user has half unless it says otherwise. `refusal` makes what is raised if
        too many wait; its argument is who has too many: this user, or the daemon."""
        self._free = places
        self._per_user = per_user or places
        self._queued = queued
        self._queued_per_user = queued_per_user or max(1, queued // 2)
        self._refusal = refusal
        self._used: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By user, the user who is next first; no user has an empty queue."""

    @classmethod
    def of(cls, share: Share, *, refusal: Callable[[str], Exception], places: int = 1) -> Turns:
        """So many at a time, of which a user leaves one to others, with this queue."""
        return cls(
            places=places,
            per_user=max(1, places - 1),
            queued=share.total,
            queued_per_user=share.per_user,
            refusal=refusal,
        )

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def used(self) -> int:
        return self._used.total()

    @asynccontextmanager
    async def turn(self, user_id: str) -> AsyncIterator[None]:
        """A place for as long as the block lasts."""
        await self.take(user_id)
        try:
            yield
        finally:
            self.leave(user_id)

    def take_now(self, user_id: str) -> bool:
        """Take a place that is free; False if there is none."""
        if self._free and not self._waiting and self._used[user_id] < self._per_user:
            self._occupy(user_id)
            return True
        return False

    async def take(self, user_id: str) -> None:
        """Wait for a place; refused if too many wait. The caller's deadline bounds the wait."""
        if self.take_now(user_id):
            return
        if len(self._waiting.get(user_id, ())) >= self._queued_per_user:
            raise self._refusal("This user")
        if self.waiting >= self._queued:
            raise self._refusal("The daemon")
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(user_id, deque()).append(waiter)
        self._serve()
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.leave(user_id)
            else:
                self._forget(user_id, waiter)
            raise

    def leave(self, user_id: str) -> None:
        self._free += 1
        self._used[user_id] -= 1
        if not self._used[user_id]:
            del self._used[user_id]
        self._serve()

    def _occupy(self, user_id: str) -> None:
        self._free -= 1
        self._used[user_id] += 1

    def _serve(self) -> None:
        while self._free and (user_id := self._next()) is not None:
            queue = self._waiting.pop(user_id)
            waiter = queue.popleft()
            if queue:
                self._waiting[user_id] = queue  # behind the others
            if not waiter.done():
                self._occupy(user_id)
                waiter.set_result(None)

    def _next(self) -> str | None:
        return next((user for user in self._waiting if self._used[user] < self._per_user), None)

    def _forget(self, user_id: str, waiter: asyncio.Future[None]) -> None:
        queue = self._waiting.get(user_id)
        if queue is not None and waiter in queue:
            queue.remove(waiter)
            if not queue:
                del self._waiting[user_id]
