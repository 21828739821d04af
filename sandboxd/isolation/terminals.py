"""Limit on the pseudo terminals of a sandbox.

The kernel counts them for the whole host, so without a limit one sandbox could use up all of them.
The engine mounts a terminal filesystem (devpts) for each container, but sets no limit on it.
"""

from __future__ import annotations

import ctypes
import os

MAX_TERMINALS = 64
_FSPICK, _FSCONFIG = 433, 431
"""Numbers of the system calls, the same on every architecture."""
_AT_FDCWD = -100
_CLOEXEC = 1
_SET_STRING, _RECONFIGURE = 1, 7

_libc = ctypes.CDLL(None, use_errno=True)


def limit(pid: int, *, most: int = MAX_TERMINALS) -> None:
    """Set the limit for the sandbox with this first process; OSError if that fails.

    Call it before the first command: later a command could have changed the path to the mount.
    """
    path = f"/proc/{pid}/root/dev/pts".encode()
    # Options that are not set fall back to the kernel's defaults; these are the engine's values.
    options = {"max": most, "gid": 5, "mode": "0620", "ptmxmode": "0666"}
    filesystem = _checked(_libc.syscall(_FSPICK, _AT_FDCWD, path, _CLOEXEC))
    try:
        for name, value in options.items():
            text = str(value).encode()
            _checked(_libc.syscall(_FSCONFIG, filesystem, _SET_STRING, name.encode(), text, 0))
        _checked(_libc.syscall(_FSCONFIG, filesystem, _RECONFIGURE, None, None, 0))
    finally:
        os.close(filesystem)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
