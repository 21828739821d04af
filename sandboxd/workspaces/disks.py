"""Disks: an ext4 filesystem in a file for each, so that the kernel enforces its limits.

A disk is mounted on the host, bound into a sandbox, and unmounted on the host; from then on only
the sandbox has it mounted, and its device disappears with the sandbox. The file of a workspace disk
stays until it is deleted, so another sandbox can use the disk. A temporary disk has no file name
once it is mounted, so it disappears with its sandbox. The daemon opens nothing in a disk that a
sandbox has used.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import secrets
import shutil
import stat
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from sandboxd.errors import DiskSpaceLow
from sandboxd.workspaces import disk_proof, disk_template, loop_mount, unknown
from sandboxd.workspaces.disk_proof import ProofFailed
from sandboxd.workspaces.image_file import (
    UNFINISHED,
    copy_data,
    created,
    half_made,
    is_fully_allocated,
)
from sandboxd.workspaces.layout import OUTPUTS, Layout
from sandboxd.workspaces.thread_work import run_in_thread

log = structlog.get_logger()

T = TypeVar("T")

_ID = re.compile("[0-9a-f]{16}")
_OURS = re.compile(rf"{_ID.pattern}\.img|.+{re.escape(UNFINISHED)}|template-.+|proof-{_ID.pattern}")
_USED = stat.S_ISVTX
"""Bit in the mode of the image of a disk that a session has, or had."""
_POLL_SECONDS = 0.01
_PROOF_BYTES, _PROOF_FILES, _PROOF_UID = 2 << 20, 8, 65534


class DisksUnusable(Exception):
    """Workspace disks do not work on this host; the text says why."""


class ProofWithoutSpace(Exception):
    """Disks worked before, but cannot be proved now because the host's disk is full."""


class DiskBusy(OSError):
    """An earlier sandbox still uses the disk."""


class DiskDamaged(OSError):
    """A power cut or a failing host disk has damaged the disk beyond repair."""


@dataclass(frozen=True, kw_only=True)
class DiskSize:
    size_bytes: int
    """Bytes that fit into one file, to within `disk_template.SLACK_BYTES`."""
    max_files: int
    """Number of files, directories and symbolic links that fit, beyond those of a new disk."""


@dataclass(frozen=True, kw_only=True)
class DiskSettings:
    """The properties of all workspace disks of this daemon, and where they are kept."""

    directory: Path
    """Directory of the image files and their template; nothing else may be in it."""
    mounts: Path
    """Directory of the mount points of attached disks; nothing else may be mounted in it."""
    size_bytes: int
    """Size of disks for which no other is given; `max_files` likewise."""
    max_files: int
    reserve_bytes: int
    """Free space of the host's filesystem that is never used for disks."""
    layout: Layout = Layout.SHARED
    deadline_seconds: float = 60.0
    """Time limit of one operation on the host's filesystem."""
    busy_seconds: float = 10.0
    """Seconds that `attached` waits for an earlier sandbox to release the disk."""


@dataclass(frozen=True, kw_only=True)
class Disk:
    """A disk, attached or not."""

    id: str
    uid: int
    """Owner of the files: every sandbox that uses this disk needs this uid."""


@dataclass(frozen=True, kw_only=True)
class AttachedDisk:
    """A disk that is mounted on the host."""

    path: Path
    """Directory to bind into the sandbox. It exists only where the mount is visible, so that an
    engine in another mount namespace finds nothing rather than the host's own disk."""
    device: str


@dataclass(frozen=True, kw_only=True)
class TemporaryDisk:
    """An empty disk for temporary files that is mounted on the host."""

    tmp: Path
    """Directory to bind into the sandbox as /tmp; `var_tmp` likewise."""
    var_tmp: Path
    device: str


