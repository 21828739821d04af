"""The files that hold workspace disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

UNFINISHED = ".part"
_CHUNK_BYTES = 1 << 20


@contextmanager
def half_made(path: Path) -> Iterator[Path]:
    """A temporary name for a new file, which gets its real name once it is whole."""
    unfinished = path.with_name(path.name + UNFINISHED)
    try:
        yield unfinished
        unfinished.rename(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def created(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def copy_data(source: int, target: int) -> None:
    """Copy everything that is not a hole to the same positions.

    Not with copy_file_range, which shares blocks where the filesystem can: a shared block needs new
    space when it is first written.
    """
    end = 0
    while True:
        try:
            start = os.lseek(source, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole is left
                return
            raise
        end = os.lseek(source, start, os.SEEK_HOLE)
        while start < end:
            chunk = os.pread(source, min(_CHUNK_BYTES, end - start), start)
            start += os.pwrite(target, chunk, start)


def is_fully_allocated(path: Path) -> bool:
    """Whether the file has space for its whole size."""
    found = path.stat()
    return found.st_blocks * 512 >= found.st_size
