"""User namespaces that only say which ids of a disk are which ids of a sandbox."""

from __future__ import annotations

import errno
import os
import select
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_IDS = (1 << 32) - 1
"""All ids but the last, which means none."""
_START_SECONDS = 5.0
_PROGRAM = ("unshare", "--user", "--", "cat")
"""A process that is in a user namespace of its own as soon as it repeats what it reads, and that
ends with whoever holds its standard input."""
_WORD = b"."


@contextmanager
def swapped(one: int, other: int) -> Iterator[int]:
    """A descriptor of a user namespace in which these two users, and groups, have changed places.

    All others stay what they are, so that access lists that name them mean the same. Blocks for
    about two milliseconds; OSError if the host does not allow it.
    """
    try:
        holder = subprocess.Popen(
            _PROGRAM,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
        )
    except FileNotFoundError as error:
        raise OSError(error.errno, "unshare (package util-linux) is not installed") from error
    with holder:
        try:
            namespace = _namespace_of(holder, _map(one, other))
        finally:
            holder.kill()
    try:
        yield namespace
    finally:
        os.close(namespace)


def _namespace_of(holder: subprocess.Popen[bytes], lines: bytes) -> int:
    assert holder.stdin is not None
    assert holder.stdout is not None
    with suppress(BrokenPipeError):  # then there is nothing to read either
        holder.stdin.write(_WORD)
    readable, _, _ = select.select([holder.stdout], [], [], _START_SECONDS)
    if not readable:
        raise TimeoutError(errno.ETIMEDOUT, "a process in a user namespace is late")
    if holder.stdout.read(1) != _WORD:
        raise PermissionError(errno.EPERM, "user namespaces cannot be made")
    for name in ("uid_map", "gid_map"):
        _write(f"/proc/{holder.pid}/{name}", lines)
    return os.open(f"/proc/{holder.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)


def _map(one: int, other: int) -> bytes:
    """Lines for the kernel: first id on the disk, first id in the sandbox, how many."""
    low, high = sorted((one, other))
    runs = [
        (0, 0, low),
        (low, high, 1),
        (low + 1, low + 1, high - low - 1),
        (high, low, 1),
        (high + 1, high + 1, _IDS - high - 1),
    ]
    return "".join(f"{inner} {outer} {count}\n" for inner, outer, count in runs if count).encode()


def _write(path: str, data: bytes) -> None:
    """In one call, as the kernel wants it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)
