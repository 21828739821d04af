"""The warm pool while starts fail, sandboxes die and openers give up."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from sandboxd.engine.contract import ContainerId
from sandboxd.environments.environment import Environment
from sandboxd.errors import (
    EngineFailed,
    EngineUnreachable,
    ImageNotFound,
    SandboxdError,
)
from sandboxd.pool import pool as pool_module
from sandboxd.pool import pools
from sandboxd.pool.pool import WarmPool
from sandboxd.pool.pools import Pools
from sandboxd.sandboxes.kept_files import Claim, KeptFiles
from sandboxd.sandboxes.sandbox import Sandbox
from tests.fakes import settings as settings_for_tests
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.settings import NEVER
from tests.fakes.waiting import eventually

StartPool = Callable[..., Awaitable[WarmPool]]


class ReadySandbox(Sandbox):
    """One that needs no guest to be ready."""

    is_lost = False  # type: ignore[assignment]  # a property there


class InstantMaker:
    """Makes sandboxes without an await, so that two things can happen in one turn of the loop."""

    def __init__(self) -> None:
        self.live: set[str] = set()
        self.left_behind = asyncio.Event()
        self.failures: list[Exception] = []

    async def make(self, environment: Environment, kept: KeptFiles | None = None) -> Sandbox:
        if self.failures:
            raise self.failures.pop(0)
        claim = Claim(f"s{len(self.live)}", 1000, KeptFiles())
        sandbox = ReadySandbox(environment, claim, ContainerId("c"))
        self.live.add(sandbox.id)
        return sandbox

    async def destroy(self, sandbox: Sandbox, *, keep: bool = False) -> None:
        self.live.remove(sandbox.id)

    async def sweep(self) -> int:
        return 0


@asynccontextmanager
async def instant_pool(maker: InstantMaker, *, wait_seconds: float) -> AsyncIterator[WarmPool]:
    settings = settings_for_tests.of_pool(wait_seconds=wait_seconds)
    environment = settings_for_tests.of_environment()
    async with Pools(maker, [environment], settings, sweep_seconds=NEVER) as pools:  # type: ignore[arg-type]  # it makes and destroys
        yield pools.default


@pytest.mark.parametrize("step", ["image_id", "create", "start", "inspect"])
async def test_failed_start_is_told_and_leaves_nothing(
    step: str, start_pool: StartPool, engine: FakeEngine
) -> None:
    """An opener hears the very error of the start, and no container stays."""
    pool = await start_pool()
    engine.fail_once(step, EngineFailed("The engine is out of order.", retry_after_seconds=2.0))
    with pytest.raises(EngineFailed, match="out of order"):
        await pool.acquire()

    assert engine.live == set()
    assert (pool.figures.failed_starts, pool.figures.last_error) == (
        1,
        "The engine is out of order.",
    )


async def test_failing_starts_back_off_and_openers_do_not_wait(
    start_pool: StartPool, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the engine is away nobody waits for it, and openers do not make it be asked more."""
    monkeypatch.setattr(pool_module, "BACKOFF_SECONDS", (60.0,))
    engine.go_away()
    pool = await start_pool(target=2)
    await eventually(lambda: pool.figures.failed_starts >= 2 and pool.figures.starting == 0)
    asked = engine.calls["image_id"]
    for _ in range(50):
        with pytest.raises(EngineUnreachable) as caught:
            await pool.acquire()

    assert engine.calls["image_id"] == asked
    assert len(traceback.extract_tb(caught.tb)) < 20, "the error keeps every caller it was told to"


