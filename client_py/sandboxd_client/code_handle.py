"""A started run of code: follow it, wait for it, end it."""

from __future__ import annotations

import asyncio
import inspect
import signal as signals
from collections.abc import Callable

from sandboxd_client.arguments import checked
from sandboxd_client.capture import MAX_BYTES
from sandboxd_client.code_results import CodeLog, CodeRun, Display, DisplayCallback, LogCallback
from sandboxd_client.code_stream import AsyncCodeStream
from sandboxd_client.command_handle import send_signal
from sandboxd_client.debug_results import CodeEvent
from sandboxd_client.errors import CallTimeoutError
from sandboxd_client.exec_stream import ExecStream, Restart
from sandboxd_client.results import OutputCallback, OutputChunk
from sandboxd_client.session import SessionHold
from sandboxd_proto.v1 import exec_pb2


@checked
class AsyncCodeHandle:
    """A started run of code. It continues whether or not a client is attached.

    Example:
        started = await sandbox.code.start("import time\\ntime.sleep(0.1)\\n6 * 7")
        print((await started.wait()).result)
    """

    def __init__(
        self,
        hold: SessionHold,
        started: exec_pb2.Exec,
        *,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        on_display: DisplayCallback | None = None,
        on_log: LogCallback | None = None,
        restart: Restart | None = None,
        max_output_bytes: int = MAX_BYTES,
    ) -> None:
        self._hold = hold
        self._exec_id = started.exec_id
        self._context = started.context
        self._seconds = started.timeout.seconds + started.timeout.nanos / 1e9
        self._on_output = {"stdout": on_stdout, "stderr": on_stderr}
        self._on_display, self._on_log = on_display, on_log
        self._restart = restart
        self._max_output_bytes = max_output_bytes
        self._result: CodeRun | None = None

    def __repr__(self) -> str:
        state = f"ended as {self._result.status}" if self._result else "not known to have ended"
        return f"<AsyncCodeHandle {self._exec_id}, {state}>"

    @property
    def exec_id(self) -> str:
        """Id of the run in its session."""
        return self._exec_id

    @property
    def context(self) -> str:
        """Name of the context that it runs in."""
        return self._context

    @property
    def result(self) -> CodeRun | None:
        """How the run ended; None until a stream or `wait` of this handle has seen its end."""
        return self._result

    def stream(
        self, *, stdout_offset: int = 0, stderr_offset: int = 0, events_offset: int = 0
    ) -> AsyncCodeStream:
        """Output and events as they come, from the beginning or from the given positions.

        Leaving the block ends the call, not the run. The iteration survives a lost connection or a
        restart of the daemon. After the last event, `result` is set.

        Example:
            started = await sandbox.code.start("print(1)\\nprint(2)")
            async with started.stream() as events:
                async for event in events:
                    print(event)
            print(events.result.status)
        """
        source = ExecStream(
            self._hold,
            self._exec_id,
            timeout=self._seconds + self._hold.connection.timeouts.transfer,
            stdout_offset=stdout_offset,
            stderr_offset=stderr_offset,
            events_offset=events_offset,
            restart=self._restart,
        )
        return AsyncCodeStream(
            self._hold,
            self._exec_id,
            source,
            max_output_bytes=self._max_output_bytes,
            on_end=self._ended,
        )

    def _ended(self, result: CodeRun) -> None:
        self._result = result

    async def wait(self, timeout: float | None = None, *, check: bool = False) -> CodeRun:
        """Wait for the end; CallTimeoutError after `timeout` seconds.

        Example:
            started = await sandbox.code.start("1 / 0")
            print((await started.wait()).error.type)
        """
        try:
            async with asyncio.timeout(timeout):
                result = self._result or await self._watch()
        except TimeoutError as error:
            if isinstance(error, CallTimeoutError):
                raise
            raise CallTimeoutError(
                f"The code still runs after {timeout:g} s of waiting; wait again, or interrupt it."
            ) from None
        return result.check() if check else result

    async def interrupt(self) -> bool:
        """Interrupt the run as Ctrl-C would; False if it had already ended.

        Example:
            started = await sandbox.code.start("while True: pass")
            await started.interrupt()
            print((await started.wait()).status)
        """
        return await send_signal(self._hold, self._exec_id, signals.SIGINT)

    async def kill(self) -> bool:
        """Kill the context of the run, whose variables are then lost; False if the run had ended.

        Example:
            started = await sandbox.code.start("while True: pass")
            await started.kill()
            print((await started.wait()).is_state_kept)
        """
        return await send_signal(self._hold, self._exec_id, signals.SIGKILL)

    async def _watch(self) -> CodeRun:
        async with self.stream() as events:
            async for event in events:
                await self._notify(event)
        assert events.result is not None
        return events.result

    async def _notify(self, event: CodeEvent) -> None:
        match event:
            case OutputChunk(text=text) if text:
                await _call(self._on_output[event.stream], text)
            case Display():
                await _call(self._on_display, event)
            case CodeLog():
                await _call(self._on_log, event)


async def _call(callback: Callable[..., object] | None, argument: object) -> None:
    if callback is None:
        return
    answer = callback(argument)
    if inspect.isawaitable(answer):
        await answer
