"""The call behind a debugger: commands out, steps and answers in."""

from __future__ import annotations

import asyncio
import codecs
import secrets
from collections import deque
from collections.abc import AsyncIterator
from contextlib import aclosing

from sandboxd_client.debug_results import DebugStep
from sandboxd_client.errors import (
    CallTimeoutError,
    ConnectionLostError,
    DebuggerError,
    SandboxError,
)
from sandboxd_client.methods.code import DEBUG_CODE
from sandboxd_client.results import StreamName
from sandboxd_client.session import SessionHold
from sandboxd_client.step_output import StepOutput
from sandboxd_proto.v1 import code_pb2, exec_pb2
from sandboxd_proto.v1 import code_service_pb2 as pb

MAX_COMMANDS = 100
"""Commands that wait to be sent."""
MAX_PIECES = 1000
"""Pieces of output that wait for the caller; the oldest are left out, but not from the steps."""


class DebugCall:
    """Reads a debugged run in the background and remembers where it stopped."""

    def __init__(
        self,
        hold: SessionHold,
        opening: pb.DebugCodeRequest,
        *,
        timeout: float | None,
    ) -> None:
        self._hold = hold
        self._opening = opening
        self._timeout = timeout
        self._output = StepOutput()
        self._is_catching_up = opening.HasField("attach")
        self._last_known: DebugStep | None = None
        self._commands: asyncio.Queue[pb.DebugCodeRequest] = asyncio.Queue(MAX_COMMANDS)
        self._answers: dict[int, asyncio.Future[code_pb2.DebugAnswer]] = {}
        # Answers to the commands of an earlier client are repeated to one that attaches.
        self._last_command = secrets.randbits(40) << 8 if self._is_catching_up else 0
        self._decoders = {
            name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")
        }
        self._news = asyncio.Event()
        self._failure: SandboxError | None = None
        self.pieces: deque[tuple[StreamName, str]] = deque(maxlen=MAX_PIECES)
        """Output that the caller has not taken yet."""
        self.step: DebugStep | None = None
        """Where the run stopped; None while it runs."""
        self.has_ended = False
        self._reading = asyncio.create_task(self._read(), name="debugger")

    async def news(self) -> None:
        """Wait for output, a stop or the end; raise if the call failed."""
        if self._failure is not None:
            raise self._failure
        await self._news.wait()
        self._news.clear()

    async def send(self, request: pb.DebugCodeRequest) -> asyncio.Future[code_pb2.DebugAnswer]:
        """Send a command; the answer settles the future. The end of the run cancels it."""
        self._last_command += 1
        request.command = self._last_command
        answer: asyncio.Future[code_pb2.DebugAnswer] = asyncio.get_running_loop().create_future()
        self._answers[request.command] = answer
        if self._reading.done():
            answer.cancel()
        else:
            await self._commands.put(request)
        return answer

    async def ask(self, request: pb.DebugCodeRequest) -> code_pb2.DebugAnswer:
        """Send a command and wait for its answer."""
        answer = await self.send(request)
        seconds = self._hold.connection.timeouts.call
        await asyncio.wait([answer], timeout=seconds)
        if not answer.done():
            raise CallTimeoutError(f"The debugger did not answer within {seconds:g} s.")
        if answer.cancelled():
            raise self._failure or DebuggerError("The run has ended.")
        found = answer.result()
        # What an expression raises is a result of its evaluation.
        if found.HasField("failure") and not found.HasField("error"):
            raise DebuggerError(found.failure)
        return found

    async def catch_up(self) -> None:
        """Take what happened before, and find out whether the run is stopped now."""
        try:
            await self.ask(pb.DebugCodeRequest(stack=pb.GetDebugStack(max_frames=1)))
        except DebuggerError:
            return  # it runs, or has ended
        self.step = self.step or self._last_known

    async def aclose(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _requests(self) -> AsyncIterator[pb.DebugCodeRequest]:
        yield self._opening
        while True:
            yield await self._commands.get()

    async def _read(self) -> None:
        requests = self._requests()
        responses = self._hold.connection.converse(
            DEBUG_CODE, requests, timeout=self._timeout, session_id=self._hold.id
        )
        try:
            async with aclosing(responses):
                async for response in responses:
                    for event in response.events:
                        self._take(event)
            if not self.has_ended:
                self._failure = ConnectionLostError(
                    "The call of the debugger was interrupted before the end of the run."
                )
        except SandboxError as error:
            self._failure = None if self.has_ended else error
        finally:
            for answer in self._answers.values():
                answer.cancel()
            self._news.set()

    def _take(self, event: exec_pb2.ExecEvent) -> None:
        self._output.add(event)
        match event.WhichOneof("event"):
            case "stdout":
                self._add_piece("stdout", event.stdout.data)
            case "stderr":
                self._add_piece("stderr", event.stderr.data)
            case "exited":
                self.has_ended, self.step = True, None
            case "code" if event.code.HasField("step"):
                self._stop(self._output.step(event.code.step))
            case "code" if event.code.HasField("answer"):
                answer = self._answers.pop(event.code.answer.command, None)
                self._is_catching_up = self._is_catching_up and answer is None
                if answer is not None and not answer.done():
                    answer.set_result(event.code.answer)
        self._news.set()

    def _stop(self, step: DebugStep) -> None:
        if self._is_catching_up:
            self._last_known = step
        else:
            self.step = step

    def _add_piece(self, name: StreamName, data: bytes) -> None:
        if text := self._decoders[name].decode(data):
            self.pieces.append((name, text))
