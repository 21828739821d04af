"""Runs of code as a scripted daemon answers them, and a debugger that is played."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from sandboxd_client import AsyncSandbox
from sandboxd_proto.v1 import code_pb2, exec_pb2
from sandboxd_proto.v1 import code_service_pb2 as pb
from tests.sdk.scripted import Answer, Scripted, batch, exited, hold_on, stdout

OK = pb.CODE_STATUS_OK


def ran(**fields: Any) -> pb.RunCodeResponse:
    """An ended run."""
    context = pb.Context(name="main", generation=1, state=pb.CONTEXT_STATE_IDLE, runs=1)
    whole = {"exec_id": "e1", "status": OK, "context": context, "exit": exited().exited, **fields}
    return pb.RunCodeResponse(**whole)


def sandbox_on(**answers: list[Answer]) -> tuple[AsyncSandbox, Scripted]:
    transport = Scripted(answers)
    return AsyncSandbox(hold_on(transport)), transport


def event(offset: int, **fields: Any) -> exec_pb2.ExecEvent:
    code = code_pb2.CodeEvent(offset=offset, next_offset=offset + 10, **fields)
    return exec_pb2.ExecEvent(code=code)


def display(**parts: bytes) -> code_pb2.Display:
    types = {"text": "text/plain", "html": "text/html", "png": "image/png"}
    data = [code_pb2.DisplayData(media_type=types[k], data=v) for k, v in parts.items()]
    return code_pb2.Display(data=data)


def step(number: int, line: int, written: int = 0) -> code_pb2.DebugStep:
    return code_pb2.DebugStep(
        number=number,
        line=line,
        reason=code_pb2.STOP_REASON_STEP,
        stdout_offset=written,
        changed=[code_pb2.Variable(name="x", value=str(line), type="int")],
    )


class Peer:
    """Plays a debugger: stops at each of so many lines, and answers."""

    def __init__(self, lines: int, *, history: int = 0, is_running: bool = False) -> None:
        self.lines, self.line, self.is_running = lines, 1, is_running
        self._history = history
        self._offset = 0

    async def __call__(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        async for request in requests:
            for response in self._answers(request):
                yield response
                if response.events[-1].HasField("exited"):
                    return

    def _answers(self, request: pb.DebugCodeRequest) -> list[Any]:
        kind = request.WhichOneof("request")
        answer: list[Any] = getattr(self, f"_{kind}")(request)
        return answer

    def _start(self, request: pb.DebugCodeRequest) -> list[Any]:
        begun = batch(exec_pb2.ExecEvent(started=exec_pb2.ExecStarted(exec_id="e1")))
        return [begun] if request.start.run_to_breakpoint else [begun, self._stop()]

    def _attach(self, _: pb.DebugCodeRequest) -> list[Any]:
        replayed = [batch(exec_pb2.ExecEvent(started=exec_pb2.ExecStarted(exec_id="e1")))]
        for number in range(1, self._history + 1):
            self.line = number
            replayed += [self._stop(), self._answer(number, accepted=code_pb2.DebugAccepted())]
        return replayed

    def _resume(self, _: pb.DebugCodeRequest) -> list[Any]:
        if self.line >= self.lines:
            return [batch(exited())]
        self.line += 1
        text = f"line {self.line - 1}\n".encode()
        self.is_running = False
        return [batch(stdout(7 * (self.line - 2), text)), self._stop()]

    def _pause(self, _: pb.DebugCodeRequest) -> list[Any]:
        return [self._stop()]

    def _quit(self, _: pb.DebugCodeRequest) -> list[Any]:
        return [batch(exited())]

    def _set_breakpoint(self, request: pb.DebugCodeRequest) -> list[Any]:
        found = code_pb2.Breakpoint(id=7, line=request.set_breakpoint.line + 1)
        return [self._answer(request.command, breakpoint=found)]

    def _clear_breakpoint(self, request: pb.DebugCodeRequest) -> list[Any]:
        return [self._answer(request.command, accepted=code_pb2.DebugAccepted())]

    def _stack(self, request: pb.DebugCodeRequest) -> list[Any]:
        if self.is_running:
            return [self._answer(request.command, failure="it is not stopped")]
        frame = code_pb2.CodeFrame(line=self.line, function="<module>")
        return [self._answer(request.command, stack=code_pb2.DebugStack(frames=[frame]))]

    def _variables(self, request: pb.DebugCodeRequest) -> list[Any]:
        found = code_pb2.DebugVariables(variables=[code_pb2.Variable(name="x")])
        return [self._answer(request.command, variables=found)]

    def _evaluate(self, request: pb.DebugCodeRequest) -> list[Any]:
        if request.evaluate.expression == "bad":
            return [self._answer(request.command, failure="no such frame")]
        value = code_pb2.Variable(type="int", value="42")
        return [self._answer(request.command, value=value)]

    def _stop(self) -> Any:
        return self._event(step=step(self.line, self.line, written=7 * (self.line - 1)))

    def _answer(self, command: int, **fields: Any) -> Any:
        return self._event(answer=code_pb2.DebugAnswer(command=command, **fields))

    def _event(self, **fields: Any) -> Any:
        self._offset += 10
        return batch(event(self._offset, **fields))
