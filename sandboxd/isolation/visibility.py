"""Paths that hide details of the host from a sandbox: masked, or read-only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

_SYS = Path("/sys")

# This list replaces the engine's, so it repeats the entries of that list.
_EVERYWHERE = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
    # In addition: names and figures of the host that no command needs.
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/kallsyms",
    "/proc/loadavg",
    "/proc/locks",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/swaps",
    "/proc/sys/kernel/random/boot_id",
    "/proc/version",
    "/sys/block",
    "/sys/class",
    "/sys/dev",
    # Disks of all sandboxes: the paths of their files, and how much is written to them.
    "/sys/devices/virtual",
    "/sys/fs",
    "/sys/module",
)


@cache
def masked_paths(sys: Path = _SYS) -> Sequence[str]:
    """The paths to mask; beyond the fixed ones, where this host has its disks."""
    return tuple(sorted({*_EVERYWHERE, *_disk_roots(sys)}))


def _disk_roots(sys: Path) -> Iterator[str]:
    for disk in (sys / "block").glob("*"):
        with suppress(OSError):  # it went away meanwhile
            _, devices, root, *_ = disk.readlink().parts
            yield f"/sys/{devices}/{root}"


READONLY_PATHS = (
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
)
