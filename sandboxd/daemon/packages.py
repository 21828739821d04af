"""Opens the packages of a daemon."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path

import uv

from sandboxd.config import Config
from sandboxd.daemon.instance import StartRefused
from sandboxd.environments.environment import PackageKind
from sandboxd.environments.npm_client import NpmClient
from sandboxd.packages.allowed import AllowedPackages, InvalidAllowList
from sandboxd.packages.areas import BuildAreas
from sandboxd.packages.build import Builder
from sandboxd.packages.build_area import BuildSettings
from sandboxd.packages.build_user import BuildUser
from sandboxd.packages.installer import MAX_FILES
from sandboxd.packages.package_sets import PackageSets, PackageSetSettings
from sandboxd.packages.packages import Packages
from sandboxd.packages.python_installer import PythonSettings, index_of
from sandboxd.packages.store import PackageStore
from sandboxd.packages.targets import Targets
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.workspaces.disks import Disks, DiskSettings

BUILD_MARGIN_SECONDS = 60.0
AREA_FACTOR = 2
"""Size of a build compared to that of a set: it holds the archives as well."""


async def open_packages(
    config: Config,
    sandboxes: SandboxMaker,
    host: Host,
    npm: NpmClient,
    stack: AsyncExitStack,
) -> Packages:
    """Packages without builds under way, and without what a killed daemon left."""
    try:
        allowed = AllowedPackages.of(
            config.packages_policy,
            {
                PackageKind.PYTHON: config.packages_allow,
                PackageKind.NPM: config.packages_allow_npm,
            },
            _cost(config),
        )
    except InvalidAllowList as error:
        raise StartRefused(str(error)) from None
    directory = config.state_dir / "packages"
    store = PackageStore(directory)
    await asyncio.to_thread(store.open)
    user = BuildUser(host.uids)
    targets = Targets(sandboxes, user, directory / "targets")
    targets.open()
    areas = await _open_areas(config, directory, has_disks=host.disks is not None)
    python = PythonSettings(
        index=index_of(config.packages_index or "", os.environ),
        uv=Path(uv.find_uv_bin()),
        runtime_dir=config.runtime_dir.resolve(),
    )
    build_settings = _build_settings(config, directory)
    builder = Builder(build_settings, python, npm, store, areas, user, sandboxes)
    sets = PackageSets(_set_settings(config), store, builder)
    stack.push_async_callback(sets.aclose)
    return Packages(allowed, targets, sets)


def _cost(config: Config) -> str:
    return (
        " With all that they depend on, the packages of a session may then take "
        f"{config.packages_set_mb} MiB on the disk (SANDBOXD_PACKAGES_SET_MB) and "
        f"{config.packages_build_seconds:g} s to build (SANDBOXD_PACKAGES_BUILD_SECONDS), once for "
        "all sessions that ask for the same."
    )


async def _open_areas(config: Config, directory: Path, *, has_disks: bool) -> BuildAreas:
    area_bytes = AREA_FACTOR * config.packages_set_mb << 20
    disks = Disks(_disk_settings(config, directory, area_bytes)) if has_disks else None
    areas = BuildAreas(directory / "areas", disks, max_bytes=area_bytes)
    await areas.open()
    return areas


def _build_settings(config: Config, directory: Path) -> BuildSettings:
    settings = BuildSettings(
        max_bytes=config.packages_set_mb << 20,
        seconds=config.packages_build_seconds,
        min_age_days=config.packages_min_age_days,
        build_dir=directory / "view",
    )
    settings.build_dir.mkdir(mode=0o700, exist_ok=True)
    return settings


def _disk_settings(config: Config, directory: Path, area_bytes: int) -> DiskSettings:
    return DiskSettings(
        directory=directory / "disks",
        mounts=config.run_dir / "package-mounts",
        size_bytes=area_bytes,
        max_files=AREA_FACTOR * MAX_FILES,
        reserve_bytes=config.disk_reserve_mb << 20,
    )


def _set_settings(config: Config) -> PackageSetSettings:
    return PackageSetSettings(
        build_seconds=config.packages_build_seconds + BUILD_MARGIN_SECONDS,
        total_bytes=config.packages_total_mb << 20,
        keep_seconds=config.packages_keep_days * 86400,
        fresh_seconds=config.packages_fresh_hours * 3600,
        builds_per_user_and_hour=config.packages_user_builds_per_hour,
    )
