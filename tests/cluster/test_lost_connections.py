"""Connections to Redis that are lost, on the event loop of the daemon: uvloop's transports raise
errors that asyncio's do not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import uvloop
from structlog.testing import capture_logs

from sandboxd.cluster.contract import OwnershipUnknown, ReleaseState, WorkerState
from sandboxd.cluster.directory import SharedDirectory
from sandboxd.cluster.redis_directory import RedisStore
from sandboxd.cluster.settings import RedisSettings
from sandboxd.cluster.store import StoreUnavailable
from tests.cluster.model import thread
from tests.cluster.proxy import Proxy, proxied
from tests.cluster.real import own, real_worker
from tests.cluster.servers import RedisServer, Replicated, running_sentinels

TURNS = 60
"""Of the loop after which a connection is lost: more than a call takes, connected or not."""
SECONDS = 30.0


async def _all_operations(
    directory: SharedDirectory, before: Callable[[], Awaitable[object]]
) -> None:
    mine = await own(directory, 1)
    held = (mine.session_id, mine.epoch)
    operations: list[Callable[[], Awaitable[object]]] = [
        directory.membership.beat,
        lambda: directory.claim(thread(1)),
        lambda: directory.find("ses_" + "0" * 24),
        lambda: directory.find("ses_" + "0" * 24, is_certain=False),
        lambda: directory.find_thread(thread(2)),
        lambda: directory.commit(*held, "head", 1),
        directory.workers,
        lambda: directory.set_state(WorkerState.READY),
        lambda: directory.release(*held, ReleaseState.CLOSED, keep_seconds=0),
        lambda: directory.fence("nobody"),
    ]
    for operation in operations:
        await before()
        await operation()


def test_no_operation_fails_by_a_connection_that_was_reset(redis_server: RedisServer) -> None:
    """Each is made on a fresh connection, alone and beside others that lost theirs too."""

    async def operate() -> None:
        async with proxied(redis_server.port) as proxy:
            directory = real_worker(RedisSettings(port=proxy.port), "reset", "w")
            await directory.start()

            async def lose_several() -> None:
                await asyncio.gather(*(directory.workers() for _ in range(5)))
                await proxy.reset()
                await asyncio.sleep(0.05)  # the loop reads the resets
                await asyncio.gather(*(directory.workers() for _ in range(4)))

            await _all_operations(directory, lose_several)
            await directory.stop(leaves=True)

    with capture_logs() as logs:
        uvloop.run(operate())
    assert [line for line in logs if "exc_info" in line or line["log_level"] == "error"] == []


def test_reset_connections_to_sentinels_are_no_failure() -> None:
    """All connections to sentinels and to the primary are lost at once: calls go on."""

    async def operate(redis: Replicated) -> None:
        async with AsyncExitStack() as stack:
            proxies = [
                await stack.enter_async_context(proxied(port)) for _, port in redis.addresses
            ]
            addresses = [("127.0.0.1", proxy.port) for proxy in proxies]
            store = RedisStore(RedisSettings(sentinels=addresses), "sentinels", _ECHO)
            for _ in range(2):
                await asyncio.gather(*(store.run("echo", {}, {}) for _ in range(5)))
                await store._redis.connection_pool.disconnect()
                for proxy in proxies:
                    await proxy.reset()
                await asyncio.sleep(0.05)  # the loop reads the resets
            await store.aclose()

    with running_sentinels() as redis:
        uvloop.run(operate(redis))


def test_connection_lost_at_any_moment_is_an_unavailable_store(redis_server: RedisServer) -> None:
    """Reset by the other side, or closed by the client as after a failover: a call is answered or
    ends as StoreUnavailable, and the next one is answered."""

    async def lose(proxy: Proxy, turns: int, *, is_reset: bool) -> list[object]:
        store = RedisStore(RedisSettings(port=proxy.port), "lost", _ECHO)
        await store.run("echo", {}, {})
        calls = [asyncio.ensure_future(store.run("echo", {}, {})) for _ in range(2)]
        for _ in range(turns):
            await asyncio.sleep(0)
        if is_reset:
            await proxy.reset()
        else:
            await store._redis.connection_pool.disconnect()
        async with asyncio.timeout(SECONDS):
            ends = await asyncio.gather(*calls, return_exceptions=True)
            ends.append(await store.run("echo", {}, {}))
        await store.aclose()
        return [end for end in ends if end != b"yes" and not isinstance(end, StoreUnavailable)]

    async def lose_all() -> list[object]:
        async with proxied(redis_server.port) as proxy:
            ends = [
                await lose(proxy, turns, is_reset=is_reset)
                for turns in range(TURNS)
                for is_reset in (False, True)
            ]
        return [end for found in ends for end in found]

    assert uvloop.run(lose_all()) == []


def test_store_that_is_gone_is_told_without_a_stack(redis_server: RedisServer) -> None:
    """While nothing answers every operation says OwnershipUnknown, and the log has no stack."""

    async def operate() -> list[object]:
        async with proxied(redis_server.port) as proxy:
            settings = RedisSettings(port=proxy.port, call_seconds=0.3)
            directory = real_worker(settings, "gone", "w")
            await directory.start()
            await own(directory, 1)
        found = await asyncio.gather(
            directory.claim(thread(2)),
            directory.workers(),
            directory.find("ses_" + "0" * 24),
            directory.set_state(WorkerState.READY),
            directory.fence("nobody"),
            return_exceptions=True,
        )
        await directory.stop()
        return [end for end in found if not isinstance(end, OwnershipUnknown)]

    with capture_logs() as logs:
        assert uvloop.run(operate()) == []
    assert [line for line in logs if "exc_info" in line] == []


_ECHO = {"echo": "return 'yes'"}
