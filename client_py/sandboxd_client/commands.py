"""Commands of a sandbox: run, start, list and connect to them."""

from __future__ import annotations

import asyncio
import os
import signal as signals
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal, TypeVar, overload

from google.protobuf.duration_pb2 import Duration

from sandboxd_client.arguments import checked, either
from sandboxd_client.capture import MAX_BYTES
from sandboxd_client.command_handle import AsyncCommandHandle, send_signal
from sandboxd_client.connection import BackOff
from sandboxd_client.errors import (
    CommandNotStartableError,
    ConnectionLostError,
    ExecEndedError,
    ExecNotFoundError,
    InvalidRequestError,
    SandboxError,
)
from sandboxd_client.kept_output import read_on
from sandboxd_client.methods.execs import LIST_EXECS, RUN, START_EXEC, WAIT_EXEC
from sandboxd_client.results import CommandInfo, CommandResult, OutputCallback
from sandboxd_client.session import SessionHold, duration
from sandboxd_proto.v1 import exec_pb2
from sandboxd_proto.v1 import exec_service_pb2 as pb

T = TypeVar("T")

STDOUT, STDERR = exec_pb2.OUTPUT_STREAM_STDOUT, exec_pb2.OUTPUT_STREAM_STDERR


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
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        no_output_timeout: float | None = None,
        stdin: str | bytes | bool | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        merge_stderr: bool = False,
        max_output_bytes: int | None = None,
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
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        no_output_timeout: float | None = None,
        stdin: str | bytes | bool | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        merge_stderr: bool = False,
        max_output_bytes: int | None = None,
        check: bool = False,
        shell: str | None = None,
        exec_id: str | None = None,
    ) -> AsyncCommandHandle: ...

    async def run(
        self,
        command: str | Sequence[str],
        *,
        background: bool = False,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        envs: Mapping[str, str] | None = None,
        timeout: float | None = None,
        no_output_timeout: float | None = None,
        stdin: str | bytes | bool | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        merge_stderr: bool = False,
        max_output_bytes: int | None = None,
        check: bool = False,
        shell: str | None = None,
        exec_id: str | None = None,
    ) -> CommandResult | AsyncCommandHandle:
        """Run a command and wait for its end; with `background=True` only start it.

        A string is a line for bash, a list is a program with its arguments. `timeout` is how many
        seconds the command may run (30 by default, 0 for as long as the session allows); a time-out
        or a non-zero exit is a result, unless `check` is set. `on_stdout` and `on_stderr` receive
        text as it is written; for a background command, only while `wait` is called. With
        `merge_stderr` everything is in `stdout`, in the order in which it was written.
        `max_output_bytes` is how much of each stream the result holds (by default what the daemon
        returns at once, 1 MiB); of longer output the middle is left out. `stdin` is the standard
        input, which is empty by default; for a background command it stays open until
        `close_stdin`, and `stdin=True` opens it for `send_stdin`. With `shell` the command runs in
        that named shell. Calls with the same `exec_id` run the command once. `envs` is another name
        of `env`.

        Example:
            result = await sandbox.commands.run("sort", stdin="b\\na\\n")
            print(result.stdout)
            server = await sandbox.commands.run("python3 -m http.server", background=True)
            await server.kill()
        """
        text = None if isinstance(stdin, bool) else stdin
        if stdin is True and not background:
            raise InvalidRequestError(
                "stdin=True needs background=True, so that send_stdin can be called; to give the "
                "whole input, pass its text as `stdin`."
            )
        if max_output_bytes is not None and max_output_bytes < 1:
            raise InvalidRequestError("max_output_bytes must be at least 1.")
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
        request.stdin = text is not None or stdin is True
        request.merge_stderr = merge_stderr

        start = partial(
            start_exec,
            self._hold,
            request,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            max_output_bytes=max_output_bytes or MAX_BYTES,
        )

        async def once(earlier_tries: int) -> CommandResult | AsyncCommandHandle:
            if background:
                handle = await start(earlier_tries=earlier_tries)
                if text is not None:
                    await _or_kill(self._hold, handle, handle.send_stdin(text))
                return handle
            if text is None and on_stdout is None and on_stderr is None:
                return await self._run(request, max_output_bytes, earlier_tries)
            handle = await start(earlier_tries=earlier_tries)
            return await _finished(self._hold, handle, text)

        back_off = BackOff(self._hold.connection.timeouts.call)
        earlier_tries = 0
        while True:
            try:
                result = await once(earlier_tries)
                return result.check() if check and isinstance(result, CommandResult) else result
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
                LIST_EXECS,
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
        found = (await self._hold.connection.call(WAIT_EXEC, request)).exec
        return AsyncCommandHandle(self._hold, found, on_stdout=on_stdout, on_stderr=on_stderr)

    async def kill(self, exec_id: str) -> bool:
        """Kill a command with SIGKILL; False if it had already ended.

        Example:
            command = await sandbox.commands.run("sleep 60", background=True)
            await sandbox.commands.kill(command.exec_id)
        """
        return await send_signal(self._hold, exec_id, signals.SIGKILL)

    async def _run(
        self, request: pb.ExecRequest, max_output_bytes: int | None, earlier_tries: int
    ) -> CommandResult:
        connection = self._hold.connection
        if max_output_bytes is not None:
            at_once = self._hold.info.limits.max_run_output_bytes
            request.max_output_bytes = min(max_output_bytes, at_once)
        seconds = _time_limit(self._hold, request) + connection.timeouts.call
        if request.shell_name:
            seconds += connection.timeouts.transfer  # others may be queued before it
        done = await connection.call(RUN, request, timeout=seconds, earlier_tries=earlier_tries)
        if done.exit.reason == exec_pb2.EXIT_REASON_CANCELLED:
            raise ConnectionLostError(
                "The connection was lost, and the command was ended with it. Check what it did "
                "so far, or run it in the background, where it survives a lost connection."
            )
        stdout, stderr = done.stdout, done.stderr
        if max_output_bytes is not None:
            with suppress(ExecNotFoundError):  # then it is no longer kept
                stdout = await self._rest_of(done, STDOUT, stdout, max_output_bytes)
                stderr = await self._rest_of(done, STDERR, stderr, max_output_bytes)
        return CommandResult.of(done.exec_id, done.exit, stdout, stderr)

    async def _rest_of(
        self,
        done: pb.RunResponse,
        stream: exec_pb2.OutputStream.ValueType,
        captured: exec_pb2.CapturedOutput,
        max_bytes: int,
    ) -> exec_pb2.CapturedOutput:
        """The output with what did not fit into the answer, if the caller wants more than that."""
        if not captured.omitted_bytes or len(captured.data) >= max_bytes:
            return captured
        return await read_on(self._hold, done.exec_id, stream, captured, max_bytes)


