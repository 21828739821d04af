"""Latency of SDK calls, with a daemon in the process and with a separate one."""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.daemon import Daemon
from benchmarks.latency import HOST, host
from benchmarks.race import Contestant, median, race
from benchmarks.table import Group
from sandboxd_client import AsyncSandboxClient

MODES = ("local", "remote")
GOALS = {
    "open a session": (50.0, 120.0),
    "execute `true`": (15.0, 45.0),
    "upload 1 MB": (80.0, 150.0),
    "download 1 MB": (75.0, 140.0),
    "list files": (10.0, 35.0),
}
"""Goals in milliseconds for local and remote mode, which came before the first line of code."""
BEGIN = "<!-- written by `./scripts/bench --seeds` -->"
END = "<!-- end of what `./scripts/bench --seeds` has written -->"
OPENING_PAUSE = 0.5
"""Time for the pool to replace the sandbox that was taken, so that each open is warm."""

Operation = Callable[[], Awaitable[object]]


async def sdk(daemon: Daemon, *, rounds: int, seconds: float) -> tuple[Group, dict[str, float]]:
    """A row per operation, and the worst ratio to the goals of each mode."""
    async with (
        _local_client() as local,
        AsyncSandboxClient(server_url=f"http://{daemon.tcp_target}") as remote,
    ):
        samples: dict[str, list[float]] = {}
        with tempfile.TemporaryDirectory(prefix="sandboxd-bench-") as name:
            directory = Path(name)
            (directory / "large.bin").write_bytes(os.urandom(1 << 20))
            contestants = [Contestant(name=HOST, call=_of_host)]
            for mode, client in (("local", local), ("remote", remote)):
                await client.get_or_create_session("bench", f"sdk-{mode}")
                await client.upload_file(directory / "large.bin")
                contestants += [
                    Contestant(name=f"{what}, {mode}", call=_timed(call))
                    for what, call in _operations(client, directory).items()
                ]
            samples |= await race(contestants, rounds=rounds, seconds=seconds)
        openings = [
            Contestant(
                name=f"open a session, {mode}",
                call=_opening(client, mode),
                aftermath_seconds=OPENING_PAUSE,
            )
            for mode, client in (("local", local), ("remote", remote))
        ]
        samples |= await race(openings, rounds=max(5, rounds // 10), seconds=seconds)
    return _group(samples)


def table(group: Group) -> str:
    """The same for a page."""
    lines = [
        "| operation | local mode: goal | measured | of a host subprocess "
        "| remote mode: goal | measured | of a host subprocess |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in group.rows.items():
        cells = [
            cell
            for mode in MODES
            for cell in (
                f"{row[f'{mode}_goal_ms']:.0f} ms",
                f"{row[f'{mode}_p50_ms']:.1f} ms",
                f"{row[f'{mode}_of_host']:.2f}",
            )
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


@asynccontextmanager
async def _local_client() -> AsyncIterator[AsyncSandboxClient]:
    shared_state = Path(os.environ.get("SANDBOXD_STATE_DIR", "/var/lib/sandboxd"))
    runtime = os.environ.get("SANDBOXD_GUEST_RUNTIME") or shared_state / "runtime" / "current"
    with tempfile.TemporaryDirectory(prefix="sandboxd-bench-", dir="/tmp") as name:
        settings = {
            "state_dir": Path(name) / "state",
            "run_dir": Path(name) / "run",
            "guest_runtime": Path(runtime),
            "pool_size": 3,
        }
        async with AsyncSandboxClient(mode="local", local_settings=settings) as client:
            yield client


def _operations(client: AsyncSandboxClient, directory: Path) -> dict[str, Operation]:
    large = directory / "large.bin"
    return {
        "execute `true`": lambda: client.execute("true"),
        "upload 1 MB": lambda: client.upload_file(large),
        "download 1 MB": lambda: client.download_file("large.bin", directory / "copy.bin"),
        "list files": client.list_files,
    }


async def _of_host() -> float:
    return host("true")


def _timed(call: Operation) -> Callable[[], Awaitable[float]]:
    async def timed() -> float:
        began = time.perf_counter()
        await call()
        return time.perf_counter() - began

    return timed


def _opening(client: AsyncSandboxClient, mode: str) -> Callable[[], Awaitable[float]]:
    numbers = itertools.count()

    async def opened() -> float:
        began = time.perf_counter()
        await client.get_or_create_session("bench", f"sdk-{mode}-{next(numbers)}")
        took = time.perf_counter() - began
        await client.close_session()
        return took

    return opened


def _group(samples: dict[str, list[float]]) -> tuple[Group, dict[str, float]]:
    rows: dict[str, dict[str, float]] = {}
    worst = dict.fromkeys(MODES, 0.0)
    of_host = median(samples[HOST]) * 1000
    for name, goals in GOALS.items():
        row: dict[str, float] = {}
        for mode, goal in zip(MODES, goals, strict=True):
            p50 = median(samples[f"{name}, {mode}"]) * 1000
            row |= {f"{mode}_p50_ms": p50, f"{mode}_goal_ms": goal, f"{mode}_of_goal": p50 / goal}
            row[f"{mode}_of_host"] = p50 / of_host
            worst[mode] = max(worst[mode], p50 / goal)
        rows[name] = row
    ratios = {f"sdk_{mode}_worst_of_goal": ratio for mode, ratio in worst.items()}
    return Group("the SDK, against its goals", rows), ratios
