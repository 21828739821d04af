"""How long it takes to rewind, fork, park and return to a session, by the size of its workspace."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.daemon import Daemon
from benchmarks.race import milliseconds
from benchmarks.table import Group
from sandboxd_client import AsyncSandbox

WORKSPACES = {"20 files, 0.2 MB": (20, 11_000), "200 files, 5 MB": (200, 25_000)}
_FILL = (
    "for i in $(seq {files}); do head -c {half} /dev/urandom > f$i; "
    "yes line $i | head -c {half} >> f$i; done"
)


async def session_snapshots(daemon: Daemon, *, rounds: int) -> tuple[Group, float]:
    """A row per operation, and the median milliseconds of a rewind of a small workspace."""
    rows: dict[str, dict[str, float]] = {}
    for size, (files, length) in WORKSPACES.items():
        samples = await _measured(daemon, files, length, rounds=rounds)
        rows |= {f"{name}, {size}": milliseconds(found, 50, 95) for name, found in samples.items()}
    first = next(iter(WORKSPACES))
    return Group("snapshots of sessions", rows), rows[f"rewind, {first}"]["p50_ms"]


async def _measured(
    daemon: Daemon, files: int, length: int, *, rounds: int
) -> dict[str, list[float]]:
    """Operations in turn, each on a pool with warm sandboxes."""
    thread = f"snapshots-{files}"
    sandbox = await AsyncSandbox.open("bench", thread, server_url=daemon.unix_target)
    await sandbox.commands.run(_FILL.format(files=files, half=length // 2), check=True, timeout=60)
    base = await sandbox.snapshots.create("base")
    samples: dict[str, list[float]] = {
        name: [] for name in ("take, one file changed", "diff", "rewind", "fork", "park", "unpark")
    }

    for number in range(rounds):
        await daemon.wait_until_warm()
        await sandbox.commands.run(f"echo {number} > f1", check=True)
        with _timing(samples["take, one file changed"]):
            await sandbox.snapshots.create()
        with _timing(samples["diff"]):
            await sandbox.snapshots.diff(base, 0)
        with _timing(samples["rewind"]):
            await sandbox.rewind(snapshot="base")
        await daemon.wait_until_warm()
        with _timing(samples["fork"]):
            fork = await sandbox.fork()
        await fork.kill()
        await daemon.wait_until_warm()
        with _timing(samples["park"]):
            await sandbox.park()
        await sandbox.aclose()
        with _timing(samples["unpark"]):
            sandbox = await AsyncSandbox.open("bench", thread, server_url=daemon.unix_target)
    await sandbox.kill()
    await sandbox.aclose()
    return samples


@contextmanager
def _timing(samples: list[float]) -> Iterator[None]:
    began = time.perf_counter()
    yield
    samples.append(time.perf_counter() - began)
