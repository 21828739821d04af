"""Docker without anything on top: its command line, or its API on one connection that stays."""

from __future__ import annotations

import io
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.engine import Engine
from benchmarks.peers import tasks
from benchmarks.peers.answers import After, Call, check, serve

DIRECTORY = "/workspace"


def _docker(*words: str | Path) -> str:
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout


class CommandLine:
    """A process of `docker` per call."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._stack = ExitStack()
        self._directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        engine = Engine(given["label"])
        self._stack.callback(engine.close)
        self.version = engine.version()
        self._container = self._stack.enter_context(engine.container(given["image"]))
        run = ("run", "--rm", "--network=none", f"--label={given['label']}", given["image"])
        self.calls: dict[str, Call] = {
            tasks.OPEN_NEW: partial(self._echo, *run),
            tasks.TRUE: self._true,
            tasks.ECHO: partial(self._echo, "exec", self._container),
        }
        for write, read in tasks.READ_OF.items():
            text = tasks.content(tasks.SIZES[write])
            (self._directory / read).write_text(text)
            self.calls[write] = partial(self._write, read)
            self.calls[read] = partial(self._read, read, text)

    def close(self) -> None:
        self._stack.close()

    def _true(self) -> None:
        _docker("exec", self._container, "true")

    def _echo(self, *words: str) -> After:
        output = _docker(*words, "echo", "hi")
        return lambda: check(output == "hi\n", output)

    def _write(self, name: str) -> None:
        _docker("cp", self._directory / name, f"{self._container}:{DIRECTORY}/{name}")

    def _read(self, name: str, text: str) -> After:
        target = self._directory / "back"
        _docker("cp", f"{self._container}:{DIRECTORY}/{name}", target)
        return lambda: check(target.read_text() == text, "another file")


class Api:
    """HTTP over the engine's socket."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._stack = ExitStack()
        self._engine = Engine(given["label"])
        self._stack.callback(self._engine.close)
        self.version = self._engine.version()
        self._container = self._stack.enter_context(self._engine.container(given["image"]))
        self.calls: dict[str, Call] = {
            tasks.TRUE: partial(self._exec, "true"),
            tasks.ECHO: partial(self._exec, "echo hi"),
        }
        for write, read in tasks.READ_OF.items():
            text = tasks.content(tasks.SIZES[write])
            self.calls[write] = partial(self._write, read, text.encode())
            self.calls[read] = partial(self._read, read, text.encode())

    def close(self) -> None:
        self._stack.close()

    def _exec(self, command: str) -> None:
        self._engine.exec(self._container, command)

    def _write(self, name: str, data: bytes) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        self._engine.unpack(self._container, DIRECTORY, archive.getvalue())

    def _read(self, name: str, data: bytes) -> After:
        archive = self._engine.pack(self._container, f"{DIRECTORY}/{name}")
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            member = tar.extractfile(name)
            found = member.read() if member is not None else b""
        return lambda: check(found == data, f"{len(found)} bytes")


def _made(given: Mapping[str, str]) -> CommandLine | Api:
    return Api(given) if given["way"] == "api" else CommandLine(given)


if __name__ == "__main__":
    serve(_made)
