"""A file that appears whole, or not at all."""

import ctypes
import errno
import os
import stat
from types import TracebackType
from typing import Self

from .area import Area, Place
from .codec import Failure
from .daemon_connection import Refused

TEMPORARY = b".sandboxd-"
"""Prefix of temporary names."""
NEW_MODE = 0o644
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_FALLBACK = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EISDIR)
"""Errors of kernels and filesystems without unnamed files, or without flags for a rename."""

_libc = ctypes.CDLL(None, use_errno=True)


class NewFile:
    """A file without a name in its directory, until `commit` gives it one.

    It never shares an inode: other names of a file that it replaces keep the old content. Nothing
    has it open for writing when it appears, or commands could not execute it.
    """

    def __init__(self, area: Area, parent: int) -> None:
        self._area = area
        self._parent = parent
        self._temporary: bytes | None = None
        self.size = 0
        flags = os.O_WRONLY | os.O_CLOEXEC
        try:
            self.descriptor = os.open(b".", flags | os.O_TMPFILE, 0o600, dir_fd=parent)
        except OSError as error:
            if error.errno not in _FALLBACK:
                raise
            self._temporary = temporary_name()
            flags |= os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            self.descriptor = os.open(self._temporary, flags, 0o600, dir_fd=parent)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self.descriptor)
        self._remove_temporary()

    def write(self, data: bytes | memoryview) -> None:
        room = self._area.room_bytes
        if room is not None and self.size + len(data) > room:
            raise Refused(Failure.FULL)
        view = memoryview(data)
        while view:
            count = os.write(self.descriptor, view)
            self.size += count
            view = view[count:]

    def set_modified(self, modified_ns: int) -> None:
        """Set the time of the last change; call it after the last write."""
        os.utime(self.descriptor, ns=(modified_ns, modified_ns))

    def commit(self, name: bytes, mode: int, *, replace: bool) -> None:
        """Give it this name, with `replace` in place of a regular file or link."""
        os.fchmod(self.descriptor, self._area.file_mode(mode))
        if replace:
            self._refuse_to_replace(name)
        self._end_writing()
        if self._temporary is None:
            if self._appear_as(name):
                return
            if not replace:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
            self._temporary = temporary_name()
            self._appear_as(self._temporary)
        rename(self._parent, self._temporary, self._parent, name, replace=replace)
        self._temporary = None

    def _end_writing(self) -> None:
        writable = self.descriptor
        self.descriptor = os.open(f"/proc/self/fd/{writable}", os.O_PATH | os.O_CLOEXEC)
        os.close(writable)

    def _refuse_to_replace(self, name: bytes) -> None:
        try:
            there = os.stat(name, dir_fd=self._parent, follow_symlinks=False)
        except FileNotFoundError:
            return
        if not (stat.S_ISREG(there.st_mode) or stat.S_ISLNK(there.st_mode)):
            raise Refused(Failure.NOT_A_FILE)

    def _appear_as(self, name: bytes) -> bool:
        """Returns False if something of that name exists."""
        source = f"/proc/self/fd/{self.descriptor}"
        try:
            os.link(source, name, dst_dir_fd=self._parent, follow_symlinks=True)
        except FileExistsError:
            return False
        return True

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            try:
                os.unlink(self._temporary, dir_fd=self._parent)
            except OSError:
                pass  # removed by a command


def mode_to_keep(place: Place, *, replace: bool) -> int:
    """The mode for a file that is written here: that of the file that it replaces, if any.

    Refuses what cannot be replaced, and what commands could not write to. It is asked before any
    byte is sent; `commit` looks again at what is there.
    """
    try:
        there = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
    except FileNotFoundError:
        return NEW_MODE
    if stat.S_ISDIR(there.st_mode):
        raise Refused(Failure.NOT_A_FILE)
    if not replace:
        raise Refused(Failure.EXISTS)
    if stat.S_ISLNK(there.st_mode):
        return NEW_MODE  # swapped in since the path was walked; the link is replaced
    if not stat.S_ISREG(there.st_mode):
        raise Refused(Failure.NOT_A_FILE)
    refuse_unwritable(place)
    return stat.S_IMODE(there.st_mode)


def refuse_unwritable(place: Place) -> None:
    """Refuse a file without permission to write. Replacing a file does not need it, but whoever
    took it away meant the content. Shared files are the daemon's, whatever their mode."""
    if place.area.is_shared:
        return
    if os.fstatvfs(place.parent).f_flag & os.ST_RDONLY:
        raise Refused(Failure.READ_ONLY)
    if not os.access(place.name, os.W_OK, dir_fd=place.parent):
        raise Refused(Failure.NOT_PERMITTED)


def temporary_name() -> bytes:
    return TEMPORARY + os.urandom(16).hex().encode()


def rename(
    old_parent: int, old_name: bytes, new_parent: int, new_name: bytes, *, replace: bool
) -> None:
    """Rename in one step; without `replace`, FileExistsError if the new name exists."""
    if replace:
        os.rename(old_name, new_name, src_dir_fd=old_parent, dst_dir_fd=new_parent)
        return
    try:
        failed = _libc.renameat2(old_parent, old_name, new_parent, new_name, _RENAME_NOREPLACE)
    except AttributeError:  # a libc without it
        failed, number = -1, errno.ENOSYS
    else:
        number = ctypes.get_errno()
    if not failed:
        return
    if number not in (errno.ENOSYS, errno.EINVAL):
        raise OSError(number, os.strerror(number))
    # It cannot be done in one step, or the directory would be below itself, which rename reports.
    try:
        os.stat(new_name, dir_fd=new_parent, follow_symlinks=False)
    except FileNotFoundError:
        os.rename(old_name, new_name, src_dir_fd=old_parent, dst_dir_fd=new_parent)
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
