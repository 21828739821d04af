"""SWE-ReX with a Docker deployment that stays, and a shell in it, as its page on use shows."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Coroutine, Mapping
from functools import cached_property, partial
from typing import Any, TypeVar

from swerex.deployment.docker import DockerDeployment
from swerex.runtime.abstract import (
    BashAction,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    WriteFileRequest,
)

from benchmarks.peers import tasks
from benchmarks.peers.answers import After, Call, check, serve

DIRECTORY = "/workspace"
Result = TypeVar("Result")


class HostDeployment(DockerDeployment):  # type: ignore[misc]  # it has no types
    """On the host's network, where the server inside must listen on the port that is called."""

    def _get_swerex_start_cmd(self, token: str) -> list[str]:
        address = ("--host", "127.0.0.1", "--port", str(self._config.port))
        return ["swerex-remote", "--auth-token", token, *address]


class Contender:
    version = importlib.metadata.version("swe-rex")

    def __init__(self, given: Mapping[str, str]) -> None:
        self._options = {
            "image": given["image"],
            "pull": "never",
            "docker_args": ["--network=host", f"--label={given['label']}"],
        }
        self._loop = asyncio.new_event_loop()
        self.calls: dict[str, Call] = {
            tasks.OPEN_NEW: self._open,
            tasks.TRUE: partial(self._execute, "true", ""),
            tasks.ECHO: partial(self._execute, "echo hi", "hi\n"),
            tasks.SHELL: self._shell,
        }
        for write, read in tasks.READ_OF.items():
            path, text = f"{DIRECTORY}/{read}", tasks.content(tasks.SIZES[write])
            self.calls[write] = partial(self._write, path, text)
            self.calls[read] = partial(self._read, path, text)

    def close(self) -> None:
        if "_deployment" in self.__dict__:
            self._wait(self._deployment.stop())
        self._loop.close()

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(work)

    @cached_property
    def _deployment(self) -> Any:
        return self._wait(self._started())

    async def _started(self) -> Any:
        deployment = HostDeployment(**self._options)
        await deployment.start()
        await deployment.runtime.create_session(CreateBashSessionRequest())
        return deployment

    def _open(self) -> After:
        async def opened() -> tuple[Any, Any]:
            deployment = await self._started()
            return deployment, await deployment.runtime.run_in_session(
                BashAction(command="echo hi")
            )

        deployment, done = self._wait(opened())

        def after() -> None:
            self._wait(deployment.stop())
            check(done.output.strip() == "hi", done)

        return after

    def _execute(self, command: str, output: str) -> After:
        done = self._wait(self._deployment.runtime.execute(Command(command=command, shell=True)))
        return lambda: check(done.exit_code == 0 and done.stdout == output, done)

    def _shell(self) -> After:
        done = self._wait(self._deployment.runtime.run_in_session(BashAction(command="true")))
        return lambda: check(done.exit_code == 0, done)

    def _write(self, path: str, text: str) -> None:
        request = WriteFileRequest(path=path, content=text)
        self._wait(self._deployment.runtime.write_file(request))

    def _read(self, path: str, text: str) -> After:
        done = self._wait(self._deployment.runtime.read_file(ReadFileRequest(path=path)))
        return lambda: check(done.content == text, f"{len(done.content)} bytes")


if __name__ == "__main__":
    serve(Contender)
