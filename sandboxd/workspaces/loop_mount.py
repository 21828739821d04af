"""Mounting of image files, with the system calls that mount(8) makes."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import struct
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

_CONTROL = "/dev/loop-control"
_GET_FREE = 0x4C82
_CONFIGURE = 0x4C0A
_AUTOCLEAR = 4
_TRIES = 64
# struct loop_config: descriptor and block size; struct loop_info64, of which only the flags are
# set; and what is reserved.
_LOOP_CONFIG = struct.Struct("=II 52x I 176x 64x")

_NOSUID, _NODEV, _NOATIME = 2, 4, 1024
_DETACH, _NOFOLLOW = 2, 8
# With dioread_lock, the default of older kernels, ext4 zeroes fallocated space through the loop
# device, which makes holes in the image: the space would no longer belong to the workspace.
# Without barriers, a command's fsync neither waits for the host's disk nor loads it.
_OPTIONS = b"dioread_nolock,nobarrier"

_SUPERBLOCK = 1024
_MAGIC_AND_STATE = struct.Struct("<56x HH")
_MAGIC = 0xEF53
_CLEAN, _HAS_ERRORS = 1, 2
_REPAIRED = 1
_REPAIR_SECONDS = 30


class ImageBusy(Exception):
    """The image is mounted somewhere."""


class ImageDamaged(Exception):
    """The filesystem in the image is damaged beyond repair."""


def attach(image: Path, point: Path) -> str:
    """Mount an ext4 image on a new directory; returns its device, which disappears with its last
    mount.

    ImageBusy while the image is still mounted, also in a container: a second mount from another
    device would destroy it. ImageDamaged if it cannot be repaired.
    """
    point.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    point.mkdir(mode=0o700)
    try:
        return _mount_image(image, point)
    except BaseException:
        point.rmdir()
        raise


def detach(point: Path) -> bool:
    """Unmount and remove the directory; returns False if it was in use."""
    was_idle = unmount(point)
    point.rmdir()
    return was_idle


def unmount(point: Path) -> bool:
    """Unmount; returns False if it was in use, and then lasts until its users are done."""
    try:
        _unmount(point, _NOFOLLOW)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        _unmount(point, _NOFOLLOW | _DETACH)
        return False
    return True


@contextmanager
def attached(image: Path, point: Path) -> Iterator[None]:
    attach(image, point)
    try:
        yield
    finally:
        detach(point)


def mounts_under(directory: Path) -> Sequence[Path]:
    """Mount points below a directory of this mount namespace, in the order to unmount them."""
    resolved = directory.resolve()
    lines = Path("/proc/self/mountinfo").read_bytes().splitlines()
    points = [Path(os.fsdecode(_unescaped(line.split(b" ")[4]))) for line in lines]
    return [point for point in reversed(points) if resolved in point.parents]


def _mount_image(image: Path, point: Path) -> str:
    with ExitStack() as open_files:
        backing = _open(open_files, image, os.O_RDWR | os.O_NOFOLLOW)
        try:
            # The device keeps this open file, and so its lock, for as long as it exists.
            fcntl.flock(backing, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ImageBusy from None
        if not _is_clean(backing):
            _repair(image)
        # When it is closed, by the end of the block or a kill, an unmounted device is free again.
        device = _configured_device(open_files, backing)
        try:
            with _explained("mount a filesystem"):
                _mount(device, point)
        except OSError as error:
            if error.errno == errno.EUCLEAN:  # how the kernel reports damage
                raise ImageDamaged from error
            raise
    return device


def _repair(image: Path) -> None:
    """Repair the damage of a power cut; ImageDamaged if that is not safe without asking."""
    with _explained("check a filesystem"):
        try:
            done = subprocess.run(
                ["e2fsck", "-p", str(image)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_REPAIR_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:  # not a sign of damage
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
    if done.returncode & ~_REPAIRED:
        raise ImageDamaged


def _is_clean(backing: int) -> bool:
    """Whether it is a filesystem that was properly unmounted."""
    found = os.pread(backing, _MAGIC_AND_STATE.size, _SUPERBLOCK)
    if len(found) < _MAGIC_AND_STATE.size:
        return False
    magic, state = _MAGIC_AND_STATE.unpack(found)
    return bool(magic == _MAGIC and state & (_CLEAN | _HAS_ERRORS) == _CLEAN)


def _configured_device(open_files: ExitStack, backing: int) -> str:
    with _explained("get a loop device"):
        control = _open(open_files, _CONTROL, os.O_RDWR)
        for _ in range(_TRIES):
            path = f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}"
            device = _open(open_files, path, os.O_RDWR)
            try:
                fcntl.ioctl(device, _CONFIGURE, _LOOP_CONFIG.pack(backing, 0, _AUTOCLEAR))
            except OSError as error:
                if error.errno != errno.EBUSY:  # another process got it first
                    raise
            else:
                return path
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))


def _open(open_files: ExitStack, path: str | Path, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    open_files.callback(os.close, descriptor)
    return descriptor


_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_char_p,
)
_libc.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)


def _mount(device: str, target: Path) -> None:
    flags = _NOSUID | _NODEV | _NOATIME
    _checked(_libc.mount(device.encode(), os.fsencode(target), b"ext4", flags, _OPTIONS))


def _unmount(target: Path, flags: int) -> None:
    _checked(_libc.umount2(os.fsencode(target), flags))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextmanager
def _explained(doing: str) -> Iterator[None]:
    """Add to an OSError what was being done."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"cannot {doing}: {error.strerror}") from error


def _unescaped(field: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), field)
