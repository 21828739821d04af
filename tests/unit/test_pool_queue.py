"""Openers that find no warm sandbox, and pools that nobody uses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sandboxd.errors import EngineFailed, PoolExhausted
from sandboxd.pool.pool import Patience, WarmPool
from sandboxd.sandboxes.sandbox import Sandbox
from tests.fakes.engine import FakeEngine
from tests.fakes.waiting import eventually

StartPool = Callable[..., Awaitable[WarmPool]]


def opening(pool: WarmPool, user_id: str = "") -> asyncio.Task[Sandbox]:
    return asyncio.get_running_loop().create_task(pool.acquire(user_id=user_id))


async def test_open_beyond_capacity_waits_until_another_closes(start_pool: StartPool) -> None:
    """With a queue, a full pool is waited for, and the wait is counted."""
    pool = await start_pool(maximum=1, max_queue=1)
    first = await pool.acquire()
    second = opening(pool)
    await eventually(lambda: pool.figures.waiting == 1)
    assert pool.figures.oldest_wait_seconds > 0
    pool.destroy(first)

    assert not (await second).is_lost
    assert (pool.figures.waiting, pool.figures.oldest_wait_seconds) == (0, 0.0)
    assert (pool.figures.misses, pool.figures.waits.count) == (2, 2)


async def test_open_that_waited_too_long_for_others_is_told_so(start_pool: StartPool) -> None:
    """At the deadline the error says that all are in use, what to do, and when to try again."""
    pool = await start_pool(target=1, maximum=1, max_queue=1, wait_seconds=0.02)
    await pool.wait_until_warm()
    await pool.acquire()
    with pytest.raises(PoolExhausted, match="MAX_POOL_SIZE") as caught:
        await pool.acquire()

    assert caught.value.retry_after_seconds
    assert (pool.figures.gave_up, pool.figures.waiting) == (1, 0)


async def test_queue_is_bounded(start_pool: StartPool) -> None:
    """One more than may wait is refused at once, and those who wait keep their places."""
    pool = await start_pool(maximum=2, max_queue=3)
    held = [await pool.acquire() for _ in range(2)]
    waiting = [opening(pool) for _ in range(3)]
    await eventually(lambda: pool.figures.waiting == 3)
    with pytest.raises(PoolExhausted):
        await pool.acquire()

    assert (pool.figures.waiting, pool.figures.refused) == (3, 1)
    for sandbox in held:
        pool.destroy(sandbox)
    pool.destroy(await waiting[0])
    assert not any(one.is_lost for one in await asyncio.gather(*waiting[1:]))


async def test_one_user_cannot_keep_the_queue_from_others(start_pool: StartPool) -> None:
    """In a full queue the newest of the user with the most gives way, and turns alternate."""
    pool = await start_pool(maximum=1, max_queue=3)
    held = await pool.acquire(user_id="greedy")
    greedy = [opening(pool, "greedy") for _ in range(3)]
    await eventually(lambda: pool.figures.waiting == 3)
    modest = opening(pool, "modest")
    with pytest.raises(PoolExhausted):
        await greedy[2]

    pool.destroy(held)
    pool.destroy(await greedy[0])
    pool.destroy(await modest)
    assert not greedy[1].done()
    pool.destroy(await greedy[1])


async def test_failed_start_is_not_told_to_those_who_wait_for_others(
    start_pool: StartPool, engine: FakeEngine
) -> None:
    """Only the opener whose start failed hears of it; the one beyond capacity goes on waiting."""
    pool = await start_pool(maximum=2, max_queue=2)
    held = await pool.acquire()
    engine.fail_once("start", EngineFailed("Once.", retry_after_seconds=1.0))
    engine.gates["start.answer"] = asyncio.Event()
    unlucky, patient = opening(pool), opening(pool)
    with pytest.raises(EngineFailed, match="Once"):
        await unlucky
    engine.gates["start.answer"].set()
    assert not patient.done()
    pool.destroy(held)

    assert not (await patient).is_lost


async def test_cancelled_opener_leaves_the_queue(start_pool: StartPool) -> None:
    """Giving up makes room for another to wait."""
    pool = await start_pool(maximum=1, max_queue=1)
    held = await pool.acquire()
    first = opening(pool)
    await eventually(lambda: pool.figures.waiting == 1)
    first.cancel()
    await asyncio.wait([first])
    second = opening(pool)
    await eventually(lambda: pool.figures.waiting == 1)
    pool.destroy(held)

    assert not (await second).is_lost


async def test_idle_pool_shrinks_to_its_minimum(start_pool: StartPool, engine: FakeEngine) -> None:
    """Warm sandboxes that nobody needs go after the idle time, all but the minimum."""
    pool = await start_pool(target=5, minimum=2, idle_seconds=0.2)
    await pool.wait_until_warm()
    await eventually(lambda: len(engine.live) == 2)

    assert (pool.figures.warm, pool.figures.target) == (2, 2)


async def test_shrunk_pool_grows_with_the_next_burst(
    start_pool: StartPool, engine: FakeEngine
) -> None:
    """A burst after an idle time is served, and as many are kept warm for the next one."""
    pool = await start_pool(target=4, minimum=1, idle_seconds=0.3)
    await eventually(lambda: pool.figures.target == 1)
    await asyncio.gather(*(pool.acquire() for _ in range(3)))

    assert pool.figures.target == 3
    await eventually(lambda: pool.figures.warm == 3)


async def test_burst_beyond_the_pool_is_served(start_pool: StartPool, engine: FakeEngine) -> None:
    """Thirty openers on a pool of five all get one, each its own, and the hit rate says how."""
    pool = await start_pool(target=5, maximum=32)
    await pool.wait_until_warm()
    given = await asyncio.gather(*(pool.acquire() for _ in range(30)))

    assert len({sandbox.id for sandbox in given}) == 30
    figures = pool.figures
    assert (figures.hits, figures.misses, figures.waits.count) == (5, 25, 25)
    assert figures.hit_rate == pytest.approx(5 / 30)
    await eventually(lambda: len(engine.live) == 32)


async def test_opener_without_patience_is_told_at_once(start_pool: StartPool) -> None:
    """Whoever has another way does not wait for others to close."""
    pool = await start_pool(maximum=1, max_queue=5)
    await pool.acquire()
    with pytest.raises(PoolExhausted):
        await pool.acquire(patience=Patience.NONE)
    assert pool.figures.waiting == 0


async def test_opener_that_gave_one_up_goes_first(start_pool: StartPool) -> None:
    """A place that was given up for another sandbox is not taken by those who wait."""
    pool = await start_pool(maximum=1, max_queue=1)
    held = await pool.acquire(user_id="a")
    waiting = opening(pool, "b")
    await eventually(lambda: pool.figures.waiting == 1)
    pool.destroy(held)
    swapped = await pool.acquire(user_id="a", patience=Patience.GOES_FIRST)

    assert not waiting.done()
    pool.destroy(swapped)
    assert not (await waiting).is_lost
