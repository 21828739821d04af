"""Confines the process that resolves, fetches and unpacks packages.

It parses what strangers have uploaded, so it gets a view of the host with little in it: the
system's libraries and certificates, a Python, and one directory to write to. It has a uid that
nothing else has, no privileges, and limits, and whatever it starts ends with it. It keeps the
host's network only where it fetches.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import select
import signal
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_MOUNT_SETATTR = 442
"""Number of the system call, the same on every architecture."""
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_AT_FDCWD = -100
_READ_ONLY, _NO_SUID, _NO_DEVICES = 1, 2, 4
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1 << 5, 1 << 12, 1 << 14, 1 << 18
_MNT_DETACH = 2
_CLONE_NEWNS, _CLONE_NEWPID, _CLONE_NEWNET = 0x20000, 0x20000000, 0x40000000
_SET_PDEATHSIG, _SET_NO_NEW_PRIVS = 1, 38

SYSTEM = ("/usr", "/etc", "/lib", "/lib32", "/lib64", "/bin", "/sbin")
"""What programs of the host need: directories, or links to them."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
NICENESS = 10
MAX_PROCESSES = 128
MAX_OPEN_FILES = 1024


class Bind(NamedTuple):
    """A file or directory of the host that is visible inside."""

    source: str
    target: str
    is_writable: bool = False


class View(NamedTuple):
    """What a confined process sees of the host, and who it is."""

    root: str
    """Empty directory to build the view on."""
    uid: int
    binds: Sequence[Bind]
    shown: Sequence[str]
    """Files and directories that have to be visible under their own paths, if they exist."""
    has_network: bool

    @classmethod
    def decode(cls, fields: Mapping[str, Any]) -> View:
        return cls(**{**fields, "binds": [Bind(*bind) for bind in fields["binds"]]})


class ProcessLimits(NamedTuple):
    memory_bytes: int
    cpu_seconds: int
    file_bytes: int


_libc = ctypes.CDLL(None, use_errno=True)


def end_with_parent(parent: int) -> None:
    """Be killed when the thread that started this process ends; OSError if it has ended already."""
    _checked(_libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if os.getppid() != parent:
        raise OSError(errno.ESRCH, "the daemon has ended")


def set_limits(limits: ProcessLimits) -> None:
    os.nice(NICENESS)
    os.umask(0o022)
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_DATA, limits.memory_bytes),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
    ):
        _set_limit(kind, value)


def enter(view: View) -> None:
    """Go on in a new process that is confined; only root can. This one waits for its end, and ends
    as it did.

    The new process is the first of its namespace: the kernel ends all others with it.
    """
    flags = _CLONE_NEWNS | _CLONE_NEWPID | (0 if view.has_network else _CLONE_NEWNET)
    _checked(_libc.unshare(flags))
    read_end, write_end = os.pipe()
    child = os.fork()
    if child:
        os.close(read_end)
        _, status = os.waitpid(child, 0)
        os._exit(_exit_code(status))
    os.close(write_end)
    _leave_the_host(view)
    # After the change of user, which would undo it.
    _checked(_libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if select.select([read_end], [], [], 0)[0]:  # the other end is closed
        raise OSError(errno.ESRCH, "the waiting process has ended")
    os.close(read_end)


def _exit_code(status: int) -> int:
    """As a shell reports it."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _leave_the_host(view: View) -> None:
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("none", view.root, "tmpfs", _MS_NOSUID | _MS_NODEV, "size=1m,nr_inodes=1k,mode=0755")
    for directory in SYSTEM:
        _show_system(directory, view.root)
    for device in DEVICES:
        _bind(Bind(device, device), view.root, _READ_ONLY | _NO_SUID)
    for bind in view.binds:
        _bind(bind, view.root)
    for path in ("/etc/resolv.conf", *view.shown):
        _show(path, view.root)
    _mount(None, view.root, None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV)
    _make_root(view.root)
    _set_limit(resource.RLIMIT_NPROC, MAX_PROCESSES)  # of this uid, which nobody else has
    os.setgroups([])
    os.setresgid(view.uid, view.uid, view.uid)
    os.setresuid(view.uid, view.uid, view.uid)


def give_up_privileges() -> None:
    """From here on no program that this process starts gets more rights than it has."""
    _checked(_libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _make_root(directory: str) -> None:
    """Make a mount the root, and let go of everything else. Unlike chroot, this needs no further
    capability, and leaves no way back."""
    os.chdir(directory)
    _checked(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."))
    _checked(_libc.umount2(b".", _MNT_DETACH))
    os.chdir("/")


def _set_limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    lowest = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (lowest, lowest))


def _show_system(directory: str, root: str) -> None:
    source = Path(directory)
    if source.is_symlink():
        os.symlink(os.readlink(source), f"{root}{directory}")
    elif source.is_dir():
        _bind(Bind(directory, directory), root)


def _show(path: str, root: str) -> None:
    """Show something that may be a link to somewhere that is not visible."""
    real = os.path.realpath(path)
    if os.path.exists(real):
        for place in {path, real}:
            if not os.path.lexists(f"{root}{place}"):
                _bind(Bind(real, place), root)


def _bind(bind: Bind, root: str, attributes: int = _READ_ONLY | _NO_SUID | _NO_DEVICES) -> None:
    target = f"{root}{bind.target}"
    if os.path.isdir(bind.source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    _mount(bind.source, target, None, _MS_BIND)
    if bind.is_writable:
        attributes &= ~_READ_ONLY
    packed = struct.pack("=QQQQ", attributes, 0, 0, 0)
    path = os.fsencode(target)
    _checked(_libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, path, 0, packed, len(packed)))


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    data = None if options is None else options.encode()
    _checked(_libc.mount(*texts, ctypes.c_ulong(flags), data))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
