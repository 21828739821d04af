"""A small filesystem of a test's own, which can be full without harm to others."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FILLER = "filler"


class SmallDisk:
    """An ext4 filesystem in a file, mounted at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self) -> None:
        """Leave no block that anyone could have."""
        with (self.path / _FILLER).open("ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"\1" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        (self.path / _FILLER).unlink()


@contextmanager
def small_disk(image: Path, path: Path, *, size_bytes: int) -> Iterator[SmallDisk]:
    """One of that size; unmounted afterwards, also when something still uses it."""
    path.mkdir(parents=True)
    with image.open("wb") as file:
        file.truncate(size_bytes)
    _run("mkfs.ext4", "-q", "-m", "0", str(image))
    _run("mount", "-o", "loop", str(image), str(path))
    try:
        yield SmallDisk(path)
    finally:
        _run("umount", "--lazy", str(path))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=30, capture_output=True)
