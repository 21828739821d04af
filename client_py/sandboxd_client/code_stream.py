"""What a run of code writes and reports, as it comes."""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from types import TracebackType

from sandboxd_client.capture import MAX_BYTES
from sandboxd_client.code_results import CodeException, CodeLog, CodeNote, CodeRun, Display
from sandboxd_client.debug_results import CodeEvent, DebugStep
from sandboxd_client.errors import ExecNotFoundError
from sandboxd_client.exec_stream import ExecStream
from sandboxd_client.kept_output import read_on
from sandboxd_client.methods.code import GET_CODE_RUN
from sandboxd_client.results import OutputChunk, OutputGap, StreamName
from sandboxd_client.session import SessionHold
from sandboxd_proto.v1 import code_pb2, exec_pb2
from sandboxd_proto.v1 import code_service_pb2 as pb


class AsyncCodeStream:
    """The output and the events of a run as they come; see `stream` of a run's handle.

    Example:
        async with await sandbox.code.stream("print('hello'); 6 * 7") as events:
            async for event in events:
                print(event)
        print(events.result.result)
    """

    def __init__(
        self,
        hold: SessionHold,
        exec_id: str,
        source: ExecStream,
        *,
        max_output_bytes: int = MAX_BYTES,
        on_end: Callable[[CodeRun], None] | None = None,
    ) -> None:
        self._hold = hold
        self._exec_id = exec_id
        self._max_output_bytes = max_output_bytes
        self._on_end = on_end
        self._result: CodeRun | None = None
        self._events = self._translated(source)

    @property
    def exec_id(self) -> str:
        """Id of the run in its session."""
        return self._exec_id

    @property
    def result(self) -> CodeRun | None:
        """How the run ended; None before its end."""
        return self._result

    async def __aenter__(self) -> AsyncCodeStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncCodeStream:
        return self

    async def __anext__(self) -> CodeEvent:
        return await anext(self._events)

    async def aclose(self) -> None:
        """End the call. The run continues.

        Example:
            events = await sandbox.code.stream("print('hello')")
            print(await anext(events))
            await events.aclose()
        """
        await self._events.aclose()

    async def _translated(self, source: ExecStream) -> AsyncGenerator[CodeEvent, None]:
        decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in _OUTPUT}
        async with aclosing(source.events()) as events:
            async for event in events:
                kind = event.WhichOneof("event")
                if kind == "exited":
                    break
                if kind in _OUTPUT:
                    name: StreamName = "stdout" if kind == "stdout" else "stderr"
                    chunk = getattr(event, name)
                    text = decoders[name].decode(chunk.data)
                    yield OutputChunk(name, chunk.offset, chunk.data, text)
                elif (other := _other(event)) is not None:
                    yield other
        for name in _OUTPUT:
            if rest := decoders[name].decode(b"", final=True):
                yield OutputChunk(name, 0, b"", rest)
        self._result = await ended_run(self._hold, self._exec_id, self._max_output_bytes)
        if self._on_end is not None:
            self._on_end(self._result)


async def ended_run(
    hold: SessionHold, exec_id: str, max_output_bytes: int | None = None
) -> CodeRun:
    """The outcome of a run that has ended."""
    request = pb.GetCodeRunRequest(
        session_id=hold.id,
        exec_id=exec_id,
        max_output_bytes=output_at_once(hold, max_output_bytes),
    )
    found = await hold.connection.call(GET_CODE_RUN, request)
    return await whole_run(hold, found, max_output_bytes)


def output_at_once(hold: SessionHold, max_output_bytes: int | None) -> int:
    """How much of each stream to ask for in one answer; 0 for what the daemon returns."""
    return min(max_output_bytes or 0, hold.info.limits.max_run_output_bytes)


async def whole_run(
    hold: SessionHold, found: pb.RunCodeResponse, max_output_bytes: int | None
) -> CodeRun:
    """An outcome, with as much output as the caller wants."""
    streams = {"stdout": exec_pb2.OUTPUT_STREAM_STDOUT, "stderr": exec_pb2.OUTPUT_STREAM_STDERR}
    for name, stream in streams.items():
        captured = getattr(found, name)
        if captured.omitted_bytes and len(captured.data) < (max_output_bytes or 0):
            with suppress(ExecNotFoundError):  # then it is no longer kept
                captured.CopyFrom(
                    await read_on(hold, found.exec_id, stream, captured, max_output_bytes or 0)
                )
    return CodeRun.of(found)


def reported(event: code_pb2.CodeEvent) -> CodeEvent | None:
    """An event of a run as an object; None for what only the outcome contains."""
    match event.WhichOneof("event"):
        case "value":
            display = Display.of(event.value)
            display.is_value = True
            return display
        case "display":
            return Display.of(event.display)
        case "error":
            return CodeException.of(event.error)
        case "log":
            return CodeLog.of(event.log)
        case "note":
            return CodeNote(event.note)
        case "step":
            return DebugStep.of(event.step, stdout="", stderr="")
    return None


_OUTPUT: tuple[StreamName, StreamName] = ("stdout", "stderr")


def _other(event: exec_pb2.ExecEvent) -> CodeEvent | None:
    if event.HasField("code"):
        return reported(event.code)
    gap = event.dropped
    if gap.stream == exec_pb2.OUTPUT_STREAM_EVENTS:
        return CodeNote("Events of this run are no longer kept and were left out.")
    is_stderr = gap.stream == exec_pb2.OUTPUT_STREAM_STDERR
    return OutputGap("stderr" if is_stderr else "stdout", gap.offset, gap.bytes)
