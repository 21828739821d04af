"""Entries as the daemon gets them."""

import os
import stat

from .area import Place
from .codec import MAX_PATH, Entry

FILE, DIRECTORY, SYMLINK, FIFO, SOCKET, OTHER = range(1, 7)
"""Numbers as in the protos."""

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
    """The entry of this name, described under this path."""
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
