"""What packages are built for."""

from __future__ import annotations

import re
from typing import NamedTuple

_PYTHON = re.compile(r"3\.\d{1,2}", re.ASCII)
_DIRECTORY = re.compile(r"(/[A-Za-z0-9._-]+)+", re.ASCII)
_MACHINES = {"x86_64": "x86_64", "aarch64": "aarch64"}
MOST_GLIBC = (2, 40)
"""Newest glibc that uv has a platform for; wheels for it run on newer ones."""


class UnsuitableEnvironment(ValueError):
    """Packages cannot be attached to this environment; the text says why."""


class Target(NamedTuple):
    """The Python of an environment, and where it looks for packages."""

    python: str
    """Version of Python, as in `3.11`."""
    platform: str
    """Platform of wheels, as uv names it."""
    directory: str
    """Where sandboxes see the packages; empty in the image, and part of Python's search path."""

    @classmethod
    def of(cls, *, python: str, machine: str, glibc: str, directory: str) -> Target:
        """From what an image says of itself; UnsuitableEnvironment if that makes no sense."""
        if not _PYTHON.fullmatch(python):
            raise UnsuitableEnvironment("it has no Python 3")
        if machine not in _MACHINES:
            raise UnsuitableEnvironment(f"there are no wheels for processors of type {machine!r}")
        version = re.fullmatch(r"glibc 2\.(\d{1,3})", glibc, re.ASCII)
        if version is None:
            raise UnsuitableEnvironment("its C library is not glibc")
        minor = min(int(version[1]), MOST_GLIBC[1])
        if not _DIRECTORY.fullmatch(directory) or "/.." in directory:
            raise UnsuitableEnvironment(
                "its Python has no empty directory for packages on its search path"
            )
        return cls(python, f"{_MACHINES[machine]}-manylinux_2_{minor}", directory)
