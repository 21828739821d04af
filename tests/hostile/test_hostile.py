"""Programs that exhaust, attack or try to leave a sandbox, one after another in one session."""

from __future__ import annotations

import statistics
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.hostile.arena import Arena, open_arena
from tests.hostile.cases import CASES, EXITED, Case
from tests.hostile.host_view import resident_bytes
from tests.hostile.neighbour import is_harmed
from tests.hostile.scoreboard import Scoreboard

pytestmark = [pytest.mark.alone, pytest.mark.asyncio(loop_scope="module")]

MOST_GROWTH = 32 << 20


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def arena(programs: Path) -> AsyncIterator[Arena]:
    async with open_arena(programs) as arena:
        yield arena


@pytest.fixture(scope="module")
def daemon_bytes_before(arena: Arena) -> int:
    return resident_bytes(arena.daemon.pid)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.id} {case.title}")
async def test_attack_is_held(
    arena: Arena, daemon_bytes_before: int, scoreboard: Scoreboard, case: Case
) -> None:
    """It ends as it should, the session goes on in the same sandbox with nothing left behind, and
    the neighbour does not notice."""
    verdict = await arena.judge(case)
    scoreboard.verdicts.append(verdict)

    assert verdict.problems == []


async def test_attack_that_ends_badly_does_not_spoil_the_next(arena: Arena) -> None:
    """What it leaves behind is held against it alone."""
    left = "setsid sleep 1000 >/dev/null 2>&1 &"
    bad = await arena.judge(Case(id="X1", title="leaves a process", command=left, reasons=EXITED))
    good = await arena.judge(Case(id="X2", title="does nothing", command="true", reasons=EXITED))

    assert ["left behind" in problem for problem in bad.problems] == [True]
    assert good.problems == []


async def test_neighbour_is_not_harmed_by_short_attacks(arena: Arena) -> None:
    """Attacks too short for a median of their own do not slow the neighbour down together."""
    quiet = await arena.neighbour.quiet_ms()

    assert not arena.short_cases_ms or not is_harmed(
        quiet_ms=quiet, during_ms=statistics.median(arena.short_cases_ms)
    )


async def test_daemon_does_not_grow(arena: Arena, daemon_bytes_before: int) -> None:
    """Whatever was done in a sandbox, the daemon keeps nothing of it in memory."""
    growth = resident_bytes(arena.daemon.pid) - daemon_bytes_before

    assert growth <= MOST_GROWTH, f"{growth >> 20} MB"
