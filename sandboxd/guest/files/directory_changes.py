"""Operations that change directories: making one, moving and removing entries."""

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from . import area as areas
from .area import Area, Directory, Place, open_directory
from .codec import Failure
from .daemon_connection import DaemonConnection, Refused
from .describe import describe_place
from .failures import failure_of
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
            mode = place.area.directory_mode(request.number("mode"))
            areas.make_directory(place.parent, place.name, mode)
        except FileExistsError:
            created = False
            there = os.stat(place.name, dir_fd=place.parent, follow_symlinks=False)
            if not stat.S_ISDIR(there.st_mode):
                raise
        daemon.entry(describe_place(place, request.shown))
        daemon.done(created)


def move(area: Area, request: Request, daemon: DaemonConnection) -> None:
    replace, path = request.flag("replace"), request.path()
    with area.place(path, writes=True) as old:
        old.refuse_protected()
        # Before any parent of the new path is made.
        os.stat(old.name, dir_fd=old.parent, follow_symlinks=False)
        new_path = request.path("new_path")
        if len(new_path) > len(path) and new_path[: len(path)] == path:
            raise Refused(Failure.BELOW_ITSELF)
        with ExitStack() as stack:
            with _about_new_path():
                parents = request.flag("make_parents")
                place = area.place(new_path, make_parents=parents, writes=True)
                new = stack.enter_context(place)
                new.refuse_protected()
                if replace:
                    _refuse_to_replace_directory(new)
            _rename(old, new, replace=replace)
            daemon.entry(describe_place(new, request.shown))
            daemon.done()


@contextmanager
def _about_new_path() -> Iterator[None]:
    """Report failures as ones of the new path."""
    try:
        yield
    except Refused as refused:
        raise Refused(refused.failed.failure, field=b"new_path") from refused
    except OSError as error:
        raise Refused(failure_of(error), field=b"new_path") from error


def _rename(old: Place, new: Place, *, replace: bool) -> None:
    try:
        rename(old.parent, old.name, new.parent, new.name, replace=replace)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EISDIR, errno.EEXIST):
            raise Refused(Failure.EXISTS, field=b"new_path") from error
        if error.errno == errno.EINVAL:
            raise Refused(Failure.BELOW_ITSELF) from error
        raise


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
            place.refuse_protected()
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
            walk(Directory(top), removal.visit, removal.leave)
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
            self._daemon.announce()

    def leave(self, parent: int, name: bytes) -> None:
        self._check()
        try:
            os.rmdir(name, dir_fd=parent)
            self.count += 1
        except PermissionError:
            self.was_forbidden = True
        except OSError:
            pass  # not empty, or something else by now; the next round sees it
