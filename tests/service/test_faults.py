"""Faults of the engine, the image, the pool and the guests, as callers are told of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import grpc
import pytest
from google.rpc import error_details_pb2
from grpc import aio

from sandboxd.daemon.composition import Daemon
from sandboxd.errors import EngineFailed
from sandboxd.guest import frames
from sandboxd.guest.frames import Cause, Ending, Exited, Stream
from sandboxd.link import connection
from sandboxd.pool import pool as pool_module
from sandboxd_proto.v1 import exec_pb2, session_pb2
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.lies import LIES
from tests.fakes.output_frame import encode_output
from tests.fakes.waiting import eventually
from tests.service.client import Api, Refusal, refused

StartDaemon = Callable[..., Awaitable[Daemon]]


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "BACKOFF_SECONDS", (0.01,))


def retry_seconds(refusal: Refusal) -> float:
    info = refusal.detail(error_details_pb2.RetryInfo)
    assert info is not None
    return info.retry_delay.seconds + info.retry_delay.nanos / 1e9


async def test_engine_that_is_away_is_told_and_comes_back(
    start_daemon: StartDaemon, engine: FakeEngine
) -> None:
    """Without an engine an open fails with a time to try again, and later works by itself."""
    engine.go_away()
    daemon = await start_daemon()
    async with Api(daemon.config.api_socket) as api:
        with refused(grpc.StatusCode.UNAVAILABLE, "ENGINE_UNREACHABLE") as refusal:
            await api.open()
        assert retry_seconds(refusal) > 0
        status = await api.status()
        assert (status.engine.reachable, status.pool.warm) == (False, 0)
        assert status.pool.last_error

        engine.come_back()
        await daemon.pools.default.wait_until_warm()
        assert (await api.run(await api.open_id(), "true")).exit.code == 0
        assert (await api.status()).engine.reachable


async def test_open_sessions_work_on_while_the_engine_is_away(api: Api, engine: FakeEngine) -> None:
    """Commands do not pass through the engine, so its absence does not stop them."""
    session_id = await api.open_id()
    engine.go_away()

    assert (await api.run(session_id, "echo still")).stdout.data == b"still\n"


async def test_engine_that_fails_is_told(start_daemon: StartDaemon, engine: FakeEngine) -> None:
    """A failing start reaches the opener as such."""
    engine.failures["start"] = EngineFailed("It is out of order.", retry_after_seconds=2.0)
    daemon = await start_daemon()
    async with Api(daemon.config.api_socket) as api:
        with refused(grpc.StatusCode.UNAVAILABLE, "ENGINE_FAILED") as refusal:
            await api.open()

    assert (refusal.message, retry_seconds(refusal)) == ("It is out of order.", 2.0)


async def test_missing_image_is_told(start_daemon: StartDaemon, engine: FakeEngine) -> None:
    """An open without an image says which one, and how to get it."""
    engine.images.clear()
    daemon = await start_daemon()
    async with Api(daemon.config.api_socket) as api:
        with refused(grpc.StatusCode.NOT_FOUND, "IMAGE_NOT_FOUND") as refusal:
            await api.open()

    assert "build_images" in refusal.message
    assert refusal.info.metadata["image"] == "sandbox-secure:latest"


async def test_image_removed_later_leaves_warm_sandboxes_usable(
    api: Api, daemon: Daemon, engine: FakeEngine
) -> None:
    """What is warm is served; what would have to be started is told."""
    await daemon.pools.default.wait_until_warm()
    engine.images.clear()
    await api.open(thread="t1")

    with refused(grpc.StatusCode.NOT_FOUND, "IMAGE_NOT_FOUND"):
        await api.open(thread="t2")


async def test_pool_at_its_maximum_is_told(start_daemon: StartDaemon) -> None:
    """One session too many is refused with a time to try again; a close makes room."""
    daemon = await start_daemon(max_pool_size=2)
    async with Api(daemon.config.api_socket) as api:
        first, _ = [await api.open_id(thread=f"t{n}") for n in range(2)]
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "POOL_EXHAUSTED") as refusal:
            await api.open(thread="t2")
        assert "MAX_POOL_SIZE" in refusal.message
        assert retry_seconds(refusal) > 0

        await api.close(first)
        assert (await api.open(thread="t2")).session.state == session_pb2.SESSION_STATE_ACTIVE


async def test_empty_pool_serves_by_starting(start_daemon: StartDaemon) -> None:
    """Without a warm sandbox an open takes longer, and that is all."""
    daemon = await start_daemon(pool_size=0)
    async with Api(daemon.config.api_socket) as api:
        assert (await api.run(await api.open_id(), "true")).exit.code == 0
        assert (await api.status()).pool.misses == 1


async def test_guest_that_never_answers_is_told(
    start_daemon: StartDaemon, guests: FakeGuests, engine: FakeEngine
) -> None:
    """A start has a deadline, after which the opener is told and the container gone."""
    guests.greet = lambda _: None
    guests.start_seconds = 0.05
    daemon = await start_daemon(pool_size=0)
    async with Api(daemon.config.api_socket) as api:
        with refused(grpc.StatusCode.UNAVAILABLE, "ENGINE_FAILED") as refusal:
            await api.open()

    assert "guest did not answer" in refusal.message
    assert engine.live == set()


# Whoever reads as fast as a guest sends gives it all the room it wants.
BY_ITSELF = [lie for lie in LIES if "more output" not in LIES[lie].told]


@pytest.mark.parametrize("lie", BY_ITSELF)
async def test_lying_guest_loses_its_sandbox(
    lie: str, api: Api, guests: FakeGuests, daemon: Daemon
) -> None:
    """A guest that breaks a rule is killed with its container; the daemon serves on."""
    session_id = await api.open_id()
    with suppress(aio.AioRpcError):  # a lie may begin with a refusal
        answer = await api.run(session_id, f"lie {lie}")
        assert answer.exit.reason in (
            exec_pb2.EXIT_REASON_SANDBOX_LOST,
            exec_pb2.EXIT_REASON_EXITED,  # or with a true exit
        )
    process = guests.command(f"lie {lie}").guest.process

    await eventually(lambda: not daemon.sessions.get(session_id).is_active)
    assert "broke the protocol" in (await api.get(session_id)).end_reason
    assert process is not None
    assert process.kills >= 1
    assert (await api.run(await api.open_id(), "true")).exit.code == 0


async def test_half_a_frame_and_silence_loses_the_sandbox(
    api: Api, guests: FakeGuests, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A guest that stops in the middle of a frame does not hang its caller."""
    monkeypatch.setattr(connection, "FRAME_SECONDS", 0.02)
    running = asyncio.ensure_future(api.run(await api.open_id(), "sleep"))
    (await guests.wait_for("sleep")).guest.say(b"\0\0\0")

    assert (await running).exit.reason == exec_pb2.EXIT_REASON_SANDBOX_LOST


