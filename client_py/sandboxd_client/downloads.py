"""Downloads whose caller named no place: files that the program need not clean up."""

from __future__ import annotations

import asyncio
import atexit
import os
from collections import deque
from typing import Protocol

from sandboxd_client.results import DownloadedFile, SandboxPath

KEPT = 32
"""The most such files that a process has at once."""
_kept: deque[tuple[int, str]] = deque()
"""Their directories, each with the process that made it, oldest first."""


class Downloading(Protocol):
    """The files of a sandbox."""

    async def download(
        self, path: SandboxPath, local_path: str | os.PathLike[str] | None = None
    ) -> str:
        """Download a file and return its local path."""


async def downloaded(
    files: Downloading, path: SandboxPath, local_path: str | os.PathLike[str] | None
) -> DownloadedFile:
    """Download a file to this place, or to a temporary one."""
    if local_path is None:
        local_path = await asyncio.to_thread(_new_directory)
    return DownloadedFile(await files.download(path, local_path))


def _new_directory() -> str:
    import tempfile  # takes longer to load than most programs need it

    while len(_kept) >= KEPT:
        _delete_oldest()
    directory = tempfile.mkdtemp(prefix="sandboxd-")
    _kept.append((os.getpid(), directory))
    return directory


def _delete_oldest() -> None:
    import shutil

    process, directory = _kept.popleft()
    if process == os.getpid():  # else it is that of the process that this one was forked from
        shutil.rmtree(directory, ignore_errors=True)


@atexit.register
def _delete_all() -> None:
    while _kept:
        _delete_oldest()
