"""Many sessions on one host outlive a killed daemon, all of them, and end soon with a stopped one.

The number of sessions is that of `SCALE_SESSIONS`; figures of larger numbers are for a free host.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence

import aiodocker
import pytest

from sandboxd_proto.v1 import exec_pb2
from tests.docker.commands import attach, run, start, write
from tests.docker.daemon_process import Api, DaemonProcess
from tests.docker.test_daemon_restarts import restarting_daemon
from tests.docker.test_lifecycle import containers, open_session

SESSIONS = int(os.environ.get("SCALE_SESSIONS", "60"))
COMMANDS = max(1, SESSIONS // 15)
"""Sessions with a command that runs through the restart."""
OPENS_AT_ONCE = 8
CALLS_AT_ONCE = 64
STOP_SECONDS = 120.0


async def for_each(
    numbers: Sequence[int], work: Callable[[int], Awaitable[None]], *, at_once: int
) -> None:
    remaining = iter(numbers)

    async def worker() -> None:
        for number in remaining:
            await work(number)

    await asyncio.gather(*(worker() for _ in range(at_once)))


class Crowd:
    """Sessions by number; the first ones have a command that waits for its input."""

    def __init__(self) -> None:
        self.ids: dict[int, str] = {}

    async def open_all(self, api: Api) -> None:
        async def open_one(number: int) -> None:
            self.ids[number] = (await open_session(api, f"t{number}")).session.session_id
            if number < COMMANDS:
                command = f"echo begin {number}; read -r line; echo end $line"
                await start(api, self.ids[number], command, exec_id="e", stdin=True, timeout=600)

        await for_each(range(SESSIONS), open_one, at_once=OPENS_AT_ONCE)

    async def are_back(self, api: Api) -> None:
        """Each session runs a command; it is the incarnation that it was."""

        async def answers(number: int) -> None:
            answer = await run(api, self.ids[number], f"echo {number}", incarnation=1)
            assert answer.stdout.data == b"%d\n" % number

        await for_each(range(SESSIONS), answers, at_once=CALLS_AT_ONCE)

    async def commands_go_on(self, api: Api) -> None:
        """Each waiting command takes its input, and has all of its output."""

        async def goes_on(number: int) -> None:
            await write(api, self.ids[number], "e", 0, b"%d\n" % number, eof=True)
            streamed = await attach(api, self.ids[number], "e")
            assert bytes(streamed.stdout) == b"begin %d\nend %d\n" % (number, number)
            assert streamed.exit.reason == exec_pb2.EXIT_REASON_EXITED

        await for_each(range(COMMANDS), goes_on, at_once=CALLS_AT_ONCE)


async def start_and_time(daemon: DaemonProcess) -> float:
    """Start the daemon; returns the seconds until its first answer."""
    daemon.is_forked = False
    began = time.monotonic()
    await daemon.start()
    return time.monotonic() - began


async def end(daemon: DaemonProcess) -> float:
    """Stop the daemon; returns the seconds it took."""
    assert daemon.process is not None
    began = time.monotonic()
    daemon.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(STOP_SECONDS):
        assert await daemon.process.wait() == 0
    return time.monotonic() - began


@pytest.mark.timeout(900)
async def test_all_sessions_come_back_after_a_kill(docker: aiodocker.Docker) -> None:
    """None is lost however busy the host is, nor is any command; new sessions can be opened from
    the first answer on; and a stop leaves no container."""
    async with restarting_daemon(
        docker,
        POOL_SIZE="0",
        MAX_POOL_SIZE=str(SESSIONS + 1),
        MAX_WORKSPACE_SIZE_MB="16",
        SANDBOXD_LOG_LEVEL="warning",
    ) as daemon:
        await daemon.stop()
        empty = await start_and_time(daemon)
        crowd = Crowd()
        async with daemon.api() as api:
            await crowd.open_all(api)
        await daemon.signal(signal.SIGKILL)

        began = time.monotonic()
        first_answer = await start_and_time(daemon)
        async with daemon.api() as api:
            opened, _ = await asyncio.gather(open_session(api, "new"), crowd.are_back(api))
            all_back = time.monotonic() - began
            await crowd.commands_go_on(api)
            assert (await run(api, opened.session.session_id, "echo new")).stdout.data == b"new\n"
            assert (await api.status()).active_sessions == SESSIONS + 1
        stop = await end(daemon)
        assert not await containers(docker, daemon)

    print(
        f"scale: {SESSIONS} of {SESSIONS} sessions back after a kill, {COMMANDS} of {COMMANDS} "
        f"commands went on, first answer {first_answer:.1f} s (without sessions {empty:.1f} s), "
        f"all back {all_back:.1f} s; "
        f"stop with all of them {stop:.1f} s"
    )
