"""Work that a cancel must not leave half done."""

from __future__ import annotations

import asyncio

import pytest

from sandboxd.tasks import Tasks, cancel_kept, end_tasks, outlast, run_to_end


async def test_result_of_work_that_nobody_cancels_is_returned() -> None:
    """Nothing is undone then."""
    undone: list[int] = []

    async def work() -> int:
        return 7

    async def undo(result: int) -> None:
        undone.append(result)

    assert await run_to_end(work(), undo) == 7
    assert undone == []


async def test_cancel_is_raised_when_the_work_is_done_and_undone() -> None:
    """However often it is cancelled."""
    events: list[str] = []
    may_end = asyncio.Event()

    async def work() -> str:
        await may_end.wait()
        events.append("done")
        return "it"

    async def undo(result: str) -> None:
        await asyncio.sleep(0)
        events.append(f"undone {result}")

    running = asyncio.ensure_future(run_to_end(work(), undo))
    for _ in range(3):
        await asyncio.sleep(0)
        running.cancel()
    await asyncio.sleep(0)
    assert not running.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert events == ["done", "undone it"]


@pytest.mark.parametrize("fails_in", ["work", "undo"])
async def test_error_after_a_cancel_is_the_cancel(fails_in: str) -> None:
    """The caller is gone: no error is left for nobody."""
    may_end = asyncio.Event()

    async def work() -> None:
        await may_end.wait()
        if fails_in == "work":
            raise OSError("broken")

    async def undo(_: None) -> None:
        raise OSError("broken")

    running = asyncio.ensure_future(run_to_end(work(), undo))
    await asyncio.sleep(0)
    running.cancel()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_error_of_work_is_raised() -> None:
    """It is not undone: it did nothing."""

    async def work() -> None:
        raise OSError("broken")

    async def undo(_: None) -> None:
        raise AssertionError

    with pytest.raises(OSError, match="broken"):
        await run_to_end(work(), undo)


async def test_wait_through_cancels_has_an_end() -> None:
    """What takes too long is left running."""
    endless: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    assert await outlast(endless, 0.01) is None
    assert not endless.done()


async def _swallow_first(cancels: list[int]) -> None:
    """As asyncio.wait_for of Python 3.11 does with a cancel that comes too late."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancels.append(1)
            if len(cancels) > 1:
                raise


async def test_tasks_are_cancelled_until_they_end() -> None:
    """Also if the first cancel was swallowed."""
    cancels: list[int] = []
    tasks = Tasks()
    tasks.spawn(_swallow_first(cancels), "deaf")
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await tasks.end()
    assert len(cancels) == 2


async def test_a_task_that_never_ends_is_left() -> None:
    """A stop does not wait for it for ever."""
    may_end = asyncio.Event()

    async def deaf() -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                pass

    task = asyncio.ensure_future(deaf())
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await end_tasks([task], seconds=0.1)
    assert not task.done()
    may_end.set()
    await task


@pytest.mark.parametrize("error", [None, ValueError("of the library")])
async def test_a_swallowed_cancel_is_raised_again(error: Exception | None) -> None:
    """Whether the block goes on as if nothing had been, or fails with an error of its own."""
    is_waiting = asyncio.Event()

    async def swallow() -> None:
        try:
            is_waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if error is not None:
                raise error from None

    async def work() -> str:
        with cancel_kept():
            await swallow()
        return "went on"

    task = asyncio.ensure_future(work())
    await is_waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_without_a_cancel_is_passed_on() -> None:
    """A deadline within the block is no cancel of the task."""
    with pytest.raises(TimeoutError), cancel_kept():
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()
