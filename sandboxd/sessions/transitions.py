"""Opens, resets and other moves of sessions that are under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, TypeAlias, TypeVar

from sandboxd.sessions.book import ThreadKey
from sandboxd.sessions.session import Outcome, Session

T = TypeVar("T")
Opened: TypeAlias = tuple[Session, Outcome]


class Transitions:
    """The opens, resets, and moves (rewinds, parkings) under way: a thread has at most one, of any
    kind."""

    def __init__(self) -> None:
        self._opening: dict[ThreadKey, asyncio.Task[Opened]] = {}
        self._resetting: dict[ThreadKey, asyncio.Task[Session]] = {}
        self._moving: dict[ThreadKey, asyncio.Task[Session]] = {}
        self._afterwards: dict[ThreadKey, list[Callable[[], None]]] = {}

    def opening(self, key: ThreadKey) -> asyncio.Task[Opened] | None:
        return self._opening.get(key)

    def resetting(self, key: ThreadKey) -> asyncio.Task[Session] | None:
        return self._resetting.get(key)

    def replacing(self, key: ThreadKey) -> asyncio.Task[Session] | None:
        """The reset or move of a thread."""
        return self._resetting.get(key) or self._moving.get(key)

    async def wait_for_moves(self, key: ThreadKey) -> None:
        """Return when the thread is neither opened nor moved; a reset may be under way."""
        while (other := self._opening.get(key) or self._moving.get(key)) is not None:
            await asyncio.wait([other])

    async def wait_for_all(self, key: ThreadKey) -> None:
        """Return when nothing of the thread is under way."""
        while (other := self._opening.get(key) or self.replacing(key)) is not None:
            await asyncio.wait([other])

    def is_under_way(self, key: ThreadKey) -> bool:
        return key in self._opening or key in self._resetting or key in self._moving

    @property
    def opening_threads(self) -> Collection[ThreadKey]:
        return self._opening.keys()

    @property
    def tasks(self) -> Sequence[asyncio.Task[Any]]:
        return [*self._opening.values(), *self._resetting.values(), *self._moving.values()]

    def start_open(
        self, key: ThreadKey, work: Coroutine[None, None, Opened]
    ) -> asyncio.Task[Opened]:
        return self._start(self._opening, key, work, "session-open")

    def start_reset(
        self, key: ThreadKey, work: Coroutine[None, None, Session]
    ) -> asyncio.Task[Session]:
        return self._start(self._resetting, key, work, "session-reset")

    def start_move(
        self, key: ThreadKey, work: Coroutine[None, None, Session]
    ) -> asyncio.Task[Session]:
        return self._start(self._moving, key, work, "session-move")

    def when_done(self, key: ThreadKey, action: Callable[[], None]) -> None:
        """Call back after what is under way for a thread; at once if that is nothing."""
        if self.is_under_way(key):
            self._afterwards.setdefault(key, []).append(action)
        else:
            action()

    def _start(
        self,
        tasks: dict[ThreadKey, asyncio.Task[T]],
        key: ThreadKey,
        work: Coroutine[None, None, T],
        name: str,
    ) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work, name=name)
        tasks[key] = task

        # Its first callback, so it runs before those of everybody who waits for the task. And a
        # callback, not a step of the task: that may be cancelled before it begins.
        def on_done(task: asyncio.Task[T]) -> None:
            del tasks[key]
            consume_error(task)
            for action in self._afterwards.pop(key, ()):
                action()

        task.add_done_callback(on_done)
        return task


def consume_error(task: asyncio.Task[Any]) -> None:
    """Keep asyncio from logging the error of a task whose callers have all given up."""
    if not task.cancelled():
        task.exception()
