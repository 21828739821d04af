"""Short ways to run a command in a test, to look at it and to act on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from sandboxd_proto.v1 import exec_pb2, exec_service_pb2, session_service_pb2
from tests.docker.daemon_process import Api

CALL_SECONDS = 100
"""Deadline of calls that answer once."""


@dataclass
class Streamed:
    """Everything an Exec stream carried."""

    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    messages: int = 0
    started: int = 0
    exits: list[exec_pb2.ExitStatus] = field(default_factory=list)
    gaps: list[exec_pb2.OutputGap] = field(default_factory=list)

    def add(self, message: exec_service_pb2.ExecResponse) -> None:
        self.messages += 1
        for event in message.events:
            assert not self.exits, "an event after the last one"
            kind = event.WhichOneof("event")
            if kind == "started":
                assert not self.started
                self.started += 1
            elif kind == "exited":
                self.exits.append(event.exited)
            else:
                assert self.started, "output before `started`"
                self._add_output(event)

    def _add_output(self, event: exec_pb2.ExecEvent) -> None:
        if event.HasField("dropped"):
            assert event.dropped.offset == self.position(event.dropped.stream)
            self.gaps.append(event.dropped)
        elif event.HasField("stdout"):
            assert event.stdout.offset == self.position(exec_pb2.OUTPUT_STREAM_STDOUT)
            self.stdout += event.stdout.data
        else:
            assert event.stderr.offset == self.position(exec_pb2.OUTPUT_STREAM_STDERR)
            self.stderr += event.stderr.data

    def position(self, stream: exec_pb2.OutputStream.ValueType) -> int:
        """Where the next byte of a stream has to be: no gap that was not told, no repetition."""
        is_stdout = stream == exec_pb2.OUTPUT_STREAM_STDOUT
        received = len(self.stdout if is_stdout else self.stderr)
        return received + sum(gap.bytes for gap in self.gaps if gap.stream == stream)

    @property
    def exit(self) -> exec_pb2.ExitStatus:
        (status,) = self.exits
        return status


def duration(seconds: float) -> Duration:
    return Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))


def exec_request(
    session_id: str,
    command: str | list[str],
    *,
    timeout: float | None = None,
    no_output_timeout: float | None = None,
    **fields: Any,
) -> exec_service_pb2.ExecRequest:
    request = exec_service_pb2.ExecRequest(session_id=session_id, **fields)
    if isinstance(command, str):
        request.shell = command
    else:
        request.argv.args.extend(command)
    if timeout is not None:
        request.timeout.CopyFrom(duration(timeout))
    if no_output_timeout is not None:
        request.no_output_timeout.CopyFrom(duration(no_output_timeout))
    return request


async def run(
    api: Api, session_id: str, command: str | list[str], **fields: Any
) -> exec_service_pb2.RunResponse:
    """On a busy host a session may take longer to return to a daemon that was restarted than a
    call waits: it is repeated then, as clients do."""
    request = exec_request(session_id, command, **fields)
    give_up_at = time.monotonic() + CALL_SECONDS
    while True:
        try:
            return await api.execs.Run(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            if not is_returning(error) or time.monotonic() > give_up_at:
                raise
            await asyncio.sleep(0.1)


def is_returning(error: grpc.aio.AioRpcError) -> bool:
    status = rpc_status.from_call(error)
    info = error_details_pb2.ErrorInfo()
    details = status.details if status is not None else ()
    return any(detail.Unpack(info) and info.reason == "SESSION_RETURNING" for detail in details)


async def stream(api: Api, session_id: str, command: str | list[str], **fields: Any) -> Streamed:
    streamed = Streamed()
    async for message in api.execs.Exec(exec_request(session_id, command, **fields), timeout=120):
        streamed.add(message)
    return streamed


async def start(
    api: Api, session_id: str, command: str | list[str], **fields: Any
) -> exec_pb2.Exec:
    """Start a command that nobody waits for."""
    request = exec_request(session_id, command, **fields)
    return (await api.execs.StartExec(request, timeout=CALL_SECONDS)).exec


def attach_request(
    session_id: str, exec_id: str, *, stdout: int = 0, stderr: int = 0
) -> exec_service_pb2.AttachExecRequest:
    return exec_service_pb2.AttachExecRequest(
        session_id=session_id, exec_id=exec_id, stdout_offset=stdout, stderr_offset=stderr
    )


async def attach(api: Api, session_id: str, exec_id: str) -> Streamed:
    """Everything of an exec, to its end."""
    streamed = Streamed()
    request = attach_request(session_id, exec_id)
    async for message in api.execs.AttachExec(request, timeout=CALL_SECONDS):
        streamed.add(message)
    return streamed


async def wait(
    api: Api, session_id: str, exec_id: str, *, timeout: float | None = None
) -> exec_pb2.Exec:
    request = exec_service_pb2.WaitExecRequest(session_id=session_id, exec_id=exec_id)
    if timeout is not None:
        request.timeout.CopyFrom(duration(timeout))
    return (await api.execs.WaitExec(request, timeout=CALL_SECONDS)).exec


async def list_execs(api: Api, session_id: str) -> dict[str, exec_pb2.Exec]:
    """The execs of a session by id, newest first."""
    request = exec_service_pb2.ListExecsRequest(session_id=session_id)
    answer = await api.execs.ListExecs(request, timeout=CALL_SECONDS)
    return {execution.exec_id: execution for execution in answer.execs}


async def send_signal(
    api: Api,
    session_id: str,
    exec_id: str,
    number: int,
    target: exec_service_pb2.SignalTarget.ValueType = exec_service_pb2.SIGNAL_TARGET_GROUP,
) -> None:
    request = exec_service_pb2.SignalExecRequest(
        session_id=session_id, exec_id=exec_id, signal=number, target=target
    )
    await api.execs.SignalExec(request, timeout=CALL_SECONDS)


async def write(
    api: Api, session_id: str, exec_id: str, offset: int, data: bytes = b"", **fields: bool
) -> int:
    """Write to standard input; returns where the next byte goes."""
    request = exec_service_pb2.WriteStdinRequest(
        session_id=session_id, exec_id=exec_id, offset=offset, data=data, **fields
    )
    return (await api.execs.WriteStdin(request, timeout=CALL_SECONDS)).next_offset


async def read_output(
    api: Api, session_id: str, exec_id: str, **fields: Any
) -> exec_service_pb2.ReadOutputResponse:
    request = exec_service_pb2.ReadOutputRequest(session_id=session_id, exec_id=exec_id, **fields)
    return await api.execs.ReadOutput(request, timeout=CALL_SECONDS)


async def close_session(api: Api, session_id: str) -> None:
    request = session_service_pb2.CloseSessionRequest(session_id=session_id)
    await api.sessions.CloseSession(request, timeout=CALL_SECONDS)


def host_processes(word: str) -> list[int]:
    """Processes of this machine that have this as one of their arguments, in any container."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:  # it ended meanwhile
                continue
            if word.encode() in words:
                found.append(int(entry.name))
    return found


