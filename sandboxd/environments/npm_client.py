"""The npm client of the daemon: Node.js with npm, fixed by a lock file, in the state directory.

It comes as a wheel, so a host that can install sandboxd can have it too.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import structlog

from sandboxd.environments.definition import RECIPES
from sandboxd.environments.parts import SourceUnavailable, output_of
from sandboxd.environments.wheels import unpack_wheels
from sandboxd.tasks import run_to_end

log = structlog.get_logger()

T = TypeVar("T")

LOCK = RECIPES / "npm.lock"
REGISTRY_VARIABLES = ("NPM_CONFIG_REGISTRY", "npm_config_registry")
"""Variables that name the registry where the settings do not."""
GLOBAL_CONFIG = "/etc/npmrc"
"""Configuration of npm for the whole host, unless the daemon's environment names another file."""
INSTALL_SECONDS = 600.0
ANSWER_SECONDS = 300.0
"""A busy host may take long to start npm; builds have a limit of their own."""
LEFT_SECONDS = 3600.0
"""Age from which an unfinished client belongs to nobody any more."""
_NODE, _NPM = "bin/node", "lib/node_modules/npm"
_UNFINISHED = "new-"
_ADDRESS = re.compile(r"https?://\S+")


class NpmProgram(NamedTuple):
    """Where the client is; paths in its directory are the same wherever that is shown."""

    directory: Path

    def command(self, *options: str, directory: str = "") -> Sequence[str]:
        """Node.js, with options of its own, and npm, as the beginning of a command line; with the
        directory's place there.

        It never makes memory executable, which the systemd unit forbids.
        """
        place = directory or str(self.directory)
        return f"{place}/{_NODE}", "--jitless", *options, f"{place}/{_NPM}/bin/npm-cli.js"


class NpmClient:
    """Gets the client when it is first needed, and knows which registry to use."""

    def __init__(self, directory: Path, registry: str, *, lock: Path = LOCK) -> None:
        """With a directory of its own, and the registry of the settings, if they name one."""
        self._directory = directory
        self._registry = registry
        self._lock = lock
        self._installing = asyncio.Lock()

    async def registry(self) -> str:
        """The one registry: of the settings, otherwise the one that npm is set up for."""
        named = (os.environ.get(name, "") for name in REGISTRY_VARIABLES)
        return self._registry or next(filter(None, named), "") or await self._ask()

    async def get(self) -> NpmProgram:
        """The client; SourceUnavailable if it cannot be had here."""
        path = self._directory / hashlib.sha256(self._lock.read_bytes()).hexdigest()[:12]
        async with self._installing:
            if not path.is_dir():
                try:
                    async with asyncio.timeout(INSTALL_SECONDS):
                        await self._install(path)
                except TimeoutError:
                    raise _unavailable("that took too long") from None
                except SourceUnavailable as error:
                    raise _unavailable(str(error)) from error
        return NpmProgram(path)

    async def _install(self, path: Path) -> None:
        """It gets its name when it is complete: a crash leaves nothing that looks like it."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        await _in_thread(partial(_delete_left, self._directory))
        new = self._directory / f"{_UNFINISHED}{secrets.token_hex(8)}"
        new.mkdir()
        try:
            await unpack_wheels(self._lock, new / "wheel")
            client = await _in_thread(partial(_tidied, new))
            code, output = await output_of(*NpmProgram(client).command(), "--version")
            if code != 0:
                log.warning("npm.does_not_run", output=output[-2000:])
                raise SourceUnavailable("it does not run on this host; see the daemon's log")
            with suppress(FileExistsError):  # another process was faster
                _rename(client, path)
        finally:
            await _in_thread(partial(shutil.rmtree, new, ignore_errors=True))
        log.info("npm.installed", directory=str(path))

    async def _ask(self) -> str:
        program = await self.get()
        config = os.environ.get("NPM_CONFIG_GLOBALCONFIG", GLOBAL_CONFIG)
        # Not in the daemon's own directory, where a file could set up npm as well.
        options = ("--globalconfig", config, "--prefix", str(program.directory))
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                code, output = await output_of(
                    *program.command(), "config", "get", "registry", *options
                )
        except TimeoutError:
            code, output = -1, "no answer"
        found = [line for line in output.splitlines() if _ADDRESS.fullmatch(line)]
        if code != 0 or not found:
            log.warning("npm.no_registry", code=code, output=output[-2000:])
            raise SourceUnavailable("npm does not say which registry it is set up for")
        return found[0]


def _unavailable(why: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"there is no npm client ({why}); it is a wheel of the package index that uv is set up for"
    )


def _tidied(new: Path) -> Path:
    """The program and npm without the rest, readable for the user that builds packages."""
    (wheel,) = (new / "wheel").glob(f"*/{_NODE}")
    client = new / "client"
    for name in (_NODE, _NPM):
        (client / name).parent.mkdir(parents=True)
        (wheel.parents[1] / name).rename(client / name)
    for path in (client, *client.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path == client / _NODE else 0o644)
    return client


def _rename(client: Path, path: Path) -> None:
    try:
        client.rename(path)
    except OSError as error:  # a directory that is not empty is not replaced
        if path.is_dir():
            raise FileExistsError from error
        raise


def _delete_left(directory: Path) -> None:
    """Delete what a killed process left, and clients of earlier releases."""
    oldest = time.time() - LEFT_SECONDS
    for path in directory.iterdir():
        if not path.name.startswith(_UNFINISHED) or path.stat().st_mtime < oldest:
            shutil.rmtree(path, ignore_errors=True)


async def _in_thread(work: Callable[[], T]) -> T:
    return await run_to_end(asyncio.to_thread(work))
