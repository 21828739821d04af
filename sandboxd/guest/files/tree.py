"""Walking a directory tree of any depth, while commands change it.

Only the innermost directories are open. Outer ones are closed, and opened again as `..` on the way
back, if that is still the same directory.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress

from .area import Directory, open_directory
from .codec import MAX_PATH

MAX_OPEN = 32

Visit = Callable[[int, bytes | None], list[bytes]]
"""Gets a directory and its path from the top on (None where that is too long); returns which of its
directories to visit, in reverse order."""
Leave = Callable[[int, bytes], None]
"""Gets a parent directory and the name of the directory in it that was just left."""

_PASSING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESRCH)
"""Errors of a directory that was removed or replaced meanwhile, or whose process has ended."""
_FORBIDDEN = (errno.EACCES, errno.EPERM)
"""Errors of a directory that cannot be opened or, in /proc, not read."""


class Enough(Exception):
    """A visitor has seen what it wanted."""


class _Level:
    __slots__ = ("ahead", "descriptor", "identity", "name", "path")

    def __init__(self, name: bytes, path: bytes | None, descriptor: int) -> None:
        self.name = name
        self.path = path
        self.descriptor = descriptor
        self.identity = _identity(descriptor)
        self.ahead: list[bytes] = []

    def path_of(self, name: bytes) -> bytes | None:
        return joined(self.path, name)


def joined(path: bytes | None, name: bytes | None) -> bytes | None:
    """A path with a name appended; None if it becomes too long."""
    if path is None or name is None or len(path) + 1 + len(name) > MAX_PATH:
        return None
    return lead(path) + name if path and name else path or name


def lead(path: bytes) -> bytes:
    """What precedes the names in a directory."""
    return path + b"/" if path and not path.endswith(b"/") else path


class _Walk:
    def __init__(self, visit: Visit, leave: Leave | None, not_entered: frozenset[bytes]) -> None:
        self._visit = visit
        self._leave = leave
        self._not_entered = not_entered
        self._levels: list[_Level] = []
        self.is_complete = True

    def run(self, top: int) -> None:
        self._enter(b"", b"", os.dup(top))
        while self._levels:
            here = self._levels[-1]
            if here.ahead:
                self._go_down(here, here.ahead.pop())
            else:
                self._go_up()

    def close(self) -> None:
        for level in self._levels:
            if level.descriptor >= 0:
                os.close(level.descriptor)
        self._levels.clear()

    def _go_down(self, here: _Level, name: bytes) -> None:
        if self._not_entered and here.path_of(name) in self._not_entered:
            return
        try:
            descriptor = open_directory(here.descriptor, name)
            self._enter(name, here.path_of(name), descriptor)
        except OSError as error:
            if error.errno not in (*_PASSING, *_FORBIDDEN):
                raise
            self.is_complete = self.is_complete and error.errno in _PASSING

    def _enter(self, name: bytes, path: bytes | None, descriptor: int) -> None:
        level = _Level(name, path, descriptor)
        self._levels.append(level)
        level.ahead = self._visit(descriptor, path)
        if len(self._levels) > MAX_OPEN:
            outer = self._levels[-1 - MAX_OPEN]
            if outer.descriptor >= 0:
                os.close(outer.descriptor)
                outer.descriptor = -1

    def _go_up(self) -> None:
        done = self._levels.pop()
        try:
            if self._levels and self._levels[-1].descriptor < 0:
                self._open_above(self._levels[-1], done.descriptor)
        finally:
            os.close(done.descriptor)
        if self._leave is not None and self._levels:
            self._leave(self._levels[-1].descriptor, done.name)

    def _open_above(self, level: _Level, below: int) -> None:
        descriptor = open_directory(below, b"..")
        if _identity(descriptor) != level.identity:
            os.close(descriptor)
            self.is_complete = False
            raise Enough  # a command moved a directory that we are in
        level.descriptor = descriptor


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def walk(top: Directory, visit: Visit, leave: Leave | None = None) -> bool:
    """Visit `top` and everything below, except for what is not to be entered; returns False if
    something else could not be visited."""
    steps = _Walk(visit, leave, top.not_entered)
    try:
        with suppress(Enough):
            steps.run(top.descriptor)
            return steps.is_complete
        return False
    finally:
        steps.close()
