"""Daemons of a cluster over fake engines."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sandboxd.daemon.composition import Daemon
from sandboxd_proto.v1 import session_service_pb2
from tests.fakes.engine import FakeEngine
from tests.service.client import Api

LEASE = 5.0
PATIENCE = 90.0


class Node:
    """A daemon of the cluster."""

    def __init__(self, daemon: Daemon, api: Api, engine: FakeEngine) -> None:
        self.daemon = daemon
        self.api = api
        self.engine = engine


Start = Callable[..., Awaitable[Node]]


async def until(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await look():
            await asyncio.sleep(0.02)


async def open_thread(node: Node, thread: str, **given: Any) -> Any:
    request = session_service_pb2.OpenSessionRequest(user_id="ada", thread_id=thread)
    return await node.api.sessions.OpenSession(request, timeout=30, **given)
