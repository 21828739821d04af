"""What must be true after any cancel, once everything has come to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from sandboxd.errors import PoolExhausted
from sandboxd.isolation.uids import UidRange
from sandboxd.pool.pool import WarmPool
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.waiting import eventually

POINTS = 60
"""Turns of the event loop after which a cancel is tried; more than any operation here takes."""


async def cancelled_after(turns: int, work: Coroutine[Any, Any, Any]) -> Any:
    """Run `work` for some turns of the loop, cancel it, and return its result if it had one."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    return None if task.cancelled() or task.exception() else task.result()


def free_uids(uids: UidRange) -> int:
    taken = []
    while True:
        try:
            taken.append(uids.take())
        except PoolExhausted:
            break
    for uid in taken:
        uids.give_back(uid)
    return len(taken)


async def nothing_is_leaked(
    pool: WarmPool, engine: FakeEngine, guests: FakeGuests, *, uid_count: int
) -> None:
    """Containers, uids and connections are those of warm and used sandboxes, and no others."""
    uids = guests.uids
    assert uids is not None

    def is_at_rest() -> bool:
        held = pool.figures.warm + pool.figures.in_use
        connected = sum(guest.is_connected for guest in guests.by_container.values())
        return (
            pool.figures.starting == 0
            and len(engine.live) == held
            and connected == held
            and free_uids(uids) == uid_count - held
        )

    try:
        await eventually(is_at_rest)
    except AssertionError as error:
        raise AssertionError(f"{pool} {engine} free uids: {free_uids(uids)}") from error


class Tasks:
    """The tasks there were; later there must be no others."""

    def __init__(self) -> None:
        self._before = asyncio.all_tasks()

    async def are_as_before(self) -> None:
        await eventually(lambda: asyncio.all_tasks() <= self._before)
