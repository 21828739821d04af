"""What packages are built for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sandboxd.environments.environment import PackageKind

_PYTHON = re.compile(r"3\.\d{1,2}", re.ASCII)
_NODE = re.compile(r"(\d{1,3}\.\d{1,4})\.\d{1,4}", re.ASCII)
_DIRECTORY = re.compile(r"(/[A-Za-z0-9._-]+)+", re.ASCII)
_GLIBC = re.compile(r"(?:glibc )?2\.(\d{1,3})", re.ASCII)
_MACHINES = {"x86_64": "x86_64", "aarch64": "aarch64"}
_NODE_MACHINES = {"x64": "x64", "arm64": "arm64"}
MOST_GLIBC = (2, 40)
"""Newest glibc that uv has a platform for; wheels for it run on newer ones."""
NODE_DIRECTORY = "/node_modules"
"""Where programs in any directory find packages, whether they use `require` or `import`."""


class UnsuitableEnvironment(ValueError):
    """Packages cannot be attached to this environment; the text says why."""


class NpmPlatform(NamedTuple):
    """What filters of npm packages are compared with."""

    os: str
    cpu: str
    libc: str

    def __str__(self) -> str:
        return "-".join(self)


class Target(NamedTuple):
    """The Python or Node.js of an environment, and where it looks for packages."""

    kind: PackageKind
    version: str
    """Version of Python, as in `3.11`, or of Node.js, as in `20.20`."""
    platform: str
    """Platform of wheels, as uv names it, or an NpmPlatform."""
    directory: str
    """Where sandboxes see the packages; empty in the image, and searched by programs."""

    @classmethod
    def of(
        cls, kind: PackageKind, *, version: str, machine: str, glibc: str, directory: str
    ) -> Target:
        """From what an image says of itself; UnsuitableEnvironment if that makes no sense."""
        if not _DIRECTORY.fullmatch(directory) or "/.." in directory:
            directory = ""
        return cls(kind, *_READ[kind](version, machine, glibc, directory))

    @property
    def npm_platform(self) -> NpmPlatform:
        return NpmPlatform(*self.platform.split("-"))


def _python(version: str, machine: str, glibc: str, directory: str) -> tuple[str, str, str]:
    if not _PYTHON.fullmatch(version):
        raise UnsuitableEnvironment("it has no Python 3")
    if machine not in _MACHINES:
        raise UnsuitableEnvironment(f"there are no wheels for processors of type {machine!r}")
    found = _GLIBC.fullmatch(glibc)
    if found is None:
        raise UnsuitableEnvironment("its C library is not glibc")
    if not directory:
        raise UnsuitableEnvironment(
            "its Python has no empty directory for packages on its search path"
        )
    minor = min(int(found[1]), MOST_GLIBC[1])
    return version, f"{_MACHINES[machine]}-manylinux_2_{minor}", directory


def _npm(version: str, machine: str, glibc: str, directory: str) -> tuple[str, str, str]:
    found = _NODE.fullmatch(version)
    if found is None:
        raise UnsuitableEnvironment("it has no Node.js")
    if machine not in _NODE_MACHINES:
        raise UnsuitableEnvironment(f"there are no packages for processors of type {machine!r}")
    if directory != NODE_DIRECTORY:
        raise UnsuitableEnvironment(f"it has no empty directory {NODE_DIRECTORY}")
    libc = "glibc" if _GLIBC.fullmatch(glibc) else "musl"
    return found[1], str(NpmPlatform("linux", _NODE_MACHINES[machine], libc)), directory


_READ: Mapping[PackageKind, Callable[[str, str, str, str], tuple[str, str, str]]] = {
    PackageKind.PYTHON: _python,
    PackageKind.NPM: _npm,
}
