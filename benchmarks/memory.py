"""Memory of a sandbox and of a session. Reading other processes' memory needs root."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.daemon import Daemon
from benchmarks.engine import Engine
from benchmarks.race import median
from benchmarks.table import Group, Row

MAX_LOOKED_AT = 10


def daemon_rss(daemon: Daemon) -> int:
    """Resident memory of the daemon in bytes."""
    return _kilobytes(Path(f"/proc/{daemon.pid}/status"), "VmRSS:") << 10


def per_session(daemon: Daemon, *, before: int, sessions: int) -> Group:
    """Growth of the daemon with `sessions` more sessions and as many more sandboxes."""
    now = daemon_rss(daemon)
    rows = {
        "without sessions": {"MiB": before / (1 << 20)},
        f"with {sessions} sessions": {"MiB": now / (1 << 20)},
        "per session": {"MiB": (now - before) / sessions / (1 << 20)},
    }
    return Group("resident memory of the daemon", rows)


def per_sandbox(daemon: Daemon, engine: Engine) -> Group:
    """Memory of idle sandboxes: guest, waiting shell, containerd-shim.

    `MiB` is the proportional set size: shared memory is divided among those that share it, so more
    sandboxes make it lower. `private_MiB` is the unique set size, what one more sandbox takes.
    """
    containers = engine.containers(daemon.container_label)
    parts = [_parts(engine.first_pid(container)) for container in containers[:MAX_LOOKED_AT]]
    rows: dict[str, Row] = {name: _row([part[name] for part in parts]) for name in parts[0]}
    rows["together"] = _row([_sum(part.values()) for part in parts])
    return Group(f"memory of an idle sandbox ({len(containers)} there)", rows)


class _Kilobytes(NamedTuple):
    proportional: int = 0
    private: int = 0


def _row(sizes: Sequence[_Kilobytes]) -> Row:
    return {
        "MiB": median([size.proportional for size in sizes]) / 1024,
        "private_MiB": median([size.private for size in sizes]) / 1024,
    }


def _sum(sizes: Iterable[_Kilobytes]) -> _Kilobytes:
    return _Kilobytes(*map(sum, zip(*sizes, strict=True)))


def _parts(guest: int) -> dict[str, _Kilobytes]:
    """Memory by part of a sandbox."""
    process = Path(f"/proc/{guest}")
    # For each thread: shells are children of the thread that starts them.
    lists = (process / "task").glob("*/children")
    children = [int(child) for children in lists for child in children.read_text().split()]
    shim = _kilobytes(process / "status", "PPid:")
    return {
        "guest": _memory(guest),
        "waiting shell": _sum([_Kilobytes(), *map(_memory, children)]),
        "containerd-shim": _memory(shim),
    }


def _memory(pid: int) -> _Kilobytes:
    rollup = Path(f"/proc/{pid}/smaps_rollup")
    private = [_kilobytes(rollup, f"Private_{kind}:") for kind in ("Clean", "Dirty")]
    return _Kilobytes(_kilobytes(rollup, "Pss:"), sum(private))


def _kilobytes(path: Path, field: str) -> int:
    """The number that follows a name in one of the kernel's files."""
    for line in path.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise ValueError(f"there is no {field} in {path}")
