"""The events of a command, across lost connections and restarts of the daemon."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeAlias

from sandboxd_client.connection import BackOff
from sandboxd_client.errors import (
    ConnectionLostError,
    ExecNotFoundError,
    SandboxError,
)
from sandboxd_client.methods.execs import ATTACH_EXEC
from sandboxd_client.session import SessionHold
from sandboxd_proto.v1 import exec_pb2, exec_service_pb2

_NAMES = {
    exec_pb2.OUTPUT_STREAM_UNSPECIFIED: "stdout",
    exec_pb2.OUTPUT_STREAM_STDOUT: "stdout",
    exec_pb2.OUTPUT_STREAM_STDERR: "stderr",
    exec_pb2.OUTPUT_STREAM_EVENTS: "events",
}
_STREAMS = {
    "stdout": exec_pb2.OUTPUT_STREAM_STDOUT,
    "stderr": exec_pb2.OUTPUT_STREAM_STDERR,
    "events": exec_pb2.OUTPUT_STREAM_EVENTS,
}

Restart: TypeAlias = Callable[[], Awaitable[object]]


class ExecStream:
    """Reads an exec from given positions. Each byte and each event of a run of code arrives once;
    the exit arrives once, last.

    `restart` starts an exec again under its id that had to wait for its shell or its context: it
    does not survive a restart of the daemon.
    """

    def __init__(
        self,
        hold: SessionHold,
        exec_id: str,
        *,
        timeout: float | None,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        events_offset: int = 0,
        restart: Restart | None = None,
    ) -> None:
        self._hold = hold
        self._exec_id = exec_id
        self._timeout = timeout
        self._offsets = {
            "stdout": stdout_offset,
            "stderr": stderr_offset,
            "events": events_offset,
        }
        self._restart = restart

    async def events(self) -> AsyncGenerator[exec_pb2.ExecEvent, None]:
        """Events up to and including the exit; raises if there is no exit."""
        connection = self._hold.connection
        back_off = BackOff(connection.timeouts.reconnect)
        for earlier_tries in itertools.count():
            try:
                responses = connection.stream(
                    ATTACH_EXEC,
                    self._request(),
                    timeout=self._timeout,
                    earlier_tries=earlier_tries,
                )
                async with aclosing(responses):
                    async for response in responses:
                        back_off.begin()
                        for event in response.events:
                            for fresh in self._fresh(event):
                                yield fresh
                            if event.HasField("exited"):
                                return
                error: SandboxError = ConnectionLostError(
                    "The stream of the command was interrupted before its end."
                )
            except ExecNotFoundError:
                if self._restart is None:
                    raise
                await self._restart()
                continue
            except SandboxError as cut_off:
                error = cut_off
            if not connection.may_repeat(error, is_repeatable=True):
                raise error
            await back_off.pause(error)

    def _request(self) -> exec_service_pb2.AttachExecRequest:
        return exec_service_pb2.AttachExecRequest(
            session_id=self._hold.id,
            exec_id=self._exec_id,
            stdout_offset=self._offsets["stdout"],
            stderr_offset=self._offsets["stderr"],
            events_offset=self._offsets["events"],
        )

    def _fresh(self, event: exec_pb2.ExecEvent) -> list[exec_pb2.ExecEvent]:
        """The new part of an event, preceded by a gap if bytes are missing."""
        kind = event.WhichOneof("event")
        self._restart = None
        if kind == "started" or kind is None:
            return []
        if kind == "dropped":
            name = _NAMES[event.dropped.stream]
            return self._gap_up_to(name, event.dropped.offset + event.dropped.bytes)
        if kind == "exited":
            return [event]
        if kind == "code":
            return self._fresh_event(event)
        name = "stdout" if kind == "stdout" else "stderr"
        chunk = event.stdout if kind == "stdout" else event.stderr
        fresh = self._gap_up_to(name, chunk.offset)
        already = self._offsets[name] - chunk.offset
        if already > 0:
            event = _without_beginning(event, already)
        self._offsets[name] = max(self._offsets[name], chunk.offset + len(chunk.data))
        if already < len(chunk.data):
            fresh.append(event)
        return fresh

    def _fresh_event(self, event: exec_pb2.ExecEvent) -> list[exec_pb2.ExecEvent]:
        if event.code.offset < self._offsets["events"]:
            return []
        fresh = self._gap_up_to("events", event.code.offset)
        self._offsets["events"] = event.code.next_offset
        return [*fresh, event]

    def _gap_up_to(self, name: str, offset: int) -> list[exec_pb2.ExecEvent]:
        missing = offset - self._offsets[name]
        if missing <= 0:
            return []
        gap = exec_pb2.OutputGap(
            stream=_STREAMS[name],
            offset=self._offsets[name],
            bytes=missing,
        )
        self._offsets[name] = offset
        return [exec_pb2.ExecEvent(dropped=gap)]


def _without_beginning(event: exec_pb2.ExecEvent, count: int) -> exec_pb2.ExecEvent:
    shorter = exec_pb2.ExecEvent()
    shorter.CopyFrom(event)
    chunk = shorter.stdout if event.HasField("stdout") else shorter.stderr
    chunk.offset += count
    chunk.data = chunk.data[count:]
    return shorter
