"""Image files as mounted filesystems, by the system calls that mount(8) would make."""

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
# With dioread_lock, the default of older kernels, ext4 zeroes what was fallocated by way of the
# loop device, which makes holes in the image: the space would no longer be the workspace's own.
# Without barriers a command's fsync does not wait for, and does not load, the host's disk.
_OPTIONS = b"dioread_nolock,nobarrier"

_SUPERBLOCK = 1024
_MAGIC_AND_STATE = struct.Struct("<56x HH")
_MAGIC = 0xEF53
_CLEAN, _HAS_ERRORS = 1, 2
_MENDED = 1
_MEND_SECONDS = 30


class ImageBusy(Exception):
    """The image is mounted somewhere."""


class ImageDamaged(Exception):
    """What is in the image is no filesystem any more."""


def attach(image: Path, point: Path) -> str:
    """Mount an ext4 image on a new directory; returns its device, which goes with its last mount.

    ImageBusy while an earlier mount of the image lasts, also in a container: mounted a second time
    from another device, it would be destroyed. ImageDamaged if it cannot be repaired.
    """
    point.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    point.mkdir(mode=0o700)
    try:
        return _mount_image(image, point)
    except BaseException:
        point.rmdir()
        raise


def detach(point: Path) -> bool:
    """Unmount and remove the directory; False if it was in use."""
    was_idle = unmount(point)
    point.rmdir()
    return was_idle


def unmount(point: Path) -> bool:
    """Unmount; False if it was in use, so that it ends for its users only when they are done."""
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
            # The device holds this very open file, and so the lock, until it is gone itself.
            fcntl.flock(backing, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ImageBusy from None
        if not _is_clean(backing):
            _mend(image)
        # Closed at the end of the block, or by a kill, the device is free again unless mounted.
        device = _configured_device(open_files, backing)
        try:
            with _told("mount a filesystem"):
                _mount(device, point)
        except OSError as error:
            if error.errno == errno.EUCLEAN:  # the kernel's word for damaged
                raise ImageDamaged from error
            raise
    return device


def _mend(image: Path) -> None:
    """Repair what a power cut broke; ImageDamaged if that takes more than is safe unasked."""
    with _told("check a filesystem"):
        try:
            done = subprocess.run(
                ["e2fsck", "-p", str(image)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_MEND_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:  # which says nothing about the filesystem
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None
    if done.returncode & ~_MENDED:
        raise ImageDamaged


def _is_clean(backing: int) -> bool:
    """Whether it is a filesystem that was unmounted in order."""
    found = os.pread(backing, _MAGIC_AND_STATE.size, _SUPERBLOCK)
    if len(found) < _MAGIC_AND_STATE.size:
        return False
    magic, state = _MAGIC_AND_STATE.unpack(found)
    return bool(magic == _MAGIC and state & (_CLEAN | _HAS_ERRORS) == _CLEAN)


def _configured_device(open_files: ExitStack, backing: int) -> str:
    with _told("get a loop device"):
        control = _open(open_files, _CONTROL, os.O_RDWR)
        for _ in range(_TRIES):
            path = f"/dev/loop{fcntl.ioctl(control, _GET_FREE)}"
            device = _open(open_files, path, os.O_RDWR)
            try:
                fcntl.ioctl(device, _CONFIGURE, _LOOP_CONFIG.pack(backing, 0, _AUTOCLEAR))
            except OSError as error:
                if error.errno != errno.EBUSY:  # someone else was faster
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
def _told(doing: str) -> Iterator[None]:
    """Say in an OSError what was being done."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"cannot {doing}: {error.strerror}") from error


def _unescaped(field: bytes) -> bytes:
    return re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), field)
