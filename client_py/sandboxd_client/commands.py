"""Commands of a sandbox: run, start, list and connect to them."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal as signals
from collections.abc import Awaitable, Mapping, Sequence
from typing import Literal, TypeVar, overload

from sandboxd_client import methods
from sandboxd_client.arguments import SandboxPath, checked, either
from sandboxd_client.command_handle import AsyncCommandHandle, OutputCallback, send_signal
from sandboxd_client.connection import BackOff
from sandboxd_client.errors import (
    CommandNotStartableError,
    ConnectionLostError,
    ExecEndedError,
    SandboxError,
)
from sandboxd_client.results import CommandInfo, CommandResult
from sandboxd_client.session import SessionHold, duration
from sandboxd_proto.v1 import exec_pb2
from sandboxd_proto.v1 import exec_service_pb2 as pb

T = TypeVar("T")


@checked
class AsyncCommands:
    """Commands of a sandbox.

    Example:
        result = await sandbox.commands.run("echo hello")
        print(result.stdout, result.exit_code)
    """

    def __init__(self, hold: SessionHold) -> None:
        self._hold = hold

    @overload
    async def run(
        self,
        command: str | Sequence[str],
        *,
        background: Literal[False] = False,
        cwd: SandboxPath | None = None,
        env: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        no_output_timeout: float | None = None,
        stdin: str | bytes | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        check: bool = False,
        shell: str | None = None,
        exec_id: str | None = None,
    ) -> CommandResult: ...

    @overload
    async def run(
        self,
        command: str | Sequence[str],
        *,
        background: Literal[True],
        cwd: SandboxPath | None = None,
        env: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        no_output_timeout: float | None = None,
        stdin: str | bytes | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        check: bool = False,
        shell: str | None = None,
        exec_id: str | None = None,
    ) -> AsyncCommandHandle: ...

    async def run(
        self,
        command: str | Sequence[str],
        *,
        background: bool = False,
        cwd: SandboxPath | None = None,
        env: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        no_output_timeout: float | None = None,
        stdin: str | bytes | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        check: bool = False,
        shell: str | None = None,
        exec_id: str | None = None,
    ) -> CommandResult | AsyncCommandHandle:
        """Run a command and wait for its end; with `background=True` only start it.

        A string is a line for bash, a list is a program with its arguments. `timeout` is how many
        seconds the command may run (30 by default); a time-out or a non-zero exit is a result,
        unless `check` is set. `on_stdout` and `on_stderr` receive text as it is written; for a
        background command, only while `wait` is called. The handle of a background command can
        write to its standard input, which starts with `stdin`. With `shell` the command runs in
        that named shell. Calls with the same `exec_id` run the command once. `envs` is another name
        of `env`.

        Example:
            result = await sandbox.commands.run("sort", stdin="b\\na\\n")
            print(result.stdout)
            server = await sandbox.commands.run("python3 -m http.server", background=True)
            await server.kill()
        """
        request = exec_request(
            self._hold,
            command,
            exec_id=exec_id,
            cwd=cwd,
            env=either(env=env, envs=envs),
            timeout=timeout,
            no_output_timeout=no_output_timeout,
            shell=shell,
        )
        request.stdin = background or stdin is not None
        if background:
            handle = await start_exec(self._hold, request, on_stdout=on_stdout, on_stderr=on_stderr)
            if stdin is not None:
                await _or_kill(self._hold, handle, handle.send_stdin(stdin))
            return handle

        async def once(earlier_tries: int) -> CommandResult:
            if stdin is None and on_stdout is None and on_stderr is None:
                return await self._run(request, earlier_tries)
            handle = await start_exec(
                self._hold,
                request,
                on_stdout=on_stdout,
                on_stderr=on_stderr,
                earlier_tries=earlier_tries,
            )
            return await _finished(self._hold, handle, stdin)

        back_off = BackOff(self._hold.connection.timeouts.call)
        earlier_tries = 0
        while True:
            try:
                result = await once(earlier_tries)
                return result.check() if check else result
            except CommandNotStartableError as error:
                # No process was available. The command never ran, so another attempt is safe.
                if error.retry_after_seconds is None or exec_id is not None:
                    raise
                await back_off.pause(error)
                request.exec_id = new_exec_id()
                earlier_tries += 1

    async def list(self, *, running: bool = False) -> Sequence[CommandInfo]:
        """The commands of the session, newest first: running and recently ended ones.

        Example:
            for command in await sandbox.commands.list(running=True):
                print(command.exec_id, command.command)
        """
        state = exec_pb2.EXEC_STATE_RUNNING if running else exec_pb2.EXEC_STATE_UNSPECIFIED
        found: list[CommandInfo] = []
        token = ""
        while True:
            page = await self._hold.connection.call(
                methods.LIST_EXECS,
                pb.ListExecsRequest(session_id=self._hold.id, state=state, page_token=token),
            )
            found += map(CommandInfo.of, page.execs)
            token = page.next_page_token
            if not token:
                return found

    async def connect(
        self,
        exec_id: str,
        *,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
    ) -> AsyncCommandHandle:
        """A command that was already started, by any client; running or recently ended.

        Example:
            started = await sandbox.commands.run("sleep 1; echo done", background=True)
            again = await sandbox.commands.connect(started.exec_id)
            print((await again.wait()).stdout)
        """
        request = pb.WaitExecRequest(session_id=self._hold.id, exec_id=exec_id)
        request.timeout.CopyFrom(duration(0))
        found = (await self._hold.connection.call(methods.WAIT_EXEC, request)).exec
        return AsyncCommandHandle(self._hold, found, on_stdout=on_stdout, on_stderr=on_stderr)

    async def kill(self, exec_id: str) -> bool:
        """Kill a command with SIGKILL; False if it had already ended.

        Example:
            command = await sandbox.commands.run("sleep 60", background=True)
            await sandbox.commands.kill(command.exec_id)
        """
        return await send_signal(self._hold, exec_id, signals.SIGKILL)

    async def _run(self, request: pb.ExecRequest, earlier_tries: int) -> CommandResult:
        connection = self._hold.connection
        seconds = _time_limit(self._hold, request) + connection.timeouts.call
        if request.shell_name:
            seconds += connection.timeouts.transfer  # others may be queued before it
        done = await connection.call(
            methods.RUN, request, timeout=seconds, earlier_tries=earlier_tries
        )
        if done.exit.reason == exec_pb2.EXIT_REASON_CANCELLED:
            raise ConnectionLostError(
                "The connection was lost, and the command was ended with it. Check what it did "
                "so far, or run it in the background, where it survives a lost connection."
            )
        return CommandResult.of(done.exec_id, done.exit, done.stdout, done.stderr)


async def start_exec(
    hold: SessionHold,
    request: pb.ExecRequest,
    *,
    on_stdout: OutputCallback | None = None,
    on_stderr: OutputCallback | None = None,
    earlier_tries: int = 0,
) -> AsyncCommandHandle:
    call = hold.connection.call(methods.START_EXEC, request, earlier_tries=earlier_tries)
    starting = asyncio.ensure_future(call)
    try:
        await asyncio.wait([starting])
    except asyncio.CancelledError:
        # It may have been started, and nobody gets its handle.
        await hold.connection.clean_up(_kill_once_started(hold, starting))
        raise
    started = starting.result()
    is_queued = started.exec.state == exec_pb2.EXEC_STATE_QUEUED
    return AsyncCommandHandle(
        hold,
        started.exec,
        on_stdout=on_stdout,
        on_stderr=on_stderr,
        queued=request if is_queued else None,
        is_ours=not started.already_started,
    )


def new_exec_id() -> str:
    return f"exe_{secrets.token_hex(10)}"


def exec_request(
    hold: SessionHold,
    command: str | Sequence[str],
    *,
    exec_id: str | None = None,
    cwd: SandboxPath | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    no_output_timeout: float | None = None,
    shell: str | None = None,
) -> pb.ExecRequest:
    """Raise PolicyError if the caller's own check refuses the command."""
    if hold.check is not None:
        hold.check(command)
    request = pb.ExecRequest(
        session_id=hold.id,
        incarnation=hold.incarnation,
        # Always set an id: it makes a repeated call run the command once.
        exec_id=exec_id or new_exec_id(),
        cwd=os.fspath(cwd or ""),
        env=env or {},
        shell_name=shell or "",
    )
    if isinstance(command, str):
        request.shell = command
    else:
        request.argv.args.extend(command)
    if timeout is not None:
        request.timeout.CopyFrom(duration(timeout))
    if no_output_timeout is not None:
        request.no_output_timeout.CopyFrom(duration(no_output_timeout))
    return request


