"""What isolation is in force, one line per protection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto


class State(Enum):
    IN_FORCE = auto()
    WEAKER = auto()
    MISSING = auto()


@dataclass(frozen=True, kw_only=True)
class Protection:
    name: str
    state: State
    detail: str


def protections(*, is_root: bool, workspace_bytes: int) -> Sequence[Protection]:
    """The protections of every sandbox of this daemon."""
    in_force = {
        "single use": "a used sandbox is destroyed, never given to another session",
        "capabilities": "all dropped, and no program can gain any",
        "root filesystem": "read-only",
        "network": "none: no interface, no resolver, no hosts file",
        "own uid": "each sandbox has a uid of its own on the host",
        "memory and processes": "limited by the container's cgroup",
        "guest": "PID 1, not dumpable; its socket is gone once it has connected",
        "host details": "masked: kernel command line, version, devices, modules, cgroup paths",
    }
    return [
        *(
            Protection(name=name, state=State.IN_FORCE, detail=detail)
            for name, detail in in_force.items()
        ),
        Protection(
            name="workspace",
            state=State.WEAKER,
            detail=f"in memory, {workspace_bytes >> 20} MiB, counted into the memory limit",
        ),
        Protection(
            name="system calls",
            state=State.WEAKER,
            detail="the engine's default filter",
        ),
        Protection(
            name="command limits",
            state=State.MISSING,
            detail="commands share memory and process limits with the guest",
        ),
        Protection(
            name="host kill",
            state=State.IN_FORCE if is_root else State.MISSING,
            detail="the daemon ends a sandbox by pid when its guest is late"
            if is_root
            else "the daemon is not root: only the engine can end a sandbox",
        ),
    ]