class Watched:
    """A running exec whose output is watched as it comes."""

    def __init__(self, api: Api, session_id: str, exec_id: str) -> None:
        self.streamed = Streamed()
        self._api = api
        self._session_id = session_id
        self._exec_id = exec_id
        self._typed = 0
        self._looked_at = 0
        self._call = api.execs.AttachExec(attach_request(session_id, exec_id), timeout=60)

    async def type(self, text: str) -> None:
        data = text.encode()
        offset, self._typed = self._typed, self._typed + len(data)
        await write(self._api, self._session_id, self._exec_id, offset, data)

    async def shows(self, text: str, *, seconds: float = 15) -> str:
        """Wait for `text` in what was written since the last look; returns what it looked at."""
        wanted = text.encode()
        try:
            async with asyncio.timeout(seconds):
                while wanted not in self.streamed.stdout[self._looked_at :]:
                    await self.read()
        except TimeoutError:
            raise AssertionError(f"no {text!r} in {bytes(self.streamed.stdout)!r}") from None
        end = self.streamed.stdout.index(wanted, self._looked_at) + len(wanted)
        seen = bytes(self.streamed.stdout[self._looked_at : end])
        self._looked_at = end
        return seen.decode(errors="replace")

    async def read(self) -> None:
        message = await self._call.read()
        assert isinstance(message, exec_service_pb2.ExecResponse), (
            f"it ended: {bytes(self.streamed.stdout)!r} {self.streamed.exits}"
        )
        self.streamed.add(message)

    async def ends(self, *, seconds: float = 15) -> exec_pb2.ExitStatus:
        async with asyncio.timeout(seconds):
            while not self.streamed.exits:
                await self.read()
        return self.streamed.exit

    def leave(self) -> None:
        self._call.cancel()


@asynccontextmanager
async def watching(api: Api, session_id: str, exec_id: str) -> AsyncIterator[Watched]:
    watched = Watched(api, session_id, exec_id)
    try:
        yield watched
    finally:
        watched.leave()
