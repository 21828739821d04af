"""The host's means to keep sandboxes apart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sandboxd.isolation.attachment import UNTRIED, Possibility
from sandboxd.isolation.cgroups import Cgroups
from sandboxd.isolation.host_process import HostProcess, Pinned
from sandboxd.isolation.kernel_memory import KernelMemoryWatch
from sandboxd.isolation.uids import UidRange
from sandboxd.workspaces.disks import Disks


@dataclass(frozen=True, kw_only=True)
class Host:
    """What every sandbox needs of the host."""

    uids: UidRange
    cgroups: Cgroups | None = None
    """Absent where commands are not put into cgroups."""
    disks: Disks | None = None
    """Absent where workspaces are in memory."""
    kernel_memory: KernelMemoryWatch | None = None
    """Absent where the daemon may not look into sandboxes."""
    attaching: Possibility = UNTRIED
    """How directories get into sandboxes here."""
    moving_problem: str = "nobody has tried"
    """Why kept disks cannot be moved into warm sandboxes; empty if they can."""
    doors_problem: str = ""
    """Why the daemon cannot open doors in sandboxes; empty if it can."""
    pin: Callable[[int], Pinned] = HostProcess
