"""Builds a set of packages: resolve, download, unpack, compile, save.

No code of a package runs in any of these steps.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from sandboxd.environments.environment import Environment
from sandboxd.environments.progress import Progress
from sandboxd.errors import (
    PackageIndexUnreachable,
    PackagesBuildFailed,
    PackagesNotResolved,
    PackagesTooLarge,
    PackagesUnsafe,
    SandboxdError,
)
from sandboxd.packages import requirements, tree, uv
from sandboxd.packages.areas import BuildAreas
from sandboxd.packages.build_user import BuildUser
from sandboxd.packages.confinement import Bind, ProcessLimits, View
from sandboxd.packages.lock import MAX_LOCK_BYTES, Lock, LockUnusable, Wheel, parse_pylock
from sandboxd.packages.requirements import Package
from sandboxd.packages.store import PackageSet, PackageStore
from sandboxd.packages.target import Target
from sandboxd.packages.tree import TreeSize, TreeTooLarge, TreeUnsafe
from sandboxd.packages.worker_process import Finished, WorkerTimedOut, run_worker
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.programs import Program
from sandboxd.workspaces.thread_work import run_in_thread

log = structlog.get_logger()

STEPS: Mapping[str, float] = {
    "resolve": 0.10,
    "download": 0.45,
    "unpack": 0.10,
    "compile": 0.25,
    "save": 0.10,
}
MAX_FILES = 100_000
"""Files and directories of a set."""
MEMORY_BYTES = 2 << 30
"""Memory of the process that resolves, fetches or unpacks."""
INDEX_IDLE_SECONDS = 30.0
"""How long the index may send nothing."""
INHERITED = frozenset(
    name
    for lower in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
    for name in (lower, lower.upper())
) | {"SSL_CERT_FILE", "SSL_CERT_DIR", "LANG"}
"""Variables of the daemon that its worker gets."""
DEFAULT_INDEX = "https://pypi.org/simple"
INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
"""Variables that name the index where the settings do not."""
AREA, PYTHON = "/build", "/.sandboxd/bin/python3.11"
"""Where a confined worker sees its area, and a Python for uv to ask."""
_UV, _RUNTIME = "/uv", "/.sandboxd"
# Without `site` (-S), which would run code of the packages that it finds.
_COMPILE = (
    *("python3", "-I", "-S", "-m", "compileall", "-q"),
    *("--invalidation-mode", "unchecked-hash"),
)


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    index: str
    max_bytes: int
    """Size of a set."""
    seconds: float
    """Time of one build."""
    min_age_days: float
    """How long a release has to be on the index before it is used."""
    uv: Path
    runtime_dir: Path
    """The Python of guests, which uv asks about Python."""
    build_dir: Path
    """An empty directory, to build views of the host on."""


class Order(NamedTuple):
    """What to build."""

    packages: Sequence[Package]
    environment: Environment
    target: Target


class Builder:
    """Builds sets, each in its own area and with its own deadline."""

    def __init__(
        self,
        settings: BuildSettings,
        store: PackageStore,
        areas: BuildAreas,
        user: BuildUser,
        sandboxes: SandboxMaker,
    ) -> None:
        self._settings = settings
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
        uid = self._user.uid
        try:
            async with asyncio.timeout(self._settings.seconds), self._areas.area(uid) as area:
                build = _Build(self._settings, order, progress, area, uid, deadline)
                return await self._build(build, make_room)
        except (TimeoutError, WorkerTimedOut):
            raise PackagesBuildFailed(
                f"that took longer than the {self._settings.seconds:g} s that are allowed; ask for "
                "fewer packages, or for exact versions."
            ) from None

    async def _build(
        self, build: _Build, make_room: Callable[[int], None]
    ) -> tuple[Lock, PackageSet]:
        lock = await build.resolve()
        key = lock.key(build.order.target)
        if (known := self._store.get(key)) is not None:
            return lock, known
        await build.fetch(lock)
        await build.unpack(lock)
        await build.compile(self._sandboxes)
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
        self,
        settings: BuildSettings,
        order: Order,
        progress: Progress,
        area: Path,
        uid: int,
        deadline: float,
    ) -> None:
        self._settings = settings
        self.order = order
        self._progress = progress
        self._area = area
        self._uid = uid
        self._deadline = deadline
        self._is_confined = os.geteuid() == 0
        self._places = (
            uv.Places(uv=_UV, python=PYTHON, area=AREA)
            if self._is_confined
            else uv.Places(uv=str(settings.uv), python=sys.executable, area=str(area))
        )
        for name in (uv.WHEELS, uv.TEMPORARY, uv.UNPACKED):
            self._make_directory(name)

    async def resolve(self) -> Lock:
        self._progress.begin("resolve", "finding versions that fit together")
        self._write(uv.REQUEST, requirements.lines(self.order.packages))
        days = self._settings.min_age_days
        argv = uv.resolve(self._places, self.order.target, min_age_days=days)
        await self._run_uv(argv, has_network=True)
        try:
            return parse_pylock(self._read(uv.PYLOCK, MAX_LOCK_BYTES))
        except LockUnusable as error:
            raise PackagesNotResolved(f"{error}.") from None

    async def fetch(self, lock: Lock) -> None:
        settings, progress = self._settings, self._progress
        progress.begin("download", f"{len(lock.wheels)} packages")
        if lock.announced_bytes > settings.max_bytes:
            raise self._too_large(f"{lock.announced_bytes >> 20} MiB to download")
        outcome: dict[str, Any] = {}
        order = {wheel.name: place for place, wheel in enumerate(lock.wheels)}

        def on_line(line: str) -> None:
            report = _report(line)
            if (name := report.get("fetching")) in order:
                done = int(report.get("bytes", 0))
                part = done / lock.announced_bytes if lock.announced_bytes else 0.0
                part = max(part, order[name] / len(order))
                progress.advance(part, f"{name}, {done >> 20} MiB so far")
            elif report:
                outcome.update(report)

        job = {
            "directory": f"{self._places.area}/{uv.WHEELS}",
            "limits": {
                "wheel_bytes": settings.max_bytes,
                "unpacked_bytes": settings.max_bytes,
                "files": MAX_FILES,
                "idle_seconds": INDEX_IDLE_SECONDS,
            },
            "index": settings.index,
            "wheels": [_wheel_job(wheel) for wheel in lock.wheels],
        }
        finished = await self._run({"fetch": job}, has_network=True, on_line=on_line)
        if finished.code != 0 or "done" not in outcome:
            raise self._fetch_error(outcome, finished)

    async def unpack(self, lock: Lock) -> None:
        self._progress.begin("unpack", f"{len(lock.wheels)} packages")
        self._write(uv.LOCKED, lock.requirements())
        await self._run_uv(uv.unpack(self._places, self.order.target), has_network=False)

    async def compile(self, sandboxes: SandboxMaker) -> None:
        """Compile once what would otherwise be compiled at every start: sets are read-only."""
        self._progress.begin("compile", "Python files to bytecode")
        directory = self.order.target.directory
        program = Program(
            argv=[*_COMPILE, directory],
            uid=self._uid,
            directory=self._area / uv.UNPACKED,
            target=directory,
            seconds=self._seconds_left,
        )
        code = await sandboxes.run(self.order.environment, program)
        # 1: some files are not for this version of Python, which is usual.
        if code not in (0, 1):
            raise PackagesBuildFailed(f"their Python files cannot be compiled (exit code {code}).")

    async def save(self, made: Path) -> TreeSize:
        self._progress.begin("save", "checking every file")
        loop = asyncio.get_running_loop()

        def on_progress(files: int) -> None:
            if files % 1000 == 0:
                loop.call_soon_threadsafe(
                    self._progress.advance, min(0.9, files / 20_000), f"{files} files"
                )

        copy = partial(
            tree.copy,
            self._area / uv.UNPACKED,
            made,
            max_bytes=self._settings.max_bytes,
            max_files=MAX_FILES,
            on_progress=on_progress,
        )
        try:
            return await run_in_thread(copy, seconds=self._seconds_left)
        except TreeUnsafe as error:
            raise PackagesUnsafe("in this set", str(error)) from None
        except TreeTooLarge as error:
            raise self._too_large(str(error)) from None

    # --- the worker ---

    async def _run_uv(self, argv: Sequence[str], *, has_network: bool) -> None:
        inherited = _inherited()
        job = {
            "argv": argv,
            "environment": uv.environment(self._places, inherited, self._settings.index),
        }
        finished = await self._run(job, has_network=has_network)
        if finished.code != 0:
            log.info("packages.uv_failed", code=finished.code, errors=finished.errors)
            raise uv.explain(finished.errors, max_bytes=self._settings.max_bytes)

    async def _run(
        self,
        job: Mapping[str, Any],
        *,
        has_network: bool,
        on_line: Callable[[str], None] = lambda _: None,
    ) -> Finished:
        limits = process_limits(self._settings)
        view = (
            view_of(self._settings, self._area, self._uid, has_network=has_network)._asdict()
            if self._is_confined
            else None
        )
        return await run_worker(
            {"limits": limits._asdict(), "view": view, **job},
            environment=_inherited(),
            seconds=self._seconds_left,
            on_line=on_line,
        )

    @property
    def _seconds_left(self) -> float:
        return max(0.1, self._deadline - time.monotonic())

    def _fetch_error(self, outcome: Mapping[str, Any], finished: Finished) -> SandboxdError:
        name, why = str(outcome.get("name", "")), str(outcome.get("why", ""))
        match outcome.get("failed"):
            case "TooLarge" | "ArchiveTooLarge":
                return self._too_large(why)
            case "ArchiveUnsafe":
                return PackagesUnsafe(name, why)
            case "WrongHash":
                return PackagesUnsafe(name, "the index sent another file than it had announced")
            case "FetchFailed":
                return PackageIndexUnreachable(f"{name}: {why}")
        log.warning("packages.fetch_failed", code=finished.code, errors=finished.errors)
        return PackagesBuildFailed("downloading them failed; see the daemon's log.")

    def _too_large(self, what: str) -> PackagesTooLarge:
        return PackagesTooLarge(what, f"{self._settings.max_bytes >> 20} MiB")

    # --- files in the area, which belongs to the worker ---

    def _make_directory(self, name: str) -> None:
        path = self._area / name
        path.mkdir(mode=0o755)
        os.chown(path, self._uid, self._uid)

    def _write(self, name: str, text: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self._area / name, flags, 0o644), "w") as file:
            file.write(text)

    def _read(self, name: str, max_bytes: int) -> str:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with open(os.open(self._area / name, flags), "rb") as file:
                data = file.read(max_bytes + 1)
        except OSError as error:
            raise PackagesBuildFailed("the resolver left no lock.") from error
        if len(data) > max_bytes:
            raise PackagesBuildFailed("the resolver's lock is too large.")
        return data.decode(errors="replace")


def index_of(setting: str, environment: Mapping[str, str]) -> str:
    """The one index that packages come from: never a second one, where a stranger could offer a
    package under the name of a private one."""
    named = (environment.get(name, "") for name in INDEX_VARIABLES)
    return setting or next(filter(None, named), DEFAULT_INDEX)


def process_limits(settings: BuildSettings) -> ProcessLimits:
    return ProcessLimits(
        memory_bytes=MEMORY_BYTES,
        cpu_seconds=int(settings.seconds) + 1,
        file_bytes=settings.max_bytes,
    )


def view_of(settings: BuildSettings, area: Path, uid: int, *, has_network: bool) -> View:
    """What the worker of a build sees."""
    inherited = _inherited()
    certificates = [inherited.get(name, "") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")]
    library = sysconfig.get_path("stdlib")  # the part of the worker that is not uv imports lazily
    return View(
        root=str(settings.build_dir),
        uid=uid,
        binds=[
            Bind(str(area), AREA, is_writable=True),
            Bind(str(settings.uv), _UV),
            Bind(str(settings.runtime_dir), _RUNTIME),
        ],
        shown=[path for path in (*certificates, library) if path],
        has_network=has_network,
    )


def _inherited() -> Mapping[str, str]:
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


def _wheel_job(wheel: Wheel) -> Mapping[str, Any]:
    return {
        "name": wheel.name,
        "url": wheel.url,
        "sha256": wheel.sha256,
        "file_name": wheel.file_name,
    }


def _report(line: str) -> dict[str, Any]:
    """What a line of the worker says; nothing if it makes no sense."""
    with suppress(ValueError):
        if isinstance(report := json.loads(line), dict):
            return report
    return {}
