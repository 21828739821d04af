"""What waits for Redis can be cancelled, at any moment."""

from __future__ import annotations

import asyncio

from sandboxd.cluster.redis_directory import RedisStore
from sandboxd.cluster.settings import RedisSettings
from tests.cluster.servers import RedisServer

TURNS = 60
"""Of the loop after which it is cancelled: more than a call takes, connected or not."""
SECONDS = 30.0


async def test_a_cancel_at_any_moment_ends_a_task(redis_server: RedisServer) -> None:
    """A task that asks for ever ends when it is cancelled, whatever the client of Redis does at
    that moment: a stop of the daemon waits for such tasks."""
    going_on = []
    for connected in (False, True):
        for turns in range(TURNS):
            store = RedisStore(RedisSettings(port=redis_server.port), "cancels", _ECHO)
            if connected:
                await store.run("echo", {}, {})
            asking = asyncio.get_running_loop().create_task(_ask_for_ever(store))
            for _ in range(turns):
                await asyncio.sleep(0)
            asking.cancel()
            _, pending = await asyncio.wait([asking], timeout=SECONDS if not going_on else 1.0)
            if pending:
                going_on.append((connected, turns))
                asking.cancel()
            await store.aclose()
    assert going_on == []


_ECHO = {"echo": "return 'yes'"}


async def _ask_for_ever(store: RedisStore) -> None:
    while True:
        await store.run("echo", {}, {})
        await asyncio.sleep(0.001)
