"""The calls that use the files of a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sandboxd.access import is_passive
from sandboxd.errors import FileWorkInterrupted
from sandboxd.files.workspace import WorkspaceFiles

T = TypeVar("T")


class SessionFiles:
    """Counts the calls, because they keep a session from expiring. When the session ends, it ends
    those that wait for their caller; workers end with the sandbox."""

    def __init__(self, files: WorkspaceFiles, *, on_use: Callable[[], None]) -> None:
        self.files = files
        self._on_use = on_use
        self._calls = 0
        self._waits: set[asyncio.Timeout] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return self._calls

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Count a call for as long as the block lasts, unless it only looks."""
        if is_passive():
            yield
            return
        self._calls += 1
        self._on_use()
        try:
            yield
        finally:
            self._calls -= 1
            self._on_use()

    async def until_closed(self, messages: AsyncIterator[T]) -> AsyncIterator[T]:
        """A caller's messages; FileWorkInterrupted once the session has ended."""
        while not self._is_closed:
            try:
                async with asyncio.timeout(None) as wait:
                    self._waits.add(wait)
                    try:
                        message = await anext(messages)
                    finally:
                        self._waits.discard(wait)
            except StopAsyncIteration:
                return
            except TimeoutError:
                break
            yield message
        raise FileWorkInterrupted

    def close(self) -> None:
        """End every wait for a caller: the session has ended."""
        self._is_closed = True
        now = asyncio.get_running_loop().time()
        for wait in self._waits:
            if not wait.expired():
                wait.reschedule(now)
