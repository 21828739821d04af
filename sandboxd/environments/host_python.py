"""A Python of the host, copied into the layer of an image."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from sandboxd.environments.parts import Package, SourceUnavailable, output_of

log = structlog.get_logger()

ASK_SECONDS = 20.0
"""How long the host's Python may take to describe itself."""
_LEFT_OUT = (
    *("test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3"),
    *("__pycache__", "site-packages", "dist-packages", "config-*", "*.a"),
)
"""Parts of Python that need a display, are tests, are made again, or are of no use without a
compiler."""


class FoundPython(NamedTuple):
    """A Python of the host."""

    version: str
    prefix: str
    executable: str
    standard_library: str
    shared_library: str
    """Path of its library; empty if it is part of the program."""


_QUESTION = """
import json, os, sys, sysconfig
get = sysconfig.get_config_var
shared = os.path.join(get("LIBDIR"), get("INSTSONAME")) if get("Py_ENABLE_SHARED") else ""
print(json.dumps([sys.version.split()[0], sys.base_prefix, os.path.realpath(sys._base_executable),
                  sysconfig.get_paths()["stdlib"], shared]))
"""


async def find_python(version: str) -> FoundPython:
    """A Python of this version on the host; SourceUnavailable if there is none."""
    for candidate in await asyncio.to_thread(_candidates, version):
        if (found := await _ask(candidate)) is not None and found.version.startswith(f"{version}."):
            return found
    raise SourceUnavailable(f"the daemon's host has no Python {version}")


def _candidates(version: str) -> Sequence[Path]:
    """Programs that may be this version, those of pyenv first: they need the least of the host."""
    home = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found = [
        *sorted(home.glob(f"versions/{version}.*/bin/python{version}"), reverse=True),
        Path(f"/usr/local/bin/python{version}"),
        Path(shutil.which(f"python{version}") or "/nonexistent"),
    ]
    return [path for path in found if path.exists()]


async def _ask(candidate: Path) -> FoundPython | None:
    try:
        async with asyncio.timeout(ASK_SECONDS):
            code, output = await output_of(str(candidate), "-I", "-S", "-c", _QUESTION)
        return FoundPython(*json.loads(output)) if code == 0 else None
    except (OSError, TypeError, ValueError) as error:  # a TimeoutError is an OSError
        log.info("environment.python_silent", path=str(candidate), error=str(error))
        return None


def copy_python(found: FoundPython, directory: Path) -> Sequence[Package]:
    short = ".".join(found.version.split(".")[:2])
    root = directory / "usr/local"
    (root / "bin").mkdir(parents=True)
    shutil.copy(found.executable, root / "bin" / f"python{short}")
    shutil.copytree(
        found.standard_library,
        root / "lib" / f"python{short}",
        symlinks=False,
        ignore=shutil.ignore_patterns(*_LEFT_OUT),
        ignore_dangling_symlinks=True,
    )
    if found.shared_library:
        shutil.copy(found.shared_library, root / "lib")
    return [Package("program", "python", found.version)]
