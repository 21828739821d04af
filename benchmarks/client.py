"""Clients of the benchmark for the API of a daemon."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, cast

import grpc
from grpc import aio

from sandboxd_proto.v1 import (
    admin_service_pb2,
    admin_service_pb2_grpc,
    exec_service_pb2,
    exec_service_pb2_grpc,
    session_service_pb2,
    session_service_pb2_grpc,
)

if TYPE_CHECKING:
    # These exist only for type checkers: at run time one stub serves both kinds of channel.
    from sandboxd_proto.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from sandboxd_proto.v1.exec_service_pb2_grpc import ExecServiceAsyncStub
    from sandboxd_proto.v1.session_service_pb2_grpc import SessionServiceAsyncStub


class CommandFailed(Exception):
    """A command of the benchmark did not exit with 0; its figures would be worthless."""


class Client:
    """An asyncio client on one channel."""

    def __init__(self, target: str) -> None:
        self._channel = aio.insecure_channel(target)
        self._admin = cast(
            "AdminServiceAsyncStub", admin_service_pb2_grpc.AdminServiceStub(self._channel)
        )
        self._execs = cast(
            "ExecServiceAsyncStub", exec_service_pb2_grpc.ExecServiceStub(self._channel)
        )
        self._sessions = cast(
            "SessionServiceAsyncStub", session_service_pb2_grpc.SessionServiceStub(self._channel)
        )

    async def close(self) -> None:
        await self._channel.close()

    async def status(self) -> admin_service_pb2.GetStatusResponse:
        return await self._admin.GetStatus(admin_service_pb2.GetStatusRequest())

    async def open(self, thread: str) -> str:
        """Id of the session of a thread."""
        request = session_service_pb2.OpenSessionRequest(user_id="bench", thread_id=thread)
        return (await self._sessions.OpenSession(request)).session.session_id

    async def end(self, session: str) -> None:
        """Close a session."""
        await self._sessions.CloseSession(
            session_service_pb2.CloseSessionRequest(session_id=session)
        )

    async def console_link(self) -> str:
        """A link that logs in to the web console."""
        request = session_service_pb2.CreateConsoleLinkRequest()
        return (await self._sessions.CreateConsoleLink(request)).url

    async def run(self, session: str, command: str) -> float:
        """Seconds of a Run."""
        request = exec_service_pb2.ExecRequest(session_id=session, shell=command)
        began = time.perf_counter()
        response = await self._execs.Run(request)
        seconds = time.perf_counter() - began
        _check(command, response.exit.code)
        return seconds

    async def exec(self, session: str, command: str) -> float:
        """Seconds of an Exec until the exit of the command."""
        request = exec_service_pb2.ExecRequest(session_id=session, shell=command)
        began = time.perf_counter()
        seconds = 0.0
        async for response in self._execs.Exec(request):
            last = response.events[-1]
            if last.HasField("exited"):
                seconds = time.perf_counter() - began
                _check(command, last.exited.code)
        if not seconds:
            raise CommandFailed(f"the stream of {command!r} ended without an exit")
        return seconds

    async def first_output(self, session: str, command: str) -> None:
        """Return when a command prints its first byte."""
        request = exec_service_pb2.ExecRequest(session_id=session, shell=command)
        async for response in self._execs.Exec(request):
            if any(event.HasField("stdout") for event in response.events):
                return
        raise CommandFailed(f"{command!r} printed nothing")

    async def output_bytes(self, session: str, command: str) -> int:
        """Number of bytes that an Exec returns."""
        request = exec_service_pb2.ExecRequest(session_id=session, shell=command)
        count = 0
        async for response in self._execs.Exec(request):
            for event in response.events:
                count += len(event.stdout.data)
        return count


class BlockingClient:
    """A client without asyncio."""

    def __init__(self, target: str) -> None:
        self._channel = grpc.insecure_channel(target)
        self._execs = exec_service_pb2_grpc.ExecServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def run(self, session: str, command: str) -> float:
        """Seconds of a Run."""
        request = exec_service_pb2.ExecRequest(session_id=session, shell=command)
        began = time.perf_counter()
        response = self._execs.Run(request)
        seconds = time.perf_counter() - began
        _check(command, response.exit.code)
        return seconds


def _check(command: str, code: int) -> None:
    if code != 0:
        raise CommandFailed(f"{command!r} ended with {code}")
