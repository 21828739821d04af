"""The warm pool while its engine does what it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from sandboxd.engine.contract import ContainerSpec
from sandboxd.errors import Draining, EngineFailed, PoolExhausted
from sandboxd.link import connection
from sandboxd.pool.pool import WarmPool
from sandboxd.pool.pools import Pools
from sandboxd.sandboxes.maker import REMOVALS_AT_ONCE, SandboxMaker
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually

StartPool = Callable[..., Awaitable[WarmPool]]


async def test_pool_fills_up_to_its_target(start_pool: StartPool, engine: FakeEngine) -> None:
    """Soon after its start the pool has its target warm, and no more."""
    pool = await start_pool(target=5)
    await pool.wait_until_warm()
    await eventually(lambda: pool.figures.starting == 0)

    assert repr(pool) == "<WarmPool warm=5 starting=0 in_use=0 waiting=0>"
    assert len(engine.live) == 5


async def test_acquire_takes_a_warm_one_and_refills(
    start_pool: StartPool, engine: FakeEngine
) -> None:
    """A claim is a hit, and its place is filled at once."""
    pool = await start_pool(target=2)
    await pool.wait_until_warm()
    sandbox = await pool.acquire()

    assert not sandbox.is_lost
    assert (pool.figures.hits, pool.figures.misses) == (1, 0)
    await eventually(lambda: pool.figures.warm == 2)
    assert len(engine.live) == 3


async def test_acquire_starts_one_when_none_is_warm(start_pool: StartPool) -> None:
    """An empty pool serves too; it only takes longer."""
    pool = await start_pool(target=0)
    sandbox = await pool.acquire()

    assert not sandbox.is_lost
    assert (pool.figures.hits, pool.figures.misses, pool.figures.in_use) == (0, 1, 1)


async def test_racing_acquires_never_share_and_never_exceed(
    start_pool: StartPool, engine: FakeEngine
) -> None:
    """Of many at once, each gets a sandbox of its own or is told that there are no more."""
    pool = await start_pool(target=3, maximum=8)
    await pool.wait_until_warm()
    results = await asyncio.gather(*(pool.acquire() for _ in range(20)), return_exceptions=True)

    given = [one for one in results if not isinstance(one, BaseException)]
    told = [one for one in results if isinstance(one, BaseException)]
    assert len({sandbox.id for sandbox in given}) == len(given) == 8
    assert all(isinstance(error, PoolExhausted) for error in told)
    assert len(engine.live) == 8
    assert engine.calls["create"] == 8


async def test_pool_at_its_maximum_says_when_to_try_again(start_pool: StartPool) -> None:
    """The refusal names the limit, what to do, and when; a release makes room."""
    pool = await start_pool(maximum=1)
    sandbox = await pool.acquire()
    with pytest.raises(PoolExhausted, match=r"All 1 sandboxes.*MAX_POOL_SIZE") as caught:
        await pool.acquire()
    assert caught.value.retry_after_seconds

    pool.destroy(sandbox)
    assert (await pool.acquire()).id != sandbox.id


async def test_released_sandbox_is_destroyed_not_reused(
    start_pool: StartPool, engine: FakeEngine, guests: FakeGuests
) -> None:
    """Whatever was in it, nobody gets a used sandbox."""
    pool = await start_pool()
    sandbox = await pool.acquire()
    pool.destroy(sandbox)
    pool.destroy(sandbox)
    await engine.wait_until(lambda: not engine.live)

    assert sandbox.is_lost
    process = guests.by_container[sandbox.container_id].process
    assert process is not None
    assert process.kills > 0
    await eventually(lambda: process.is_closed)


async def test_sandbox_lost_while_warm_is_replaced(
    start_pool: StartPool, engine: FakeEngine, guests: FakeGuests
) -> None:
    """One that dies in the pool is removed and another takes its place."""
    pool = await start_pool(target=2)
    await pool.wait_until_warm()
    (victim, _) = sorted(engine.live)
    guests.lose(victim)

    await eventually(lambda: pool.figures.warm == 2 and victim not in engine.live)
    assert not (await pool.acquire()).is_lost


async def test_sandbox_that_answers_no_ping_is_replaced(
    start_pool: StartPool,
    engine: FakeEngine,
    guests: FakeGuests,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only members whose guest answers stay in the pool."""
    monkeypatch.setattr(connection, "PING_SECONDS", 0.02)
    pool = await start_pool(target=1, health_seconds=0.01)
    await pool.wait_until_warm()
    (silent,) = engine.live
    guests.answers_pings = False
    await engine.wait_until(lambda: silent not in engine.live)
    guests.answers_pings = True

    await eventually(lambda: pool.figures.warm == 1)


