"""The calls at work on the files of one session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sandboxd.errors import FileWorkInterrupted
from sandboxd.files.workspace import WorkspaceFiles

T = TypeVar("T")


class FileDesk:
    """Counts calls, which are use of the session, and ends those that wait for their caller when
    the session does; what goes on in the sandbox ends with that."""

    def __init__(self, files: WorkspaceFiles, *, on_use: Callable[[], None]) -> None:
        self.files = files
        self._on_use = on_use
        self._calls = 0
        self._waits: set[asyncio.Timeout] = set()
        self._is_closed = False

    def __len__(self) -> int:
        return self._calls

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """One more call, for as long as the block lasts."""
        self._calls += 1
        self._on_use()
        try:
            yield
        finally:
            self._calls -= 1
            self._on_use()

    async def arriving(self, messages: AsyncIterator[T]) -> AsyncIterator[T]:
        """What a caller sends, until the session ends."""
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
        """The session has ended."""
        self._is_closed = True
        now = asyncio.get_running_loop().time()
        for wait in self._waits:
            if not wait.expired():
                wait.reschedule(now)
