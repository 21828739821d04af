"""Short ways to run a command in a test."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from google.protobuf.duration_pb2 import Duration

from sandboxd_proto.v1 import exec_pb2, exec_service_pb2
from tests.docker.daemon_process import Api


@dataclass
class Streamed:
    """Everything an Exec stream carried."""

    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)
    messages: int = 0
    started: int = 0
    exits: list[exec_pb2.ExitStatus] = field(default_factory=list)

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
                buffer = self.stdout if kind == "stdout" else self.stderr
                chunk = event.stdout if kind == "stdout" else event.stderr
                assert chunk.offset == len(buffer), "a gap or a repetition"
                buffer += chunk.data

    @property
    def exit(self) -> exec_pb2.ExitStatus:
        (status,) = self.exits
        return status


def exec_request(
    session_id: str, command: str | list[str], *, timeout: float | None = None, **fields: Any
) -> exec_service_pb2.ExecRequest:
    request = exec_service_pb2.ExecRequest(session_id=session_id, **fields)
    if isinstance(command, str):
        request.shell = command
    else:
        request.argv.args.extend(command)
    if timeout is not None:
        request.timeout.CopyFrom(Duration(seconds=int(timeout), nanos=int(timeout % 1 * 1e9)))
    return request


async def run(
    api: Api, session_id: str, command: str | list[str], **fields: Any
) -> exec_service_pb2.RunResponse:
    return await api.execs.Run(exec_request(session_id, command, **fields), timeout=60)


async def stream(api: Api, session_id: str, command: str | list[str], **fields: Any) -> Streamed:
    streamed = Streamed()
    async for message in api.execs.Exec(exec_request(session_id, command, **fields), timeout=120):
        streamed.add(message)
    return streamed
