"""Workspace disks that exist only as names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

from sandboxd.workspaces.disks import AttachedDisk, Disk, DiskDamaged, DiskSize, TemporaryDisk


class FakeDisks:
    """Keeps the promises of `Disks` as far as a caller sees them."""

    def __init__(self) -> None:
        self.owners: dict[str, int] = {}
        """By disk id, of disks that exist."""
        self.sizes: dict[str, DiskSize] = {}
        """Also of disks that are gone."""
        self.attached_now: set[str] = set()
        self.damaged: set[str] = set()
        self.used: set[str] = set()
        """Marked as a session's."""
        self.fails: Exception | None = None
        self._made = 0

    async def make(self, uid: int, size: DiskSize) -> Disk:
        if self.fails is not None:
            raise self.fails
        self._made += 1
        disk = Disk(id=f"{self._made:016x}", uid=uid)
        self.owners[disk.id] = uid
        self.sizes[disk.id] = size
        return disk

    def image(self, disk_id: str) -> Path:
        return Path("/disks") / f"{disk_id}.img"

    def has(self, disk_id: str) -> bool:
        return disk_id in self.owners

    @asynccontextmanager
    async def attached(self, disk: Disk) -> AsyncIterator[AttachedDisk]:
        assert disk.id not in self.attached_now
        assert self.owners[disk.id] == disk.uid
        if disk.id in self.damaged:
            raise DiskDamaged("it is damaged")
        self.attached_now.add(disk.id)
        try:
            yield AttachedDisk(path=Path("/mounts") / disk.id, device="/dev/loop0")
        finally:
            self.attached_now.discard(disk.id)

    @asynccontextmanager
    async def temporary(self, size: DiskSize) -> AsyncIterator[TemporaryDisk]:
        if self.fails is not None:
            raise self.fails
        self._made += 1
        point = Path("/mounts") / f"temporary-{self._made}"
        self.attached_now.add(point.name)
        try:
            yield TemporaryDisk(tmp=point / "tmp", var_tmp=point / "var_tmp", device="/dev/loop1")
        finally:
            self.attached_now.discard(point.name)

    async def delete(self, disk_id: str) -> None:
        self.owners.pop(disk_id, None)

    def mark_used(self, disk_id: str) -> None:
        self.used.add(disk_id)

    async def delete_unknown(self, seconds: float) -> float | None:
        return None

    async def sweep(self, keep: Collection[str]) -> int:
        stale = set(self.owners) - set(keep)
        for disk_id in stale:
            del self.owners[disk_id]
        return len(stale)
