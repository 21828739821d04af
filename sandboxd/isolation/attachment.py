"""Attaches directories of the host to a sandbox that already runs: read-only ones, and a disk in
place of the one that it has.

The mount is made detached: it is in no mount namespace until it is moved into the sandbox's. So
nothing is mounted on the host at any time, and a crash leaves nothing behind.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from sandboxd.isolation.mapped_ids import swapped
from sandboxd.isolation.namespaces import checked, in_own_thread

# Numbers of the system calls, the same on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE_CLONE = 1
_FROM_DESCRIPTOR, _TO_DESCRIPTOR = 0x04, 0x40
_READ_ONLY, _NO_SUID, _NO_DEVICES, _MAP_IDS = 1, 2, 4, 1 << 20
_DETACH, _NOFOLLOW = 2, 8
_MS_REC, _MS_PRIVATE, _MS_SLAVE = 1 << 14, 1 << 18, 1 << 19
_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# struct mount_attr: what is set, what is cleared, propagation, user namespace.
_ATTRIBUTES = struct.Struct("=QQQQ")

_libc = ctypes.CDLL(None, use_errno=True)


class Owner(NamedTuple):
    """Whose files a disk has."""

    on_disk: int
    """User id, and group id, in the filesystem of the disk."""
    inside: int
    """Those of the sandbox that is to own them."""


class Attachment(NamedTuple):
    """A directory of the host that a sandbox is to see."""

    source: Path
    """Owned by root, so that nobody else changes what a path in it means."""
    target: str
    """Absolute path of an existing directory in the sandbox, without symbolic links."""
    owner: Owner | None = None
    """Of a disk, which can be written to and takes the place of what is mounted at the target, with
    all that is mounted below. Without it, the directory is shown read-only on top of that."""


class AttachFailed(Exception):
    """Nothing was attached, or only the first of several directories."""

    def __init__(self, step: str, error: OSError) -> None:
        super().__init__(f"cannot {step}: {error.strerror}")
        self.errno = error.errno


class Way(StrEnum):
    """How a directory of the host gets into a sandbox."""

    ATTACHED = "attached"
    """Into a warm sandbox, in about a millisecond."""
    BOUND = "bound at start"
    """Into a new sandbox, as a bind mount of its container."""


class Possibility(NamedTuple):
    """What this host allows, and why not more."""

    way: Way
    problem: str = ""


UNTRIED = Possibility(Way.ATTACHED)
"""Of a host on which nobody has looked."""


def attach(pidfd: int, attachments: Sequence[Attachment]) -> None:
    """Mount directories in the mount namespace of a process, or raise AttachFailed.

    Blocks. Call it before the first command of a sandbox: later a command could have changed what
    the paths of the targets lead to. A directory that is attached twice to one target shows the
    second.
    """
    with ExitStack() as open_files:
        trees = [
            (_detached(open_files, attachment.source, attachment.owner), attachment)
            for attachment in attachments
        ]

        def move() -> None:
            with _doing("enter the sandbox's mount namespace"):
                # The threads of a process share root and current directory, which a change of the
                # mount namespace replaces.
                checked(_libc.unshare(_CLONE_FS))
                checked(_libc.setns(pidfd, _CLONE_NEWNS))
            # From here on the thread is inside: it may open no path but the targets.
            for tree, attachment in trees:
                _put(tree, attachment)

        in_own_thread(move)


def _put(tree: int, attachment: Attachment) -> None:
    target = os.fsencode(attachment.target)
    if attachment.owner is not None:
        _unmount(target)
    _move(tree, target)


def find_possibility(directory: Path) -> Possibility:
    """Try it in a mount namespace that nobody else sees, with a directory over itself.

    Nothing is made for it: a daemon has to start on a full disk, too.
    """
    place = directory.resolve()
    try:
        in_own_thread(lambda: _attach_over_itself(place))
    except AttachFailed as error:
        return Possibility(Way.BOUND, str(error))
    return Possibility(Way.ATTACHED)


def find_disk_problem(directory: Path) -> str:
    """Why a disk cannot be moved into a sandbox that runs; empty if it can.

    Tries it in a mount namespace that nobody else sees, with a directory of a disk that does not
    belong to root: in place of itself, with another owner.
    """
    place = directory.resolve()
    try:
        in_own_thread(lambda: _move_in_place_of_itself(place))
    except AttachFailed as error:
        return str(error)
    return ""


def _attach_over_itself(place: Path) -> None:
    with ExitStack() as open_files:
        _enter_own_namespace(open_files)
        _move(_detached(open_files, place), os.fsencode(place))
        with _doing("make a mount read-only"):
            if not os.statvfs(place).f_flag & os.ST_RDONLY:
                raise OSError(errno.EINVAL, "it can be written to")


def _move_in_place_of_itself(place: Path) -> None:
    with ExitStack() as open_files:
        _enter_own_namespace(open_files)
        on_disk = place.stat().st_uid
        attachment = Attachment(place, str(place), Owner(on_disk, on_disk - 1))
        tree = _detached(open_files, place, attachment.owner)
        _move(_detached(open_files, place), os.fsencode(place))  # to be replaced
        _put(tree, attachment)
        with _doing("map the owner of files"):
            if place.stat().st_uid != on_disk - 1:
                raise OSError(errno.EINVAL, "it is another one")
            if os.statvfs(place).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def _enter_own_namespace(open_files: ExitStack) -> None:
    with _doing("make a mount namespace"):
        checked(_libc.unshare(_CLONE_NEWNS))
        # As a slave it lets go of what the host unmounts, and the host sees nothing of it.
        checked(_libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None))
    with _doing("enter a mount namespace"):
        own = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        open_files.callback(os.close, own)
        checked(_libc.setns(own, _CLONE_NEWNS))


def _detached(open_files: ExitStack, source: Path, owner: Owner | None = None) -> int:
    """A mount of the directory that is nowhere yet; it disappears when it is closed."""
    with _doing("make a detached mount"):
        flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
        tree = checked(_libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags))
        open_files.callback(os.close, tree)
        _set(tree, _NO_SUID | _NO_DEVICES | (_READ_ONLY if owner is None else 0))
    if owner is not None and owner.on_disk != owner.inside:
        with _doing("map the owner of files"), swapped(*owner) as namespace:
            _set(tree, _MAP_IDS, namespace)
    return tree


def _set(tree: int, attributes: int, namespace: int = 0) -> None:
    packed = _ATTRIBUTES.pack(attributes, 0, _MS_PRIVATE, namespace)
    checked(_libc.syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, packed, len(packed)))


def _unmount(target: bytes) -> None:
    """Detach what is mounted there. It lasts until its last user is done with it."""
    with _doing(f"unmount {os.fsdecode(target)}"):
        os.close(_opened(target))  # no component is a link
        checked(_libc.umount2(target, _DETACH | _NOFOLLOW))


def _move(tree: int, target: bytes) -> None:
    with _doing(f"mount on {os.fsdecode(target)}"):
        place = _opened(target)
        try:
            flags = _FROM_DESCRIPTOR | _TO_DESCRIPTOR
            checked(_libc.syscall(_MOVE_MOUNT, tree, b"", place, b"", flags))
        finally:
            os.close(place)


def _opened(target: bytes) -> int:
    """The directory at an absolute path in which no component is a link.

    Step by step: systemd's RestrictSUIDSGID= forbids openat2, which would do it in one call.
    """
    current = os.open(b"/", _STEP)
    for name in target.split(b"/"):
        if name in (b"", b"."):
            continue
        try:
            following = os.open(name, _STEP, dir_fd=current)
        finally:
            os.close(current)
        current = following
    return current


@contextmanager
def _doing(step: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AttachFailed(step, error) from error
