"""Memory of a sandbox and of a session. Reading other processes' memory needs root."""

from __future__ import annotations

from pathlib import Path

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
    """Proportional memory of idle sandboxes: guest, waiting shell, containerd-shim.

    Shared memory counts proportionally, so more sandboxes make the figures lower.
    """
    containers = engine.containers(daemon.container_label)
    parts = [_parts(engine.first_pid(container)) for container in containers[:MAX_LOOKED_AT]]
    names = parts[0]
    rows: dict[str, Row] = {
        name: {"MiB": median([part[name] for part in parts]) / 1024} for name in names
    }
    rows["together"] = {"MiB": median([sum(part.values()) for part in parts]) / 1024}
    return Group(f"memory of an idle sandbox ({len(containers)} there)", rows)


def _parts(guest: int) -> dict[str, int]:
    """Kilobytes by part of a sandbox."""
    process = Path(f"/proc/{guest}")
    # For each thread: shells are children of the thread that starts them.
    lists = (process / "task").glob("*/children")
    children = [child for children in lists for child in children.read_text().split()]
    shim = _kilobytes(process / "status", "PPid:")
    return {
        "guest": _pss(guest),
        "waiting shell": sum(_pss(int(child)) for child in children),
        "containerd-shim": _pss(shim),
    }


def _pss(pid: int) -> int:
    return _kilobytes(Path(f"/proc/{pid}/smaps_rollup"), "Pss:")


def _kilobytes(path: Path, field: str) -> int:
    """The number that follows a name in one of the kernel's files."""
    for line in path.read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise ValueError(f"there is no {field} in {path}")
