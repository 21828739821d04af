"""Where packages are built: a directory that cannot grow beyond its limits."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from sandboxd.errors import PackagesTooLarge
from sandboxd.workspaces.disks import Disks
from sandboxd.workspaces.thread_work import run_in_thread

T = TypeVar("T")

LOOK_SECONDS = 0.5
"""Pause between two looks at the size of an area that the kernel does not limit."""
_THREAD_SECONDS = 60.0


class BuildAreas:
    """Makes areas. Where disks can be mounted, each is a disk and the kernel limits it; elsewhere
    it is a directory whose size is looked at while it is used."""

    def __init__(self, directory: Path, disks: Disks | None, *, max_bytes: int) -> None:
        self._directory = directory
        self._disks = disks
        self._max_bytes = max_bytes

    async def open(self) -> None:
        """Delete what a killed daemon left."""
        if self._disks is not None:
            await self._disks.sweep(())
        await _in_thread(partial(_make_empty, self._directory))

    @asynccontextmanager
    async def area(self, uid: int) -> AsyncIterator[Path]:
        """A directory of this user for the length of the block, with everything in it.

        PackagesTooLarge ends the block where only a look finds that it is too large.
        """
        if self._disks is None:
            async with self._directory_area(uid) as path:
                yield path
            return
        disk = await self._disks.make(uid)
        try:
            async with self._disks.attached(disk) as attached:
                path = attached.path / "area"
                path.mkdir()
                os.chown(path, uid, uid)
                yield path
        finally:
            await self._disks.delete(disk.id)

    @asynccontextmanager
    async def _directory_area(self, uid: int) -> AsyncIterator[Path]:
        path = self._directory / secrets.token_hex(8)
        path.mkdir(mode=0o700)
        os.chown(path, uid, uid)
        try:
            async with _watched(path, self._max_bytes):
                yield path
        finally:
            await _in_thread(partial(shutil.rmtree, path, ignore_errors=True))


@asynccontextmanager
async def _watched(path: Path, max_bytes: int) -> AsyncIterator[None]:
    task = asyncio.current_task()
    assert task is not None
    is_too_large = False

    async def watch() -> None:
        nonlocal is_too_large
        while not is_too_large:
            await asyncio.sleep(LOOK_SECONDS)
            is_too_large = await _in_thread(partial(_size, path)) > max_bytes
        task.cancel()

    watching = asyncio.create_task(watch(), name="package-area-size")
    try:
        yield
    except asyncio.CancelledError:
        if is_too_large and task.uncancel() == 0:
            raise PackagesTooLarge("unpacked", f"{max_bytes >> 20} MiB") from None
        raise
    finally:
        watching.cancel()


def _size(path: Path) -> int:
    """Bytes on the disk; files that disappear meanwhile do not count."""
    total = 0
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                found = os.lstat(os.path.join(directory, name))
            except FileNotFoundError:
                continue
            total += found.st_blocks * 512 // max(1, found.st_nlink)
    return total


def _make_empty(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700, parents=True)


async def _in_thread(work: Callable[[], T]) -> T:
    return await run_in_thread(work, seconds=_THREAD_SECONDS)
