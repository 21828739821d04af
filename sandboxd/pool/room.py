"""Places for sandboxes, which all pools share, and the openers that wait for a sandbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sandboxd.errors import PoolExhausted
from sandboxd.pool.pace import StartPace
from sandboxd.pool.queue import OpenQueue
from sandboxd.sandboxes.sandbox import Sandbox

FULL_RETRY_SECONDS = 5.0
"""Seconds after which an opener that was refused should try again."""


@dataclass(eq=False, kw_only=True)
class Waiter:
    """An opener in the queue."""

    user_id: str
    environment: str
    places: int
    """Places that its sandbox will take."""
    starts_own: bool
    """Whether it waits only for a place, in which it starts a sandbox on its disk or with its
    directories."""
    answer: asyncio.Future[Sandbox | None]
    since: float = field(default_factory=time.monotonic)


class PlaceHolder(Protocol):
    """A pool, as far as the room has to know it."""

    @property
    def held_places(self) -> int:
        """Places of sandboxes that sessions have, or that are started for one opener."""
        ...

    @property
    def starting(self) -> int:
        """Starts that are under way."""
        ...


class Room:
    """Counts the places that are taken, against the maximum of all pools together."""

    def __init__(
        self, *, maximum: int, max_queue: int, pace: StartPace, act: Callable[[], None]
    ) -> None:
        """`act`: carries out the plan for all pools; called after every change."""
        self.maximum = maximum
        self.pace = pace
        self.act = act
        self._max_queue = max_queue
        self.holders: list[PlaceHolder] = []
        self.queue: OpenQueue[Waiter] = OpenQueue()

    @property
    def held(self) -> int:
        return sum(holder.held_places for holder in self.holders)

    @property
    def starting(self) -> int:
        return sum(holder.starting for holder in self.holders)

    @property
    def excess(self) -> int:
        """How many places openers wait for until others close; below 0, how many more would not
        have to wait for that."""
        return self.held + sum(waiter.places for waiter in self.queue) - self.maximum

    def has_places(self, count: int) -> bool:
        """Whether an opener need not wait for others to close."""
        return self.excess + count <= 0

    def may_wait(self, places: int) -> bool:
        """Whether another opener may wait for others to close."""
        return self.excess + places <= self._max_queue

    def waiting_for(self, environment: str) -> Sequence[Waiter]:
        """The openers that wait for a sandbox of this environment, in their turn."""
        return [waiter for waiter in self.queue if waiter.environment == environment]

    def full_error(self) -> PoolExhausted:
        return PoolExhausted(
            f"All {self.maximum} sandboxes are in use; close sessions that are done, try again "
            "later, or raise MAX_POOL_SIZE.",
            retry_after_seconds=FULL_RETRY_SECONDS,
        )
