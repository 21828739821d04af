"""`python -m benchmarks.density`: many idle sessions on one host, and what each of them costs.

Commands next to host subprocesses with one session and with all of them; memory of an idle session;
the start of a daemon that finds all of them, and then also thousands of sessions that have ended.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from grpc import aio

from benchmarks import daemon as daemons
from benchmarks import memory
from benchmarks.client import Client, CommandFailed
from benchmarks.daemon import Daemon, DaemonFailed
from benchmarks.engine import Engine, EngineError
from benchmarks.latency import host
from benchmarks.race import Contestant, median, milliseconds, race
from benchmarks.table import Group, Row, render

SESSIONS = 500
ENDED = 10_000
POOL = 8
OPENS_AT_ONCE = 8
MAX_ROUNDS = 200
RACE_SECONDS = 40.0
STOP_SECONDS_PER_SESSION = 0.6
"""The engine removes containers one after the other, and on a busy machine slowly."""
ADOPTION_SECONDS = 120.0
ADOPTED = "sessions.adoption_finished"
LIMITS = {
    "SANDBOXD_MAX_WORKSPACE_SIZE_MB": "8",
    "SANDBOXD_TMP_MB": "4",
    "SANDBOXD_MEMORY_LIMIT": "64m",
}
"""Small disks, as every one takes its whole size from the host at once."""


async def measure(daemon: Daemon, engine: Engine, *, sessions: int, ended: int) -> list[Group]:
    """All tables, each printed as soon as it is there."""
    groups: list[Group] = []

    def add(group: Group) -> None:
        groups.append(group)
        print(render(group), end="\n\n", flush=True)

    await daemon.wait_until_warm()
    first = await daemon.client.open("density-0")
    await daemon.wait_until_warm()
    commands: dict[str, Row] = {"1 session": await _commands(daemon, [first])}
    alone = memory.daemon_rss(daemon)
    began = time.perf_counter()
    opened = [first, *await _open_all(daemon.client, range(1, sessions))]
    seconds = time.perf_counter() - began
    await daemon.wait_until_warm()
    commands[f"{sessions} sessions"] = await _commands(daemon, opened)
    add(Group("`true`, next to a host subprocess", commands))
    add(Group("opens", {f"{sessions} sessions, {POOL} warm": {"seconds": seconds}}))
    add(memory.per_sandbox(daemon, engine))
    add(memory.per_session(daemon, before=alone, sessions=sessions - 1))
    starts = {f"{sessions} sessions": await _start_again(daemon)}
    _add_ended(daemon, await _end_one(daemon.client), ended)
    with_ended = f"{sessions} sessions, and {ended} that ended"
    starts[with_ended] = await _start_again(daemon)
    await daemon.wait_until_warm()
    later = {with_ended: await _commands(daemon, opened)}
    add(Group("start of a daemon after a kill", starts))
    add(Group("`true`, next to a host subprocess, after the second start", later))
    return groups


async def _commands(daemon: Daemon, sessions: Sequence[str]) -> Row:
    """Commands in sessions at random, in turns with host subprocesses."""
    chosen = random.Random(1)

    async def run() -> float:
        return await daemon.client.run(chosen.choice(sessions), "true")

    async def on_host() -> float:
        return host("true")

    contestants = [Contestant(name="run", call=run), Contestant(name="host", call=on_host)]
    samples = await race(contestants, rounds=MAX_ROUNDS, seconds=RACE_SECONDS)
    ratio = median(samples["run"]) / median(samples["host"])
    return {**milliseconds(samples["run"], 50, 95), "of_host": ratio}


async def _open_all(client: Client, numbers: Sequence[int]) -> list[str]:
    left = iter(numbers)
    opened: list[str] = []

    async def work() -> None:
        for number in left:
            opened.append(await client.open(f"density-{number}"))

    async with asyncio.TaskGroup() as group:
        for _ in range(OPENS_AT_ONCE):
            group.create_task(work())
    return opened


async def _end_one(client: Client) -> str:
    session = await client.open("density-ended")
    await client.end(session)
    return session


def _add_ended(daemon: Daemon, session: str, count: int) -> None:
    """Give the registry as many copies of an ended session, as if they had been opened."""
    path = daemon.state_directory / "registry.sqlite"
    with sqlite3.connect(path, timeout=30.0) as registry:
        columns = [row[1] for row in registry.execute("PRAGMA table_info(sessions)")]
        own = {"session_id": "'ses_' || hex(randomblob(12))", "thread_id": "'ended-' || number"}
        values = ", ".join(own.get(column, f"sessions.{column}") for column in columns)
        registry.execute(
            "WITH RECURSIVE numbers(number) AS "
            "(SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < ?) "
            f"INSERT INTO sessions ({', '.join(columns)}) "
            f"SELECT {values} FROM numbers, sessions WHERE session_id = ?",
            (count, session),
        )
    registry.close()


async def _start_again(daemon: Daemon) -> Row:
    """Seconds until a daemon serves and until it has adopted all sessions, and its memory then."""
    await daemon.kill()
    reported = daemon.log.count(ADOPTED)
    began = time.perf_counter()
    await daemon.start_again()
    serves = time.perf_counter() - began
    give_up_at = time.monotonic() + ADOPTION_SECONDS
    while daemon.log.count(ADOPTED) == reported:
        if time.monotonic() > give_up_at:
            raise DaemonFailed(f"not all is adopted after {ADOPTION_SECONDS:g} s")
        await asyncio.sleep(0.02)
    adopted = time.perf_counter() - began
    return {
        "serves_s": serves,
        "adopted_s": adopted,
        "daemon_MiB": memory.daemon_rss(daemon) / (1 << 20),
    }


@asynccontextmanager
async def _daemon(engine: Engine, sessions: int) -> AsyncIterator[Daemon]:
    """One for so many sessions. What it leaves, after a kill or a stop that took too long, is
    removed here."""
    label = ""
    try:
        async with daemons.running(
            pool_size=POOL,
            max_pool_size=sessions + 2 * POOL,
            engine=engine,
            settings=LIMITS,
            stop_seconds=daemons.STOP_SECONDS + STOP_SECONDS_PER_SESSION * sessions,
        ) as daemon:
            label = daemon.container_label
            try:
                yield daemon
            finally:
                if daemon.process.returncode is not None:
                    await asyncio.shield(daemon.start_again())
    except BaseException:
        if label:
            engine.remove(label)
        raise


async def _run(arguments: argparse.Namespace) -> None:
    task = asyncio.current_task()
    assert task is not None
    # Without this, a SIGTERM would leave the daemon and its containers.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    engine = Engine()
    try:
        async with _daemon(engine, arguments.sessions) as daemon:
            groups = await measure(
                daemon, engine, sessions=arguments.sessions, ended=arguments.ended
            )
        print("load " + " ".join(f"{load:.1f}" for load in os.getloadavg()))
    finally:
        engine.close()
    if arguments.json:
        tables = {group.title: group.rows for group in groups}
        arguments.json.write_text(json.dumps(tables, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.density", description=__doc__)
    parser.add_argument("--sessions", type=int, default=SESSIONS, metavar="N")
    parser.add_argument("--ended", type=int, default=ENDED, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    try:
        asyncio.run(_run(parser.parse_args()))
    except (CommandFailed, DaemonFailed, EngineError, aio.AioRpcError) as error:
        sys.exit(f"density: {error}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit("density: interrupted")


if __name__ == "__main__":
    main()
