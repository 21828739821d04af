"""The daemon of another revision next to the present one: the same calls to both, in turns."""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import tarfile
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grpc import aio

from benchmarks import daemon as daemons
from benchmarks import memory
from benchmarks.daemon import ROOT, Daemon
from benchmarks.engine import Engine
from benchmarks.files import LISTED, MEGABYTE, Files, archive
from benchmarks.race import Contestant, median, race
from benchmarks.rate import AT_ONCE, Rate
from benchmarks.sessions import burst_seconds, refill_seconds
from benchmarks.table import Group, Row

BEFORE, AFTER = "before", "after"
IN_A_ROW = 3
"""Calls in a turn: most of them find the daemon as the call before has left it."""
ROUNDS = 100
RATE_ROUNDS = 9
RATE_COMMANDS = 400
BURST_ROUNDS = 3
BURST = 100
REPLACED = 40
SMALL_DISKS = {"SANDBOXD_MAX_WORKSPACE_SIZE_MB": "16", "SANDBOXD_TMP_MB": "4"}
"""Several hundred sandboxes, whose disks are allocated in advance."""


class NoRevision(Exception):
    """There is no such revision."""


@dataclass(frozen=True)
class Side:
    """One of the two daemons."""

    name: str
    daemon: Daemon
    files: Files
    listed: Files
    session: str


Say = Callable[[str], None]
Call = Callable[[], Awaitable[float]]


async def revisions(engine: Engine, revision: str, say: Say) -> AsyncIterator[Group]:
    """Tables of both; `revision` is anything that git knows."""
    with tempfile.TemporaryDirectory(prefix="sandboxd-bench-", dir="/tmp") as name:
        directory = Path(name)
        source = directory / "source"
        _extract(revision, source)
        async with AsyncExitStack() as stack:
            say("starting both, and filling their pools")
            sides = [
                await stack.enter_async_context(_side(BEFORE, engine, source)),
                await stack.enter_async_context(_side(AFTER, engine, ROOT)),
            ]
            say("calls")
            yield await _calls(sides, directory)
            yield _memory(sides, engine)
            say("many commands at once")
            yield await _rates(sides)
            say("many opens at once")
            yield await _bursts(sides)


def _extract(revision: str, target: Path) -> None:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--format=tar", revision],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise NoRevision(done.stderr.decode(errors="replace").strip())
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        tar.extractall(target, filter="data")


@asynccontextmanager
async def _side(name: str, engine: Engine, source: Path) -> AsyncIterator[Side]:
    async with (
        daemons.running(
            pool_size=BURST,
            max_pool_size=2 * BURST + 10,
            engine=engine,
            settings=SMALL_DISKS,
            source=source,
        ) as daemon,
        aio.insecure_channel(daemon.unix_target) as channel,
    ):
        await daemon.wait_until_warm()
        session, listed = await daemon.client.open("calls"), await daemon.client.open("list")
        yield Side(name, daemon, Files(channel, session), Files(channel, listed), session)


async def _calls(sides: Sequence[Side], directory: Path) -> Group:
    source, target = directory / "megabyte", directory / "back"
    source.write_bytes(os.urandom(MEGABYTE))
    calls: dict[str, Callable[[Side], Call]] = {
        "Run of `true`": lambda side: partial(side.daemon.client.run, side.session, "true"),
        "UploadFile, 1 MB": lambda side: partial(side.files.upload, source, "f"),
        "DownloadFile, 1 MB": lambda side: partial(side.files.download, "f", target),
        f"ListFiles, {LISTED} files": lambda side: partial(side.listed.list, "outputs"),
        "UploadFile, 8 bytes": lambda side: partial(
            _timed, side.files.write, "small", b"content\n"
        ),
        "DownloadFile, 8 bytes": lambda side: partial(_timed, side.files.read, "small"),
    }
    contestants = []
    for side in sides:
        await side.listed.unpack(archive(LISTED), "outputs")
        await side.files.upload(source, "f")
        await side.files.write("small", b"content\n")
        contestants += [
            Contestant(name=f"{side.name} {name}", call=call(side), in_a_row=IN_A_ROW)
            for name, call in calls.items()
        ]
    samples = await race(contestants, rounds=ROUNDS, seconds=120.0)
    return Group(
        "calls, ms",
        {
            name: _row(*(median(samples[f"{side.name} {name}"]) * 1000 for side in sides))
            for name in calls
        },
    )


async def _timed(call: Callable[..., Awaitable[object]], *arguments: object) -> float:
    began = time.perf_counter()
    await call(*arguments)
    return time.perf_counter() - began


async def _rates(sides: Sequence[Side]) -> Group:
    rates = [await Rate.begin(side.daemon) for side in sides]
    found: list[list[float]] = [[] for _ in sides]
    hosts = []
    for number in range(RATE_ROUNDS):
        hosts.append(Rate.of_host(RATE_COMMANDS))
        # Neither is always the one that begins.
        for index in (0, 1) if number % 2 else (1, 0):
            found[index].append(await rates[index].measure(RATE_COMMANDS))
    for rate in rates:
        await rate.end()
    before, after = map(median, found)
    host = median(hosts)
    return Group(
        f"`true`, {AT_ONCE} at once, commands per second",
        {
            "Run": _row(before, after),
            "Run, of host subprocesses": _row(before / host, after / host),
        },
    )


async def _bursts(sides: Sequence[Side]) -> Group:
    opens: list[list[float]] = [[] for _ in sides]
    for number in range(BURST_ROUNDS):
        for index in (0, 1) if number % 2 else (1, 0):
            daemon = sides[index].daemon
            seconds, sessions = await burst_seconds(daemon, BURST, f"burst-{number}")
            opens[index].append(seconds)
            await asyncio.gather(*map(daemon.client.end, sessions))
            await daemon.wait_until_warm()
    before, after = (median(one) * 1000 for one in opens)
    rows = {f"all of {BURST} opens, {BURST} warm": _row(before, after)}
    for is_loaded in (False, True):
        refills = [await refill_seconds(one.daemon, REPLACED, is_loaded=is_loaded) for one in sides]
        name = f"{REPLACED} warm sandboxes replaced" + (", beside commands" if is_loaded else "")
        rows[name] = _row(*(seconds * 1000 for seconds in refills))
    return Group("many at once, ms", rows)


def _memory(sides: Sequence[Side], engine: Engine) -> Group:
    tables = [memory.per_sandbox(side.daemon, engine).rows for side in sides]
    rows = {
        name: _row(*(float(table[name]["private_MiB"]) for table in tables)) for name in tables[0]
    }
    return Group("memory of an idle sandbox, private MiB", rows)


def _row(before: float, after: float) -> Row:
    return {BEFORE: before, AFTER: after, "after_of_before": after / before}
