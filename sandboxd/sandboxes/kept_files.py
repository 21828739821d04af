"""Files that outlive a sandbox: workspace disks, the uids they belong to, and project files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from sandboxd.isolation.uids import UidRange
from sandboxd.tasks import Tasks
from sandboxd.workspaces.disks import AttachedDisk, Disk, Disks, DiskSize
from sandboxd.workspaces.project_directories import ProjectDirectories

_TASK = "delete-unknown"


@dataclass(frozen=True, kw_only=True)
class KeptFiles:
    """Files of a session, for its next sandbox; empty if it has none."""

    disk: Disk | None = None
    """The workspace; absent where workspaces are in memory."""
    project_id: str = ""
    """Directory of the project files; empty if there is none."""


class Claim(NamedTuple):
    """The uid and the files of one sandbox."""

    sandbox_id: str
    uid: int
    files: KeptFiles


class KeptFilesStore:
    """All kept files of a daemon, and which sandbox uses them.

    A sandbox claims its files, and they are handed back once its last process is gone.
    """

    def __init__(
        self,
        projects_dir: Path,
        uids: UidRange,
        disks: Disks | None,
        *,
        wait_seconds: float,
        unknown_seconds: float = 0.0,
    ) -> None:
        """With the seconds that a claim waits for a disk that another sandbox uses, and for which
        files without a known session are kept."""
        self._projects = ProjectDirectories(projects_dir)
        self._uids = uids
        self._disks = disks
        self._wait_seconds = wait_seconds
        self._unknown_seconds = unknown_seconds
        self._disk_uses: dict[str, _DiskUse] = {}
        self._unwanted_disks: set[str] = set()
        """Disks in use that are deleted when they are handed back."""
        self._tasks = Tasks()

    async def aclose(self) -> None:
        """Wait until everything discarded is deleted."""
        self._tasks.cancel(_TASK)
        await self._tasks.finish()

    def has(self, disk: Disk) -> bool:
        """Whether the disk still exists."""
        return self._disks is not None and self._disks.has(disk.id)

    def image(self, disk: Disk) -> Path:
        """The file that holds the filesystem of a disk; only to be read."""
        assert self._disks is not None
        return self._disks.image(disk.id)

    def user_of(self, disk: Disk) -> str | None:
        """Id of the sandbox that uses the disk; None if it is free."""
        use = self._disk_uses.get(disk.id)
        return use.sandbox_id if use else None

    def project_dir(self, files: KeptFiles) -> Path:
        """The host's directory with the project files."""
        return self._projects.path(files.project_id)

    async def move_project_files(self, source: KeptFiles, target: KeptFiles) -> None:
        """Move all project files into a directory that has none of these names; all, or none."""
        await self._projects.move(source.project_id, target.project_id)

    async def copy_project_files(self, source: KeptFiles, target: KeptFiles) -> None:
        """Copy all project files into a directory that has none of these names."""
        await self._projects.copy(source.project_id, target.project_id)

    async def wait_until_free(self, disk: Disk) -> None:
        """Return once no sandbox uses the disk; TimeoutError after a while."""
        await self._wait_until_free(disk)

    async def keep(self, kept: Sequence[KeptFiles]) -> None:
        """At the start of the daemon: keep these files of earlier sandboxes. All others are
        deleted; those that a session has had, only after a while."""
        disks = [files.disk for files in kept if files.disk is not None]
        for disk in disks:
            self._uids.reserve(disk.uid)
        if self._disks is not None:
            await self._disks.sweep([disk.id for disk in disks])
        await self._projects.sweep([files.project_id for files in kept])
        self._tasks.spawn(self._delete_unknown(), _TASK)

    async def _delete_unknown(self) -> None:
        """Delete unknown files when they are due, until there are none."""
        while True:
            due = [await self._projects.delete_unknown(self._unknown_seconds)]
            if self._disks is not None:
                due.append(await self._disks.delete_unknown(self._unknown_seconds))
            left = [seconds for seconds in due if seconds is not None]
            if not left:
                return
            await asyncio.sleep(min(left))

    def mark_used(self, files: KeptFiles) -> None:
        """Note that a session has these files."""
        if files.disk is not None and self._disks is not None:
            self._disks.mark_used(files.disk.id)

    def discard(self, kept: KeptFiles) -> None:
        """Delete kept files in the background; a disk in use is deleted when it is handed back.

        Project files need not wait: a sandbox that still shows them cannot change them.
        """
        if kept.disk is not None and kept.disk.id in self._disk_uses:
            self._unwanted_disks.add(kept.disk.id)
            kept = replace(kept, disk=None)
        self._tasks.spawn(self._delete(kept), "discard-kept-files")

    async def claim(self, sandbox_id: str, size: DiskSize, kept: KeptFiles | None = None) -> Claim:
        """New files for a sandbox, or those that an earlier sandbox left.

        A new disk has this size. An error leaves kept files as they were, and deletes new ones.
        """
        kept_disk = kept.disk if kept else None
        if kept_disk is not None:
            await self._wait_until_free(kept_disk)
            self._use(kept_disk, sandbox_id)
        uid = kept_disk.uid if kept_disk else self._uids.take()
        files = kept or KeptFiles()
        try:
            files = replace(files, project_id=self._projects.make(files.project_id))
            if files.disk is None and self._disks is not None:
                files = replace(files, disk=await self._disks.make(uid, size))
                self._use(files.disk, sandbox_id)
        except BaseException:
            claim = Claim(sandbox_id, uid, files)
            await asyncio.shield(self.hand_back(claim, keep=kept is not None))
            raise
        return Claim(sandbox_id, uid, files)

    async def claim_instead(self, claim: Claim, kept: KeptFiles) -> Claim:
        """Files that an earlier sandbox left, for one that has others; then one of the two claims
        is to be let go."""
        assert kept.disk is not None
        await self._wait_until_free(kept.disk)
        files = replace(kept, project_id=self._projects.make(kept.project_id))
        self._use(kept.disk, claim.sandbox_id)
        return Claim(claim.sandbox_id, claim.uid, files)

    def let_go(self, claim: Claim, *, keep: bool) -> None:
        """End the use of files by a sandbox that has others; its uid stays taken.

        They are deleted in the background, unless they are to be kept.
        """
        disk = claim.files.disk
        assert disk is not None
        if not self._end_use(disk, keep):
            self._tasks.spawn(self._delete(claim.files, used_uid=claim.uid), "delete-own-files")

    def restore(self, claim: Claim) -> None:
        """Note a claim of an earlier daemon, whose sandbox is still there."""
        self._uids.reserve(claim.uid)
        self._use(claim.files.disk, claim.sandbox_id)

    @asynccontextmanager
    async def attached(self, files: KeptFiles) -> AsyncIterator[AttachedDisk | None]:
        """Mount the disk on the host for as long as the block lasts: until the container has it."""
        if files.disk is None or self._disks is None:
            yield None
            return
        async with self._disks.attached(files.disk) as attached:
            yield attached

    async def hand_back(self, claim: Claim, *, keep: bool) -> None:
        """End the use of files by a sandbox; they are deleted, unless they are to be kept."""
        disk = claim.files.disk
        if disk is None or disk.uid != claim.uid:
            self._uids.give_back(claim.uid)  # no file belongs to it
        if disk is not None:
            keep = self._end_use(disk, keep)
        if not keep:
            await self._delete(claim.files)

    def _end_use(self, disk: Disk, keep: bool) -> bool:
        """Returns whether to keep it: it may have been discarded meanwhile."""
        self._disk_uses.pop(disk.id).ended.set()
        keep = keep and disk.id not in self._unwanted_disks
        self._unwanted_disks.discard(disk.id)
        return keep

    async def _delete(self, files: KeptFiles, used_uid: int | None = None) -> None:
        """And free the uid that they belong to, unless a sandbox goes on with it."""
        if files.disk is not None:
            if self._disks is not None:
                await self._disks.delete(files.disk.id)
            if files.disk.uid != used_uid:
                self._uids.give_back(files.disk.uid)
        if files.project_id:
            await self._projects.delete(files.project_id)

    def _use(self, disk: Disk | None, sandbox_id: str) -> None:
        if disk is not None:
            self._disk_uses[disk.id] = _DiskUse(sandbox_id)

    async def _wait_until_free(self, disk: Disk) -> None:
        """Two mounts of one disk would destroy it."""
        async with asyncio.timeout(self._wait_seconds):
            while (use := self._disk_uses.get(disk.id)) is not None:
                await use.ended.wait()


@dataclass(frozen=True)
class _DiskUse:
    sandbox_id: str
    ended: asyncio.Event = field(default_factory=asyncio.Event)
