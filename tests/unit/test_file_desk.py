"""Calls at work on the files of a session: counted, and ended with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import cast

import pytest

from sandboxd.errors import FileWorkInterrupted
from sandboxd.files import FileDesk, WorkspaceFiles


class Uses:
    def __init__(self) -> None:
        self.count = 0

    def add(self) -> None:
        self.count += 1


@pytest.fixture
def uses() -> Uses:
    return Uses()


@pytest.fixture
def desk(uses: Uses) -> FileDesk:
    return FileDesk(cast(WorkspaceFiles, None), on_use=uses.add)


async def messages(*given: int, then_wait: bool = False) -> AsyncIterator[int]:
    for one in given:
        yield one
    if then_wait:
        await asyncio.Event().wait()


async def test_calls_are_counted_and_are_use(desk: FileDesk, uses: Uses) -> None:
    """From their beginning to their end, however they end."""
    with desk.at_work():
        assert (len(desk), uses.count) == (1, 1)
        with pytest.raises(KeyError), desk.at_work():
            assert len(desk) == 2
            raise KeyError
    assert (len(desk), uses.count) == (0, 4)


async def test_messages_arrive_until_their_end(desk: FileDesk) -> None:
    """All of them, in order."""
    assert [one async for one in desk.arriving(messages(1, 2, 3))] == [1, 2, 3]


async def test_the_end_of_the_session_ends_every_wait(desk: FileDesk) -> None:
    """Those that wait, those that begin to wait, and those that would not have had to."""
    arriving = [desk.arriving(messages(n, then_wait=True)) for n in range(3)]
    assert [await anext(one) for one in arriving] == [0, 1, 2]
    waiting = [asyncio.ensure_future(anext(one)) for one in arriving]
    await asyncio.sleep(0)
    desk.close()
    desk.close()
    for one in waiting:
        with pytest.raises(FileWorkInterrupted):
            await one
    with pytest.raises(FileWorkInterrupted):
        await anext(desk.arriving(messages(1, then_wait=True)))


async def test_a_cancel_is_a_cancel(desk: FileDesk) -> None:
    """Whoever gives up is not told that the session has ended."""
    waiting = asyncio.ensure_future(anext(desk.arriving(messages(then_wait=True))))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
