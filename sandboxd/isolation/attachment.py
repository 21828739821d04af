"""Attaches directories of the host, read-only, to a sandbox that already runs.

The mount is made detached: it is in no mount namespace until it is moved into the sandbox's. So
nothing is mounted on the host at any time, and a crash leaves nothing behind.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

# Numbers of the system calls, the same on every architecture.
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_AT_FDCWD, _AT_EMPTY_PATH = -100, 0x1000
_OPEN_TREE_CLONE = 1
_FROM_DESCRIPTOR, _TO_DESCRIPTOR = 0x04, 0x40
_READ_ONLY, _NO_SUID, _NO_DEVICES = 1, 2, 4
_MS_REC, _MS_PRIVATE, _MS_SLAVE = 1 << 14, 1 << 18, 1 << 19
_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000
_STEP = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# struct mount_attr: what is set, what is cleared, propagation, user namespace.
_ATTRIBUTES = struct.pack("=QQQQ", _READ_ONLY | _NO_SUID | _NO_DEVICES, 0, _MS_PRIVATE, 0)

_libc = ctypes.CDLL(None, use_errno=True)


class Attachment(NamedTuple):
    """A directory of the host that a sandbox is to see."""

    source: Path
    """Owned by root, so that nobody else changes what a path in it means."""
    target: str
    """Absolute path of an existing directory in the sandbox, without symbolic links."""


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
    """Mount directories read-only in the mount namespace of a process, or raise AttachFailed.

    Blocks. Call it before the first command of a sandbox: later a command could have changed what
    the paths of the targets lead to. A directory that is attached twice to one target shows the
    second.
    """
    with ExitStack() as open_files:
        trees = [
            (_detached(open_files, attachment.source), os.fsencode(attachment.target))
            for attachment in attachments
        ]

        def move() -> None:
            with _doing("enter the sandbox's mount namespace"):
                # The threads of a process share root and current directory, which a change of the
                # mount namespace replaces.
                _checked(_libc.unshare(_CLONE_FS))
                _checked(_libc.setns(pidfd, _CLONE_NEWNS))
            # From here on the thread is inside: it may open no path but the targets.
            for tree, target in trees:
                _move(tree, target)

        _in_a_thread(move)


def find_possibility(directory: Path) -> Possibility:
    """Try it in a mount namespace that nobody else sees, with a directory over itself.

    Nothing is made for it: a daemon has to start on a full disk, too.
    """
    place = directory.resolve()
    try:
        _in_a_thread(lambda: _attach_over_itself(place))
    except AttachFailed as error:
        return Possibility(Way.BOUND, str(error))
    return Possibility(Way.ATTACHED)


def _attach_over_itself(place: Path) -> None:
    with ExitStack() as open_files:
        with _doing("make a mount namespace"):
            _checked(_libc.unshare(_CLONE_NEWNS))
            # As a slave it lets go of what the host unmounts, and the host sees nothing of it.
            _checked(_libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None))
        with _doing("enter a mount namespace"):
            own = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
            open_files.callback(os.close, own)
            _checked(_libc.setns(own, _CLONE_NEWNS))
        _move(_detached(open_files, place), os.fsencode(place))
        with _doing("make a mount read-only"):
            if not os.statvfs(place).f_flag & os.ST_RDONLY:
                raise OSError(errno.EINVAL, "it can be written to")


def _detached(open_files: ExitStack, source: Path) -> int:
    """A mount of the directory that is nowhere yet; it disappears when it is closed."""
    with _doing("make a detached mount"):
        flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
        tree = _checked(_libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags))
        open_files.callback(os.close, tree)
        size = len(_ATTRIBUTES)
        _checked(_libc.syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, _ATTRIBUTES, size))
    return tree


def _move(tree: int, target: bytes) -> None:
    with _doing(f"mount on {os.fsdecode(target)}"):
        place = _opened(target)
        try:
            flags = _FROM_DESCRIPTOR | _TO_DESCRIPTOR
            _checked(_libc.syscall(_MOVE_MOUNT, tree, b"", place, b"", flags))
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


def _in_a_thread(work: Callable[[], None]) -> None:
    """Do it in a thread that ends afterwards, because it leaves the mount namespace of the daemon.

    A thread of a pool would go on to work in the sandbox's.
    """
    problems: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=run, name="attach")
    thread.start()
    thread.join()
    for problem in problems:
        raise problem


@contextmanager
def _doing(step: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AttachFailed(step, error) from error


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
