"""What a build does differently for each kind of packages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from sandboxd.environments.environment import Environment
from sandboxd.environments.progress import Progress
from sandboxd.packages.lock import Lock
from sandboxd.packages.package import Package
from sandboxd.packages.target import Target
from sandboxd.sandboxes.maker import SandboxMaker

MAX_FILES = 100_000
"""Files and directories of a set."""


class Order(NamedTuple):
    """What to build."""

    packages: Sequence[Package]
    environment: Environment
    target: Target


class Installer(Protocol):
    """Makes the files of one set in an area. No code of a package runs."""

    index: str
    """Where packages come from, with its credentials."""
    programs: str
    """Directory of a set with scripts whose interpreter is that of the host; empty if none has."""

    async def resolve(self) -> Lock:
        """Find versions that fit together."""

    async def unpack(self, lock: Lock, progress: Progress) -> None:
        """Unpack the archives that were fetched."""

    async def compile(self, sandboxes: SandboxMaker, progress: Progress) -> None:
        """Do once what programs would otherwise do at every start."""
