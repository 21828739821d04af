"""Waiting for what is to become true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def eventually(predicate: Callable[[], bool], *, timeout_seconds: float = 5.0) -> None:
    """Return as soon as the predicate holds, for state that announces no change."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_seconds
    while not predicate():
        assert loop.time() < deadline, f"did not come true within {timeout_seconds:g} s"
        await asyncio.sleep(0.002)
