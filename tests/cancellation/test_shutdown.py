"""Shutting down in the middle of anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from sandboxd.config import Config
from sandboxd.daemon.composition import Daemon, running
from sandboxd.pool.pool import WarmPool
from sandboxd.pool.pools import Pools
from tests.cancellation.invariants import POINTS, Tasks, free_uids
from tests.cancellation.test_cancelled_opens import STEPS, is_held_at
from tests.fakes.engine import FakeEngine, LastingEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.service.client import Api

MIB = 1 << 20


@asynccontextmanager
async def whole_life(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> AsyncIterator[tuple[Daemon, Api]]:
    """A daemon and a client; afterwards nothing of either may be left."""
    tasks = Tasks()
    async with Api(config.api_socket) as api:
        async with running(config, engine=engine, maker=guests.maker) as daemon:
            yield daemon, api
        assert engine.live == set()
        assert not config.api_socket.exists()
        assert guests.uids is not None
        assert free_uids(guests.uids) == config.sandbox_uid_count
    await tasks.are_as_before()


@pytest.mark.parametrize("step", [*STEPS, "remove", "list_containers"])
async def test_shutdown_while_the_engine_is_busy_leaves_nothing(
    step: str, config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """Whatever the engine was asked when the stop came, no container stays."""
    engine.gates[step] = gate = asyncio.Event()
    async with whole_life(config, engine, guests) as (_, api):
        call = asyncio.ensure_future(api.open())
        if step in STEPS:
            await is_held_at(step, engine)
        else:
            await engine.wait_until(lambda: engine.calls["start"] > 0)
        asyncio.get_running_loop().call_later(0.02, gate.set)
    await asyncio.gather(call, return_exceptions=True)


@pytest.mark.parametrize("turns", range(0, POINTS, 3))
async def test_shutdown_right_after_the_start_leaves_nothing(
    turns: int, config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """A stop at any turn of the first starts removes what they had made."""
    async with whole_life(config, engine, guests):
        for _ in range(turns):
            await asyncio.sleep(0)


@pytest.mark.parametrize("line", ["sleep", "stubborn", f"flood {64 * MIB}"])
async def test_shutdown_in_the_middle_of_a_command_leaves_nothing(
    line: str, config: Config, engine: FakeEngine, guests: FakeGuests
) -> None:
    """Commands end with the daemon, read or not read."""
    async with whole_life(config, engine, guests) as (_, api):
        call = api.exec(await api.open_id(), line)
        await call.read()
        await guests.wait_for(line)
    call.cancel()


async def test_shutdown_with_an_engine_that_is_away_does_not_hang(config: Config) -> None:
    """What cannot be removed now is left to the next start, which finds it by its label."""
    engine = LastingEngine()
    guests = FakeGuests(engine)
    async with asyncio.timeout(5.0):
        async with running(config, engine=engine, maker=guests.maker) as daemon:
            await daemon.pools.default.wait_until_warm()
            engine.go_away()
    (left,) = engine.live

    engine.come_back()
    async with running(config, engine=engine, maker=guests.maker) as daemon:
        await engine.wait_until(lambda: left not in engine.live)
        await daemon.pools.default.wait_until_warm()
    assert engine.live == set()
    await guests.aclose()


async def test_closing_the_pool_at_any_turn_leaves_nothing(
    start_pool: Callable[..., Awaitable[WarmPool]],
    pools_of: dict[WarmPool, Pools],
    engine: FakeEngine,
    guests: FakeGuests,
) -> None:
    """A pool that is closed while it starts, hands out and destroys gives everything back."""
    for turns in range(0, POINTS, 2):
        pool = await start_pool(target=2, maximum=4)
        opening = [asyncio.ensure_future(pool.acquire()) for _ in range(3)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await pools_of[pool].__aexit__(None, None, None)
        await asyncio.wait(opening)
        for opened in opening:
            opened.exception()
        assert engine.live == set()
        assert guests.uids is not None
        await eventually(lambda: free_uids(guests.uids) == 64)  # type: ignore[arg-type]
