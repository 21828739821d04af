"""Workspace disks: an ext4 filesystem in a file for each, so that the kernel enforces its limits.

A disk is mounted on the host, bound into a sandbox, and unmounted on the host; from then on it
lives in the sandbox alone, and its device goes with the sandbox. The file stays until it is
deleted, so that another sandbox can take over. Nothing inside a disk is opened here once a sandbox
has had it.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from sandboxd.errors import DiskSpaceLow
from sandboxd.isolation import disk_proof, disk_template, loop_mount
from sandboxd.isolation.blocking import to_the_end
from sandboxd.isolation.disk_proof import ProofFailed
from sandboxd.isolation.image_file import (
    UNFINISHED,
    copy_data,
    created,
    half_made,
    is_fully_allocated,
)
from sandboxd.isolation.layout import Layout

log = structlog.get_logger()

T = TypeVar("T")

_ID = re.compile("[0-9a-f]{16}")
_OURS = re.compile(rf"{_ID.pattern}\.img|.+{re.escape(UNFINISHED)}|template-.+|proof-{_ID.pattern}")
_POLL_SECONDS = 0.01
_PROOF_BYTES, _PROOF_FILES, _PROOF_UID = 2 << 20, 8, 65534


class DisksUnusable(Exception):
    """This host cannot have workspace disks; the text says why."""


class ProofWithoutSpace(Exception):
    """Disks worked here before, and cannot be proved now because the host's disk is full."""


class DiskBusy(OSError):
    """An earlier sandbox still has the disk."""


class DiskDamaged(OSError):
    """A power cut or a failing host disk has damaged the disk beyond repair."""


@dataclass(frozen=True, kw_only=True)
class DiskSettings:
    """What every workspace disk of this daemon looks like, and where it is kept."""

    directory: Path
    """Image files and their template; nothing else may be kept in it."""
    mounts: Path
    """Mount points of disks while they are attached; nothing else may be mounted in it."""
    size_bytes: int
    """What can be written into one file, to within `disk_template.SLACK_BYTES`."""
    max_files: int
    """Files, directories and symbolic links there can be, beyond those of a new disk."""
    reserve_bytes: int
    """Free space of the host's filesystem that no disk is made of."""
    layout: Layout = Layout.SHARED
    deadline_seconds: float = 60.0
    """For one operation of the host's filesystem."""
    busy_seconds: float = 10.0
    """How long `attached` waits for an earlier sandbox to let go of the disk."""


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A disk, attached or not."""

    id: str
    uid: int
    """Whose the files are: every sandbox that gets this disk needs this uid."""


@dataclass(frozen=True, kw_only=True)
class AttachedDisk:
    """A disk that is mounted on the host."""

    path: Path
    """What to bind into the sandbox. It exists only where the mount is seen, so that an engine in
    another mount namespace finds nothing, and not the host's own disk."""
    device: str


