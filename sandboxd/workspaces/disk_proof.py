"""A proof that a disk has its limits: it is filled up."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sandboxd.workspaces.disk_template import SLACK_BYTES

_BLOCK = bytes(4096)


class ProofFailed(Exception):
    """A limit is not where it should be; the text names it."""


def prove_limits(workspace: Path, *, size_bytes: int, max_files: int) -> None:
    """Write past both limits of a new disk, which no sandbox has used yet."""
    files = _files_until_full(workspace, at_most=max_files + 1)
    if files != max_files:
        raise ProofFailed(f"a disk for {max_files} files took {files}")
    written = _bytes_until_full(workspace / "bytes", at_most=size_bytes + SLACK_BYTES + 1)
    if not size_bytes <= written <= size_bytes + SLACK_BYTES:
        raise ProofFailed(f"a disk of {size_bytes} bytes took {written}")


def _files_until_full(directory: Path, *, at_most: int) -> int:
    """Create files until the kernel refuses one, and remove them; returns how many."""
    created: list[Path] = []
    try:
        while len(created) < at_most:
            path = directory / str(len(created))
            path.touch(exist_ok=False)
            created.append(path)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    finally:
        for path in created:
            path.unlink()
    return len(created)


def _bytes_until_full(path: Path, *, at_most: int) -> int:
    """Write a file until the kernel refuses, and remove it; returns its size."""
    written = 0
    with path.open("xb", buffering=0) as file:
        try:
            while written < at_most:
                written += file.write(_BLOCK)
            os.fsync(file.fileno())  # without it, the kernel may not have stored anything
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    path.unlink()
    return written
