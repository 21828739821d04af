"""Installs packages of npm: resolved by npm, unpacked by the worker itself."""

from __future__ import annotations

import structlog

from sandboxd.environments.npm_client import NpmProgram
from sandboxd.environments.progress import Progress
from sandboxd.errors import PackagesNotResolved
from sandboxd.packages import npm, npm_requests
from sandboxd.packages.build_area import ARCHIVES, UNPACKED, BuildArea, inherited
from sandboxd.packages.confinement import Bind
from sandboxd.packages.installer import MAX_FILES, Order
from sandboxd.packages.lock import MAX_LOCK_BYTES, Lock, LockUnusable
from sandboxd.packages.package_lock import parse_package_lock
from sandboxd.sandboxes.maker import SandboxMaker

log = structlog.get_logger()

_CLIENT = "/npm"
"""Where a confined worker sees the client."""


class NpmInstaller:
    """One set of packages of a registry."""

    programs = ""

    def __init__(self, client: NpmProgram, registry: str, order: Order, area: BuildArea) -> None:
        self.index = registry
        self._client = client
        self._order = order
        self._area = area
        command = client.command(
            *("--require", f"{area.seen_as}/{npm.PRELOADED}"),
            directory=_CLIENT if area.is_confined else "",
        )
        self._places = npm.Places(command=command, area=area.seen_as)
        self._with_scripts = 0

    async def resolve(self) -> Lock:
        self._area.write(npm.MANIFEST, npm_requests.manifest(self._order.packages))
        self._area.write(npm.CONFIG, npm.config(self.index))
        self._area.write(npm.PRELOADED, npm.preloaded(self._order.target.version))
        await self._area.run_program(
            npm.resolve(self._places, min_age_days=self._area.min_age_days),
            npm.environment(self._places, inherited()),
            tools=[Bind(str(self._client.directory), _CLIENT)],
            has_network=True,
        )
        try:
            locked = parse_package_lock(
                self._area.read(npm.LOCK, MAX_LOCK_BYTES),
                registry=self.index,
                platform=self._order.target.npm_platform,
            )
        except LockUnusable as error:
            raise PackagesNotResolved(f"{error}.") from None
        if locked.with_scripts:
            log.info("packages.scripts_not_run", packages=locked.with_scripts)
        self._with_scripts = len(locked.with_scripts)
        return locked.lock

    async def unpack(self, lock: Lock, progress: Progress) -> None:
        if self._with_scripts:
            progress.advance(0.0, f"without the install scripts of {self._with_scripts} packages")
        place = self._area.seen_as
        job = {
            "directory": f"{place}/{ARCHIVES}",
            "target": f"{place}/{UNPACKED}",
            "shown_at": self._order.target.directory,
            "limits": {"unpacked_bytes": self._area.max_bytes, "files": MAX_FILES},
            "archives": [
                {"name": one.name, "place": one.place, "file_name": one.file_name}
                for one in lock.archives
            ],
        }
        await self._area.run_job({"unpack": job}, has_network=False)

    async def compile(self, sandboxes: SandboxMaker, progress: Progress) -> None:
        """Node.js compiles nothing that it could keep."""
