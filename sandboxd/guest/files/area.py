"""The directory that a worker works in, and how a path leads to a place in it.

Every step is taken from the descriptor of a directory and follows no link; links are read, and
followed by hand as long as they stay inside. Whatever commands do meanwhile, the place is in the
area.

The workspace is one area. A path whose first part is `/` is a place in another, the whole
filesystem as commands see it, for workers that have that area.
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

ROOT = b"/"
"""First part of a path outside of the workspace."""
MAX_LINKS = 40
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GUEST = (b".sandboxd",)
"""The guest's program and the directory of its link."""
_MADE_UP = ((b"proc",), (b"sys",), (b"dev",))
"""Trees that the kernel makes up; walks from above do not enter them."""

Parts = tuple[bytes, ...]


class Place(NamedTuple):
    """A name in a directory, whether or not something of that name exists."""

    area: "Area"
    parent: int
    name: bytes
    """`.` where the path ends in a directory that is already open: the area itself, or the end of
    a link."""
    parts: Parts
    """Path from the area on, with all links followed."""

    @property
    def is_area(self) -> bool:
        return not self.parts

    @property
    def is_in_project(self) -> bool:
        """Whether it is where this worker cannot write."""
        below, project = self.area.below_workspace(self.parts), self.area.project
        return project is not None and below is not None and below[:1] == (project,)

    @property
    def is_protected(self) -> bool:
        """Whether it is the area itself, the workspace, or a protected name in it."""
        below = self.area.below_workspace(self.parts)
        is_layout = below is not None and (
            not below or (len(below) == 1 and below[0] in self.area.protected)
        )
        return self.is_area or is_layout

    def refuse_protected(self) -> None:
        """Refuse to replace, move or remove what is protected."""
        if self.is_protected:
            raise Refused(Failure.PROTECTED)

    def as_area(self, descriptor: int) -> "Area":
        """The directory at this place, which is open, as an area of its own."""
        above, size = self.area, len(self.parts)
        workspace = above.workspace
        if workspace is not None:
            workspace = workspace[size:] if workspace[:size] == self.parts else None
        return above._replace(
            root=descriptor,
            path=b"/".join((above.path.rstrip(b"/"), *self.parts)) or ROOT,
            workspace=workspace,
            project=None,
            hidden=frozenset(),
            everything=None,
        )


class Directory(NamedTuple):
    """A directory that is open for reading."""

    descriptor: int
    not_entered: frozenset[bytes] = frozenset()
    """Paths from here on of directories that a walk does not enter."""


class Area(NamedTuple):
    root: int
    """Descriptor of the directory."""
    path: bytes
    """Path of the directory as commands see it; absolute targets of links begin with it."""
    protected: frozenset[bytes] = frozenset()
    """Names in the workspace that cannot be removed, moved or replaced."""
    project: bytes | None = None
    """The protected name below which this worker cannot write."""
    is_shared: bool = False
    """Whether its files belong to another user than commands, who need permission to read them."""
    room_bytes: int | None = None
    """Bytes that may still be written, where the filesystem does not set the limit."""
    room_files: int | None = None
    workspace: Parts | None = ()
    """Path from here on to the workspace; None if that is elsewhere."""
    hidden: frozenset[Parts] = frozenset()
    """Paths from here on that are refused, with everything below."""
    everything: "Area | None" = None
    """The whole filesystem, if this worker may work outside of the workspace."""

    def file_mode(self, mode: int) -> int:
        return (mode & 0o777) | (0o444 if self.is_shared else 0)

    def directory_mode(self, mode: int) -> int:
        return (mode & 0o777) | (0o555 if self.is_shared else 0)

    def with_layout(self, protected: frozenset[bytes], project: bytes | None) -> "Area":
        """The same area, with the names of the workspace's layout."""
        everything = self.everything
        if everything is not None:
            everything = everything.with_layout(protected, project)
        return self._replace(protected=protected, project=project, everything=everything)

    def below_workspace(self, parts: Parts) -> Parts | None:
        """The path from the workspace on; None if it does not lead there."""
        if self.workspace is None or parts[: len(self.workspace)] != self.workspace:
            return None
        return parts[len(self.workspace) :]

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
        area: Area | None = self
        if parts and parts[0] == ROOT:
            area, parts = self.everything, parts[1:]
        if area is None:
            raise Refused(Failure.OUTSIDE)
        walk = _Walk(area, parts, follow=follow, make_parents=make_parents)
        try:
            place = walk.to_the_end()
            if writes and place.is_in_project:
                raise Refused(Failure.IN_PROJECT)
            yield place
        finally:
            walk.close()

    @contextmanager
    def directory(self, parts: Sequence[bytes]) -> Iterator[Directory]:
        """The directory at a path, open for reading."""
        with self.place(parts, follow=True) as place:
            descriptor = open_directory(place.parent, place.name)
            try:
                yield Directory(descriptor, place.area.not_entered_below(place.parts))
            finally:
                os.close(descriptor)

    def not_entered_below(self, parts: Parts) -> frozenset[bytes]:
        """Paths from this place on that a walk does not enter."""
        if not self.hidden:
            return frozenset()
        paths = (*self.hidden, *_MADE_UP)
        size = len(parts)
        return frozenset(b"/".join(path[size:]) for path in paths if path[:size] == parts != path)

    def open_file(self, parts: Sequence[bytes]) -> int:
        """Open the regular file at a path for reading; anything else is refused."""
        with self.place(parts, follow=True) as place:
            return open_regular(place.parent, place.name)


def whole_filesystem(workspace: bytes) -> Area:
    """The area of everything that commands see, without what belongs to the guest.

    The entries of this process in /proc are hidden, because the kernel lets a process read its own
    although it is not dumpable, and this one has the memory layout of PID 1.
    """
    root = os.open(ROOT, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    own = (b"proc", b"%d" % os.getpid())
    return Area(
        root,
        ROOT,
        workspace=tuple(part for part in workspace.split(b"/") if part),
        hidden=frozenset({_GUEST, own}),
    )


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
                continue
            if self._area.hidden:
                self._refuse_hidden(name)
            if self._ahead:
                self._go_down(name)
            elif self._follow and (target := self._target(name)) is not None:
                self._follow_link(target)
            else:
                return self._place(name, name)
        return self._place(b".")

    def _place(self, name: bytes, *more: bytes) -> Place:
        return Place(self._area, self._here, name, (*self._behind, *more))

    def _refuse_hidden(self, name: bytes) -> None:
        if (*self._behind, name) in self._area.hidden:
            raise Refused(Failure.HIDDEN)

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
        if self._place(name, name).is_in_project:
            raise Refused(Failure.IN_PROJECT)
        try:
            make_directory(self._here, name, self._area.directory_mode(0o755))
        except FileExistsError:
            pass  # made by another process meanwhile
        return os.open(name, _DIRECTORY, dir_fd=self._here)

    def _go_up(self) -> None:
        """Only links contain `..`. The path is walked again from the top, because the directory
        above may be another by now."""
        if self._behind:
            self._behind.pop()
        elif self._area.path != ROOT:  # above the root is the root
            raise Refused(Failure.OUTSIDE)
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