async def test_pool_recovers_when_the_engine_comes_back(
    start_pool: StartPool, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing needs to be done by hand after an outage, and the error is forgotten."""
    monkeypatch.setattr(pool_module, "BACKOFF_SECONDS", (0.01,))
    engine.go_away()
    pool = await start_pool(target=2)
    await eventually(lambda: pool.figures.failed_starts >= 3)
    engine.come_back()
    await pool.wait_until_warm()

    assert (pool.figures.warm, pool.figures.last_error) == (2, "")


async def test_pool_without_a_target_recovers_too(
    start_pool: StartPool, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A past failure is not told for ever when only openers cause starts."""
    monkeypatch.setattr(pool_module, "BACKOFF_SECONDS", (0.01,))
    engine.go_away()
    pool = await start_pool(target=0)
    with pytest.raises(EngineUnreachable):
        await pool.acquire()
    engine.come_back()

    async def acquired() -> Sandbox:
        while True:
            try:
                return await pool.acquire()
            except EngineUnreachable:
                await asyncio.sleep(0.005)

    assert not (await asyncio.wait_for(acquired(), 2.0)).is_lost


async def test_missing_image_is_told_until_it_is_there(
    start_pool: StartPool, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever opens without an image learns which, and a later build helps without a restart."""
    monkeypatch.setattr(pool_module, "BACKOFF_SECONDS", (0.01,))
    images, engine.images = engine.images, {}
    pool = await start_pool(target=1)
    with pytest.raises(ImageNotFound, match="build_images"):
        await pool.acquire()
    engine.images = images

    await pool.wait_until_warm()


async def test_one_failed_start_does_not_fail_openers_that_others_can_serve(
    start_pool: StartPool, engine: FakeEngine
) -> None:
    """An opener is told of a failure only when no start is left that could serve it."""
    engine.fail_once("start", EngineFailed("Once.", retry_after_seconds=1.0))
    engine.gates["start.answer"] = asyncio.Event()
    pool = await start_pool()
    opening = [asyncio.ensure_future(pool.acquire()) for _ in range(2)]
    await eventually(lambda: pool.figures.failed_starts == 1)
    engine.gates["start.answer"].set()

    assert not any(sandbox.is_lost for sandbox in await asyncio.gather(*opening))
    assert pool.figures.in_use == 2


async def test_sandbox_lost_during_back_off_is_neither_given_out_nor_leaked(
    start_pool: StartPool, engine: FakeEngine, guests: FakeGuests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failing starts do not stop the pool from removing what died, nor from starting again."""
    pool = await start_pool(target=2)
    await pool.wait_until_warm()
    first, second = sorted(engine.live)
    monkeypatch.setattr(pool_module, "BACKOFF_SECONDS", (0.2,))
    engine.failures["create"] = EngineFailed("Not now.", retry_after_seconds=1.0)
    taken = await pool.acquire()
    await eventually(lambda: pool.figures.failed_starts >= 1)
    warm = second if taken.container_id == first else first
    guests.lose(warm)
    await eventually(lambda: not guests.by_container[warm].is_connected)
    with pytest.raises(EngineFailed, match="Not now"):
        await pool.acquire()
    engine.failures.clear()

    await eventually(lambda: pool.figures.warm == 2 and warm not in engine.live)


async def test_sandbox_that_comes_with_the_time_out_is_not_lost_track_of() -> None:
    """When an opener gives up in the very moment it is served, the sandbox is destroyed."""
    maker = InstantMaker()
    async with instant_pool(maker, wait_seconds=0.0) as pool:
        try:
            sandbox = await pool.acquire()
        except SandboxdError:
            await eventually(lambda: maker.live == set() and pool.figures.in_use == 0)
        else:
            assert maker.live == {sandbox.id}


async def test_opener_that_waits_too_long_is_told(
    start_pool: StartPool, engine: FakeEngine
) -> None:
    """Waiting is bounded, and ends in an error that says when to try again."""
    engine.gates["start"] = asyncio.Event()
    pool = await start_pool(wait_seconds=0.02)
    with pytest.raises(EngineFailed, match="in time") as caught:
        await pool.acquire()

    assert caught.value.retry_after_seconds
    engine.gates["start"].set()


async def test_start_that_fails_unexpectedly_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fault that nobody thought of neither hangs an opener nor ends the refilling."""
    monkeypatch.setattr(pool_module, "BACKOFF_SECONDS", (0.01,))
    maker = InstantMaker()
    maker.failures = [OSError(28, "No space left on device")]
    async with instant_pool(maker, wait_seconds=5.0) as pool:
        async with asyncio.timeout(1.0):
            with pytest.raises(SandboxdError):
                await pool.acquire()
        await eventually(lambda: pool.figures.failed_starts == 1)


async def test_cancelled_opener_leaves_its_sandbox_to_the_next(
    start_pool: StartPool, engine: FakeEngine
) -> None:
    """Giving up while a start runs leaks nothing and stops nobody."""
    engine.gates["start"] = asyncio.Event()
    pool = await start_pool(maximum=1)
    first = asyncio.ensure_future(pool.acquire())
    await engine.wait_until(lambda: engine.calls["start"] == 1)
    first.cancel()
    await asyncio.wait([first])
    second = asyncio.ensure_future(pool.acquire())
    engine.gates["start"].set()

    assert not (await second).is_lost
    assert repr(pool) == "<WarmPool warm=0 starting=0 in_use=1 waiting=0>"
    assert len(engine.live) == 1


async def test_removal_that_fails_is_left_to_the_sweep(
    start_pool: StartPool, engine: FakeEngine
) -> None:
    """A container that could not be removed is removed later."""
    pool = await start_pool(sweep_seconds=0.01)
    sandbox = await pool.acquire()
    engine.fail_once("remove", EngineFailed("Busy.", retry_after_seconds=1.0))
    pool.destroy(sandbox)

    await engine.wait_until(lambda: not engine.live)
    assert engine.calls["remove"] >= 2


async def test_removal_that_fails_is_not_left_until_the_next_sweep(
    start_pool: StartPool, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What could not be removed is swept soon, however long it is until the next regular one."""
    monkeypatch.setattr(pools, "SWEEP_AGAIN_SECONDS", 0.01)
    pool = await start_pool(sweep_seconds=3600.0)
    sandbox = await pool.acquire()
    await engine.wait_until(lambda: engine.calls["list_containers"] > 0)
    engine.fail_once("remove", EngineFailed("Busy.", retry_after_seconds=1.0))
    pool.destroy(sandbox)

    await engine.wait_until(lambda: not engine.live)


async def test_second_sweep_comes_soon_after_the_start(
    start_pool: StartPool, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed daemon asked for may be created after the first sweep; it does not stay until
    the next regular one."""
    monkeypatch.setattr(pools, "SWEEP_AGAIN_SECONDS", 0.01)
    monkeypatch.setattr(pools, "SECOND_SWEEP_SECONDS", 0.01)
    await start_pool(sweep_seconds=3600.0)

    await engine.wait_until(lambda: engine.calls["list_containers"] >= 2)


async def test_sweep_goes_on_after_an_outage(start_pool: StartPool, engine: FakeEngine) -> None:
    """The sweep survives an engine that does not answer."""
    engine.go_away()
    await start_pool(sweep_seconds=0.01)
    await engine.wait_until(lambda: engine.calls["list_containers"] >= 2)
    engine.come_back()
    seen = engine.calls["list_containers"]

    await engine.wait_until(lambda: engine.calls["list_containers"] >= seen + 2)
