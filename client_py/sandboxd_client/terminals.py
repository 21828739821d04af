"""Shells that keep their state, and terminals."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from sandboxd_client.arguments import checked, either
from sandboxd_client.command_handle import AsyncCommandHandle
from sandboxd_client.commands import AsyncCommands, exec_request, start_exec
from sandboxd_client.results import CommandResult, OutputCallback
from sandboxd_client.session import SessionHold
from sandboxd_proto.v1 import exec_pb2

_INTERACTIVE = "command -v bash >/dev/null && exec bash -i; exec sh -i"


@checked
class AsyncShell:
    """A named shell of the sandbox: directory, exported variables, functions and options carry over
    from one command to the next. Commands of one shell run one after the other.

    Example:
        shell = sandbox.shell("main")
        await shell.run("cd /tmp && export GREETING=hello")
        print((await shell.run("echo $GREETING from $PWD")).stdout)
    """

    def __init__(self, commands: AsyncCommands, name: str) -> None:
        self._commands = commands
        self._name = name

    @property
    def name(self) -> str:
        """Name of the shell."""
        return self._name

    async def run(
        self,
        command: str,
        *,
        env: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        merge_stderr: bool = False,
        max_output_bytes: int | None = None,
        check: bool = False,
    ) -> CommandResult:
        """Run a line in this shell and wait for its end; otherwise like `commands.run`.

        Example:
            await sandbox.shell("main").run("x=1; cd outputs")
            print((await sandbox.shell("main").run("echo $x $PWD")).stdout)
        """
        return await self._commands.run(
            command,
            shell=self._name,
            env=env,
            envs=envs,
            timeout=timeout,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            merge_stderr=merge_stderr,
            max_output_bytes=max_output_bytes,
            check=check,
        )


@checked
class AsyncPty:
    """Terminals of a sandbox.

    Example:
        terminal = await sandbox.pty.create(["python3", "-i"], rows=24, columns=80)
        await terminal.send_stdin("print('hello'); exit()\\n")
        print((await terminal.wait()).stdout)
    """

    def __init__(self, hold: SessionHold) -> None:
        self._hold = hold

    async def create(
        self,
        command: str | Sequence[str] | None = None,
        *,
        rows: int = 24,
        columns: int = 80,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_data: OutputCallback | None = None,
    ) -> AsyncCommandHandle:
        """Start a command, or an interactive shell, in a terminal. All its output is `stdout`.

        Example:
            terminal = await sandbox.pty.create(["python3", "-c", "print(input())"])
            await terminal.send_stdin("hello\\n")
            await terminal.wait()
        """
        request = exec_request(
            self._hold,
            command if command is not None else _INTERACTIVE,
            cwd=cwd,
            env=either(env=env, envs=envs),
            timeout=timeout,
        )
        request.terminal.CopyFrom(exec_pb2.Terminal(rows=rows, columns=columns))
        return await start_exec(self._hold, request, on_stdout=on_data)
