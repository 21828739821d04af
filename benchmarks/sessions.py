"""How long it takes to get a sandbox: warm, cold, and many at once."""

from __future__ import annotations

import asyncio
import time

from benchmarks.client import Client
from benchmarks.daemon import Daemon
from benchmarks.engine import Engine
from benchmarks.race import median, milliseconds
from benchmarks.table import Group

COMMAND = "echo hi"
SLOW_EVERY = 3
"""Cold starts and `docker run` take part only in every nth round."""
BESIDE = 4
"""Commands that run while a pool fills."""


async def opening(
    daemon: Daemon, cold: Daemon, engine: Engine, *, rounds: int
) -> tuple[Group, float]:
    """The table, and the median milliseconds of an OpenSession on a warm pool."""
    image = (await daemon.client.status()).engine.image_id
    warm_open, warm_output, cold_open, cold_output, docker_run = [], [], [], [], []
    for number in range(rounds):
        await daemon.wait_until_warm()
        opened, printed = await _open_and_print(daemon.client, f"warm-{number}")
        warm_open.append(opened)
        warm_output.append(printed)
        if number % SLOW_EVERY == 0:
            await daemon.wait_until_warm()
            opened, printed = await _open_and_print(cold.client, f"cold-{number}")
            cold_open.append(opened)
            cold_output.append(printed)
            await cold.wait_until_warm()
            docker_run.append(engine.run(image, COMMAND.split()))
    rows = {
        "OpenSession, warm pool": milliseconds(warm_open, 50, 95),
        "OpenSession to first output, warm pool": milliseconds(warm_output, 50, 95),
        "OpenSession, empty pool": milliseconds(cold_open, 50, 95),
        "OpenSession to first output, empty pool": milliseconds(cold_output, 50, 95),
        "docker run to first output": milliseconds(docker_run, 50, 95),
    }
    return Group("a sandbox", rows), median(warm_open) * 1000


async def _open_and_print(client: Client, thread: str) -> tuple[float, float]:
    """Seconds to an open session, and to the first output in it."""
    began = time.perf_counter()
    session = await client.open(thread)
    opened = time.perf_counter() - began
    await client.first_output(session, COMMAND)
    printed = time.perf_counter() - began
    await client.end(session)
    return opened, printed


async def burst(daemon: Daemon, *, count: int) -> tuple[Group, list[str]]:
    """Many opens at once on a pool with as many warm sandboxes; the sessions stay open."""
    seconds: list[float] = []
    total, sessions = await burst_seconds(daemon, count, "burst", seconds)
    row = {**milliseconds(seconds, 50, 95), "all_ms": total * 1000}
    return Group(f"{count} opens at once, {count} warm", {"OpenSession": row}), sessions


async def burst_seconds(
    daemon: Daemon, count: int, name: str, each: list[float] | None = None
) -> tuple[float, list[str]]:
    """Seconds until all of so many sessions are open, and the sessions; `each` gets theirs."""
    await daemon.wait_until_warm()

    async def open_one(number: int) -> str:
        began = time.perf_counter()
        session = await daemon.client.open(f"{name}-{number}")
        if each is not None:
            each.append(time.perf_counter() - began)
        return session

    began = time.perf_counter()
    sessions = await asyncio.gather(*map(open_one, range(count)))
    return time.perf_counter() - began, sessions


async def refill(daemon: Daemon, *, count: int) -> Group:
    """How fast taken sandboxes are replaced: alone, and beside commands that never pause."""
    rows = {}
    for name, is_loaded in (("nothing else", False), (f"{BESIDE} commands at once", True)):
        seconds = await refill_seconds(daemon, count, is_loaded=is_loaded)
        rows[name] = {"all_ms": seconds * 1000, "per_second": count / seconds}
    return Group(f"{count} warm sandboxes replaced", rows)


async def refill_seconds(daemon: Daemon, count: int, *, is_loaded: bool) -> float:
    """Seconds from the opens of so many sessions until the pool is full again."""
    working = await daemon.client.open("beside the refill")
    await daemon.wait_until_warm()
    is_over = asyncio.Event()

    async def work() -> None:
        while not is_over.is_set():
            await daemon.client.run(working, "true")

    async with asyncio.TaskGroup() as group:
        for _ in range(BESIDE if is_loaded else 0):
            group.create_task(work())
        _, sessions = await burst_seconds(daemon, count, "refill")
        began = time.perf_counter()
        await daemon.wait_until_warm()
        seconds = time.perf_counter() - began
        is_over.set()
    for session in (*sessions, working):
        await daemon.client.end(session)
    await daemon.wait_until_warm()
    return seconds
