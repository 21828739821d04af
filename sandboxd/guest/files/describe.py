"""Entries as they are told."""

import os
import stat
from collections.abc import Sequence

from .area import Area, Place
from .codec import MAX_PATH, Entry, Failure
from .daemon_end import Refused

FILE, DIRECTORY, SYMLINK, FIFO, SOCKET, OTHER = range(1, 7)
"""As in the protos."""

_TYPES = {
    stat.S_IFREG: FILE,
    stat.S_IFDIR: DIRECTORY,
    stat.S_IFLNK: SYMLINK,
    stat.S_IFIFO: FIFO,
    stat.S_IFSOCK: SOCKET,
}
_TYPE_BITS = 0o170000
_SIZED = (FILE, SYMLINK)
_MAX_NS, _MIN_NS = (1 << 63) - 1, -(1 << 63)


def entry_of(path: bytes, status: os.stat_result, target: bytes = b"") -> Entry:
    mode, modified_ns = status.st_mode, status.st_mtime_ns
    kind = _TYPES.get(mode & _TYPE_BITS, OTHER)
    if not _MIN_NS <= modified_ns <= _MAX_NS:
        modified_ns = _MIN_NS if modified_ns < 0 else _MAX_NS
    size = status.st_size if kind in _SIZED else 0
    return Entry(path, kind, mode & 0o7777, size, modified_ns, target[:MAX_PATH])


def describe(parent: int, name: bytes, path: bytes) -> Entry:
    """What is there under this name, told under this path."""
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    target = b""
    if stat.S_ISLNK(status.st_mode):
        try:
            target = os.readlink(name, dir_fd=parent)
        except OSError:
            pass  # it is something else by now
    return entry_of(path, status, target)


def describe_place(place: Place, path: bytes) -> Entry:
    return describe(place.parent, place.name, path)


def open_file(area: Area, parts: Sequence[bytes]) -> int:
    """A regular file, open for reading; anything else is refused without being opened for good."""
    with area.place(parts, follow=True) as place:
        return open_regular(place.parent, place.name)


def open_regular(parent: int, name: bytes) -> int:
    # A device is not opened at all: that alone may do something.
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        raise Refused(Failure.OUTSIDE)  # swapped in since the way here was walked
    if not stat.S_ISREG(status.st_mode):
        raise Refused(Failure.NOT_A_FILE)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    descriptor = os.open(name, flags, dir_fd=parent)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Refused(Failure.NOT_A_FILE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
