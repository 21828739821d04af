"""Deadlines where the host, or the daemon itself, has no time for anybody: commands end, sandboxes
stay."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiodocker
import pytest
import pytest_asyncio

from sandboxd_proto.v1 import exec_pb2, session_pb2, session_service_pb2
from tests.docker.commands import run, start, wait
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.hostile.arena import SETTINGS, async_sessions, enter, open_session
from tests.hostile.cases import MEMORY, RUNAWAYS, TIMED_OUT, Case
from tests.hostile.scoreboard import Scoreboard

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.calm,  # it keeps the machine from others
]

SPINNING = 6
ATTACKS = [
    case for case in (*MEMORY, *RUNAWAYS) if case.id in ("R14", "R15", "R03", "R05", "R07", "R08")
]
ORDINARY = ("sleep 60", "while :; do :; done", "sleep 60 & yes | head -c 100M >/dev/null; wait")
"""Commands of another session that run side by side into their time limits."""
ORDINARY_SECONDS = 0.4
STOPPED_SECONDS = 0.4
STOPS = 10
FIRST_SECONDS = 0.3
"""The earliest deadline around which the daemon is stopped."""
SPREAD_SECONDS = 0.01
"""Between the deadlines of two sessions."""


@dataclass
class Count:
    timed_out: int = 0
    lost: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.timed_out} commands timed out, {len(self.lost)} sessions lost by a deadline"


@dataclass
class Place:
    """A daemon and what its sessions are opened with."""

    daemon: DaemonProcess
    api: Api
    docker: aiodocker.Docker
    programs: Path

    async def attacker(self, thread: str) -> session_pb2.Session:
        session, _ = await enter(self.daemon, self.api, self.docker, self.programs, thread=thread)
        return session

    async def loss(self, session: session_pb2.Session) -> list[str]:
        """Why the session has lost the sandbox that it began with, if so."""
        request = session_service_pb2.GetSessionRequest(session_id=session.session_id)
        now = (await async_sessions(self.api).GetSession(request, timeout=30)).session
        is_same = now.incarnation == session.incarnation
        is_active = now.state == session_pb2.SESSION_STATE_ACTIVE
        return [] if is_same and is_active else [now.end_reason or "it is another one"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(programs: Path) -> AsyncIterator[Place]:
    async with (
        aiodocker.Docker() as docker,
        running_daemon(**SETTINGS) as daemon,
        daemon.api() as api,
    ):
        yield Place(daemon, api, docker, programs)


@contextmanager
def busy_host() -> Iterator[None]:
    """Every processor has several processes that never wait."""
    spinning = [
        subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"])
        for _ in range(SPINNING)
    ]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
        for process in spinning:
            process.wait(30)


async def attack(place: Place, cases: list[Case], count: Count) -> None:
    """Run into one deadline after the other with programs that are hard to end."""
    session = await place.attacker("attacker")
    for case in cases:
        answer = await run(place.api, session.session_id, case.command, timeout=case.timeout)
        assert answer.exit.reason in case.reasons, f"{case.id}: {answer.exit}"
        count.timed_out += answer.exit.reason in TIMED_OUT
        if lost := await place.loss(session):
            count.lost += [f"{case.id}: {why}" for why in lost]
            return


async def run_into_deadlines(place: Place, count: Count, attacks: asyncio.Future[None]) -> None:
    """What any session does, several commands at a time, for as long as the attacks last."""
    session = await open_session(place.api, "ordinary", "ordinary")
    while not attacks.done():
        answers = await asyncio.gather(
            *(
                run(place.api, session.session_id, command, timeout=ORDINARY_SECONDS)
                for command in ORDINARY
            )
        )
        assert {answer.exit.reason for answer in answers} <= TIMED_OUT, answers
        count.timed_out += len(answers)
        if lost := await place.loss(session):
            count.lost += lost
            return


async def test_busy_host_loses_no_session_by_a_deadline(
    place: Place, scoreboard: Scoreboard
) -> None:
    """With three times as many spinning processes as processors, guests have the time to end their
    commands, however hard these are to end."""
    count = Count()
    with busy_host():
        attacks = asyncio.ensure_future(attack(place, ATTACKS, count))
        await run_into_deadlines(place, count, attacks)
        await attacks
    scoreboard.figures.append(f"busy host: {count}")

    assert count.lost == []
    assert count.timed_out >= len(ATTACKS) + len(ORDINARY)


async def test_daemon_that_is_stopped_at_a_deadline_loses_no_session(
    place: Place, scoreboard: Scoreboard
) -> None:
    """It reads that a guest has ended its command before it calls the guest late."""
    count = Count()
    sessions = [await open_session(place.api, "stopped", f"thread-{n}") for n in range(4)]
    for stop in range(STOPS):
        begun = [
            await start(
                place.api,
                session.session_id,
                "sleep 60",
                timeout=FIRST_SECONDS + n * SPREAD_SECONDS,
            )
            for n, session in enumerate(sessions)
        ]
        # From a little before the first deadline to a little after the last.
        await asyncio.sleep(FIRST_SECONDS - SPREAD_SECONDS + stop * SPREAD_SECONDS / 2)
        os.kill(place.daemon.pid, signal.SIGSTOP)
        await asyncio.sleep(STOPPED_SECONDS)
        os.kill(place.daemon.pid, signal.SIGCONT)
        for session, execution in zip(sessions, begun, strict=True):
            ended = await wait(place.api, session.session_id, execution.exec_id)
            assert ended.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT
            count.timed_out += 1
            count.lost += await place.loss(session)
        if count.lost:
            break
    scoreboard.figures.append(f"stopped daemon: {count}")

    assert count.lost == []
    assert count.timed_out == STOPS * len(sessions)