class Disks:
    """Makes, attaches and deletes disks. An error or a cancel leaves none half-made."""

    def __init__(self, settings: DiskSettings) -> None:
        self._settings = settings
        self._template = settings.directory / disk_template.file_name(
            size_bytes=settings.size_bytes, max_files=settings.max_files, layout=settings.layout
        )
        self._building_template = asyncio.Lock()
        self._allocating = threading.Lock()

    async def prove(self) -> str:
        """Fill a small scratch disk up to both limits; returns what is in force, in words.

        DisksUnusable if the host cannot have disks, ProofWithoutSpace if it just cannot have one
        more.
        """
        if os.geteuid() != 0:
            raise DisksUnusable("the daemon is not root, and only root can mount filesystems")
        settings = self._settings
        directory = settings.directory / f"proof-{secrets.token_hex(8)}"
        scratch = Disks(
            replace(
                settings,
                directory=directory,
                size_bytes=_PROOF_BYTES,
                max_files=_PROOF_FILES,
                reserve_bytes=0,
            )
        )
        try:
            await scratch._prove_limits()
            await self._build_template()
        except (OSError, DiskSpaceLow) as error:
            # The template is made only after a proof.
            if _is_full(error) and self._template.exists():
                raise ProofWithoutSpace from error
            words = _in_words(error) if isinstance(error, OSError) else f"the proof failed: {error}"
            raise DisksUnusable(words) from error
        except ProofFailed as error:
            raise DisksUnusable(f"the proof failed: {error}") from error
        finally:
            await self._run(partial(shutil.rmtree, directory, ignore_errors=True))
        return (
            f"a disk of {settings.size_bytes >> 20} MiB and {settings.max_files} files each, "
            "enforced by the kernel, proved on a scratch disk"
        )

    async def make(self, uid: int) -> Disk:
        """A new disk, whose writable directories belong to `uid` and whose space is its own.

        DiskSpaceLow if the host has no space to spare, OSError if it fails, and DisksUnusable if it
        lacks what disks take.
        """
        await self._build_template()
        disk = Disk(id=secrets.token_hex(8), uid=uid)
        image = self._image(disk.id)
        try:
            await self._run(
                partial(self._make, image, uid), undo=lambda _: image.unlink(missing_ok=True)
            )
        except OSError as error:
            if not _is_full(error):
                raise
            raise DiskSpaceLow(0, self._settings.reserve_bytes) from error
        return disk

    def has(self, disk_id: str) -> bool:
        """Whether there is such a disk, made by this daemon or by one before it."""
        return self._image(disk_id).exists()

    def ids(self) -> Sequence[str]:
        """The disks there are."""
        return sorted(image.stem for image in self._settings.directory.glob("*.img"))

    @asynccontextmanager
    async def attached(self, disk: Disk) -> AsyncIterator[AttachedDisk]:
        """Mount the disk on the host for as long as the block lasts: start the sandbox in it.

        DiskBusy if an earlier sandbox does not let go of it, DiskDamaged, or another OSError.
        """
        point = self._mount_point()
        device = await self._attach(disk, point)
        try:
            yield AttachedDisk(path=point / disk_template.WORKSPACE, device=device)
        finally:
            await self._run(partial(_detach, point))

    async def delete(self, disk_id: str) -> None:
        """Delete a disk that may be gone already; a sandbox that has it can go on using it."""
        await self._run(partial(self._image(disk_id).unlink, missing_ok=True))

    async def sweep(self, keep: Collection[str]) -> int:
        """Remove what a killed daemon has left, and all disks but those to keep.

        For the start of the daemon: whatever is attached or half-made is taken for left over.
        Returns how many mounts and files were removed.
        """
        return await self._run(partial(self._sweep, frozenset(keep)))

    async def _run(self, work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        return await to_the_end(work, seconds=self._settings.deadline_seconds, undo=undo)

    def _image(self, disk_id: str) -> Path:
        if not _ID.fullmatch(disk_id):
            raise ValueError(f"{disk_id!r} is not the id of a disk")
        return self._settings.directory / f"{disk_id}.img"

    async def _build_template(self) -> None:
        async with self._building_template:
            try:
                await self._run(self._build_template_if_missing)
            except disk_template.TemplateFailed as error:
                raise DisksUnusable(str(error)) from error

    def _build_template_if_missing(self) -> None:
        if self._template.exists():
            return
        settings = self._settings
        settings.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with half_made(self._template) as unfinished:
            disk_template.build(
                unfinished,
                self._mount_point(),
                size_bytes=settings.size_bytes,
                max_files=settings.max_files,
                layout=settings.layout,
            )

    def _make(self, image: Path, uid: int) -> None:
        with half_made(image) as unfinished:
            with self._template.open("rb") as template, created(unfinished) as copy:
                self._allocate(copy, os.fstat(template.fileno()).st_size)
                copy_data(template.fileno(), copy)
            try:
                self._give_to(uid, unfinished)
            except loop_mount.ImageDamaged:
                self._template.unlink(missing_ok=True)  # the next disk gets a new one
                raise OSError(errno.EIO, "the template of workspace disks was damaged") from None

    def _give_to(self, uid: int, image: Path) -> None:
        point, settings = self._mount_point(), self._settings
        with loop_mount.attached(image, point):
            if not disk_template.is_fresh(
                point, size_bytes=settings.size_bytes, max_files=settings.max_files
            ):
                raise loop_mount.ImageDamaged
            for name in disk_template.OWNED_BY_SANDBOX:
                os.chown(point / disk_template.WORKSPACE / name, uid, uid)

    def _allocate(self, file: int, size: int) -> None:
        """Take a whole disk from the host's free space, if that leaves the reserve."""
        reserve = self._settings.reserve_bytes
        with self._allocating:  # or two would count on the same space
            found = os.fstatvfs(file)
            free = found.f_bavail * found.f_frsize
            if free - size < reserve:
                raise DiskSpaceLow(free, reserve)
            try:
                os.posix_fallocate(file, 0, size)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                raise DiskSpaceLow(free, reserve) from error

    async def _attach(self, disk: Disk, point: Path) -> str:
        """Attach, as soon as the sandbox that had the disk before has let go of it."""
        image, loop = self._image(disk.id), asyncio.get_running_loop()
        give_up_at = loop.time() + self._settings.busy_seconds
        while True:
            try:
                return await self._run(
                    partial(loop_mount.attach, image, point), undo=lambda _: _detach(point)
                )
            except loop_mount.ImageDamaged:
                raise DiskDamaged(errno.EIO, "the disk is damaged") from None
            except loop_mount.ImageBusy:
                if loop.time() > give_up_at:
                    raise DiskBusy(errno.EBUSY, "the disk is in use") from None
            await asyncio.sleep(_POLL_SECONDS)

    def _mount_point(self) -> Path:
        return self._settings.mounts / secrets.token_hex(8)

    def _sweep(self, keep: Collection[str]) -> int:
        mounted = loop_mount.mounts_under(self._settings.mounts)
        for point in mounted:
            loop_mount.unmount(point)
        for point in self._settings.mounts.glob("*"):
            _remove_mount_point(point)
        kept = {self._template, *map(self._image, keep)}
        stale = [
            path
            for path in self._settings.directory.glob("*")
            if _OURS.fullmatch(path.name) and path not in kept
        ]
        for path in stale:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        return len(mounted) + len(stale)

    async def _prove_limits(self) -> None:
        settings = self._settings
        disk = await self.make(_PROOF_UID)
        async with self.attached(disk) as attached:
            await self._run(
                partial(
                    disk_proof.prove_limits,
                    attached.path,
                    size_bytes=settings.size_bytes,
                    max_files=settings.max_files,
                )
            )
        if not is_fully_allocated(self._image(disk.id)):
            raise ProofFailed("the host's filesystem does not keep the space of a file for it")


def _is_full(error: Exception) -> bool:
    is_out_of_space = isinstance(error, OSError) and error.errno == errno.ENOSPC
    return is_out_of_space or isinstance(error, DiskSpaceLow)


def _in_words(error: OSError) -> str:
    where = f": {error.filename}" if error.filename else ""
    return f"{error.strerror or error}{where}"


def _remove_mount_point(point: Path) -> None:
    try:
        point.rmdir()
    except OSError as error:  # an engine may have made a directory in it
        log.warning("mount_point.left_behind", path=str(point), error=str(error))


def _detach(point: Path) -> None:
    if not loop_mount.detach(point):
        log.warning("disk.detached_while_in_use", mount_point=str(point))
