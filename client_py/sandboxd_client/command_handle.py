"""A started command: follow it, send input, end it."""

from __future__ import annotations

import asyncio
import inspect
import signal as signals

from sandboxd_client.arguments import checked
from sandboxd_client.capture import MAX_BYTES
from sandboxd_client.command_stream import AsyncCommandStream
from sandboxd_client.errors import CallTimeoutError, ExecEndedError
from sandboxd_client.exec_stream import ExecStream, Restart
from sandboxd_client.methods.execs import (
    PREVIEW_OUTPUT,
    READ_OUTPUT,
    RESIZE_EXEC,
    SEARCH_OUTPUT,
    SIGNAL_EXEC,
    WAIT_EXEC,
    WRITE_STDIN,
)
from sandboxd_client.results import (
    CommandInfo,
    CommandResult,
    OutputCallback,
    OutputChunk,
    OutputMatch,
    OutputPreview,
    OutputSlice,
    StreamName,
)
from sandboxd_client.session import SessionHold, duration
from sandboxd_proto.v1 import exec_pb2
from sandboxd_proto.v1 import exec_service_pb2 as pb

MAX_STDIN_BYTES = 1 << 20
_STREAMS: dict[StreamName, exec_pb2.OutputStream.ValueType] = {
    "stdout": exec_pb2.OUTPUT_STREAM_STDOUT,
    "stderr": exec_pb2.OUTPUT_STREAM_STDERR,
}


