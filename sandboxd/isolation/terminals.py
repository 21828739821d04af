"""How many pseudo terminals a sandbox may have.

The kernel counts them for the whole host, so without a limit of its own one sandbox can take those
of all others. The engine mounts a terminal filesystem for each container and sets none.
"""

from __future__ import annotations

import ctypes
import os

MOST = 64
_FSPICK, _FSCONFIG = 433, 431
"""The same on every architecture."""
_AT_FDCWD = -100
_CLOEXEC = 1
_SET_STRING, _RECONFIGURE = 1, 7

_libc = ctypes.CDLL(None, use_errno=True)


def limit(pid: int, *, most: int = MOST) -> None:
    """Set the limit for the sandbox of this first process; OSError if that cannot be done.

    Before its first command: only then the way to the mount is certain.
    """
    path = f"/proc/{pid}/root/dev/pts".encode()
    # What is not named goes back to the kernel's default; these are the engine's.
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
