"""Finds out what packages of an environment have to be built for, by asking its Python or
Node.js."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import structlog

from sandboxd.environments.environment import Environment, PackageKind
from sandboxd.errors import InvalidRequest, PackagesBuildFailed
from sandboxd.packages.build_user import BuildUser
from sandboxd.packages.package import FIELD
from sandboxd.packages.target import NODE_DIRECTORY, Target, UnsuitableEnvironment
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.programs import Program

log = structlog.get_logger()

PROBE_SECONDS = 30.0
MAX_ANSWER_BYTES = 16 << 10
MAX_REMEMBERED = 100
_NO_PROGRAM = 127
"""Exit code of a shell that finds no program of a name."""
_PLACE, _ANSWER = "/mnt", "answer.json"
_PYTHON = """
import json, os, site, sys
free = [d for d in site.getsitepackages() if os.path.isdir(d) and not os.listdir(d)]
answer = {
    "version": "%d.%d" % sys.version_info[:2],
    "machine": os.uname().machine,
    "glibc": "".join(os.confstr(n) or "" for n in os.confstr_names if n == "CS_GNU_LIBC_VERSION"),
    "directory": free[0] if free else "",
}
with open(sys.argv[1], "w") as file:
    json.dump(answer, file)
"""
_NODE = f"""
const fs = require("fs"), directory = "{NODE_DIRECTORY}";
const found = fs.lstatSync(directory, {{throwIfNoEntry: false}});
const isFree = found && found.isDirectory() && !fs.readdirSync(directory).length;
fs.writeFileSync(process.argv[1], JSON.stringify({{
  version: process.versions.node,
  machine: process.arch,
  glibc: process.report.getReport().header.glibcVersionRuntime || "",
  directory: isFree ? directory : "",
}}));
"""
_QUESTIONS = {
    PackageKind.PYTHON: ("python3 -I -S -c", _PYTHON),
    PackageKind.NPM: ("node -e", _NODE),
}


class Targets:
    """The targets of environments, remembered by kind of packages and image."""

    def __init__(self, sandboxes: SandboxMaker, user: BuildUser, directory: Path) -> None:
        """With a directory of its own, for what survives a restart."""
        self._sandboxes = sandboxes
        self._user = user
        self._directory = directory
        self._answers: dict[str, dict[str, Any]] = {}
        self._asking = asyncio.Lock()

    def open(self) -> None:
        """Read what is remembered, and delete what a killed daemon left."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        for left in self._directory.glob("probe-*"):
            shutil.rmtree(left, ignore_errors=True)
        try:
            self._answers = json.loads(self._file.read_text())
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            log.warning("packages.targets_unreadable", error=str(error))

    async def of(self, environment: Environment) -> Target:
        """InvalidRequest if packages cannot be attached to this environment."""
        answer = self._answers.get(self._key(environment))
        if answer is None:
            async with self._asking:
                answer = await self._ask(environment)
        try:
            return Target.of(environment.packages, **answer)
        except (UnsuitableEnvironment, TypeError) as error:
            raise InvalidRequest(
                FIELD, f"the environment {environment.name} cannot have packages: {error}"
            ) from None

    async def _ask(self, environment: Environment) -> dict[str, Any]:
        uid = self._user.uid
        directory = self._directory / f"probe-{secrets.token_hex(8)}"
        directory.mkdir(mode=0o700)
        try:
            os.chown(directory, uid, uid)
            code = await self._sandboxes.run(
                environment, _probe(environment.packages, directory, uid)
            )
            if code not in (0, _NO_PROGRAM):
                raise PackagesBuildFailed(
                    f"the environment {environment.name} ended with code {code} when it was asked "
                    "about its version."
                )
            answer = _none() if code else _read(directory)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        self._remember(self._key(environment), answer)
        return answer

    def _key(self, environment: Environment) -> str:
        return f"{environment.packages} {self._sandboxes.image_id(environment)}"

    def _remember(self, key: str, answer: dict[str, Any]) -> None:
        self._answers.pop(key, None)
        self._answers[key] = answer
        for oldest in list(self._answers)[:-MAX_REMEMBERED]:
            del self._answers[oldest]
        new = self._file.with_suffix(".new")
        new.write_text(json.dumps(self._answers))
        new.rename(self._file)

    @property
    def _file(self) -> Path:
        return self._directory / "targets.json"


def _probe(kind: PackageKind, directory: Path, uid: int) -> Program:
    program, question = _QUESTIONS[kind]
    # Through a shell, which says by its exit code that there is no such program.
    return Program(
        argv=["/bin/sh", "-c", f'exec {program} "$0" {_PLACE}/{_ANSWER}', question],
        uid=uid,
        directory=directory,
        target=_PLACE,
        seconds=PROBE_SECONDS,
        max_file_bytes=MAX_ANSWER_BYTES,
    )


def _read(directory: Path) -> dict[str, Any]:
    """The answer, which a program of a stranger may have written; empty if it makes no sense."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with open(os.open(directory / _ANSWER, flags), "rb") as file:
            answer = json.loads(file.read(MAX_ANSWER_BYTES))
        return {name: str(answer[name]) for name in _none()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("packages.target_unknown", error=str(error))
        return _none()


def _none() -> dict[str, Any]:
    """The answer of an image without the program that is asked."""
    return dict.fromkeys(("version", "machine", "glibc", "directory"), "")
