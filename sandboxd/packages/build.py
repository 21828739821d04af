"""Builds a set of packages: resolve, download, unpack, compile, save.

No code of a package runs in any of these steps.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from sandboxd.environments.environment import PackageKind
from sandboxd.environments.npm_client import NpmClient
from sandboxd.environments.parts import SourceUnavailable
from sandboxd.environments.progress import Progress
from sandboxd.errors import PackagesBuildFailed, PackagesUnsafe
from sandboxd.packages import tree
from sandboxd.packages.areas import BuildAreas
from sandboxd.packages.build_area import ARCHIVES, UNPACKED, BuildArea, BuildSettings
from sandboxd.packages.build_user import BuildUser
from sandboxd.packages.installer import MAX_FILES, Installer, Order
from sandboxd.packages.lock import Archive, Lock
from sandboxd.packages.npm_installer import NpmInstaller
from sandboxd.packages.python_installer import PythonInstaller, PythonSettings
from sandboxd.packages.store import PackageSet, PackageStore
from sandboxd.packages.tree import TreeSize, TreeTooLarge, TreeUnsafe
from sandboxd.packages.worker_process import WorkerTimedOut
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.workspaces.thread_work import run_in_thread

STEPS: Mapping[str, float] = {
    "resolve": 0.10,
    "download": 0.45,
    "unpack": 0.10,
    "compile": 0.25,
    "save": 0.10,
}
INDEX_IDLE_SECONDS = 30.0
"""How long the index may send nothing."""


class Builder:
    """Builds sets, each in its own area and with its own deadline."""

    def __init__(
        self,
        settings: BuildSettings,
        python: PythonSettings,
        npm: NpmClient,
        store: PackageStore,
        areas: BuildAreas,
        user: BuildUser,
        sandboxes: SandboxMaker,
    ) -> None:
        self._settings = settings
        self._python = python
        self._npm = npm
        self._sandboxes = sandboxes
        self._store = store
        self._areas = areas
        self._user = user

    async def build(
        self, order: Order, progress: Progress, *, make_room: Callable[[int], None]
    ) -> tuple[Lock, PackageSet]:
        """Build a set, unless it exists by then; returns how the request was resolved too.

        `make_room` is called with the size of the set before it is added, and may refuse it.
        """
        deadline = time.monotonic() + self._settings.seconds
        uid, kind = self._user.uid, order.target.kind
        try:
            async with asyncio.timeout(self._settings.seconds), self._areas.area(uid) as path:
                progress.begin("resolve", "finding versions that fit together")
                area = BuildArea(self._settings, kind, path, uid, deadline)
                installer = await self._installer(order, area)
                return await self._build(_Build(order, progress, area, installer), make_room)
        except (TimeoutError, WorkerTimedOut):
            raise PackagesBuildFailed(
                f"that took longer than the {self._settings.seconds:g} s that are allowed; ask for "
                "fewer packages, or for exact versions."
            ) from None

    async def _installer(self, order: Order, area: BuildArea) -> Installer:
        match order.target.kind:
            case PackageKind.PYTHON:
                return PythonInstaller(self._python, order, area)
            case PackageKind.NPM:
                try:
                    client, registry = await self._npm.get(), await self._npm.registry()
                except SourceUnavailable as error:
                    raise PackagesBuildFailed(
                        f"{error}. An operator can let the daemon's host reach it."
                    ) from error
                return NpmInstaller(client, registry, order, area)

    async def _build(
        self, build: _Build, make_room: Callable[[int], None]
    ) -> tuple[Lock, PackageSet]:
        lock = await build.installer.resolve()
        key = lock.key(build.order.target)
        if (known := self._store.get(key)) is not None:
            return lock, known
        await build.fetch(lock)
        await build.unpack(lock)
        await build.installer.compile(self._sandboxes, build.progress)
        made = self._store.new_path()
        try:
            size = await build.save(made)
            make_room(size.size_bytes)
            return lock, self._store.add(key, made, build.order.target, lock, size)
        except BaseException:
            await run_in_thread(partial(tree.delete, made), seconds=self._settings.seconds)
            raise


class _Build:
    """One build under way."""

    def __init__(
        self, order: Order, progress: Progress, area: BuildArea, installer: Installer
    ) -> None:
        self.order = order
        self.progress = progress
        self.installer = installer
        self._area = area

    async def fetch(self, lock: Lock) -> None:
        max_bytes = self._area.max_bytes
        # The same archive may be unpacked in several places.
        wanted = list({archive.file_name: archive for archive in lock.archives}.values())
        self.progress.begin("download", f"{len(wanted)} packages")
        if lock.announced_bytes > max_bytes:
            raise self._area.too_large(f"{lock.announced_bytes >> 20} MiB to download")
        order = {archive.name: place for place, archive in enumerate(wanted)}

        def on_report(report: Mapping[str, Any]) -> None:
            if (name := report.get("fetching")) in order:
                done = int(report.get("bytes", 0))
                part = done / lock.announced_bytes if lock.announced_bytes else 0.0
                part = max(part, order[name] / len(order))
                self.progress.advance(part, f"{name}, {done >> 20} MiB so far")

        job = {
            "directory": f"{self._area.seen_as}/{ARCHIVES}",
            "limits": {
                "archive_bytes": max_bytes,
                "unpacked_bytes": max_bytes,
                "files": MAX_FILES,
                "idle_seconds": INDEX_IDLE_SECONDS,
            },
            "index": self.installer.index,
            "archives": [_archive_job(archive) for archive in wanted],
        }
        await self._area.run_job({"fetch": job}, has_network=True, on_report=on_report)

    async def unpack(self, lock: Lock) -> None:
        self.progress.begin("unpack", f"{len(lock.archives)} packages")
        await self.installer.unpack(lock, self.progress)

    async def save(self, made: Path) -> TreeSize:
        self.progress.begin("save", "checking every file")
        loop = asyncio.get_running_loop()

        def on_progress(files: int) -> None:
            if files % 1000 == 0:
                loop.call_soon_threadsafe(
                    self.progress.advance, min(0.9, files / 20_000), f"{files} files"
                )

        copy = partial(
            tree.copy,
            self._area.path / UNPACKED,
            made,
            max_bytes=self._area.max_bytes,
            max_files=MAX_FILES,
            programs=self.installer.programs,
            on_progress=on_progress,
        )
        try:
            return await run_in_thread(copy, seconds=self._area.seconds_left)
        except TreeUnsafe as error:
            raise PackagesUnsafe("in this set", str(error)) from None
        except TreeTooLarge as error:
            raise self._area.too_large(str(error)) from None


def _archive_job(archive: Archive) -> Mapping[str, Any]:
    return {
        "name": archive.name,
        "url": archive.url,
        "digest": archive.digest,
        "file_name": archive.file_name,
    }
