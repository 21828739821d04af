"""Facts about the host that determine how strong the isolation can be."""

from __future__ import annotations

import os
import re
import resource
from dataclasses import dataclass
from pathlib import Path

from sandboxd.isolation import cgroups

_CAP_SYS_RESOURCE = 24
_PROC = Path("/proc")


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """The state of the host at one moment."""

    kernel_release: str
    cgroup_version: int
    is_root: bool
    can_raise_limits: bool
    """Whether this process has CAP_SYS_RESOURCE; root in a container or a jail may lack it."""
    open_files: int
    """Soft limit on open files of this process."""
    open_files_hard: int
    """Hard limit on open files of this process."""
    free_bytes: int
    """Free space of the filesystem with the state directory."""


def read_host_facts(state_dir: Path, *, proc: Path = _PROC) -> HostFacts:
    """Read the facts; it takes well under a millisecond, so every status may do it."""
    is_root = os.geteuid() == 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    disk = os.statvfs(state_dir)
    return HostFacts(
        kernel_release=os.uname().release,
        cgroup_version=cgroups.detect(
            is_root=is_root, mountinfo=proc / "self" / "mountinfo"
        ).version,
        is_root=is_root,
        can_raise_limits=_has_capability((proc / "self" / "status").read_text(), _CAP_SYS_RESOURCE),
        open_files=soft,
        open_files_hard=hard,
        free_bytes=disk.f_bavail * disk.f_frsize,
    )


def _has_capability(status: str, number: int) -> bool:
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return match is not None and bool(int(match[1], 16) >> number & 1)
