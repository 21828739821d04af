"""What the kernel of the host holds for others, and what it counts as a sandbox's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from sandboxd.isolation.cgroups import CGROUP_ROOT
from tests.hostile.host_view import SandboxSeen

PAGE = 4096
KERNEL_FIELDS = ("SUnreclaim", "PageTables", "VmallocUsed")
"""Fields of /proc/meminfo with memory that only the kernel itself can free."""


@dataclass(frozen=True, kw_only=True)
class KernelMemory:
    """Bytes at one moment."""

    kernel: int
    sockets: int
    """Bytes in buffers of TCP and UDP."""
    echoes: int
    """Bytes in ICMP sockets of one sandbox, which no figure of the host has."""
    counted: int
    """Bytes that the kernel counts as those of one sandbox, whatever they are."""

    def growth_since(self, before: KernelMemory) -> int:
        """Bytes more on the host. Memory may be in several figures, so this is not their sum."""
        return max(
            self.kernel - before.kernel,
            self.sockets - before.sockets,
            self.echoes - before.echoes,
            0,
        )


def kernel_memory(sandbox: SandboxSeen) -> KernelMemory:
    fields = dict(re.findall(r"^(\w+): +(\d+) kB$", Path("/proc/meminfo").read_text(), re.M))
    pages = re.findall(r"^(?:TCP|UDP):.* mem (\d+)$", Path("/proc/net/sockstat").read_text(), re.M)
    return KernelMemory(
        kernel=sum(int(fields[name]) for name in KERNEL_FIELDS) * 1024,
        sockets=sum(map(int, pages)) * PAGE,
        echoes=_echoes(sandbox.guest_pid),
        counted=_counted(sandbox.container_id),
    )


def _echoes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/net/icmp").read_text().splitlines()[1:]
    except OSError:  # the sandbox was ended
        return 0
    return sum(int(line.split()[4].partition(":")[2], 16) for line in lines)


def _counted(container_id: str) -> int:
    for directory in (f"memory/docker/{container_id}", f"system.slice/docker-{container_id}.scope"):
        files = ("memory.usage_in_bytes", "memory.kmem.tcp.usage_in_bytes", "memory.current")
        found = [CGROUP_ROOT / directory / file for file in files]
        if any(file.exists() for file in found):
            return sum(int(file.read_text()) for file in found if file.exists())
    return 0
