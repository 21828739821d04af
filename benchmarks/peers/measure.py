"""All contenders in one race per task, and the page that is written from it."""

from __future__ import annotations

import datetime
import math
import os
import platform
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks import daemon as daemons
from benchmarks.daemon import Daemon
from benchmarks.engine import Engine
from benchmarks.peers import chart, page, process, tasks
from benchmarks.peers.columns import ABSENT, API, MODULES, OF_THE_INDEX, POOL_SIZE, USES
from benchmarks.peers.install import Installed, installed
from benchmarks.peers.process import Contender, ContenderFailed
from benchmarks.peers.results import OURS, Column, Failed, Measured, Outcome, Results, Row, cell
from benchmarks.race import MIN_ROUNDS, Contestant, median, race

BASE_IMAGE = "sandbox-secure"
LEAST_NEW, NEW_TIMES = 3, 3
"""Rounds of sessions without a pool, however long they take, and how much longer than others."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Scale:
    rounds: int
    seconds: float
    """Most seconds per task; a busy machine completes fewer rounds."""
    open_rounds: int
    new_rounds: int
    """Of sessions without a pool, which take seconds."""


FULL = Scale(rounds=60, seconds=25.0, open_rounds=30, new_rounds=9)
QUICK = Scale(rounds=10, seconds=4.0, open_rounds=7, new_rounds=3)


async def peers(engine: Engine, *, is_quick: bool, target: Path | None, say: Say) -> None:
    """Measure, print the table, and write page and chart to a directory."""
    scale = QUICK if is_quick else FULL
    began_with = _load()
    with tempfile.TemporaryDirectory(prefix="sandboxd-bench-", dir="/tmp") as name:
        say("installing the peers, and building an image with what they need")
        tag = f"sandboxd/bench-peers:{engine.label.partition('=')[2]}"
        async with installed(Path(name), BASE_IMAGE, tag) as found:
            try:
                async with _contenders(engine, found, Path(name)) as (contenders, idle):
                    rows = await _measured(contenders, found.reasons, idle, scale, say)
                    say("stopping all")
            finally:
                # One that was killed leaves containers, which would keep the image.
                engine.remove_leftovers()
            columns = [
                Column(name, _version(contenders, name), USES[name], ABSENT.get(name, {}))
                for name in MODULES
            ]
    results = Results(columns, rows, _facts(engine, began_with, rows))
    for task, row in rows.items():
        cells = [f"{name} {cell(row, name)}" for name in MODULES]
        print(f"{tasks.TITLES[task]:48}", "  ".join(cells))
    if target is not None:
        (target / "benchmarks.md").write_text(page.page(results))
        (target / page.CHART).write_text(chart.chart(results))
        say("docs/benchmarks.md and its chart are written")


def _version(contenders: Mapping[str, Contender], name: str) -> str:
    return contenders[name].version if name in contenders else ""


@asynccontextmanager
async def _contenders(
    engine: Engine, found: Installed, directory: Path
) -> AsyncIterator[tuple[dict[str, Contender], Callable[[], Awaitable[None]]]]:
    """Those that could be installed, all on one image; and a wait until no daemon is busy."""
    settings = {"SANDBOXD_CONTAINER_IMAGE": found.image, "SANDBOXD_CONSOLE_PORT": "0"}
    running = partial(daemons.running, max_pool_size=8, engine=engine, settings=settings)
    async with (
        running(pool_size=POOL_SIZE) as warm,
        running(pool_size=0) as cold,
        AsyncExitStack() as stack,
    ):

        async def idle() -> None:
            await warm.wait_until_warm()
            await cold.wait_until_warm()

        await idle()
        contenders = {}
        for name, module in MODULES.items():
            python = found.pythons.get(name) if name in OF_THE_INDEX else Path(sys.executable)
            if python is None or name in found.reasons:
                continue
            contenders[name] = await stack.enter_async_context(
                process.running(
                    python,
                    module,
                    _given(name, warm, cold, found.image, engine),
                    directory / f"{name}.log",
                )
            )
        yield contenders, idle


def _given(name: str, warm: Daemon, cold: Daemon, image: str, engine: Engine) -> dict[str, str]:
    given = {"image": image, "label": engine.label}
    if name == OURS:
        return {**given, "warm": warm.unix_target, "cold": cold.unix_target}
    return {**given, "way": "api" if name == API else "cli"}


async def _measured(
    contenders: Mapping[str, Contender],
    reasons: Mapping[str, str],
    idle: Callable[[], Awaitable[None]],
    scale: Scale,
    say: Say,
) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    for task in tasks.TITLES:
        say(tasks.TITLES[task])
        rows[task] = await _raced(task, contenders, reasons, idle, scale)
    return rows


async def _raced(
    task: str,
    contenders: Mapping[str, Contender],
    reasons: Mapping[str, str],
    idle: Callable[[], Awaitable[None]],
    scale: Scale,
) -> Row:
    """A row. One that fails takes no further part in it; the others go on."""
    outcomes: dict[str, Outcome] = {
        name: Failed(reason) for name, reason in reasons.items() if task not in ABSENT.get(name, {})
    }
    is_opening = task in (tasks.OPEN_WARM, tasks.OPEN_NEW)

    async def measured(name: str) -> float:
        if name in outcomes:
            return math.nan
        try:
            return await contenders[name].ask(task)
        except ContenderFailed as error:
            outcomes[name] = Failed(str(error))
            return math.nan
        finally:
            if is_opening and name == OURS:
                await idle()  # a pool that fills up would be at the next one's expense

    contestants = []
    for name, contender in contenders.items():
        if contender.failure:
            if task not in ABSENT.get(name, {}):
                outcomes[name] = Failed(contender.failure)
        elif task in contender.tasks:
            contestants.append(Contestant(name=name, call=partial(measured, name)))
    rounds = {tasks.OPEN_WARM: scale.open_rounds, tasks.OPEN_NEW: scale.new_rounds}
    least = {tasks.OPEN_NEW: LEAST_NEW}
    samples = await race(
        contestants,
        rounds=rounds.get(task, scale.rounds),
        seconds=scale.seconds * (NEW_TIMES if task == tasks.OPEN_NEW else 1),
        least=least.get(task, MIN_ROUNDS),
    )
    for name, taken in samples.items():
        outcomes.setdefault(name, Measured(median(taken), len(taken)))
    return outcomes


def _load() -> str:
    return " ".join(f"{value:.1f}" for value in os.getloadavg())


def _facts(engine: Engine, began_with: str, rows: Mapping[str, Row]) -> dict[str, str]:
    samples = [
        outcome.samples
        for row in rows.values()
        for outcome in row.values()
        if isinstance(outcome, Measured)
    ]
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{len(os.sched_getaffinity(0))} cores, {_memory()}",
        "kernel": f"Linux {platform.release().partition('-')[0]}",
        "load": f"{began_with} at the begin, {_load()} at the end",
        "engine": f"Docker {engine.version()}",
        "python": platform.python_version(),
        "samples": f"{min(samples, default=0)} to {max(samples, default=0)} of each figure",
    }


def _memory() -> str:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return f"{pages / (1 << 30):.0f} GiB"