async def start_exec(
    hold: SessionHold,
    request: pb.ExecRequest,
    *,
    on_stdout: OutputCallback | None = None,
    on_stderr: OutputCallback | None = None,
    max_output_bytes: int = MAX_BYTES,
    earlier_tries: int = 0,
) -> AsyncCommandHandle:
    call = hold.connection.call(START_EXEC, request, earlier_tries=earlier_tries)
    starting = asyncio.ensure_future(call)
    try:
        await asyncio.wait([starting])
    except asyncio.CancelledError:
        # It may have been started, and nobody gets its handle.
        await hold.connection.clean_up(_kill_once_started(hold, starting))
        raise
    started = starting.result()
    is_queued = started.exec.state == exec_pb2.EXEC_STATE_QUEUED
    again = partial(hold.connection.call, START_EXEC, request, earlier_tries=1)
    return AsyncCommandHandle(
        hold,
        started.exec,
        on_stdout=on_stdout,
        on_stderr=on_stderr,
        restart=again if is_queued else None,
        is_ours=not started.already_started,
        max_output_bytes=max_output_bytes,
    )


def new_exec_id() -> str:
    return f"exe_{os.urandom(10).hex()}"


def exec_request(
    hold: SessionHold,
    command: str | Sequence[str],
    *,
    exec_id: str | None = None,
    cwd: str | os.PathLike[str] | None = None,
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
    limits = hold.info.limits
    asked = request.timeout if request.HasField("timeout") else limits.default_exec_timeout
    return _seconds(asked) or _seconds(limits.max_exec_timeout)


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


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
