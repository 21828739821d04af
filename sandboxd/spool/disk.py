"""The calls to the kernel that a spool makes."""

from __future__ import annotations

import os


class Disk:
    """Put another in its place to see what a failing disk does."""

    def open(self, path: str, flags: int) -> int:
        # Never through a link, and never waiting for the other end of a pipe.
        return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)

    def write(self, file: int, data: bytes, position: int) -> int:
        return os.pwrite(file, data, position)

    def read(self, file: int, size: int, position: int) -> bytes:
        return os.pread(file, size, position)


def in_words(error: OSError) -> str:
    """What went wrong, without the path."""
    return error.strerror or "unknown error"
