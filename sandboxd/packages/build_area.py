"""The place of one build: its files, and the confined worker that makes them."""

from __future__ import annotations

import json
import os
import sysconfig
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from sandboxd.environments.environment import PackageKind
from sandboxd.errors import (
    PackageIndexUnreachable,
    PackagesBuildFailed,
    PackagesTooLarge,
    PackagesUnsafe,
    SandboxdError,
)
from sandboxd.packages import complaints
from sandboxd.packages.confinement import Bind, ProcessLimits, View
from sandboxd.packages.worker_process import Finished, run_worker

log = structlog.get_logger()

MEMORY_BYTES = 2 << 30
"""Memory of the process that resolves, fetches or unpacks."""
INHERITED = frozenset(
    name
    for lower in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
    for name in (lower, lower.upper())
) | {"SSL_CERT_FILE", "SSL_CERT_DIR", "LANG"}
"""Variables of the daemon that its worker gets."""
AREA = "/build"
"""Where a confined worker sees its area."""
ARCHIVES, UNPACKED, TEMPORARY = "archives", "unpacked", "tmp"


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    max_bytes: int
    """Size of a set."""
    seconds: float
    """Time of one build."""
    min_age_days: float
    """How long a release has to be on the index before it is used."""
    build_dir: Path
    """An empty directory, to build views of the host on."""


class BuildArea:
    """The files of one build, which belong to its worker."""

    def __init__(
        self, settings: BuildSettings, kind: PackageKind, path: Path, uid: int, deadline: float
    ) -> None:
        self.path = path
        self.uid = uid
        self.max_bytes = settings.max_bytes
        self.min_age_days = settings.min_age_days
        self._settings = settings
        self._kind = kind
        self._deadline = deadline
        self.is_confined = os.geteuid() == 0
        self.seen_as = AREA if self.is_confined else str(path)
        """Where the worker sees it."""
        for name in (ARCHIVES, UNPACKED, TEMPORARY):
            self._make_directory(name)

    @property
    def seconds_left(self) -> float:
        return max(0.1, self._deadline - time.monotonic())

    def too_large(self, what: str) -> PackagesTooLarge:
        return PackagesTooLarge(what, f"{self.max_bytes >> 20} MiB")

    # --- the worker ---

    async def run_program(
        self,
        argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        tools: Sequence[Bind],
        has_network: bool,
    ) -> None:
        """Run a program that is among the tools; the error that its complaint stands for."""
        job = {"argv": argv, "environment": environment}
        finished = await self._run(job, tools=tools, has_network=has_network)
        if finished.code != 0:
            log.info("packages.tool_failed", code=finished.code, errors=finished.errors)
            raise complaints.explain(self._kind, finished.errors, max_bytes=self.max_bytes)

    async def run_job(
        self,
        job: Mapping[str, Any],
        *,
        has_network: bool,
        on_report: Callable[[Mapping[str, Any]], None] = lambda _: None,
    ) -> None:
        """Let the worker itself do something with each package; the error that it reports."""
        outcome: dict[str, Any] = {}

        def on_line(line: str) -> None:
            report = _report(line)
            if "done" in report or "failed" in report:
                outcome.update(report)
            elif report:
                on_report(report)

        finished = await self._run(job, has_network=has_network, on_line=on_line)
        if finished.code != 0 or "done" not in outcome:
            raise self._error(outcome, finished)

    async def _run(
        self,
        job: Mapping[str, Any],
        *,
        has_network: bool,
        tools: Sequence[Bind] = (),
        on_line: Callable[[str], None] = lambda _: None,
    ) -> Finished:
        view = view_of(self._settings, self.path, self.uid, tools, has_network=has_network)
        return await run_worker(
            {
                "limits": process_limits(self._settings)._asdict(),
                "view": view._asdict() if self.is_confined else None,
                **job,
            },
            environment=inherited(),
            seconds=self.seconds_left,
            on_line=on_line,
        )

    def _error(self, outcome: Mapping[str, Any], finished: Finished) -> SandboxdError:
        name, why = str(outcome.get("name", "")), str(outcome.get("why", ""))
        match outcome.get("failed"):
            case "TooLarge" | "ArchiveTooLarge":
                return self.too_large(why)
            case "ArchiveUnsafe":
                return PackagesUnsafe(name, why)
            case "WrongHash":
                return PackagesUnsafe(name, "the index sent another file than it had announced")
            case "FetchFailed":
                setting = complaints.INDEX_SETTINGS[self._kind]
                return PackageIndexUnreachable(f"{name}: {why}", setting=setting)
        log.warning("packages.job_failed", code=finished.code, errors=finished.errors)
        return PackagesBuildFailed("downloading or unpacking failed; see the daemon's log.")

    # --- files ---

    def _make_directory(self, name: str) -> None:
        path = self.path / name
        path.mkdir(mode=0o755)
        os.chown(path, self.uid, self.uid)

    def write(self, name: str, text: str) -> None:
        """Write a file that only the worker can read."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(self.path / name, flags, 0o600), "w") as file:
            os.fchown(file.fileno(), self.uid, self.uid)
            file.write(text)

    def read(self, name: str, max_bytes: int) -> str:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            with open(os.open(self.path / name, flags), "rb") as file:
                data = file.read(max_bytes + 1)
        except OSError as error:
            raise PackagesBuildFailed("the resolver left no lock.") from error
        if len(data) > max_bytes:
            raise PackagesBuildFailed("the resolver's lock is too large.")
        return data.decode(errors="replace")


def process_limits(settings: BuildSettings) -> ProcessLimits:
    return ProcessLimits(
        memory_bytes=MEMORY_BYTES,
        cpu_seconds=int(settings.seconds) + 1,
        file_bytes=settings.max_bytes,
    )


def view_of(
    settings: BuildSettings, area: Path, uid: int, tools: Sequence[Bind], *, has_network: bool
) -> View:
    """What the worker of a build sees."""
    variables = inherited()
    certificates = [variables.get(name, "") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")]
    library = sysconfig.get_path("stdlib")  # the worker itself imports lazily
    return View(
        root=str(settings.build_dir),
        uid=uid,
        binds=[Bind(str(area), AREA, is_writable=True), *tools],
        shown=[path for path in (*certificates, library) if path],
        has_network=has_network,
    )


def inherited() -> Mapping[str, str]:
    return {name: os.environ[name] for name in INHERITED if name in os.environ}


def _report(line: str) -> dict[str, Any]:
    """What a line of the worker says; nothing if it makes no sense."""
    with suppress(ValueError):
        if isinstance(report := json.loads(line), dict):
            return report
    return {}
