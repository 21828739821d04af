"""Wheels of Python packages, unpacked into the layer of an image."""

from __future__ import annotations

import asyncio
import platform
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog

from sandboxd.environments.parts import Package, Report, SourceUnavailable, output_of

log = structlog.get_logger()

_DIST_INFO = re.compile(r"(?P<name>[A-Za-z0-9_.]+)-(?P<version>[^-]+)\.dist-info")


def _uv() -> str:
    try:
        from uv import find_uv_bin

        return find_uv_bin()
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise SourceUnavailable("uv is not installed; it comes with the extra `daemon` of sandboxd")
    return found


async def install_wheels(
    lock: Path, python: str, directory: Path, report: Report
) -> Sequence[Package]:
    """Unpack the wheels of a lock file for a version of Python into the layer of an image."""
    report(0.1, "downloading wheels")
    system = f"{platform.machine()}-manylinux_2_36"
    await unpack_wheels(lock, directory, "--python-version", python, "--python-platform", system)
    return await asyncio.to_thread(_tidied, directory)


async def unpack_wheels(lock: Path, directory: Path, *target: str) -> None:
    """Unpack the wheels of a lock file, for this host unless options of uv name another target.

    No code of a package runs: there are no source builds.
    """
    command = (
        *(_uv(), "pip", "install", "--requirements", str(lock), "--target", str(directory)),
        *("--require-hashes", "--no-deps", "--only-binary", ":all:"),
        *("--no-progress", "--link-mode", "copy"),
        # Next to the files, and gone with them: there may be no home to write to.
        *("--cache-dir", str(directory.parent / "cache")),
        *("--python", sys.executable, *target),
    )
    code, output = await output_of(*command)
    if code != 0:
        log.warning("environment.no_wheels", output=output[-2000:])
        raise SourceUnavailable(
            "uv could not install the wheels of the lock file; see the daemon's log"
        )


def _tidied(directory: Path) -> Sequence[Package]:
    """The packages, without what nobody needs: scripts, which name the host's Python; tests, which
    are a third of the files; and what uv leaves."""
    shutil.rmtree(directory / "bin", ignore_errors=True)
    for tests in sorted(directory.glob("**/tests")):
        shutil.rmtree(tests, ignore_errors=True)
    (directory / ".lock").unlink(missing_ok=True)
    found = (_DIST_INFO.fullmatch(path.name) for path in directory.iterdir())
    return [Package("python", match["name"], match["version"]) for match in found if match]
