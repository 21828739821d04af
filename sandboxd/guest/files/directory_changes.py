"""Operations that change directories: making one, moving and removing entries."""

import errno
import os
import stat
import time

from . import area as areas
from .area import Area, Place, open_directory
from .codec import Failure
from .daemon_connection import DaemonConnection, Refused
from .describe import describe_place
from .new_file import rename
from .request import Request
from .tree import walk

SIGN_OF_LIFE_SECONDS = 2.0
"""Interval at which a long removal reports that it goes on."""
_ROUNDS = 20
"""Most passes over a directory in which new entries keep appearing."""


def make_directory(area: Area, request: Request, daemon: DaemonConnection) -> None:
    path, parents = request.path(), request.flag("make_parents")
    with area.place(path, follow=True, make_parents=parents, writes=True) as place:
        created = True
        try:
            mode = area.directory_mode(request.number("mode"))
            areas.make_directory(place.parent, place.name, mode)
        except FileExistsError:
            created = False
            there = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
            if not stat.S_ISDIR(there.st_mode):
                raise
        daemon.entry(describe_place(place, request.shown))
        daemon.done(created)


def move(area: Area, request: Request, daemon: DaemonConnection) -> None:
    replace = request.flag("replace")
    new_path = request.path("new_path")
    with area.place(request.path(), writes=True) as old, area.place(new_path, writes=True) as new:
        area.refuse_protected(old)
        area.refuse_protected(new)
        if replace:
            _refuse_to_replace_directory(new)
        try:
            rename(old.parent, old.name, new.parent, new.name, replace=replace)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EISDIR):
                raise Refused(Failure.EXISTS) from error
            if error.errno == errno.EINVAL:
                raise Refused(Failure.BELOW_ITSELF) from error
            raise
        daemon.entry(describe_place(new, request.shown))
        daemon.done()


def _refuse_to_replace_directory(place: Place) -> None:
    try:
        there = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(there.st_mode):
        raise Refused(Failure.EXISTS)


def remove(area: Area, request: Request, daemon: DaemonConnection) -> None:
    try:
        with area.place(request.path(), writes=True) as place:
            area.refuse_protected(place)
            removed = _remove(place, daemon, recursive=request.flag("recursive"))
    except FileNotFoundError:
        if not request.flag("ignore_missing"):
            raise
        removed = 0
    daemon.done(removed)


def _remove(place: Place, daemon: DaemonConnection, *, recursive: bool) -> int:
    there = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
    if not stat.S_ISDIR(there.st_mode):
        os.unlink(place.name, dir_fd=place.parent)
        return 1
    if not recursive:
        os.rmdir(place.name, dir_fd=place.parent)
        return 1
    return remove_tree(place.parent, place.name, daemon)


def remove_tree(parent: int, name: bytes, daemon: DaemonConnection) -> int:
    """Remove a directory of any depth; returns the number of removed entries."""
    removal = _Removal(daemon)
    for _ in range(_ROUNDS):
        top = open_directory(parent, name)
        try:
            walk(top, removal.visit, removal.leave)
        finally:
            os.close(top)
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if not removal.has_progressed():
                break
        else:
            return removal.count + 1
    if removal.was_forbidden:
        raise Refused(Failure.NOT_PERMITTED)
    raise Refused(Failure.NOT_EMPTY)


class _Removal:
    def __init__(self, daemon: DaemonConnection) -> None:
        self._daemon = daemon
        self._reported_at = time.monotonic()
        self._count_before = -1
        self.count = 0
        self.was_forbidden = False

    def has_progressed(self) -> bool:
        """Whether anything was removed since the last call."""
        before, self._count_before = self._count_before, self.count
        return self.count > before

    def visit(self, descriptor: int, path: bytes | None) -> list[bytes]:
        directories = []
        with os.scandir(descriptor) as entries:
            names = [(os.fsencode(e.name), e.is_dir(follow_symlinks=False)) for e in entries]
        for name, is_directory in names:
            self._check()
            if is_directory:
                directories.append(name)
                continue
            try:
                os.unlink(name, dir_fd=descriptor)
                self.count += 1
            except (FileNotFoundError, IsADirectoryError):
                pass  # changed meanwhile; the next round sees it
            except PermissionError:
                self.was_forbidden = True
        return directories

    def _check(self) -> None:
        self._daemon.check()
        if time.monotonic() > self._reported_at + SIGN_OF_LIFE_SECONDS:
            self._reported_at = time.monotonic()
            self._daemon.ready()

    def leave(self, parent: int, name: bytes) -> None:
        self._check()
        try:
            os.rmdir(name, dir_fd=parent)
            self.count += 1
        except PermissionError:
            self.was_forbidden = True
        except OSError:
            pass  # not empty, or something else by now; the next round sees it
