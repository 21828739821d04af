"""What a client of the API does, with the generated stubs and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from sandboxd_proto.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    code_service_pb2_grpc,
    environment_service_pb2_grpc,
    exec_pb2,
    exec_service_pb2,
    exec_service_pb2_grpc,
    file_service_pb2_grpc,
    project_service_pb2_grpc,
    session_pb2,
    session_service_pb2,
    session_service_pb2_grpc,
)

ExecCall = aio.UnaryStreamCall[exec_service_pb2.ExecRequest, exec_service_pb2.ExecResponse]
AnyMessage = TypeVar("AnyMessage", bound=Message)


def duration(seconds: float) -> Duration:
    whole = int(seconds)
    return Duration(seconds=whole, nanos=round((seconds - whole) * 1e9))


def exec_request(
    session_id: str, shell: str | None = None, **fields: Any
) -> exec_service_pb2.ExecRequest:
    """A request to run a line; timeouts may be in seconds, `argv` is a list."""
    for name in ("timeout", "no_output_timeout"):
        if isinstance(fields.get(name), float | int):
            fields[name] = duration(fields[name])
    if "argv" in fields:
        fields["argv"] = exec_service_pb2.Argv(args=fields["argv"])
    elif shell is not None:
        fields["shell"] = shell
    return exec_service_pb2.ExecRequest(session_id=session_id, **fields)


class Api:
    """A channel to a daemon with its stubs; use as a context manager."""

    def __init__(self, socket: Path) -> None:
        self.channel = aio.insecure_channel(
            f"unix:{socket}",
            options=[
                ("grpc.max_send_message_length", -1),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        self.sessions = session_service_pb2_grpc.SessionServiceStub(self.channel)
        self.execs = exec_service_pb2_grpc.ExecServiceStub(self.channel)
        self.code = code_service_pb2_grpc.CodeServiceStub(self.channel)
        self.files = file_service_pb2_grpc.FileServiceStub(self.channel)
        self.projects = project_service_pb2_grpc.ProjectServiceStub(self.channel)
        self.environments = environment_service_pb2_grpc.EnvironmentServiceStub(self.channel)
        self.admin = admin_service_pb2_grpc.AdminServiceStub(self.channel)

    async def __aenter__(self) -> Api:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    async def open(
        self, user: str = "ada", thread: str = "t1", **fields: Any
    ) -> session_service_pb2.OpenSessionResponse:
        if isinstance(fields.get("idle_timeout"), float | int):
            fields["idle_timeout"] = duration(fields["idle_timeout"])
        return await self.sessions.OpenSession(
            session_service_pb2.OpenSessionRequest(user_id=user, thread_id=thread, **fields)
        )

    async def open_id(self, user: str = "ada", thread: str = "t1") -> str:
        return (await self.open(user, thread)).session.session_id

    async def get(self, session_id: str) -> session_pb2.Session:
        request = session_service_pb2.GetSessionRequest(session_id=session_id)
        return (await self.sessions.GetSession(request)).session

    async def touch(self, session_id: str) -> session_pb2.Session:
        request = session_service_pb2.TouchSessionRequest(session_id=session_id)
        return (await self.sessions.TouchSession(request)).session

    async def close(self, session_id: str) -> session_pb2.Session:
        request = session_service_pb2.CloseSessionRequest(session_id=session_id)
        return (await self.sessions.CloseSession(request)).session

    async def reset(self, session_id: str, **fields: Any) -> session_pb2.Session:
        request = session_service_pb2.ResetSessionRequest(session_id=session_id, **fields)
        return (await self.sessions.ResetSession(request)).session

    async def update(self, session_id: str, **fields: Any) -> session_pb2.Session:
        if isinstance(fields.get("idle_timeout"), float | int):
            fields["idle_timeout"] = duration(fields["idle_timeout"])
        request = session_service_pb2.UpdateSessionRequest(session_id=session_id, **fields)
        return (await self.sessions.UpdateSession(request)).session

    async def list(self, **fields: Any) -> session_service_pb2.ListSessionsResponse:
        return await self.sessions.ListSessions(session_service_pb2.ListSessionsRequest(**fields))

    def run(self, session_id: str, shell: str | None = None, **fields: Any) -> Any:
        return self.execs.Run(exec_request(session_id, shell, **fields))

    def exec(self, session_id: str, shell: str | None = None, **fields: Any) -> ExecCall:
        return self.execs.Exec(exec_request(session_id, shell, **fields))

    async def start(
        self, session_id: str, shell: str, exec_id: str = "", **fields: Any
    ) -> exec_service_pb2.StartExecResponse:
        request = exec_request(session_id, shell, exec_id=exec_id, **fields)
        return await self.execs.StartExec(request)

    def attach(self, session_id: str, exec_id: str, **offsets: int) -> ExecCall:
        return self.execs.AttachExec(
            exec_service_pb2.AttachExecRequest(session_id=session_id, exec_id=exec_id, **offsets)
        )

    async def wait(
        self, session_id: str, exec_id: str, timeout: float | None = None
    ) -> exec_pb2.Exec:
        request = exec_service_pb2.WaitExecRequest(session_id=session_id, exec_id=exec_id)
        if timeout is not None:
            request.timeout.CopyFrom(duration(timeout))
        return (await self.execs.WaitExec(request)).exec

    async def list_execs(
        self, session_id: str, **fields: Any
    ) -> exec_service_pb2.ListExecsResponse:
        return await self.execs.ListExecs(
            exec_service_pb2.ListExecsRequest(session_id=session_id, **fields)
        )

    async def signal(self, session_id: str, exec_id: str, number: int, **fields: Any) -> None:
        await self.execs.SignalExec(
            exec_service_pb2.SignalExecRequest(
                session_id=session_id, exec_id=exec_id, signal=number, **fields
            )
        )

    async def write(
        self, session_id: str, exec_id: str, offset: int, data: bytes, **fields: Any
    ) -> int:
        request = exec_service_pb2.WriteStdinRequest(
            session_id=session_id, exec_id=exec_id, offset=offset, data=data, **fields
        )
        return (await self.execs.WriteStdin(request)).next_offset

    async def resize(self, session_id: str, exec_id: str, rows: int, columns: int) -> None:
        size = exec_pb2.Terminal(rows=rows, columns=columns)
        await self.execs.ResizeExec(
            exec_service_pb2.ResizeExecRequest(
                session_id=session_id, exec_id=exec_id, terminal=size
            )
        )

    async def read(
        self, session_id: str, exec_id: str, **fields: Any
    ) -> exec_service_pb2.ReadOutputResponse:
        return await self.execs.ReadOutput(
            exec_service_pb2.ReadOutputRequest(session_id=session_id, exec_id=exec_id, **fields)
        )

    async def search(
        self, session_id: str, exec_id: str, pattern: str, **fields: Any
    ) -> exec_service_pb2.SearchOutputResponse:
        return await self.execs.SearchOutput(
            exec_service_pb2.SearchOutputRequest(
                session_id=session_id, exec_id=exec_id, pattern=pattern, **fields
            )
        )

    async def preview(
        self, session_id: str, exec_id: str, **fields: Any
    ) -> exec_service_pb2.PreviewOutputResponse:
        return await self.execs.PreviewOutput(
            exec_service_pb2.PreviewOutputRequest(session_id=session_id, exec_id=exec_id, **fields)
        )

    async def status(self) -> admin_service_pb2.GetStatusResponse:
        return await self.admin.GetStatus(admin_service_pb2.GetStatusRequest())

    async def statistics(self, **fields: Any) -> admin_service_pb2.GetStatisticsResponse:
        return await self.admin.GetStatistics(admin_service_pb2.GetStatisticsRequest(**fields))

    async def executions(
        self, session_id: str, **fields: Any
    ) -> exec_service_pb2.ListExecutionsResponse:
        return await self.execs.ListExecutions(
            exec_service_pb2.ListExecutionsRequest(session_id=session_id, **fields)
        )


async def events(call: ExecCall) -> AsyncIterator[exec_pb2.ExecEvent]:
    """What is left of a stream, event by event."""
    while (response := await call.read()) is not aio.EOF:
        for event in response.events:
            yield event


async def stdout_of(call: ExecCall) -> tuple[bytes, exec_pb2.ExitStatus]:
    """Standard output of the rest of a stream, and the end."""
    seen = [event async for event in events(call)]
    assert seen[-1].WhichOneof("event") == "exited"
    return b"".join(event.stdout.data for event in seen), seen[-1].exited


@dataclass
class Refusal:
    """A failed call, as its client can read it."""

    error: aio.AioRpcError | None = None

    @property
    def message(self) -> str:
        assert self.error is not None
        return self.error.details() or ""

    @property
    def info(self) -> error_details_pb2.ErrorInfo:
        found = self.detail(error_details_pb2.ErrorInfo)
        assert found is not None, f"no ErrorInfo: {self.error}"
        return found

    def detail(self, kind: type[AnyMessage]) -> AnyMessage | None:
        """The detail of this kind, or None."""
        assert self.error is not None
        metadata = dict(self.error.trailing_metadata() or ())
        status = status_pb2.Status.FromString(metadata.get("grpc-status-details-bin", b""))
        for packed in status.details:
            message = kind()
            if packed.Unpack(message):
                return message
        return None


@contextmanager
def refused(code: grpc.StatusCode, reason: str) -> Iterator[Refusal]:
    """The block must fail with this status and reason, and with a sentence for the caller."""
    refusal = Refusal()
    with pytest.raises(aio.AioRpcError) as caught:
        yield refusal
    refusal.error = caught.value
    assert (caught.value.code(), refusal.info.reason) == (code, reason), refusal.message
    assert refusal.info.domain == "sandboxd"
    assert refusal.message
