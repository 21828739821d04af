"""Openers that give up at any point."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Awaitable, Callable

import pytest

from sandboxd.daemon.composition import Daemon
from sandboxd.environments.environment import Environment
from sandboxd.isolation.uids import UidRange
from sandboxd.pool.pool import WarmPool
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sessions.session import Outcome
from sandboxd.sessions.sessions import Sessions
from sandboxd_proto.v1.session_service_pb2 import OPEN_OUTCOME_ATTACHED
from tests.cancellation.invariants import (
    POINTS,
    Tasks,
    cancelled_after,
    free_uids,
    nothing_is_leaked,
)
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually
from tests.service.client import Api

StartPool = Callable[..., Awaitable[WarmPool]]
StartSessions = Callable[..., Awaitable[Sessions]]
STEPS = ["image_id", "read_file", "create", "create.answer", "start", "start.answer", "inspect"]
UIDS = 64


async def is_held_at(step: str, engine: FakeEngine) -> None:
    """The engine has been asked, and for an answer has also done it."""
    method, _, answer = step.partition(".")
    await engine.wait_until(lambda: engine.calls[method] > 0)
    if answer and method == "create":
        await engine.wait_until(lambda: len(engine.live) > 0)
    elif answer:
        await engine.wait_until(lambda: len(engine.running) > 0)


@pytest.mark.parametrize("connects_late", [False, True])
async def test_cancelled_make_leaves_nothing(
    connects_late: bool,
    maker: SandboxMaker,
    engine: FakeEngine,
    guests: FakeGuests,
    uids: UidRange,
    environment: Environment,
) -> None:
    """Wherever the making of a sandbox is cancelled, container, uid and tasks are given back."""
    guests.connects_late = connects_late
    tasks = Tasks()
    for turns in range(POINTS):
        sandbox = await cancelled_after(turns, maker.make(environment))
        if sandbox is not None:
            await maker.destroy(sandbox)
        await maker.sweep()
        await engine.wait_until(lambda: not engine.live)
        await tasks.are_as_before()
        assert free_uids(uids) == UIDS

    connected = guests.by_container.values()
    await eventually(lambda: not any(guest.is_connected for guest in connected))
    gc.collect()  # a socket that was lost track of would complain here, and fail this test


@pytest.mark.parametrize("step", STEPS)
async def test_cancelled_make_at_each_step_of_the_engine_leaves_nothing(
    step: str, maker: SandboxMaker, engine: FakeEngine, uids: UidRange, environment: Environment
) -> None:
    """A cancel during a request to the engine, or before its answer arrives, loses nothing."""
    engine.gates[step] = asyncio.Event()
    making = asyncio.ensure_future(maker.make(environment))
    await is_held_at(step, engine)
    making.cancel()
    engine.gates.pop(step).set()
    await asyncio.wait([making])

    assert making.cancelled()
    await maker.sweep()
    assert engine.live == set()
    assert free_uids(uids) == UIDS


async def test_cancelled_acquire_leaves_nothing(
    start_pool: StartPool, engine: FakeEngine, guests: FakeGuests
) -> None:
    """Wherever an acquire is cancelled, its sandbox is warm for the next or destroyed."""
    pool = await start_pool(target=1, maximum=3)
    for turns in range(POINTS):
        held = await pool.acquire()  # so that the next one has to wait
        sandbox = await cancelled_after(turns, pool.acquire())
        for acquired in (held, sandbox):
            if acquired is not None:
                pool.destroy(acquired)
        await nothing_is_leaked(pool, engine, guests, uid_count=UIDS)

    assert pool.figures.in_use == 0


async def test_cancelled_open_leaves_a_session_or_nothing(
    start_pool: StartPool, start_sessions: StartSessions, engine: FakeEngine, guests: FakeGuests
) -> None:
    """Wherever an open is cancelled, the session is there for the next open, or was never begun."""
    pool = await start_pool(maximum=2)
    sessions = await start_sessions(pool=pool)
    for turns in range(POINTS):
        await cancelled_after(turns, sessions.open("u", "t"))
        session, outcome = await sessions.open("u", "t")
        assert outcome == (Outcome.CREATED if turns == 0 else Outcome.ATTACHED)
        assert pool.figures.in_use == 1
        sessions.close(session.id)
        await nothing_is_leaked(pool, engine, guests, uid_count=UIDS)


async def test_one_of_many_openers_gives_up(
    start_sessions: StartSessions, engine: FakeEngine
) -> None:
    """The others get their session, also when it was the first that gave up."""
    sessions = await start_sessions()
    engine.gates["start"] = asyncio.Event()
    opening = [asyncio.ensure_future(sessions.open("u", "t")) for _ in range(5)]
    await is_held_at("start", engine)
    opening[0].cancel()
    opening[3].cancel()
    engine.gates["start"].set()
    results = await asyncio.gather(*opening, return_exceptions=True)

    served = [result for result in results if isinstance(result, tuple)]
    assert len(served) == 3
    assert len({session.id for session, _ in served}) == 1
    assert engine.calls["create"] == 1


@pytest.mark.parametrize("step", STEPS)
async def test_cancelled_call_leaves_the_session_to_the_next(
    step: str,
    start_daemon: Callable[..., Awaitable[Daemon]],
    engine: FakeEngine,
    guests: FakeGuests,
) -> None:
    """A client that hangs up while its session is being made finds it at the next call."""
    engine.gates[step] = asyncio.Event()
    daemon = await start_daemon(pool_size=0)
    async with Api(daemon.config.api_socket) as api:
        call = asyncio.ensure_future(api.open())
        await is_held_at(step, engine)
        call.cancel()
        await asyncio.wait([call])
        engine.gates.pop(step).set()
        await eventually(lambda: daemon.sessions.active_count == 1)

        assert (await api.open()).outcome == OPEN_OUTCOME_ATTACHED
        uid_count = daemon.config.sandbox_uid_count
        await nothing_is_leaked(daemon.pools.default, engine, guests, uid_count=uid_count)


async def test_storm_of_cancelled_calls_leaves_counts_equal(
    start_daemon: Callable[..., Awaitable[Daemon]], engine: FakeEngine, guests: FakeGuests
) -> None:
    """After many opens that were cancelled anywhere, containers are sessions and warm ones."""
    chance = random.Random(7)
    daemon = await start_daemon(pool_size=2, max_pool_size=8)
    async with Api(daemon.config.api_socket) as api:
        for _ in range(15):
            calls = [asyncio.ensure_future(api.open(thread=f"t{n}")) for n in range(12)]
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            for call in chance.sample(calls, 8):
                call.cancel()
            await asyncio.wait(calls)
            for session in (await api.list()).sessions:
                await api.close(session.session_id)
        await eventually(
            lambda: daemon.pools.default.figures.in_use == daemon.sessions.active_count
        )
        uid_count = daemon.config.sandbox_uid_count
        await nothing_is_leaked(daemon.pools.default, engine, guests, uid_count=uid_count)
