"""Signs of life, and what is said of a loop that stands still."""

from __future__ import annotations

import asyncio
import time

from structlog.testing import capture_logs

from sandboxd.daemon.loop_watch import LoopWatch
from sandboxd.daemon.notify import ServiceManager
from sandboxd.daemon.watchdog import Watchdog
from tests.fakes.waiting import eventually


class HeardManager(ServiceManager):
    """Counts what it is told."""

    def __init__(self, watchdog_seconds: float | None) -> None:
        super().__init__(watchdog_seconds=watchdog_seconds)
        self.signs = 0
        self.statuses: list[str] = []

    def alive(self) -> None:
        self.signs += 1

    def status(self, text: str) -> None:
        self.statuses.append(text)


async def test_signs_of_life_stop_while_a_part_does_not_answer() -> None:
    """A registry that hangs means silence; once it answers, there are signs again."""
    manager = HeardManager(0.03)
    watchdog = Watchdog(manager)
    running = asyncio.ensure_future(watchdog.run())
    await eventually(lambda: manager.signs > 2)
    answers = asyncio.Event()

    async def check() -> None:
        await answers.wait()

    with watchdog.checking(check=check, status=lambda: "as it is"):
        await eventually(lambda: len(manager.statuses) > 2)
        signs = manager.signs
        await eventually(lambda: len(manager.statuses) > 5)
        assert manager.signs == signs
        answers.set()
        await eventually(lambda: manager.signs > signs)
    running.cancel()


async def test_signs_of_life_come_often_enough() -> None:
    """There are at least two within the time after which systemd would act."""
    manager = HeardManager(0.6)
    running = asyncio.ensure_future(Watchdog(manager).run())
    began = time.monotonic()
    await eventually(lambda: manager.signs == 3)
    assert time.monotonic() - began < 0.6
    running.cancel()


def a_call_that_blocks(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.005)


async def test_blocked_loop_is_logged_with_where_it_stands() -> None:
    """The line names the function that holds the loop up, once, and its end is told too."""
    with capture_logs() as logs, LoopWatch(blocked_seconds=0.1) as watch:
        await asyncio.sleep(0.05)
        a_call_that_blocks(0.5)
        await eventually(lambda: len(logs) == 2)

    blocked, again = logs
    assert (blocked["event"], again["event"]) == ("loop.blocked", "loop.recovered")
    assert any("a_call_that_blocks" in line for line in blocked["stack"])
    assert watch.blockages == 1


async def test_loop_that_turns_is_not_reported() -> None:
    """Work in small pieces is no blockage, however much of it there is."""
    with capture_logs() as logs, LoopWatch(blocked_seconds=0.4):
        until = time.monotonic() + 0.8
        while time.monotonic() < until:
            a_call_that_blocks(0.01)
            await asyncio.sleep(0)

    assert logs == []
