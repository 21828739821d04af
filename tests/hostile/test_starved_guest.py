"""A guest answers in time however busy its commands keep the processor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.docker.commands import exec_request
from tests.hostile.arena import Arena, async_execs, close_session, enter, open_arena
from tests.hostile.cases import STARVATION, Case
from tests.hostile.scoreboard import Scoreboard, Verdict

pytestmark = [pytest.mark.alone, pytest.mark.asyncio(loop_scope="module")]

GONE_SECONDS = 5.0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def arena(programs: Path) -> AsyncIterator[Arena]:
    async with open_arena(programs, CPU_QUOTA="25000") as arena:
        yield arena


@pytest.mark.parametrize("case", STARVATION, ids=lambda case: f"{case.id} {case.title}")
async def test_guest_is_not_starved(arena: Arena, scoreboard: Scoreboard, case: Case) -> None:
    """With a quarter of a processor for all commands, one that takes it all is ended in time."""
    verdict = await arena.judge(case)
    scoreboard.verdicts.append(verdict)

    assert verdict.problems == []


@pytest.mark.parametrize(
    ("case_id", "title", "command"),
    [
        ("R37a", "fork bomb when its session is closed", "bin/processes deaf-fork-bomb"),
        ("R37b", "small processes when their session is closed", "bin/memory respawning"),
    ],
)
async def test_no_process_outlives_its_session(
    arena: Arena, scoreboard: Scoreboard, case_id: str, title: str, command: str
) -> None:
    """A closed session has no process left on the host, whatever its commands were at."""
    session, sandbox = await enter(
        arena.daemon, arena.api, arena.docker, arena.programs, thread="doomed"
    )
    call = async_execs(arena.api).Exec(
        exec_request(session.session_id, command, timeout=60), timeout=60
    )
    try:
        async with asyncio.timeout(10):
            while len(list(sandbox.processes())) < 50:
                await asyncio.sleep(0.02)
    finally:
        began = time.monotonic()
        await close_session(arena.api, session.session_id)
    while (left := list(sandbox.processes())) and time.monotonic() < began + GONE_SECONDS:
        await asyncio.sleep(0.02)
    call.cancel()
    verdict = Verdict(
        id=case_id,
        title=title,
        problems=[f"{len(left)} left after {GONE_SECONDS} s: {left[0]}"] if left else [],
        outcome="CLOSED",
        sweep_ms=(time.monotonic() - began) * 1000,
    )
    scoreboard.verdicts.append(verdict)

    assert verdict.problems == []
