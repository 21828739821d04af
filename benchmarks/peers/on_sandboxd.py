"""sandboxd through its Python SDK, as a program would use it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial

from benchmarks.peers import tasks
from benchmarks.peers.answers import After, Call, check, serve
from sandboxd import __version__
from sandboxd_client import Sandbox


class Contender:
    version = __version__

    def __init__(self, given: Mapping[str, str]) -> None:
        self._warm, self._cold = given["warm"], given["cold"]
        self._stack = ExitStack()
        self._sandbox = self._stack.enter_context(Sandbox.create(server_url=self._warm))
        self._contexts = (f"new-{number}" for number in itertools.count())
        self.calls: dict[str, Call] = {
            tasks.OPEN_WARM: partial(self._open, self._warm),
            tasks.OPEN_NEW: partial(self._open, self._cold),
            tasks.TRUE: self._true,
            tasks.ECHO: self._echo,
            tasks.SHELL: self._shell,
            tasks.CODE_KEPT: self._code,
            tasks.CODE_NEW: self._code_in_a_new_context,
        }
        for write, read in tasks.READ_OF.items():
            text = tasks.content(tasks.SIZES[write])
            self.calls[write] = partial(self._write, f"{read}.txt", text)
            self.calls[read] = partial(self._read, f"{read}.txt", text)

    def close(self) -> None:
        self._stack.close()

    def _open(self, url: str) -> After:
        sandbox = Sandbox.create(server_url=url)
        done = sandbox.commands.run("echo hi")

        def after() -> None:
            sandbox.kill()
            sandbox.close()
            check(done.stdout == "hi\n", done)

        return after

    def _true(self) -> None:
        self._sandbox.commands.run("true", check=True)

    def _echo(self) -> After:
        done = self._sandbox.commands.run("echo hi")
        return lambda: check(done.stdout == "hi\n", done)

    def _shell(self) -> None:
        self._sandbox.commands.run("true", shell="stays", check=True)

    def _write(self, path: str, text: str) -> None:
        self._sandbox.files.write(path, text)

    def _read(self, path: str, text: str) -> After:
        found = self._sandbox.files.read(path)
        return lambda: check(found == text, f"{len(found)} bytes")

    def _code(self) -> After:
        run = self._sandbox.code.run("1 + 1")
        return lambda: check(run.ok, run)

    def _code_in_a_new_context(self) -> After:
        name = next(self._contexts)
        run = self._sandbox.code.run("1 + 1", context=name)

        def after() -> None:
            self._sandbox.code.delete_context(name)
            check(run.ok, run)

        return after


if __name__ == "__main__":
    serve(Contender)
