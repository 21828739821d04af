"""Pools of several environments, which share one budget."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from sandboxd.engine.contract import ImageId
from sandboxd.environments.environment import Environment
from sandboxd.errors import EnvironmentNotFound, ImageNotFound, PoolExhausted
from sandboxd.pool.pools import Pools
from sandboxd.sandboxes.sandbox import Sandbox
from tests.fakes import settings as settings_for_tests
from tests.fakes.engine import FakeEngine
from tests.fakes.settings import MIB
from tests.fakes.waiting import eventually

StartPools = Callable[..., Awaitable[Pools]]


def environment_of(engine: FakeEngine, name: str, **limits: int) -> Environment:
    """An environment whose image the engine has."""
    engine.images[f"{name}:1"] = ImageId("sha256:" + name.encode().hex().ljust(64, "0"))
    return settings_for_tests.of_environment(name, image=f"{name}:1", **limits)


@pytest.fixture
def data(engine: FakeEngine) -> Environment:
    return environment_of(engine, "data")


@pytest.fixture
def node(engine: FakeEngine) -> Environment:
    return environment_of(engine, "node")


def warm(pools: Pools) -> dict[str, int]:
    return {figures.environment: figures.warm for figures in pools.figures}


def opening(pools: Pools, name: str, user_id: str = "") -> asyncio.Task[Sandbox]:
    return asyncio.get_running_loop().create_task(pools.get(name).acquire(user_id=user_id))


async def test_only_the_default_environment_is_warm_at_the_start(
    start_pools: StartPools, data: Environment
) -> None:
    """Another costs nothing until somebody opens a session in it."""
    pools = await start_pools(data, target=3)
    await pools.default.wait_until_warm()

    assert warm(pools) == {"default": 3, "data": 0}


async def test_environment_is_kept_warm_after_its_first_use(
    start_pools: StartPools, data: Environment
) -> None:
    """Within the same budget: the default one gives up what the other gets."""
    pools = await start_pools(data, target=3)
    await pools.default.wait_until_warm()
    sandbox = await pools.get("data").acquire()

    assert sandbox.environment == data
    await eventually(lambda: warm(pools) == {"default": 2, "data": 1})
    assert (await pools.get("data").acquire()).environment == data
    assert [figures.hits for figures in pools.figures] == [0, 1]


async def test_environment_that_is_not_used_for_long_gives_its_place_back(
    start_pools: StartPools, data: Environment
) -> None:
    """Demand is remembered as long as the idle time."""
    pools = await start_pools(data, target=2, minimum=2, idle_seconds=0.3)
    pools.destroy(await pools.get("data").acquire())
    await eventually(lambda: warm(pools)["data"] == 0 and pools.get("data").target == 0)

    await eventually(lambda: warm(pools)["default"] == 2)


async def test_burst_takes_the_warm_sandboxes_of_another_environment(
    start_pools: StartPools, engine: FakeEngine, data: Environment
) -> None:
    """Openers that wait come before what may be needed later; the maximum holds for all."""
    pools = await start_pools(data, target=4, maximum=4)
    await pools.default.wait_until_warm()
    given = await asyncio.gather(*(pools.get("data").acquire() for _ in range(4)))

    assert {sandbox.environment.name for sandbox in given} == {"data"}
    await eventually(lambda: len(engine.live) == 4)
    assert warm(pools) == {"default": 0, "data": 0}
    with pytest.raises(PoolExhausted, match="All 4 sandboxes"):
        await pools.default.acquire()


async def test_opener_of_a_cold_environment_does_not_delay_others(
    start_pools: StartPools, engine: FakeEngine, data: Environment, node: Environment
) -> None:
    """While its sandbox starts, those behind it in the queue get theirs."""
    pools = await start_pools(data, node, target=0, maximum=4, concurrency=2)
    engine.gates["start"] = asyncio.Event()
    cold = opening(pools, "data", "ada")
    await engine.wait_until(lambda: engine.calls["start"] == 1)
    engine.gates.pop("start")
    behind = opening(pools, "node", "ada")

    assert (await behind).environment == node
    assert not cold.done()
    cold.cancel()


async def test_broken_image_does_not_pause_other_environments(
    start_pools: StartPools, engine: FakeEngine, data: Environment, node: Environment
) -> None:
    """Its openers get the error, everybody else a sandbox, and the figures name the broken one."""
    pools = await start_pools(data, node, target=1)
    del engine.images["data:1"]
    missing = []
    pools.on_image_missing = missing.append
    for _ in range(3):
        with pytest.raises(ImageNotFound):
            await pools.get("data").acquire()
        assert (await pools.get("node").acquire()).environment == node
        assert not (await pools.default.acquire()).is_lost

    errors = {figures.environment: bool(figures.last_error) for figures in pools.figures}
    assert errors == {"default": False, "data": True, "node": False}
    assert set(missing) == {"data"}


async def test_environment_with_more_memory_takes_several_places(
    start_pools: StartPools, engine: FakeEngine
) -> None:
    """Two of twice the memory fill a maximum of four."""
    large = environment_of(engine, "large", memory_bytes=128 * MIB)
    pools = await start_pools(large, maximum=4)
    first, second = [await pools.get("large").acquire() for _ in range(2)]
    with pytest.raises(PoolExhausted):
        await pools.default.acquire()
    pools.destroy(first)

    assert not (await pools.default.acquire()).is_lost
    assert not (await pools.default.acquire()).is_lost
    pools.destroy(second)


async def test_opener_of_a_large_environment_is_not_passed_by_small_ones(
    start_pools: StartPools, engine: FakeEngine
) -> None:
    """Places that become free are kept for it until there are enough."""
    large = environment_of(engine, "large", memory_bytes=128 * MIB)
    pools = await start_pools(large, maximum=2, max_queue=8)
    held = [await pools.default.acquire() for _ in range(2)]
    first = opening(pools, "large", "ada")
    await eventually(lambda: pools.get("large").figures.waiting == 1)
    after = opening(pools, "default", "bob")
    await eventually(lambda: pools.default.figures.waiting == 1)
    pools.destroy(held[0])
    await asyncio.sleep(0)
    assert not after.done()
    pools.destroy(held[1])
    sandbox = await first

    assert not after.done()
    pools.destroy(sandbox)
    assert not (await after).is_lost


async def test_new_image_replaces_what_is_warm(
    start_pools: StartPools, engine: FakeEngine, data: Environment
) -> None:
    """Sessions keep their sandboxes; everybody else gets the new image."""
    pools = await start_pools(data, target=2)
    held = await pools.get("data").acquire()
    await eventually(lambda: warm(pools)["data"] == 1)
    engine.images["data:2"] = ImageId("sha256:" + "2" * 64)
    newer = replace(data, image="data:2")
    pools.use(newer)
    await eventually(lambda: warm(pools)["data"] == 1)
    fresh = await pools.get("data").acquire()

    assert fresh.environment == newer
    assert engine.specs[fresh.container_id].image == engine.images["data:2"]
    assert held.container_id in engine.live
    pools.destroy(held)
    await eventually(lambda: held.container_id not in engine.live)


async def test_start_that_was_under_way_with_the_old_image_is_not_handed_out(
    start_pools: StartPools, engine: FakeEngine, data: Environment
) -> None:
    """A sandbox that becomes warm after the change is replaced too."""
    pools = await start_pools(data, target=2)
    engine.gates["start"] = asyncio.Event()
    waiting = opening(pools, "data")
    await engine.wait_until(lambda: engine.calls["start"] > 0)
    engine.images["data:2"] = ImageId("sha256:" + "2" * 64)
    newer = replace(data, image="data:2")
    pools.use(newer)
    engine.gates.pop("start").set()

    assert (await waiting).environment == newer


async def test_withdrawn_environment_is_not_kept_warm(
    start_pools: StartPools, engine: FakeEngine, data: Environment
) -> None:
    """Its warm sandboxes go, and the figures list it only while somebody uses it."""
    data = replace(data, min_warm=2)
    pools = await start_pools(data, target=4)
    await eventually(lambda: warm(pools).get("data") == 2)
    held = await pools.get("data").acquire()
    pools.withdraw("data")
    await eventually(lambda: warm(pools)["data"] == 0)
    pools.destroy(held)

    assert [figures.environment for figures in pools.figures] == ["default"]


async def test_minimum_of_an_environment_is_kept_warm_without_use(
    start_pools: StartPools, data: Environment
) -> None:
    """What an operator asks for does not depend on demand."""
    pools = await start_pools(replace(data, min_warm=1), target=2, minimum=1)

    await eventually(lambda: warm(pools) == {"default": 1, "data": 1})


async def test_unknown_environment_is_refused_with_those_there_are(
    start_pools: StartPools, data: Environment
) -> None:
    """The caller learns what it can ask for instead."""
    pools = await start_pools(data)
    with pytest.raises(EnvironmentNotFound, match="no environment 'large'; it has data, default"):
        pools.get("large")
