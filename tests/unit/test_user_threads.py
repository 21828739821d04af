"""Threads that users share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from sandboxd.access.shares import Share
from sandboxd.errors import TooManyRequests
from sandboxd.workspaces.user_threads import UserThreads

SECONDS = 60.0


@pytest.fixture
async def threads() -> AsyncIterator[UserThreads]:
    made = UserThreads(Share(name="work", total=20, per_user=10), 3, "test")
    yield made
    made.shutdown(wait=True)


async def test_work_of_one_user_leaves_a_thread_to_others(threads: UserThreads) -> None:
    """However much of it waits; what is too much is refused, and a cancelled wait does nothing."""
    may_end, done = threading.Event(), list[str]()

    def work() -> None:
        may_end.wait(SECONDS)
        done.append("eve")

    calls = [asyncio.ensure_future(threads.run("eve", work, seconds=SECONDS)) for _ in range(12)]
    await asyncio.sleep(0)
    try:
        with pytest.raises(TooManyRequests, match="already has too much work"):
            await threads.run("eve", work, seconds=SECONDS)
        assert await threads.run("ada", lambda: "ada", seconds=SECONDS) == "ada"
        calls.pop().cancel()
    finally:
        may_end.set()
    await asyncio.gather(*calls)
    assert len(done) == 11


async def test_wait_for_a_turn_has_a_limit(threads: UserThreads) -> None:
    may_end = threading.Event()
    calls = [
        asyncio.ensure_future(threads.run("eve", lambda: may_end.wait(SECONDS), seconds=SECONDS))
        for _ in range(2)
    ]
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await threads.run("eve", lambda: None, seconds=0.01)
    may_end.set()
    await asyncio.gather(*calls)
