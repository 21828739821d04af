"""What the host does for every sandbox, in one piece."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sandboxd.isolation.cgroups import Cgroups
from sandboxd.isolation.disks import Disks
from sandboxd.isolation.host_process import HostProcess, Pinned
from sandboxd.isolation.uids import UidRange


@dataclass(frozen=True, kw_only=True)
class Host:
    """The means of this host to keep sandboxes apart."""

    uids: UidRange
    cgroups: Cgroups | None = None
    """Absent where there is nothing to put into a cgroup."""
    disks: Disks | None = None
    """Absent where workspaces are in memory."""
    pin: Callable[[int], Pinned] = HostProcess