@checked
class AsyncCommandHandle:
    """A started command. It continues whether or not a client is attached.

    Example:
        command = await sandbox.commands.run("read x; echo got $x", background=True, stdin=True)
        await command.send_stdin("42\\n")
        print((await command.wait()).stdout)
    """

    def __init__(
        self,
        hold: SessionHold,
        started: exec_pb2.Exec,
        *,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        restart: Restart | None = None,
        is_ours: bool = False,
        max_output_bytes: int = MAX_BYTES,
    ) -> None:
        self._hold = hold
        self._exec_id = started.exec_id
        self._pid = started.pid or None
        self._max_output_bytes = max_output_bytes
        self._seconds = started.timeout.seconds + started.timeout.nanos / 1e9
        self._callbacks: dict[StreamName, OutputCallback | None] = {
            "stdout": on_stdout,
            "stderr": on_stderr,
        }
        self._restart = restart
        self._stdin_offset = 0 if is_ours else None
        self._stdin_lock = asyncio.Lock()
        self._has_input = started.has_stdin or started.has_terminal
        self._result: CommandResult | None = None

    def __repr__(self) -> str:
        state = (
            f"ended with {self._result.exit_code}" if self._result else "not known to have ended"
        )
        return f"<AsyncCommandHandle {self._exec_id}, {state}>"

    @property
    def exec_id(self) -> str:
        """Id of the command in its session."""
        return self._exec_id

    @property
    def pid(self) -> int | None:
        """Number of the command's first process inside the sandbox; None if it is not known, as
        while the command waits for its shell."""
        return self._pid

    @property
    def result(self) -> CommandResult | None:
        """How the command ended; None until a stream or `wait` of this handle has seen its end."""
        return self._result

    def stream(self, *, stdout_offset: int = 0, stderr_offset: int = 0) -> AsyncCommandStream:
        """The output as it is written, from the beginning or from the given positions.

        Iterate over it, preferably in a `with` block: leaving the block ends the call, not the
        command. The iteration survives a lost connection or a restart of the daemon: it continues
        at the next byte. After the last piece, `result` is set.

        Example:
            command = await sandbox.commands.run("seq 3; sleep 0.1; seq 4 6", background=True)
            async with command.stream() as events:
                async for event in events:
                    print(event)
            print(events.result.exit_code)
        """
        source = ExecStream(
            self._hold,
            self._exec_id,
            timeout=self._seconds + self._hold.connection.timeouts.transfer,
            stdout_offset=stdout_offset,
            stderr_offset=stderr_offset,
            restart=self._restart,
        )
        is_whole = not stdout_offset and not stderr_offset
        on_end = self._ended if is_whole else None
        return AsyncCommandStream(self._exec_id, source, on_end, self._max_output_bytes)

    def _ended(self, result: CommandResult) -> None:
        self._result = result

    async def wait(self, timeout: float | None = None, *, check: bool = False) -> CommandResult:
        """Wait for the end; CallTimeoutError after `timeout` seconds.

        Example:
            command = await sandbox.commands.run("sleep 0.1; exit 3", background=True)
            print((await command.wait()).exit_code)
        """
        try:
            async with asyncio.timeout(timeout):
                result = self._result or await self._watch()
        except TimeoutError as error:
            if isinstance(error, CallTimeoutError):
                raise
            raise CallTimeoutError(
                f"The command still runs after {timeout:g} s of waiting; wait again, or kill it."
            ) from None
        return result.check() if check else result

    async def _watch(self) -> CommandResult:
        async with self.stream() as events:
            async for event in events:
                if isinstance(event, OutputChunk):
                    await self._notify(event)
        assert events.result is not None
        return events.result

    async def _notify(self, chunk: OutputChunk) -> None:
        callback = self._callbacks[chunk.stream]
        if callback is not None and chunk.text:
            answer = callback(chunk.text)
            if inspect.isawaitable(answer):
                await answer

    async def send_stdin(self, data: str | bytes) -> None:
        """Write to standard input; waits while the command is slow to read.

        Example:
            command = await sandbox.commands.run("cat", background=True, stdin=True)
            await command.send_stdin("hello")
            await command.close_stdin()
        """
        rest = memoryview(data.encode() if isinstance(data, str) else data)
        async with self._stdin_lock:
            while rest:
                await self._write(bytes(rest[:MAX_STDIN_BYTES]))
                rest = rest[MAX_STDIN_BYTES:]

    async def close_stdin(self) -> None:
        """Close standard input, so that the command sees its end.

        Does nothing if the command has ended, or has no standard input.

        Example:
            command = await sandbox.commands.run("wc -c", background=True, stdin="12345")
            await command.close_stdin()
            print((await command.wait()).stdout)
        """
        if not self._has_input:
            return
        try:
            async with self._stdin_lock:
                await self._write(b"", eof=True)
        except ExecEndedError:
            pass  # and so has its input

    async def _write(self, data: bytes, *, eof: bool = False) -> None:
        connection = self._hold.connection
        if self._stdin_offset is None:
            self._stdin_offset = 0
            await self._write(b"")  # returns how far other writers have come
        request = pb.WriteStdinRequest(
            session_id=self._hold.id,
            exec_id=self._exec_id,
            offset=self._stdin_offset,
            data=data,
            eof=eof,
        )
        seconds = self._seconds + connection.timeouts.call
        taken = await connection.call(WRITE_STDIN, request, timeout=seconds)
        self._stdin_offset = taken.next_offset

    async def kill(self) -> bool:
        """Kill the command with SIGKILL; False if it had already ended.

        Example:
            command = await sandbox.commands.run("sleep 60", background=True)
            await command.kill()
            print((await command.wait()).signal)
        """
        return await send_signal(self._hold, self._exec_id, signals.SIGKILL)

    async def send_signal(self, number: int) -> bool:
        """Send a signal to the command's processes; False if it had already ended.

        Example:
            command = await sandbox.commands.run("sleep 60", background=True)
            await command.send_signal(2)
            print((await command.wait()).signal)
        """
        return await send_signal(self._hold, self._exec_id, number)

    async def resize(self, rows: int, columns: int) -> None:
        """Resize the terminal.

        Example:
            terminal = await sandbox.pty.create(["python3", "-i"])
            await terminal.resize(40, 120)
            await terminal.kill()
        """
        size = exec_pb2.Terminal(rows=rows, columns=columns)
        request = pb.ResizeExecRequest(
            session_id=self._hold.id, exec_id=self._exec_id, terminal=size
        )
        await self._hold.connection.call(RESIZE_EXEC, request)

    async def info(self) -> CommandInfo:
        """The command as it is now.

        Example:
            command = await sandbox.commands.run("sleep 1", background=True)
            print((await command.info()).state)
        """
        request = pb.WaitExecRequest(session_id=self._hold.id, exec_id=self._exec_id)
        request.timeout.CopyFrom(duration(0))
        return CommandInfo.of((await self._hold.connection.call(WAIT_EXEC, request)).exec)

    async def read_output(
        self, stream: StreamName = "stdout", *, offset: int = 0, max_bytes: int = 65536
    ) -> OutputSlice:
        """Kept output by position, also after the end, for as long as the daemon keeps it.

        Example:
            command = await sandbox.commands.run("seq 100000", background=True)
            await command.wait()
            print((await command.read_output(offset=1000, max_bytes=20)).data)
        """
        request = pb.ReadOutputRequest(
            session_id=self._hold.id,
            exec_id=self._exec_id,
            stream=_STREAMS[stream],
            offset=offset,
            max_bytes=max_bytes,
        )
        return OutputSlice.of(await self._hold.connection.call(READ_OUTPUT, request))

    async def search_output(
        self,
        pattern: str,
        *,
        stream: StreamName | None = None,
        max_matches: int = 100,
        context_lines: int = 0,
    ) -> list[OutputMatch]:
        """Lines of kept output that match a regular expression (RE2 syntax).

        Example:
            command = await sandbox.commands.run("seq 1000", background=True)
            await command.wait()
            print([match.line for match in await command.search_output("^99.$")])
        """
        request = pb.SearchOutputRequest(
            session_id=self._hold.id,
            exec_id=self._exec_id,
            pattern=pattern,
            max_matches=max_matches,
            context_lines=context_lines,
        )
        if stream is not None:
            request.stream = _STREAMS[stream]
        found = await self._hold.connection.call(SEARCH_OUTPUT, request)
        return [OutputMatch.of(match) for match in found.matches]

    async def preview_output(
        self, *, max_bytes: int = 16384, collapse: bool = True
    ) -> tuple[OutputPreview, OutputPreview]:
        """Beginning and end of stdout and of stderr, in a size that a model can read.

        Example:
            command = await sandbox.commands.run("seq 100000", background=True)
            await command.wait()
            stdout, stderr = await command.preview_output(max_bytes=200)
            print(stdout.text)
        """
        request = pb.PreviewOutputRequest(
            session_id=self._hold.id,
            exec_id=self._exec_id,
            max_bytes=max_bytes,
            collapse=collapse,
        )
        found = await self._hold.connection.call(PREVIEW_OUTPUT, request)
        return OutputPreview.of(found.stdout), OutputPreview.of(found.stderr)


async def send_signal(hold: SessionHold, exec_id: str, number: int) -> bool:
    request = pb.SignalExecRequest(session_id=hold.id, exec_id=exec_id, signal=number)
    try:
        await hold.connection.call(SIGNAL_EXEC, request)
    except ExecEndedError:
        return False
    return True
