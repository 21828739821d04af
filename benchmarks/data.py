"""`python -m benchmarks.data`: `db_query` inside of a sandbox against the same driver on the host.

All run in turns, in one run: what disturbs the machine disturbs all of them. Needs PostgreSQL
(tests/install_packages).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg

from benchmarks import daemon as daemons
from benchmarks.engine import Engine
from benchmarks.race import median, milliseconds
from benchmarks.table import Group, render
from sandboxd_client import AsyncSandbox
from tests.integrations.postgres_cluster import running_cluster

ROUNDS, IN_A_ROUND, WARM_UP = 10, 100, 20
INSIDE, PLAIN, PROTECTED = "db_query inside", "host, plain", "host, with the same protection"
PROGRAM = """
import json, sys, time
sys.path.insert(0, "/.sandboxd")
from guest.code.database import db_query
taken = []
for number in range({warm_up} + {count}):
    began = time.perf_counter()
    db_query("SELECT 1")
    taken.append(time.perf_counter() - began)
    time.sleep(0.001)
print(json.dumps(taken[{warm_up}:]))
"""


def on_host(work: Callable[[], object]) -> list[float]:
    taken = []
    for _ in range(WARM_UP + IN_A_ROUND):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
        time.sleep(0.001)  # as inside: the next query does not find everything hot
    return taken[WARM_UP:]


async def measure(dsn: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of each query, by who sent it."""
    with TemporaryDirectory(prefix="sandboxd-bench-", dir="/tmp") as directory:
        file = Path(directory) / "dsn"
        file.write_text(dsn)
        file.chmod(0o600)
        source = {
            "engine": "postgresql",
            "dsn_file": str(file),
            "user_queries_per_minute": 100_000,
        }
        settings = {
            "SANDBOXD_DATA_SOURCES": json.dumps({"app": source}),
            "SANDBOXD_COMMAND_POLICY": "open",
        }
        async with daemons.running(
            pool_size=1, max_pool_size=4, engine=Engine(), settings=settings
        ) as daemon:
            url = daemon.unix_target
            async with await AsyncSandbox.create(data_sources=["app"], server_url=url) as sandbox:
                return await _race(sandbox, dsn, rounds)


async def _race(sandbox: AsyncSandbox, dsn: str, rounds: int) -> dict[str, list[float]]:
    taken: dict[str, list[float]] = {INSIDE: [], PLAIN: [], PROTECTED: []}
    program = PROGRAM.format(warm_up=WARM_UP, count=IN_A_ROUND)
    await sandbox.files.write("bench.py", program)
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:

        def plain() -> None:
            connection.execute("SELECT 1").fetchall()

        def protected() -> None:
            connection.execute("BEGIN TRANSACTION READ ONLY")
            connection.execute("SELECT 1").fetchall()
            connection.execute("ROLLBACK")
            connection.execute("DISCARD ALL")

        for _ in range(rounds):
            done = await sandbox.commands.run("python3 bench.py", timeout=60)
            taken[INSIDE] += json.loads(done.stdout)
            taken[PLAIN] += await asyncio.to_thread(on_host, plain)
            taken[PROTECTED] += await asyncio.to_thread(on_host, protected)
    return taken


def has_postgres() -> bool:
    """As tests find it."""
    at_home = any(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return at_home or shutil.which("initdb") is not None


async def data(rounds: int) -> tuple[Group, dict[str, float]]:
    """The table, and the ratios to both ways of the host."""
    with running_cluster() as admin:
        os.chmod(admin.split()[0].removeprefix("host="), 0o711)
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute("CREATE ROLE reader LOGIN")
        taken = await measure(admin.replace("user=tests", "user=reader"), rounds)
    rows = {name: milliseconds(samples, 50, 95) for name, samples in taken.items()}
    ratios = {
        "db_query_of_plain": median(taken[INSIDE]) / median(taken[PLAIN]),
        "db_query_of_protected": median(taken[INSIDE]) / median(taken[PROTECTED]),
    }
    return Group("`SELECT 1`", rows), ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    arguments = parser.parse_args()
    group, ratios = asyncio.run(data(arguments.rounds))
    print(render(group))
    print(
        f"\ndb_query/host ratio {ratios['db_query_of_plain']:.2f} plain, "
        f"{ratios['db_query_of_protected']:.2f} with the same protection"
    )


if __name__ == "__main__":
    main()