async def test_starts_at_once_are_limited(start_pool: StartPool, engine: FakeEngine) -> None:
    """However many are missing, only so many are started side by side."""
    engine.gates["start"] = asyncio.Event()
    pool = await start_pool(target=9, concurrency=2)
    await engine.wait_until(lambda: engine.calls["start"] == 2)

    assert pool.figures.starting == 2
    engine.gates["start"].set()
    await pool.wait_until_warm()
    assert engine.calls["create"] == 9


async def test_closing_destroys_every_sandbox(
    start_pool: StartPool, pools_of: dict[WarmPool, Pools], engine: FakeEngine
) -> None:
    """No container outlives the pool, warm, in use or half started."""
    pool = await start_pool(target=3)
    await pool.wait_until_warm()
    await pool.acquire()
    engine.gates["start"] = asyncio.Event()
    await pool.acquire()
    await engine.wait_until(lambda: pool.figures.starting > 0 and len(engine.live) == 5)

    await pools_of[pool].__aexit__(None, None, None)
    assert engine.live == set()


async def test_closing_tells_whoever_waits(
    start_pool: StartPool, pools_of: dict[WarmPool, Pools], engine: FakeEngine
) -> None:
    """An opener that still waits is told that the daemon goes, and so is a later one."""
    pool = await start_pool()
    engine.gates["start"] = asyncio.Event()
    waiting = asyncio.ensure_future(pool.acquire())
    await engine.wait_until(lambda: engine.calls["start"] == 1)
    await pools_of[pool].__aexit__(None, None, None)

    for opening in (waiting, pool.acquire()):
        with pytest.raises(Draining):
            await opening


async def test_sweep_removes_what_nobody_holds(
    maker: SandboxMaker, start_pool: StartPool, engine: FakeEngine
) -> None:
    """Containers of an earlier life go at the start; those of others and our own stay."""
    ours = await start_pool(target=1)
    await ours.wait_until_warm()
    held = set(engine.live)
    (example,) = engine.specs.values()
    left_over = await engine.create(_renamed(example, "sandboxd-test-0123", dict(example.labels)))
    foreign = await engine.create(_renamed(example, "other", {"sandboxd.instance": "other"}))

    assert await maker.sweep() == 1
    assert engine.live == {*held, foreign}
    assert left_over not in engine.live


async def test_sweep_removes_several_at_once(
    maker: SandboxMaker, start_pool: StartPool, engine: FakeEngine
) -> None:
    """The engine is asked for a bounded number of removals at a time, and one that fails does not
    keep the others."""
    pool = await start_pool()
    await pool.acquire()
    (held,) = engine.live
    example = engine.specs[held]
    for number in range(3 * REMOVALS_AT_ONCE):
        await engine.create(_renamed(example, f"sandboxd-test-{number}", dict(example.labels)))
    busy = EngineFailed("The engine did not answer in time.", retry_after_seconds=1.0)
    engine.fail_once("remove", busy)
    engine.gates["remove"] = asyncio.Event()
    before = engine.calls["remove"]
    sweep = asyncio.ensure_future(maker.sweep())
    await eventually(lambda: engine.calls["remove"] > before)
    for _ in range(10):
        await asyncio.sleep(0)
    assert engine.calls["remove"] - before == REMOVALS_AT_ONCE
    engine.gates.pop("remove").set()

    with pytest.raises(EngineFailed):
        await sweep
    assert len(engine.live) == 2
    assert await maker.sweep() == 1
    assert engine.live == {held}


async def test_sweep_spares_what_is_being_made(
    maker: SandboxMaker, start_pool: StartPool, engine: FakeEngine
) -> None:
    """A container whose maker has not heard of it yet is no orphan."""
    pool = await start_pool()
    engine.gates["create.answer"] = asyncio.Event()
    opening = asyncio.ensure_future(pool.acquire())
    await engine.wait_until(lambda: len(engine.live) == 1)

    assert await maker.sweep() == 0
    engine.gates["create.answer"].set()
    assert not (await opening).is_lost


def _renamed(spec: ContainerSpec, name: str, labels: dict[str, str]) -> ContainerSpec:
    return ContainerSpec(**{**vars(spec), "name": name, "labels": labels})
