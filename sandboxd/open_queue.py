"""Who waits for a sandbox, and whose turn it is."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter")


class OpenQueue(Generic[Waiter]):
    """Users take turns; the openers of one user are served in the order they came."""

    def __init__(self) -> None:
        self._by_user: dict[str, deque[Waiter]] = {}
        """In the order of the turns: the first is next. None is empty."""

    def __len__(self) -> int:
        return sum(len(waiting) for waiting in self._by_user.values())

    def __iter__(self) -> Iterator[Waiter]:
        for waiting in self._by_user.values():
            yield from waiting

    def join(self, user_id: str, waiter: Waiter) -> None:
        self._by_user.setdefault(user_id, deque()).append(waiter)

    def go_first(self, user_id: str, waiter: Waiter) -> None:
        """Join before everybody else."""
        waiting = self._by_user.pop(user_id, deque())
        waiting.appendleft(waiter)
        self._by_user = {user_id: waiting, **self._by_user}

    @property
    def next(self) -> Waiter | None:
        """Whose turn it is."""
        return next(iter(self), None)

    def pop(self) -> Waiter:
        """Take out whose turn it is; their user is then the last to be served again."""
        user_id = next(iter(self._by_user))
        waiting = self._by_user.pop(user_id)
        waiter = waiting.popleft()
        if waiting:
            self._by_user[user_id] = waiting
        return waiter

    def leave(self, user_id: str, waiter: Waiter) -> None:
        """Take out one that gave up; one that is not there any more is none to take out."""
        waiting = self._by_user.get(user_id)
        if waiting is not None and waiter in waiting:
            waiting.remove(waiter)
            if not waiting:
                del self._by_user[user_id]

    def give_way(self, user_id: str) -> Waiter | None:
        """Take out the newest opener of the user with the most, so that one of `user_id` can join.

        None if that would not leave `user_id` with fewer or as many: then it is theirs to wait.
        """
        if not self._by_user:
            return None
        greediest = max(self._by_user, key=lambda user: len(self._by_user[user]))
        waiting = self._by_user[greediest]
        if len(waiting) <= len(self._by_user.get(user_id, ())) + 1:
            return None
        return waiting.pop()  # of at least two
