"""An environment: what the sandbox of a session is made from, and what it may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sandboxd.isolation.cgroups import CommandLimits
from sandboxd.workspaces.disks import DiskSize

DEFAULT_ENVIRONMENT = "default"
"""Name of the environment of sessions that ask for no other."""


class PackageKind(StrEnum):
    """Which packages sessions of an environment can ask for."""

    PYTHON = "python"
    NPM = "npm"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The image and the limits of a session. Everything else is the same for all sessions."""

    name: str
    image: str
    memory_bytes: int
    """Memory of all commands together, without the guest's."""
    cpu_quota_us: int
    """CPU microseconds per 100 ms for all commands together; 0 means no limit."""
    max_processes: int
    """Processes and threads of all commands together."""
    max_open_files: int
    """Open files of one process."""
    max_file_bytes: int
    """Size of a single file, in the workspace or elsewhere."""
    workspace_bytes: int
    workspace_files: int
    write_bytes_per_second: int
    """Speed of writes to the workspace's disk; 0 means no limit."""
    project_bytes: int
    project_files: int
    tmp_bytes: int
    """Size of /tmp and /var/tmp together."""
    tmp_files: int = 4096
    env_vars: Mapping[str, str] = field(default_factory=dict)
    """Variables of every command, unless the session or the command sets them."""
    command_policy: str = ""
    """Name of the command policy of its sessions; empty means the daemon's."""
    strict_policy: str = "strict"
    """Name of the policy that stands for `strict` where that is a client's default."""
    min_warm: int = 0
    """Warm sandboxes that are always kept."""
    packages: PackageKind = PackageKind.PYTHON

    @property
    def command_limits(self) -> CommandLimits:
        return CommandLimits(
            memory_bytes=self.memory_bytes,
            processes=self.max_processes,
            cpu_quota_us=self.cpu_quota_us,
        )

    @property
    def disk_size(self) -> DiskSize:
        return DiskSize(size_bytes=self.workspace_bytes, max_files=self.workspace_files)

    @property
    def temporary_disk_size(self) -> DiskSize:
        return DiskSize(size_bytes=self.tmp_bytes, max_files=self.tmp_files)
