"""The output of a command as it is written."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from types import TracebackType

from sandboxd_client.capture import MAX_BYTES, Capture
from sandboxd_client.exec_stream import ExecStream
from sandboxd_client.results import (
    CommandEvent,
    CommandResult,
    OutputChunk,
    OutputGap,
    StreamName,
)
from sandboxd_proto.v1 import exec_pb2


class AsyncCommandStream:
    """The output of a command as it is written; see `stream` of a command's handle.

    Example:
        command = await sandbox.commands.run("echo hello", background=True)
        async with command.stream() as events:
            async for event in events:
                print(event)
    """

    def __init__(
        self,
        exec_id: str,
        source: ExecStream,
        on_end: Callable[[CommandResult], None] | None,
        max_output_bytes: int = MAX_BYTES,
    ) -> None:
        self._exec_id = exec_id
        self._on_end = on_end
        self._captured: dict[StreamName, Capture] = {
            "stdout": Capture(max_output_bytes),
            "stderr": Capture(max_output_bytes),
        }
        self._result: CommandResult | None = None
        self._events = self._translated(source)

    @property
    def result(self) -> CommandResult | None:
        """How the command ended, with the output of this stream; None before its end."""
        return self._result

    async def __aenter__(self) -> AsyncCommandStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncCommandStream:
        return self

    async def __anext__(self) -> CommandEvent:
        return await anext(self._events)

    async def aclose(self) -> None:
        """End the call. The command continues.

        Example:
            command = await sandbox.commands.run("echo hello", background=True)
            events = command.stream()
            print(await anext(events))
            await events.aclose()
        """
        await self._events.aclose()

    async def _translated(self, source: ExecStream) -> AsyncGenerator[CommandEvent, None]:
        texts = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in self._captured}
        ends: dict[StreamName, int] = {"stdout": 0, "stderr": 0}
        async with aclosing(source.events()) as events:
            async for event in events:
                match event.WhichOneof("event"):
                    case "exited":
                        self._end(event.exited)
                    case "dropped":
                        yield self._gap(event.dropped)
                    case "stdout" | "stderr" as kind:
                        name: StreamName = "stdout" if kind == "stdout" else "stderr"
                        chunk = getattr(event, name)
                        self._captured[name].add(chunk.data)
                        ends[name] = chunk.offset + len(chunk.data)
                        text = texts[name].decode(chunk.data)
                        yield OutputChunk(name, chunk.offset, chunk.data, text)
        for name, decoder in texts.items():
            if rest := decoder.decode(b"", final=True):
                yield OutputChunk(name, ends[name], b"", rest)

    def _gap(self, gap: exec_pb2.OutputGap) -> OutputGap:
        is_stderr = gap.stream == exec_pb2.OUTPUT_STREAM_STDERR
        name: StreamName = "stderr" if is_stderr else "stdout"
        self._captured[name].skip(gap.bytes)
        return OutputGap(name, gap.offset, gap.bytes)

    def _end(self, status: exec_pb2.ExitStatus) -> None:
        stdout, stderr = (self._captured[name].output() for name in ("stdout", "stderr"))
        self._result = CommandResult.of(self._exec_id, status, stdout, stderr)
        if self._on_end is not None:
            self._on_end(self._result)
