"""Files that the daemon's host brings to the image of an environment.

Nothing that is downloaded here is run: archives are unpacked, and checked against a lock file.
"""

from __future__ import annotations

import asyncio
import hashlib
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from sandboxd.environments.definition import HostPython, NpmPackages, Wheels
from sandboxd.environments.host_python import copy_python, find_python
from sandboxd.environments.npm_client import NpmClient
from sandboxd.environments.npm_packages import fill_npm, node_package
from sandboxd.environments.parts import Package, Report
from sandboxd.environments.wheels import install_wheels
from sandboxd.tasks import run_to_end

Layer: TypeAlias = NpmPackages | Wheels | HostPython
DIRECTORIES: Mapping[type[Layer], str] = {
    NpmPackages: "npm",
    Wheels: "wheels",
    HostPython: "python",
}
"""Where a Dockerfile finds the files of each."""
_VERSION = 1
"""Changes with what is put into a layer, so that images with the earlier content are not used."""


async def fingerprint(layer: Layer) -> str:
    """What tells one content of a layer from another; SourceUnavailable if it cannot be made."""
    match layer:
        case NpmPackages(lock=lock):
            return f"{_VERSION} npm {node_package()} {_digest(lock)}"
        case Wheels(lock=lock, python=python):
            return f"{_VERSION} wheels {python} {platform.machine()} {_digest(lock)}"
        case HostPython(version=version):
            found = await find_python(version)
            return f"{_VERSION} host {found.version} {found.prefix}"


async def fill(
    layer: Layer, directory: Path, report: Report, *, npm: NpmClient
) -> Sequence[Package]:
    """Put the files of a layer into a directory; returns what they are."""
    match layer:
        case NpmPackages(lock=lock):
            registry = await npm.registry()
            return await _in_thread(fill_npm, lock, directory, report, registry)
        case Wheels(lock=lock, python=python):
            return await install_wheels(lock, python, directory, report)
        case HostPython(version=version):
            found = await find_python(version)
            report(0.1, f"copying Python {found.version} of the host")
            return await _in_thread(copy_python, found, directory)


def source_name(layer: Layer) -> str:
    return "host" if isinstance(layer, HostPython) else DIRECTORIES[type(layer)]


async def _in_thread(
    work: Callable[..., Sequence[Package]], *arguments: object
) -> Sequence[Package]:
    # To the end: a thread cannot be cancelled, and would write to a directory that is deleted.
    return await run_to_end(asyncio.to_thread(work, *arguments))


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
