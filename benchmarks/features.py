"""What features cost a command that uses none of them: `true`, with and without each, in turns."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from benchmarks import daemon as daemons
from benchmarks.console import watching, with_console
from benchmarks.daemon import Daemon, free_port
from benchmarks.engine import Engine
from benchmarks.race import Contestant, median, milliseconds, percentile, race
from benchmarks.table import Group
from sandboxd_client import AsyncSandbox

PLAIN = "plain session, daemon without features"
AGAIN = "the same once more, to see the noise"
CONFIGURED = "plain session, daemon with console and data sources"
EGRESS = "session with egress rules"
DATA = "session with a data source"
FORWARD = "session with a forwarded port"
SNAPSHOTS = "session with a snapshot after every command"
CODE = "session with an open code context"
WATCHED = "session that two pages of the console watch"
CHANGE = "echo $RANDOM > changed"
SESSIONS = 8
"""At most, of one daemon."""

Sessions = dict[str, tuple[Daemon, str]]
"""The daemon and the id of the session, by row."""


async def features(
    engine: Engine, *, rounds: int, seconds: float
) -> tuple[list[Group], dict[str, float]]:
    """Tables of `true`, and of a command that changes a file; the worst ratio of the first."""
    async with AsyncExitStack() as stack:
        sessions = await _sessions(stack, engine)
        groups = [
            await _raced("`true`", "true", sessions, rounds=rounds, seconds=seconds),
            await _raced(
                "a file changed",
                CHANGE,
                {name: sessions[name] for name in (PLAIN, AGAIN, SNAPSHOTS, WATCHED)},
                rounds=rounds,
                seconds=seconds,
            ),
        ]
    rows = groups[0].rows
    found = {name: row for name, row in rows.items() if name not in (PLAIN, AGAIN)}
    return groups, {
        "features_worst_of_plain": max(row["of_plain"] for row in found.values()),
        "features_worst_of_plain_p10": max(row["p10_of_plain"] for row in found.values()),
        "features_noise": rows[AGAIN]["of_plain"],
    }


async def _raced(
    title: str, command: str, sessions: Sessions, *, rounds: int, seconds: float
) -> Group:
    contestants = [
        Contestant(name=name, call=_run(daemon, session, command))
        for name, (daemon, session) in sessions.items()
    ]
    samples = await race(contestants, rounds=rounds, seconds=seconds)
    # On a busy machine the fastest tenth says more about the path than the median does.
    base, fast_base = median(samples[PLAIN]), percentile(samples[PLAIN], 10)
    rows = {
        name: {
            **milliseconds(taken, 10, 50, 95),
            "of_plain": median(taken) / base,
            "p10_of_plain": percentile(taken, 10) / fast_base,
        }
        for name, taken in samples.items()
    }
    return Group(f"cost of features, {title}", rows)


def _run(daemon: Daemon, session: str, command: str) -> Callable[[], Awaitable[float]]:
    return partial(daemon.client.run, session, command)


async def _sessions(stack: AsyncExitStack, engine: Engine) -> Sessions:
    """A session per row, on three daemons: without features, with them, and watched."""
    directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="sandboxd-bench-"))
    running = partial(daemons.running, pool_size=1, max_pool_size=SESSIONS + 2, engine=engine)
    bare = await stack.enter_async_context(running(settings={"SANDBOXD_CONSOLE_PORT": "0"}))
    full = await stack.enter_async_context(running(settings=_everything(Path(directory))))
    watched, browser = await stack.enter_async_context(with_console(engine))

    async def opened(**options: object) -> AsyncSandbox:
        created = AsyncSandbox.create(server_url=full.unix_target, **options)  # type: ignore[arg-type]
        return await stack.enter_async_context(await created)

    coding = await opened()
    await coding.code.run("kept = 1", check=True)
    forwarding = await opened()
    await stack.enter_async_context(await forwarding.ports.forward(7000))
    with_features = {
        CONFIGURED: await opened(),
        EGRESS: await opened(egress=[f"127.0.0.1:{full.site_port}"]),
        DATA: await opened(data_sources=["app"]),
        FORWARD: forwarding,
        SNAPSHOTS: await opened(auto_snapshot="commands"),
        CODE: coding,
    }
    seen = await watched.client.open("watched")
    await stack.enter_async_context(watching(browser, seen))
    sessions = {
        PLAIN: (bare, await bare.client.open("plain")),
        AGAIN: (bare, await bare.client.open("again")),
        **{name: (full, sandbox.session_id) for name, sandbox in with_features.items()},
        WATCHED: (watched, seen),
    }
    for daemon in (bare, full, watched):
        await daemon.wait_until_warm()
    return sessions


def _everything(directory: Path) -> dict[str, str]:
    """Settings of a daemon that serves the console and a data source."""
    file = directory / "app.sqlite"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE numbers (number INTEGER)")
    source = {"engine": "sqlite", "path": str(file)}
    return {
        "SANDBOXD_CONSOLE_PORT": str(free_port()),
        "SANDBOXD_DATA_SOURCES": json.dumps({"app": source}),
    }
