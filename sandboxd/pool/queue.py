"""The queue of openers that wait for a sandbox."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter")


class OpenQueue(Generic[Waiter]):
    """Users take turns; the openers of one user are served in the order they came, except that one
    which cannot be served yet does not delay the others."""

    def __init__(self) -> None:
        self._by_user: dict[str, deque[Waiter]] = {}
        """Openers by user, the user who is next first; no user has an empty queue."""

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._by_user.values())

    def __iter__(self) -> Iterator[Waiter]:
        """In their turn: the first opener of every user, then the second of every user."""
        for place in range(max(map(len, self._by_user.values()), default=0)):
            for waiting in self._by_user.values():
                if place < len(waiting):
                    yield waiting[place]

    def join(self, user_id: str, waiter: Waiter) -> None:
        self._by_user.setdefault(user_id, deque()).append(waiter)

    def go_first(self, user_id: str, waiter: Waiter) -> None:
        """Join before all others."""
        waiting = self._by_user.pop(user_id, deque())
        waiting.appendleft(waiter)
        self._by_user = {user_id: waiting, **self._by_user}

    def serve(self, user_id: str, waiter: Waiter) -> None:
        """Take out an opener; its user is then served last."""
        waiting = self._by_user.pop(user_id)
        waiting.remove(waiter)
        if waiting:
            self._by_user[user_id] = waiting

    def leave(self, user_id: str, waiter: Waiter) -> None:
        """Take out an opener that gave up, if it is still there."""
        waiting = self._by_user.get(user_id)
        if waiting is not None and waiter in waiting:
            waiting.remove(waiter)
            if not waiting:
                del self._by_user[user_id]

    def evict_for(self, user_id: str) -> Waiter | None:
        """Take out the newest opener of the user with the most, so that one of `user_id` can join.

        None if `user_id` would then have more than that user.
        """
        if not self._by_user:
            return None
        greediest = max(self._by_user, key=lambda user: len(self._by_user[user]))
        waiting = self._by_user[greediest]
        if len(waiting) <= len(self._by_user.get(user_id, ())) + 1:
            return None
        return waiting.pop()  # it has at least two
