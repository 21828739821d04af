"""How many short commands a second, with many at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from benchmarks.client import Client
from benchmarks.daemon import Daemon
from benchmarks.latency import host
from benchmarks.race import median
from benchmarks.table import Group

AT_ONCE = 16
SESSIONS = 4
COMMAND = "true"


class Rate:
    """A few sessions of a daemon, in which commands run at once."""

    def __init__(self, client: Client, sessions: list[str]) -> None:
        self._client = client
        self._sessions = sessions

    @classmethod
    async def begin(cls, daemon: Daemon) -> Rate:
        sessions = [await daemon.client.open(f"rate-{number}") for number in range(SESSIONS)]
        await daemon.wait_until_warm()
        return cls(daemon.client, sessions)

    async def measure(self, commands: int) -> float:
        """Commands per second."""
        return await _ours(self._client, self._sessions, commands)

    @staticmethod
    def of_host(commands: int) -> float:
        """The same for subprocesses from as many threads."""
        return _host(commands)

    async def end(self) -> None:
        for session in self._sessions:
            await self._client.end(session)


async def rate(daemon: Daemon, *, commands: int, rounds: int) -> Group:
    """Run in a few sessions, compared with subprocesses from as many threads."""
    measured = await Rate.begin(daemon)
    ours, theirs = [], []
    for _ in range(rounds):
        ours.append(await measured.measure(commands))
        theirs.append(Rate.of_host(commands))
    await measured.end()
    rows = {
        f"host subprocess, {AT_ONCE} threads": {"per_second": median(theirs), "samples": rounds},
        f"Run, unix socket, {SESSIONS} sessions": {"per_second": median(ours), "samples": rounds},
    }
    return Group(f"`{COMMAND}`, {AT_ONCE} at once", rows)


async def _ours(client: Client, sessions: list[str], count: int) -> float:
    left = iter(range(count))

    async def work(session: str) -> None:
        for _ in left:
            await client.run(session, COMMAND)

    began = time.perf_counter()
    await asyncio.gather(*(work(sessions[i % len(sessions)]) for i in range(AT_ONCE)))
    return count / (time.perf_counter() - began)


def _host(count: int) -> float:
    def work(left: Iterator[int]) -> None:
        for _ in left:
            host(COMMAND)

    left = iter(range(count))
    began = time.perf_counter()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for done in [threads.submit(work, left) for _ in range(AT_ONCE)]:
            done.result()
    return count / (time.perf_counter() - began)
