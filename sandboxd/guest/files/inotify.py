"""The kernel's reports of changes in directories."""

import ctypes
import errno
import os
import struct
from typing import NamedTuple

MODIFY, ATTRIB = 0x2, 0x4
MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x40, 0x80, 0x100, 0x200
Q_OVERFLOW, IGNORED, IS_DIR = 0x4000, 0x8000, 0x40000000
_ONLY_DIR, _EXCL_UNLINK = 0x01000000, 0x04000000
_MASK = MODIFY | ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE | _ONLY_DIR | _EXCL_UNLINK
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 << 10

_libc = ctypes.CDLL(None, use_errno=True)


class Event(NamedTuple):
    watch: int
    mask: int
    cookie: int
    name: bytes


class Inotify:
    def __init__(self) -> None:
        self._descriptor = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        return self._descriptor

    def add(self, directory: int) -> int:
        """Watch an open directory, even if it was renamed."""
        path = b"/proc/self/fd/%d" % directory
        return _checked(_libc.inotify_add_watch(self._descriptor, path, _MASK))

    def remove(self, watch: int) -> None:
        _libc.inotify_rm_watch(self._descriptor, watch)  # an error means that it is gone

    def read(self) -> list[Event]:
        """Events in their order; empty if nothing happened."""
        try:
            data = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            return []
        events, position = [], 0
        while position < len(data):
            watch, mask, cookie, size = _EVENT.unpack_from(data, position)
            position += _EVENT.size
            name = data[position : position + size].rstrip(b"\0")
            position += size
            events.append(Event(watch, mask, cookie, name))
        return events

    def close(self) -> None:
        os.close(self._descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno() or errno.EIO
        raise OSError(number, os.strerror(number))
    return result
