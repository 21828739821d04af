"""`python -m benchmarks`: everything in one run, tables as they come, ratios at the end."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks import daemon as daemons
from benchmarks import memory, peer
from benchmarks.client import CommandFailed
from benchmarks.cluster import cluster
from benchmarks.code import code
from benchmarks.console import console
from benchmarks.daemon import Daemon, DaemonFailed
from benchmarks.data import data, has_postgres
from benchmarks.doors import doors
from benchmarks.engine import Engine, EngineError
from benchmarks.facts import facts
from benchmarks.features import features
from benchmarks.files import large_files, small_calls, trees
from benchmarks.latency import DOCKER_EXEC, EXEC_UNIX, HOST, RUN_UNIX, latency
from benchmarks.marks import between
from benchmarks.peer import Peer
from benchmarks.peers.measure import peers
from benchmarks.rate import rate
from benchmarks.revisions import NoRevision, revisions
from benchmarks.sdk import BEGIN, END, sdk, table
from benchmarks.sdk_stubs import sdk_and_stubs
from benchmarks.session_snapshots import session_snapshots
from benchmarks.sessions import burst, opening, refill
from benchmarks.snapshots import snapshots
from benchmarks.table import Group, Row, render
from benchmarks.throughput import throughput

DOCS = Path(__file__).parents[1] / "docs"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Number of samples of each measurement."""

    latency_rounds: int
    latency_seconds: float
    """Most seconds per command; a busy machine completes fewer rounds."""
    stream_bytes: int
    stream_rounds: int
    rate_commands: int
    rate_rounds: int
    open_rounds: int
    large_rounds: int
    small_rounds: int
    one_by_one: int
    """Number of small files that are also transferred one by one."""
    snapshot_rounds: int
    burst: int
    turns: int
    """Snapshots of one workspace."""
    query_rounds: int
    """Of a hundred queries each; 0 leaves out what needs a Redis or a PostgreSQL."""


FULL = Scale(
    latency_rounds=250,
    latency_seconds=60.0,
    stream_bytes=256 << 20,
    stream_rounds=7,
    rate_commands=1000,
    rate_rounds=5,
    open_rounds=45,
    large_rounds=7,
    small_rounds=60,
    one_by_one=900,
    snapshot_rounds=20,
    burst=50,
    turns=200,
    query_rounds=5,
)
QUICK = Scale(
    latency_rounds=50,
    latency_seconds=4.0,
    stream_bytes=64 << 20,
    stream_rounds=3,
    rate_commands=200,
    rate_rounds=3,
    open_rounds=9,
    large_rounds=3,
    small_rounds=20,
    one_by_one=60,
    snapshot_rounds=4,
    burst=10,
    turns=30,
    query_rounds=0,
)