def _time_limit(hold: SessionHold, request: pb.ExecRequest) -> float:
    asked = request.timeout
    if not request.HasField("timeout"):
        asked = hold.info.limits.default_exec_timeout
    return asked.seconds + asked.nanos / 1e9


async def _kill_once_started(
    hold: SessionHold, starting: asyncio.Future[pb.StartExecResponse]
) -> None:
    started = await starting
    if not started.already_started:  # otherwise another call has its handle
        await send_signal(hold, started.exec.exec_id, signals.SIGKILL)


async def _finished(
    hold: SessionHold, handle: AsyncCommandHandle, stdin: str | bytes | None
) -> CommandResult:
    """Send input to a command and wait for its end; cancelling this kills the command."""
    feeding = None if stdin is None else asyncio.create_task(_feed(handle, stdin))
    try:
        return await _or_kill(hold, handle, handle.wait())
    finally:
        if feeding is not None:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)


async def _or_kill(hold: SessionHold, handle: AsyncCommandHandle, work: Awaitable[T]) -> T:
    """Do the work; kill the command if this is cancelled, or fails in the caller's own code."""
    try:
        return await work
    except SandboxError:
        raise  # the daemon reports the failure: nothing to kill, or no daemon to call
    except BaseException:
        await hold.connection.clean_up(handle.kill())
        raise


async def _feed(handle: AsyncCommandHandle, stdin: str | bytes) -> None:
    try:
        await handle.send_stdin(stdin)
        await handle.close_stdin()
    except ExecEndedError:
        pass  # it ended without reading all input
