"""Calls that use the files of a session: counted, and ended with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from sandboxd.errors import FileWorkInterrupted
from sandboxd.files import SessionFiles, WorkspaceFiles


class Uses:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        self.count += 1


@pytest.fixture
def uses() -> Uses:
    return Uses()


@pytest.fixture
def session_files(uses: Uses) -> SessionFiles:
    return SessionFiles(cast(WorkspaceFiles, None), on_use=uses.add)


async def messages(*given: int, then_wait: bool = False) -> AsyncIterator[int]:
    for message in given:
        yield message
    if then_wait:
        await asyncio.Event().wait()


async def test_calls_are_counted_and_are_use(session_files: SessionFiles, uses: Uses) -> None:
    """From their beginning to their end, however they end."""
    with session_files.in_use():
        assert (len(session_files), uses.count) == (1, 1)
        with pytest.raises(KeyError), session_files.in_use():
            assert len(session_files) == 2
            raise KeyError
    assert (len(session_files), uses.count) == (0, 4)


async def test_messages_arrive_until_their_end(session_files: SessionFiles) -> None:
    """All of them, in order."""
    assert [message async for message in session_files.until_closed(messages(1, 2, 3))] == [1, 2, 3]


async def test_the_end_of_the_session_ends_every_wait(session_files: SessionFiles) -> None:
    """Those that wait, those that begin to wait, and those that would not have had to."""
    arriving = [session_files.until_closed(messages(n, then_wait=True)) for n in range(3)]
    assert [await anext(stream) for stream in arriving] == [0, 1, 2]
    waiting = [asyncio.ensure_future(anext(stream)) for stream in arriving]
    await asyncio.sleep(0)
    session_files.close()
    session_files.close()
    for wait in waiting:
        with pytest.raises(FileWorkInterrupted):
            await wait
    with pytest.raises(FileWorkInterrupted):
        await anext(session_files.until_closed(messages(1, then_wait=True)))


async def test_a_cancel_is_a_cancel(session_files: SessionFiles) -> None:
    """A caller that gives up gets its cancellation, not an error about the session."""
    waiting = asyncio.ensure_future(anext(session_files.until_closed(messages(then_wait=True))))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
