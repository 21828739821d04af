"""Redis servers, and daemons that share one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from sandboxd.cluster.settings import RedisSettings
from sandboxd.daemon.composition import running
from tests.cluster.model import World
from tests.cluster.nodes import LEASE, Node, Start
from tests.cluster.real import open_cluster
from tests.cluster.servers import RedisServer, running_redis
from tests.fakes import settings as settings_for_tests
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.ports import free_port
from tests.service.client import Api


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture
async def world(redis_server: RedisServer) -> AsyncIterator[World]:
    world = World(redis_server.port)
    await world.begin()
    yield world
    await world.end()


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server


@pytest.fixture
async def start(short_dir: Path, redis: RedisServer) -> AsyncIterator[Start]:
    """Starts daemons that share a Redis; what is given replaces settings."""
    key = short_dir / "key"
    key.write_text("k" * 64)
    await open_cluster(RedisSettings(port=redis.port), "sandboxd")
    async with AsyncExitStack() as stack:

        async def start(name: str, **settings: Any) -> Node:
            engine = FakeEngine()
            guests = FakeGuests(engine)
            stack.push_async_callback(guests.aclose)
            config = settings_for_tests.of_daemon(short_dir / name).model_copy(
                update={
                    "host": "127.0.0.1",
                    "port": free_port(),
                    "worker_id": name,
                    "redis_host": "127.0.0.1",
                    "redis_port": redis.port,
                    "cluster_key_file": key,
                    "lease_seconds": LEASE,
                    "max_pool_size": 40,
                    **settings,
                }
            )
            daemon = await stack.enter_async_context(
                running(config, engine=engine, maker=guests.maker)
            )
            api = await stack.enter_async_context(Api(config.api_socket))
            return Node(daemon, api, engine)

        yield start


@pytest.fixture
async def nodes(start: Start) -> list[Node]:
    return [await start(name) for name in ("a", "b", "c")]