class Disks:
    """Makes, attaches and deletes disks. An error or a cancel leaves none half-made."""

    def __init__(self, settings: DiskSettings) -> None:
        self._settings = settings
        self._usual_size = DiskSize(size_bytes=settings.size_bytes, max_files=settings.max_files)
        self._building_template = asyncio.Lock()
        self._allocating = threading.Lock()

    async def prove(self, examine: Callable[[Path], None] = lambda _: None) -> str:
        """Fill a small scratch disk up to both limits; returns a description of the protection.

        Before that, `examine` is called in a thread with a directory in it that is not root's.
        DisksUnusable if disks do not work on this host, ProofWithoutSpace if there is only no space
        for another.
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
            await scratch._prove_limits(examine)
            await self._build_template(self._usual_size, settings.layout)
        except (OSError, DiskSpaceLow) as error:
            # The template is made only after a proof.
            if _is_full(error) and self._usual_template.exists():
                raise ProofWithoutSpace from error
            why = _reason_of(error) if isinstance(error, OSError) else f"the proof failed: {error}"
            raise DisksUnusable(why) from error
        except ProofFailed as error:
            raise DisksUnusable(f"the proof failed: {error}") from error
        finally:
            await self._run(partial(shutil.rmtree, directory, ignore_errors=True))
        return (
            f"a disk of {settings.size_bytes >> 20} MiB and {settings.max_files} files each, "
            "enforced by the kernel, proved on a scratch disk"
        )

    async def make(self, uid: int, size: DiskSize | None = None) -> Disk:
        """Make a disk whose writable directories belong to `uid` and whose space is reserved.

        DiskSpaceLow if the host has no space to spare, OSError if it fails, and DisksUnusable if it
        lacks what disks need.
        """
        size = size or self._usual_size
        await self._build_template(size, self._settings.layout)
        disk = Disk(id=secrets.token_hex(8), uid=uid)
        image = self._image(disk.id)
        with self._full_as_low():
            await self._run(
                partial(self._make, image, uid, size), undo=lambda _: image.unlink(missing_ok=True)
            )
        return disk

    @asynccontextmanager
    async def temporary(self, size: DiskSize) -> AsyncIterator[TemporaryDisk]:
        """An empty disk of this size, mounted on the host for as long as the block lasts; it exists
        for as long as a sandbox that was started in it. Raises what `make` raises."""
        await self._build_template(size, None)
        point = self._mount_point()
        with self._full_as_low():
            device = await self._run(
                partial(self._attach_temporary, point, size), undo=lambda _: _detach(point)
            )
        try:
            yield TemporaryDisk(
                tmp=point / disk_template.TMP,
                var_tmp=point / disk_template.VAR_TMP,
                device=device,
            )
        finally:
            await self._run(partial(_detach, point))

    def has(self, disk_id: str) -> bool:
        """Whether this disk exists, made by this daemon or an earlier one."""
        return self._image(disk_id).exists()

    def image(self, disk_id: str) -> Path:
        """The file that holds the filesystem of a disk; only to be read."""
        return self._image(disk_id)

    def ids(self) -> Sequence[str]:
        """The ids of all disks."""
        return sorted(image.stem for image in self._settings.directory.glob("*.img"))

    @asynccontextmanager
    async def attached(self, disk: Disk) -> AsyncIterator[AttachedDisk]:
        """Mount the disk on the host for as long as the block lasts; start the sandbox in it.

        DiskBusy if an earlier sandbox does not release it, DiskDamaged, or another OSError.
        """
        point = self._mount_point()
        device = await self._attach(disk, point)
        try:
            yield AttachedDisk(path=point / disk_template.WORKSPACE, device=device)
        finally:
            await self._run(partial(_detach, point))

    async def delete(self, disk_id: str) -> None:
        """Delete a disk, if it exists; a sandbox that uses it can go on."""
        await self._run(partial(self._image(disk_id).unlink, missing_ok=True))

    def mark_used(self, disk_id: str) -> None:
        """Note that a session has this disk: a sweep does not delete it without knowing why."""
        try:
            self._image(disk_id).chmod(0o600 | _USED)
        except OSError as error:
            log.warning("disk.not_marked", disk_id=disk_id, error=_reason_of(error))

    async def sweep(self, keep: Collection[str]) -> int:
        """Remove what a killed daemon has left, and all disks but those to keep. Disks that a
        session has had are moved aside, not deleted.

        Only for the start of the daemon: everything that is attached or unfinished is removed.
        Returns the number of removed mounts and files.
        """
        return await self._run(partial(self._sweep, frozenset(keep)))

    async def delete_unknown(self, seconds: float) -> float | None:
        """Delete disks that were moved aside longer ago than this; returns the seconds until the
        next one is due, None if there is no other."""
        return await self._run(partial(self._delete_unknown, seconds))

    async def _run(self, work: Callable[[], T], undo: Callable[[T], object] | None = None) -> T:
        return await run_in_thread(work, seconds=self._settings.deadline_seconds, undo=undo)

    def _image(self, disk_id: str) -> Path:
        if not _ID.fullmatch(disk_id):
            raise ValueError(f"{disk_id!r} is not the id of a disk")
        return self._settings.directory / f"{disk_id}.img"

    def _template(self, size: DiskSize, layout: Layout | None) -> Path:
        """The template of workspace disks; without a layout, that of temporary ones."""
        return self._settings.directory / disk_template.file_name(
            size_bytes=size.size_bytes, max_files=size.max_files, layout=layout
        )

    @property
    def _usual_template(self) -> Path:
        return self._template(self._usual_size, self._settings.layout)

    async def _build_template(self, size: DiskSize, layout: Layout | None) -> None:
        async with self._building_template:
            try:
                await self._run(partial(self._build_template_if_missing, size, layout))
            except disk_template.TemplateFailed as error:
                raise DisksUnusable(str(error)) from error

    def _build_template_if_missing(self, size: DiskSize, layout: Layout | None) -> None:
        path = self._template(size, layout)
        if path.exists():
            return
        self._settings.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with half_made(path) as unfinished:
            disk_template.build(
                unfinished,
                self._mount_point(),
                size_bytes=size.size_bytes,
                max_files=size.max_files,
                layout=layout,
            )

    def _make(self, image: Path, uid: int, size: DiskSize) -> None:
        with half_made(image) as unfinished:
            template = self._template(size, self._settings.layout)
            self._copy(template, unfinished)
            with _proved_template(template):
                self._give_to(uid, unfinished, size)

    def _give_to(self, uid: int, image: Path, size: DiskSize) -> None:
        point = self._mount_point()
        with loop_mount.attached(image, point):
            _check_fresh(point, size)
            for name in disk_template.OWNED_BY_SANDBOX:
                os.chown(point / disk_template.WORKSPACE / name, uid, uid)

    def _attach_temporary(self, point: Path, size: DiskSize) -> str:
        template = self._template(size, None)
        image = self._settings.directory / f"{secrets.token_hex(8)}{UNFINISHED}"
        try:
            self._copy(template, image)
            with _proved_template(template):
                device = loop_mount.attach(image, point)
                try:
                    _check_fresh(point, size)
                except BaseException:
                    _detach(point)
                    raise
                return device
        finally:
            image.unlink(missing_ok=True)  # the device keeps it

    def _copy(self, template: Path, image: Path) -> None:
        """Make a new image whose space is allocated."""
        with template.open("rb") as source, created(image) as copy:
            self._allocate(copy, os.fstat(source.fileno()).st_size)
            copy_data(source.fileno(), copy)

    @contextmanager
    def _full_as_low(self) -> Iterator[None]:
        """DiskSpaceLow where the host's filesystem is full."""
        try:
            yield
        except OSError as error:
            if not _is_full(error):
                raise
            free = shutil.disk_usage(self._settings.directory).free
            raise DiskSpaceLow(free, self._settings.reserve_bytes) from error

    def _allocate(self, file: int, size: int) -> None:
        """Allocate a whole disk from the host's free space, if that leaves the reserve."""
        reserve = self._settings.reserve_bytes
        with self._allocating:  # otherwise two could count on the same space
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
        """Attach, as soon as an earlier sandbox has released the disk."""
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
        # Templates of other sizes are made again when an environment needs them.
        kept = {self._usual_template, *map(self._image, keep)}
        stale = [
            path
            for path in self._settings.directory.glob("*")
            if _OURS.fullmatch(path.name) and path not in kept
        ]
        for path in stale:
            if path.is_dir():
                shutil.rmtree(path)
            elif path.stat().st_mode & _USED:
                unknown.move_aside(path)
            else:
                path.unlink()
        return len(mounted) + len(stale)

    def _delete_unknown(self, seconds: float) -> float | None:
        old, next_seconds = unknown.outdated(self._settings.directory, seconds)
        for path in old:
            path.unlink()
            log.warning("workspace.unknown_deleted", path=path.name)
        return next_seconds

    async def _prove_limits(self, examine: Callable[[Path], None]) -> None:
        settings = self._settings
        disk = await self.make(_PROOF_UID)
        async with self.attached(disk) as attached:
            await self._run(partial(examine, attached.path / OUTPUTS))
            await self._run(
                partial(
                    disk_proof.prove_limits,
                    attached.path,
                    size_bytes=settings.size_bytes,
                    max_files=settings.max_files,
                )
            )
        if not is_fully_allocated(self._image(disk.id)):
            raise ProofFailed("the host's filesystem does not reserve the space of a file")


@contextmanager
def _proved_template(template: Path) -> Iterator[None]:
    """Remove a template whose copy turns out to be damaged: the next disk gets a new one."""
    try:
        yield
    except loop_mount.ImageDamaged:
        template.unlink(missing_ok=True)
        raise OSError(errno.EIO, "the template of disks was damaged") from None


def _check_fresh(point: Path, size: DiskSize) -> None:
    if not disk_template.is_fresh(point, size_bytes=size.size_bytes, max_files=size.max_files):
        raise loop_mount.ImageDamaged


def _is_full(error: Exception) -> bool:
    is_out_of_space = isinstance(error, OSError) and error.errno == errno.ENOSPC
    return is_out_of_space or isinstance(error, DiskSpaceLow)


def _reason_of(error: OSError) -> str:
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