@pytest.mark.parametrize("seed", range(5))
async def test_noise_from_a_guest_never_reaches_a_caller_as_a_fault(
    seed: int, api: Api, guests: FakeGuests
) -> None:
    """Random bytes in place of answers end the command as lost, whatever they are."""
    noise = random.Random(seed).randbytes(200_000)
    running = asyncio.ensure_future(api.run(await api.open_id(), "sleep", timeout=1.0))
    (await guests.wait_for("sleep")).guest.say(noise)

    assert (await running).exit.reason == exec_pb2.EXIT_REASON_SANDBOX_LOST


async def test_honest_guest_may_speak_byte_by_byte(api: Api, guests: FakeGuests) -> None:
    """How the bytes of an answer are cut does not matter."""
    running = asyncio.ensure_future(api.run(await api.open_id(), "stubborn"))
    command = await guests.wait_for("stubborn")
    output = encode_output(command.channel, Stream.STDOUT, 0, b"slow")
    exited = Exited(Ending.CODE, Cause.ITSELF, 0, 4, 0)
    for byte in output + frames.encode_exited(command.channel, exited):
        command.guest.say(bytes([byte]))
        await asyncio.sleep(0)

    answer = await running
    assert (answer.stdout.data, answer.exit.code) == (b"slow", 0)