@dataclass
class Report:
    """The results so far."""

    groups: list[Group] = field(default_factory=list)
    ratios: dict[str, float] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._began:3.0f}s] {text}", file=sys.stderr, flush=True)

    def add(self, *groups: Group) -> None:
        for group in groups:
            self.groups.append(group)
            print(render(group), end="\n\n", flush=True)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The daemons and servers that run during the measurements."""

    warm: Daemon
    cold: Daemon
    engine: Engine
    peer: Peer
    directory: Path


@asynccontextmanager
async def _set_up(engine: Engine, scale: Scale) -> AsyncIterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="sandboxd-bench-", dir="/tmp") as directory:
        async with (
            peer.running(Path(directory)) as bare,
            daemons.running(pool_size=0, max_pool_size=4, engine=engine) as cold,
            daemons.running(
                pool_size=scale.burst, max_pool_size=2 * scale.burst + 10, engine=engine
            ) as warm,
        ):
            yield Bench(warm=warm, cold=cold, engine=engine, peer=bare, directory=Path(directory))


async def _measure(bench: Bench, scale: Scale, report: Report) -> None:
    warm = bench.warm
    report.say("filling the pool")
    await warm.wait_until_warm()
    report.say("short commands")
    groups = await latency(
        warm,
        bench.engine,
        bench.peer,
        rounds=scale.latency_rounds,
        seconds=scale.latency_seconds,
    )
    report.add(*groups)
    report.ratios.update(_latency_ratios(groups[0].rows))
    in_a_row = _latency_ratios(groups[1].rows)
    report.ratios.update({f"{name}_in_a_row": ratio for name, ratio in in_a_row.items()})
    report.say("many commands at once")
    report.add(await rate(warm, commands=scale.rate_commands, rounds=scale.rate_rounds))
    report.say("large output")
    stream, ratio = await throughput(
        warm, bench.peer, size=scale.stream_bytes, rounds=scale.stream_rounds
    )
    report.add(stream)
    report.ratios["stream_of_bare"] = ratio
    await _measure_files(bench, scale, report)
    report.say("sandboxes")
    opens, milliseconds = await opening(warm, bench.cold, bench.engine, rounds=scale.open_rounds)
    report.add(opens)
    report.ratios["warm_open_p50_ms"] = milliseconds
    report.say("doors")
    report.add(*await doors(warm, size=scale.stream_bytes, rounds=scale.stream_rounds))
    report.say("the SDK")
    figures, ratios = await sdk(warm, rounds=scale.latency_rounds, seconds=scale.latency_seconds)
    report.add(figures)
    report.ratios.update(ratios)
    report.say("the SDK and stubs")
    calls, beginnings, ratios = await sdk_and_stubs(
        warm, rounds=scale.small_rounds, seconds=scale.latency_seconds
    )
    report.add(calls, beginnings)
    report.ratios.update(ratios)
    report.say("snapshots")
    report.add(*await snapshots(turns=scale.turns, others_every=scale.turns // 10))
    figures, milliseconds = await session_snapshots(warm, rounds=scale.snapshot_rounds)
    report.add(figures)
    report.ratios["rewind_p50_ms"] = milliseconds
    await _measure_many_sessions(bench, scale, report)


async def _measure_features(engine: Engine, scale: Scale, report: Report) -> None:
    report.say("what features cost a command that uses none of them")
    groups, ratios = await features(
        engine, rounds=scale.latency_rounds, seconds=scale.latency_seconds
    )
    report.add(*groups)
    report.ratios.update(ratios)
    report.say("the console")
    report.add(await console(engine, rounds=scale.latency_rounds, seconds=scale.latency_seconds))
    if not scale.query_rounds:
        return
    if shutil.which("redis-server"):
        report.say("a cluster")
        report.add(await cluster(engine, rounds=scale.latency_rounds))
    else:
        report.say("no row for a cluster: there is no redis-server (tests/install_packages)")
    if has_postgres():
        report.say("data sources")
        group, ratios = await data(scale.query_rounds)
        report.add(group)
        report.ratios.update(ratios)
    else:
        report.say("no row for data sources: no PostgreSQL (tests/install_packages)")


async def _measure_code(bench: Bench, scale: Scale, report: Report) -> None:
    report.say("code, and ipykernel to compare with; its installation and a build may take minutes")
    group, ratios = await code(
        bench.warm, rounds=scale.latency_rounds, seconds=scale.latency_seconds
    )
    report.add(group)
    report.ratios.update(ratios)


async def _measure_files(bench: Bench, scale: Scale, report: Report) -> None:
    warm = bench.warm
    report.say("files")
    group, ratios = await large_files(
        warm, bench.engine, bench.directory, rounds=scale.large_rounds
    )
    report.add(group)
    report.ratios.update(ratios)
    group, ratios = await small_calls(warm, bench.directory, rounds=scale.small_rounds)
    report.add(group)
    report.ratios.update(ratios)
    group, ratio = await trees(warm, one_by_one=scale.one_by_one)
    report.add(group)
    report.ratios["one_by_one_of_tar"] = ratio


async def _measure_many_sessions(bench: Bench, scale: Scale, report: Report) -> None:
    warm = bench.warm
    report.say("many sandboxes at once, and memory")
    await warm.wait_until_warm()
    report.add(memory.per_sandbox(warm, bench.engine))
    before = memory.daemon_rss(warm)
    opens, sessions = await burst(warm, count=scale.burst)
    report.add(opens)
    await warm.wait_until_warm()
    report.add(memory.per_session(warm, before=before, sessions=len(sessions)))
    await asyncio.gather(*map(warm.client.end, sessions))
    report.say("warm sandboxes replaced")
    report.add(await refill(warm, count=scale.burst // 2))


def _latency_ratios(rows: Mapping[str, Row]) -> dict[str, float]:
    p50 = {name: row["p50_ms"] for name, row in rows.items()}
    return {
        "run_of_host": p50[RUN_UNIX] / p50[HOST],
        "exec_of_host": p50[EXEC_UNIX] / p50[HOST],
        "docker_exec_of_run": p50[DOCKER_EXEC] / p50[RUN_UNIX],
    }


def _last_lines(ratios: dict[str, float]) -> str:
    return (
        f"docker-cp/upload ratio {ratios['docker_cp_of_upload']:.2f}, "
        f"docker-cp/download ratio {ratios['docker_cp_of_download']:.2f}, "
        f"1 MB up p50 {ratios['upload_1mb_p50_ms']:.1f} ms, "
        f"down {ratios['download_1mb_p50_ms']:.1f} ms, "
        f"list p50 {ratios['list_p50_ms']:.1f} ms, "
        f"one-by-one/tar ratio {ratios['one_by_one_of_tar']:.0f}\n"
        f"warm OpenSession p50 {ratios['warm_open_p50_ms']:.2f} ms, "
        f"stream/bare ratio {ratios['stream_of_bare']:.2f}, "
        f"rewind p50 {ratios['rewind_p50_ms']:.1f} ms\n"
        f"SDK: worst ratio to its goals {ratios['sdk_local_worst_of_goal']:.2f} local, "
        f"{ratios['sdk_remote_worst_of_goal']:.2f} remote, "
        f"worst SDK/stub ratio {ratios['sdk_worst_of_stub']:.2f}\n"
        f"in a row: {_of_commands(ratios, '_in_a_row')}\n"
        f"{_of_commands(ratios)}"
    )


def _of_code(ratios: Mapping[str, float]) -> str:
    return (
        "code: fresh context/host python ratio "
        f"{ratios['fresh_context_of_host_python']:.2f}, "
        f"used context/run ratio {ratios['used_context_of_run']:.2f}, "
        f"ipykernel start/fresh context ratio {ratios['ipykernel_start_of_fresh_context']:.0f}, "
        f"ipykernel/used context ratio {ratios['ipykernel_run_of_used_context']:.1f}"
    )


def _of_features(ratios: Mapping[str, float]) -> str:
    return (
        "`true` with features: worst/plain ratio "
        f"{ratios['features_worst_of_plain']:.2f} of medians, "
        f"{ratios['features_worst_of_plain_p10']:.2f} of the fastest tenth; "
        f"plain/plain {ratios['features_noise']:.2f}"
    )


def _of_commands(ratios: Mapping[str, float], kind: str = "") -> str:
    return (
        f"run/host ratio {ratios['run_of_host' + kind]:.2f}, "
        f"exec/host ratio {ratios['exec_of_host' + kind]:.2f}, "
        f"docker-exec/run ratio {ratios['docker_exec_of_run' + kind]:.2f}"
    )


async def _run(arguments: argparse.Namespace) -> None:
    task = asyncio.current_task()
    assert task is not None
    # Without this, a SIGTERM would leave the daemons running.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    scale = QUICK if arguments.quick else FULL
    with_code = arguments.code or not (arguments.quick or arguments.features)
    report = Report()
    engine = Engine()
    if arguments.peers or arguments.before or arguments.seeds:
        await _compare(engine, arguments, report)
        return
    try:
        environment = facts(engine)
        print("  ".join(f"{name} {value}" for name, value in environment.items()), end="\n\n")
        if not arguments.features:
            async with _set_up(engine, scale) as bench:
                if not arguments.code:
                    await _measure(bench, scale, report)
                if with_code:
                    await bench.warm.wait_until_warm()
                    await _measure_code(bench, scale, report)
                report.say("stopping the daemons")
        if not arguments.code:
            await _measure_features(engine, scale, report)
        report.say("done; no container is left")
    finally:
        engine.remove_leftovers()
        engine.close()
    if arguments.json:
        figures = {
            "facts": environment,
            "scale": asdict(scale),
            "groups": {group.title: group.rows for group in report.groups},
            "ratios": report.ratios,
        }
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    if with_code:
        print(_of_code(report.ratios))
    if not arguments.code:
        print(_of_features(report.ratios))
    if not (arguments.code or arguments.features):
        print(_last_lines(report.ratios))


async def _compare(engine: Engine, arguments: argparse.Namespace, report: Report) -> None:
    """Other libraries, another revision, or what was asked for, next to this one."""
    # Few samples are for a look, not for the page.
    page = arguments.page or (None if arguments.quick else DOCS)
    try:
        if arguments.peers:
            await peers(engine, is_quick=arguments.quick, target=page, say=report.say)
        elif arguments.seeds:
            await _measure_goals(engine, QUICK if arguments.quick else FULL, page, report)
        else:
            print("  ".join(f"{name} {value}" for name, value in facts(engine).items()), end="\n\n")
            async for group in revisions(engine, arguments.before, report.say):
                report.add(group)
    finally:
        engine.remove_leftovers()
        engine.close()


async def _measure_goals(engine: Engine, scale: Scale, page: Path | None, report: Report) -> None:
    machine = facts(engine)
    async with daemons.running(pool_size=3, max_pool_size=8, engine=engine) as daemon:
        await daemon.wait_until_warm()
        group, _ = await sdk(daemon, rounds=scale.latency_rounds, seconds=scale.latency_seconds)
    report.add(group)
    if page is not None:
        target = page / "performance.md"
        about = f"\n{machine['cores']} processors, load {machine['load']} before it began.\n\n"
        target.write_text(between(target.read_text(), BEGIN, END, about + table(group) + "\n"))


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--code", action="store_true", help="only runs of code")
    parser.add_argument("--features", action="store_true", help="only the cost of features")
    parser.add_argument(
        "--peers",
        action="store_true",
        help="only next to other libraries; writes docs/benchmarks.md",
    )
    parser.add_argument(
        "--seeds",
        action="store_true",
        help="only the SDK next to its goals; writes their table in docs/performance.md",
    )
    parser.add_argument(
        "--page", type=Path, metavar="DIR", help="with --peers or --seeds: write there"
    )
    parser.add_argument(
        "--before", metavar="REVISION", help="only the daemon of another revision next to this one"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file")
    arguments = parser.parse_args()
    try:
        asyncio.run(_run(arguments))
    except (CommandFailed, DaemonFailed, EngineError, NoRevision) as error:
        sys.exit(f"bench: {error}")
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit("bench: interrupted")


main()
