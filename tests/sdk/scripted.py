"""A transport that answers as a test says, and tells what it was asked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sandboxd_client.call_metadata import RETRY, Metadata
from sandboxd_client.connection import Connection
from sandboxd_client.errors import SandboxError
from sandboxd_client.methods import Method
from sandboxd_client.results import SessionInfo
from sandboxd_client.session import SessionHold
from sandboxd_client.settings import Timeouts
from sandboxd_proto.v1 import exec_pb2, exec_service_pb2, session_pb2

Answer = Any
"""A message, an error to raise, or for a stream a list of those."""
TIMEOUTS = Timeouts(reconnect=0.5)


@dataclass
class Scripted:
    """Answers calls of each method one after the other; the last answer holds from then on."""

    answers: dict[str, list[Answer]]
    can_come_back: bool = True
    asked: list[tuple[str, Any]] = field(default_factory=list)
    metadata: list[tuple[str, Metadata]] = field(default_factory=list)
    """What came along with the calls, by method."""
    left: int = 0
    """Streams that were left before their end."""

    async def start(self) -> None:
        pass

    async def ready(self, timeout: float, session_id: str = "") -> None:
        pass

    async def call(
        self,
        method: Method[Any, Any],
        request: Any,
        *,
        timeout: float,
        metadata: Metadata = (),
    ) -> Any:
        answer = self._next(method, request, metadata)
        if isinstance(answer, SandboxError):
            raise answer
        return answer

    async def stream(
        self,
        method: Method[Any, Any],
        request: Any,
        *,
        timeout: float | None,
        metadata: Metadata = (),
    ) -> AsyncGenerator[Any, None]:
        for answer in self._next(method, request, metadata):
            if isinstance(answer, SandboxError):
                raise answer
            try:
                yield answer
            except GeneratorExit:
                self.left += 1
                raise

    async def send(
        self,
        method: Method[Any, Any],
        requests: AsyncIterator[Any],
        *,
        timeout: float,
        metadata: Metadata = (),
        session_id: str = "",
    ) -> Any:
        sent = [request async for request in requests]
        answer = self._next(method, sent, metadata)
        if isinstance(answer, SandboxError):
            raise answer
        return answer(sent) if isinstance(answer, Callable) else answer  # type: ignore[arg-type]

    async def converse(
        self,
        method: Method[Any, Any],
        requests: AsyncIterator[Any],
        *,
        timeout: float | None,
        metadata: Metadata = (),
        session_id: str = "",
    ) -> AsyncGenerator[Any, None]:
        """The answer is a function from the requests to the responses."""
        peer = self._next(method, None, metadata)

        async def noted() -> AsyncIterator[Any]:
            async for request in requests:
                self.asked.append((method.name, request))
                yield request

        try:
            async for response in peer(noted()):
                if isinstance(response, SandboxError):
                    raise response
                yield response
        finally:
            self.left += 1

    async def aclose(self) -> None:
        pass

    def requests(self, method: Method[Any, Any]) -> list[Any]:
        return [request for name, request in self.asked if name == method.name]

    def tries(self, method: Method[Any, Any]) -> list[str]:
        """Which try each call said to be; empty for a first one."""
        return [dict(told).get(RETRY, "") for name, told in self.metadata if name == method.name]

    def _next(self, method: Method[Any, Any], request: Any, metadata: Metadata) -> Answer:
        # A copy: a caller may change it for another try.
        copied = (
            type(request).FromString(request.SerializeToString())
            if _is_message(request)
            else request
        )
        self.asked.append((method.name, copied))
        self.metadata.append((method.name, metadata))
        answers = self.answers[method.name]
        return answers.pop(0) if len(answers) > 1 else answers[0]


def _is_message(request: Any) -> bool:
    return hasattr(request, "SerializeToString")


def hold_on(transport: Scripted) -> SessionHold:
    session = session_pb2.Session(
        session_id="ses_1", incarnation=3, state=session_pb2.SESSION_STATE_ACTIVE
    )
    session.workspace_dir = "/workspace"
    session.limits.default_exec_timeout.FromSeconds(30)
    return SessionHold(Connection(transport, TIMEOUTS), SessionInfo.of(session))


def started(exec_id: str = "e1", *, queued: bool = False) -> exec_service_pb2.StartExecResponse:
    state = exec_pb2.EXEC_STATE_QUEUED if queued else exec_pb2.EXEC_STATE_RUNNING
    return exec_service_pb2.StartExecResponse(exec=exec_pb2.Exec(exec_id=exec_id, state=state))


def batch(*events: exec_pb2.ExecEvent) -> exec_service_pb2.ExecResponse:
    return exec_service_pb2.ExecResponse(events=events)


def stdout(offset: int, data: bytes) -> exec_pb2.ExecEvent:
    return exec_pb2.ExecEvent(stdout=exec_pb2.OutputChunk(offset=offset, data=data))


def stderr(offset: int, data: bytes) -> exec_pb2.ExecEvent:
    return exec_pb2.ExecEvent(stderr=exec_pb2.OutputChunk(offset=offset, data=data))


def dropped(offset: int, count: int) -> exec_pb2.ExecEvent:
    gap = exec_pb2.OutputGap(stream=exec_pb2.OUTPUT_STREAM_STDOUT, offset=offset, bytes=count)
    return exec_pb2.ExecEvent(dropped=gap)


def exited(code: int = 0) -> exec_pb2.ExecEvent:
    status = exec_pb2.ExitStatus(code=code, reason=exec_pb2.EXIT_REASON_EXITED)
    return exec_pb2.ExecEvent(exited=status)


def offsets(requests: Sequence[exec_service_pb2.AttachExecRequest]) -> list[tuple[int, int]]:
    return [(one.stdout_offset, one.stderr_offset) for one in requests]
