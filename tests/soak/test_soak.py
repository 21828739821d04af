"""Many conversations at once for a while, with kills of sandboxes and of the daemon, and then
nothing lost, nothing left, nothing grown."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.docker.private_engine import IMAGE, PrivateEngine, private_engine
from tests.docker.test_lifecycle import eventually
from tests.scale import SCALE
from tests.soak.load import Tally, Thread

SECONDS = 16 * SCALE
"""Half of it with faults, half of it without, so that growth can be told from new processes."""
THREADS = 8
POOL = 3
DAEMON_KILL_SECONDS = 3.0
SANDBOX_KILL_SECONDS = 1.0
REST_SECONDS = 30.0
MOST_GROWTH = 24 << 20
"""Bytes of memory between two quiet moments, after the same work again and again."""


class Soak:
    """The load on one daemon."""

    def __init__(self, engine: PrivateEngine, daemon: DaemonProcess, api: Api) -> None:
        self._engine = engine
        self.daemon = daemon
        self._chance = random.Random()
        self.tally = Tally()
        self.threads = [
            Thread(api, f"t{number}", self.tally, random.Random(self._chance.random()))
            for number in range(THREADS)
        ]
        self._is_over = asyncio.Event()
        self._left = ""

    async def run(self, seconds: float, *, faults: bool) -> None:
        """All threads for that long; with or without what goes wrong in a year."""
        self._is_over.clear()
        async with asyncio.TaskGroup() as group:
            for thread in self.threads:
                group.create_task(self._keep_acting(thread))
            if faults:
                group.create_task(self._keep_killing_the_daemon())
                group.create_task(self._keep_killing_sandboxes())
            await asyncio.sleep(seconds)
            self._is_over.set()

    async def rest(self) -> None:
        """Close everything, and wait until nothing is left but the pool."""
        for thread in self.threads:
            await thread.close()
        await self.daemon.wait_until_warm()
        try:
            await eventually(self._is_quiet, seconds=REST_SECONDS)
        except TimeoutError:
            raise AssertionError(f"not quiet after {REST_SECONDS:g} s: {self._left}") from None

    async def _is_quiet(self) -> bool:
        state, links = self.daemon.directory / "state", self.daemon.directory / "run/links"
        held = [
            len(await self._engine.containers()),
            len(list((state / "disks").glob("*.img"))),
            len(list(links.iterdir())),
        ]
        left = [*(state / "spool").glob("*"), *(state / "execs").glob("*")]
        left += (state / "registry.copies").glob("*")
        self._left = f"containers, disks, links {held}, files {[path.name for path in left]}"
        return held == [POOL] * 3 and not left

    async def _keep_acting(self, thread: Thread) -> None:
        while not self._is_over.is_set():
            await thread.act()

    async def _keep_killing_the_daemon(self) -> None:
        while not await self._over_within(DAEMON_KILL_SECONDS):
            await self.daemon.signal(signal.SIGKILL)
            await self.daemon.start()
            self.tally.done["daemon killed"] += 1

    async def _keep_killing_sandboxes(self) -> None:
        while not await self._over_within(SANDBOX_KILL_SECONDS):
            open_ones = [thread for thread in self.threads if thread.session_id is not None]
            if open_ones:
                await self._kill_sandbox(self._chance.choice(open_ones))

    async def _kill_sandbox(self, thread: Thread) -> None:
        assert thread.session_id is not None
        thread.sandbox_may_be_gone = True
        sandbox_id = self._sandbox_of(thread.session_id)
        await self._engine.attempt("kill", f"sandboxd-{self.daemon.instance}-{sandbox_id}")
        self.tally.done["sandbox killed"] += 1

    def _sandbox_of(self, session_id: str) -> str:
        registry = self.daemon.directory / "state/registry.sqlite"
        with closing(sqlite3.connect(registry)) as connection:
            query = "SELECT sandbox_id FROM sessions WHERE session_id = ?"
            return str(connection.execute(query, (session_id,)).fetchone()[0])

    async def _over_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._is_over.wait()
        except TimeoutError:
            return False
        return True


def memory(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) << 10
    raise AssertionError(f"process {pid} has no memory")


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.alone
@pytest.mark.timeout(SECONDS + 300)
async def test_mixed_load_loses_nothing_and_leaves_nothing() -> None:
    """After opens, commands, floods, time-outs, kills and closes, with sandboxes and the daemon
    killed again and again: every command ran once, no session was lost that nobody ended, nothing
    is left over, and the daemon has not grown."""
    async with (
        private_engine() as engine,
        running_daemon(
            CONTAINER_IMAGE=IMAGE,
            DOCKER_HOST=engine.url,
            POOL_SIZE=str(POOL),
            MAX_WORKSPACE_SIZE_MB="16",
        ) as daemon,
        daemon.api() as api,
    ):
        await daemon.wait_until_warm()
        soak = Soak(engine, daemon, api)
        began = time.monotonic()
        await soak.run(SECONDS / 2, faults=True)
        await soak.rest()
        growth = []
        for _ in range(3):
            await soak.run(SECONDS / 6, faults=False)
            await soak.rest()
            growth.append((memory(daemon.pid), open_files(daemon.pid)))
        seconds = time.monotonic() - began
        log = daemon.log.read_text().splitlines()
        ends = [line for line in log if "session.ended" in line and '"lost"' in line]

    done = soak.tally.done
    (first, files_before), *_, (last, files_after) = growth
    print(
        f"soak: {seconds:.0f} s, {', '.join(f'{n} {what}' for what, n in sorted(done.items()))}; "
        f"sessions lost {soak.tally.lost}, answers wrong {len(soak.tally.wrong)}, orphans 0; "
        f"memory {first >> 20} to {last >> 20} MiB, open files {files_before} to {files_after}"
    )
    assert soak.tally.wrong == [], ends
    assert soak.tally.lost == 0, ends
    assert min(done[what] for what in ("daemon killed", "sandbox killed", "append", "close")) > 0
    assert last - first < MOST_GROWTH
    assert files_after <= files_before + 4
