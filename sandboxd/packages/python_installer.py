"""Installs Python packages with uv."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sandboxd.environments.progress import Progress
from sandboxd.errors import PackagesBuildFailed, PackagesNotResolved
from sandboxd.packages import pylock, requirements, uv
from sandboxd.packages.build_area import ARCHIVES, UNPACKED, BuildArea, inherited
from sandboxd.packages.confinement import Bind
from sandboxd.packages.installer import Order
from sandboxd.packages.lock import MAX_LOCK_BYTES, Lock, LockUnusable
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.programs import Program

INDEX_VARIABLES = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
"""Variables that name the index where the settings do not."""
PYTHON = "/.sandboxd/bin/python3.11"
"""Where a confined worker sees a Python for uv to ask."""
_UV, _RUNTIME = "/uv", "/.sandboxd"
# Without `site` (-S), which would run code of the packages that it finds.
_COMPILE = (
    *("python3", "-I", "-S", "-m", "compileall", "-q"),
    *("--invalidation-mode", "unchecked-hash"),
)


@dataclass(frozen=True, kw_only=True)
class PythonSettings:
    index: str
    """Empty means uv's own default."""
    uv: Path
    runtime_dir: Path
    """The Python of guests, which uv asks about Python."""


class PythonInstaller:
    """One set of wheels."""

    programs = "bin"

    def __init__(self, settings: PythonSettings, order: Order, area: BuildArea) -> None:
        self.index = settings.index
        self._order = order
        self._area = area
        self._tools = tools(settings)
        self._places = (
            uv.Places(uv=_UV, python=PYTHON, area=area.seen_as)
            if area.is_confined
            else uv.Places(uv=str(settings.uv), python=sys.executable, area=area.seen_as)
        )

    async def resolve(self) -> Lock:
        self._area.write(uv.REQUEST, requirements.lines(self._order.packages))
        days = self._area.min_age_days
        argv = uv.resolve(self._places, self._order.target, min_age_days=days)
        await self._run(argv, has_network=True)
        try:
            text = self._area.read(uv.PYLOCK, MAX_LOCK_BYTES)
            return pylock.parse_pylock(text, self._order.target)
        except LockUnusable as error:
            raise PackagesNotResolved(f"{error}.") from None

    async def unpack(self, lock: Lock, progress: Progress) -> None:
        self._area.write(uv.LOCKED, pylock.requirements(lock))
        argv = uv.unpack(self._places, self._order.target, wheels=ARCHIVES, unpacked=UNPACKED)
        await self._run(argv, has_network=False)

    async def compile(self, sandboxes: SandboxMaker, progress: Progress) -> None:
        """Sets are read-only, so that Python could not keep what it compiles."""
        progress.begin("compile", "Python files to bytecode")
        directory = self._order.target.directory
        program = Program(
            argv=[*_COMPILE, directory],
            uid=self._area.uid,
            directory=self._area.path / UNPACKED,
            target=directory,
            seconds=self._area.seconds_left,
        )
        code = await sandboxes.run(self._order.environment, program)
        # 1: some files are not for this version of Python, which is usual.
        if code not in (0, 1):
            raise PackagesBuildFailed(f"their Python files cannot be compiled (exit code {code}).")

    async def _run(self, argv: Sequence[str], *, has_network: bool) -> None:
        environment = uv.environment(self._places, inherited(), self.index)
        await self._area.run_program(argv, environment, tools=self._tools, has_network=has_network)


def tools(settings: PythonSettings) -> Sequence[Bind]:
    """What a confined worker sees of the host to run uv."""
    return [Bind(str(settings.uv), _UV), Bind(str(settings.runtime_dir), _RUNTIME)]


def index_of(setting: str, environment: Mapping[str, str]) -> str:
    """The one index that packages come from: never a second one, where a stranger could offer a
    package under the name of a private one. Empty for uv's own default."""
    named = (environment.get(name, "") for name in INDEX_VARIABLES)
    return setting or next(filter(None, named), "")
