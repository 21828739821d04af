"""The directory that a worker works in, and how a path leads to a place in it.

Every step is taken from the descriptor of a directory and follows no link; links are read, and
followed by hand as long as they stay inside. Whatever commands do meanwhile, the place is in the
area.
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from .codec import Failure
from .daemon_connection import Refused

MAX_LINKS = 40
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Place(NamedTuple):
    """A name in a directory, whether or not something of that name exists."""

    parent: int
    name: bytes
    """`.` where the path ends in a directory that is already open: the area itself, or the end of
    a link."""
    parts: tuple[bytes, ...]
    """Path from the area on, with all links followed."""

    @property
    def is_area(self) -> bool:
        return not self.parts


class Area(NamedTuple):
    root: int
    """Descriptor of the directory."""
    path: bytes
    """Path of the directory as commands see it; absolute targets of links begin with it."""
    protected: frozenset[bytes] = frozenset()
    """Names in it that cannot be removed, moved or replaced."""
    project: bytes | None = None
    """The protected name below which this worker cannot write."""
    is_shared: bool = False
    """Whether its files belong to another user than commands, who need permission to read them."""
    room_bytes: int | None = None
    """Bytes that may still be written, where the filesystem does not set the limit."""
    room_files: int | None = None

    def file_mode(self, mode: int) -> int:
        return (mode & 0o777) | (0o444 if self.is_shared else 0)

    def directory_mode(self, mode: int) -> int:
        return (mode & 0o777) | (0o555 if self.is_shared else 0)

    @contextmanager
    def place(
        self,
        parts: Sequence[bytes],
        *,
        follow: bool = False,
        make_parents: bool = False,
        writes: bool = False,
    ) -> Iterator[Place]:
        """The place that a path leads to; `follow` also follows a link at its end. Refused if that
        is outside or, with `writes`, where this worker cannot write."""
        walk = _Walk(self, parts, follow=follow, make_parents=make_parents)
        try:
            place = walk.to_the_end()
            if writes and self.project is not None and place.parts[:1] == (self.project,):
                raise Refused(Failure.IN_PROJECT)
            yield place
        finally:
            walk.close()

    @contextmanager
    def directory(self, parts: Sequence[bytes]) -> Iterator[int]:
        """The directory at a path, open for reading."""
        with self.place(parts, follow=True) as place:
            descriptor = open_directory(place.parent, place.name)
            try:
                yield descriptor
            finally:
                os.close(descriptor)

    def open_file(self, parts: Sequence[bytes]) -> int:
        """Open the regular file at a path for reading; anything else is refused."""
        with self.place(parts, follow=True) as place:
            return open_regular(place.parent, place.name)

    def refuse_protected(self, place: Place) -> None:
        """Refuse to replace, move or remove the area itself or a protected name."""
        if place.is_area or (len(place.parts) == 1 and place.name in self.protected):
            raise Refused(Failure.PROTECTED)


class _Walk:
    """A walk from the area along a path, with one directory open at a time."""

    def __init__(
        self, area: Area, parts: Sequence[bytes], *, follow: bool, make_parents: bool
    ) -> None:
        self._area = area
        self._ahead = deque(parts)
        self._follow = follow
        self._make_parents = make_parents
        self._behind: list[bytes] = []
        self._links = 0
        self._here = os.dup(area.root)

    def close(self) -> None:
        os.close(self._here)

    def to_the_end(self) -> Place:
        while self._ahead:
            name = self._ahead.popleft()
            if name in (b"", b"."):
                continue
            if name == b"..":
                self._go_up()
            elif self._ahead:
                self._go_down(name)
            elif self._follow and (target := self._target(name)) is not None:
                self._follow_link(target)
            else:
                return Place(self._here, name, (*self._behind, name))
        return Place(self._here, b".", tuple(self._behind))

    def _go_down(self, name: bytes) -> None:
        for is_last_try in (False, False, True):
            try:
                below = os.open(name, _DIRECTORY, dir_fd=self._here)
                break
            except FileNotFoundError:
                if not self._make_parents:
                    raise
                below = self._make(name)
                break
            except OSError as error:
                is_link = error.errno in (errno.ENOTDIR, errno.ELOOP)
                target = self._target(name) if is_link else None
                if target is not None:
                    self._follow_link(target)
                    return
                if is_last_try or not is_link:  # otherwise it may be a directory by now
                    raise
        os.close(self._here)
        self._here = below
        self._behind.append(name)

    def _make(self, name: bytes) -> int:
        if self._area.project is not None and self._behind[:1] == [self._area.project]:
            raise Refused(Failure.IN_PROJECT)
        try:
            make_directory(self._here, name, self._area.directory_mode(0o755))
        except FileExistsError:
            pass  # made by another process meanwhile
        return os.open(name, _DIRECTORY, dir_fd=self._here)

    def _go_up(self) -> None:
        """Only links contain `..`. The path is walked again from the top, because the directory
        above may be another by now."""
        if not self._behind:
            raise Refused(Failure.OUTSIDE)
        self._behind.pop()
        self._go_back()

    def _go_back(self) -> None:
        behind, self._behind = self._behind, []
        self._here, old = os.dup(self._area.root), self._here
        os.close(old)
        for name in behind:
            below = os.open(name, _DIRECTORY, dir_fd=self._here)
            os.close(self._here)
            self._here = below
            self._behind.append(name)

    def _target(self, name: bytes) -> bytes | None:
        """The target of a link; None if it is not a link."""
        try:
            return os.readlink(name, dir_fd=self._here)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno == errno.EINVAL:
                return None
            raise

    def _follow_link(self, target: bytes) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
            raise Refused(Failure.OUTSIDE)
        names = [name for name in target.split(b"/") if name not in (b"", b".")]
        if target.startswith(b"/"):
            above = [name for name in self._area.path.split(b"/") if name]
            if names[: len(above)] != above:
                raise Refused(Failure.OUTSIDE)
            names = names[len(above) :]
            self._behind.clear()
            self._go_back()
        self._ahead.extendleft(reversed(names))


def open_directory(parent: int, name: bytes) -> int:
    """Open a directory for reading, without following a link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=parent)


def open_regular(parent: int, name: bytes) -> int:
    """Open a regular file for reading; anything else is refused."""
    # A device is not opened at all: opening one can have effects.
    status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        raise Refused(Failure.OUTSIDE)  # swapped in since the path was walked
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


def make_directory(parent: int, name: bytes, mode: int) -> None:
    """Make a directory with exactly these permission bits, whatever the umask is."""
    os.mkdir(name, 0o700, dir_fd=parent)
    descriptor = open_directory(parent, name)
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)
