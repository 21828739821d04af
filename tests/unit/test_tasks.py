"""Work that a cancel must not leave half done."""

from __future__ import annotations

import asyncio

import pytest

from sandboxd.tasks import outlast, run_to_end


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
