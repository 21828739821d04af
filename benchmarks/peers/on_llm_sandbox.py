"""llm-sandbox with its container pool, as its pages on pools and on custom images recommend."""

from __future__ import annotations

import importlib.metadata
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from llm_sandbox import InteractiveSandboxSession, SandboxSession
from llm_sandbox.pool import PoolConfig, PooledSandboxSession, create_pool_manager

from benchmarks.peers import tasks
from benchmarks.peers.answers import After, Call, check, serve

POOL_SIZE = 2
DIRECTORY = "/sandbox"


class Contender:
    version = importlib.metadata.version("llm-sandbox")

    def __init__(self, given: Mapping[str, str]) -> None:
        label, _, token = given["label"].partition("=")
        # The image has the virtual environment that it would make at every start. The signal only
        # shortens the end of a container, which is not measured.
        self._options = {
            "lang": "python",
            "image": given["image"],
            "skip_environment_setup": True,
            "runtime_configs": {
                "network_mode": "none",
                "stop_signal": "SIGKILL",
                "labels": {label: token},
            },
        }
        self._stack = ExitStack()
        self._directory = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self.calls: dict[str, Call] = {
            tasks.OPEN_WARM: lambda: self._open(PooledSandboxSession(pool_manager=self._pool)),
            tasks.OPEN_NEW: lambda: self._open(SandboxSession(**self._options)),
            tasks.TRUE: self._true,
            tasks.ECHO: self._echo,
            tasks.CODE_KEPT: lambda: self._code(self._interactive),
            tasks.CODE_NEW: lambda: self._code(self._session),
        }
        for write, read in tasks.READ_OF.items():
            text = tasks.content(tasks.SIZES[write])
            (self._directory / read).write_text(text)
            self.calls[write] = partial(self._write, read)
            self.calls[read] = partial(self._read, read, text)

    def close(self) -> None:
        self._stack.close()

    @cached_property
    def _pool(self) -> Any:
        config = PoolConfig(min_pool_size=POOL_SIZE, max_pool_size=2 * POOL_SIZE)
        pool = create_pool_manager(config=config, **self._options)
        self._stack.callback(pool.close)
        return pool

    @cached_property
    def _session(self) -> Any:
        return self._stack.enter_context(PooledSandboxSession(pool_manager=self._pool))

    @cached_property
    def _interactive(self) -> Any:
        return self._stack.enter_context(InteractiveSandboxSession(**self._options))

    def _open(self, session: Any) -> After:
        session.open()
        done = session.execute_command("echo hi")

        def after() -> None:
            session.close()
            check(done.stdout == "hi\n", done)

        return after

    def _true(self) -> After:
        done = self._session.execute_command("true")
        return lambda: check(done.exit_code == 0, done)

    def _echo(self) -> After:
        done = self._session.execute_command("echo hi")
        return lambda: check(done.stdout == "hi\n", done)

    def _write(self, name: str) -> None:
        self._session.copy_to_runtime(str(self._directory / name), f"{DIRECTORY}/{name}")

    def _read(self, name: str, text: str) -> After:
        target = self._directory / "back"
        self._session.copy_from_runtime(f"{DIRECTORY}/{name}", str(target))
        return lambda: check(target.read_text() == text, "another file")

    def _code(self, session: Any) -> After:
        done = session.run("print(1 + 1)")
        return lambda: check(done.stdout == "2\n", done)


if __name__ == "__main__":
    serve(Contender)
