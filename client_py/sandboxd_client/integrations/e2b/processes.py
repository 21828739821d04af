"""E2B's process service: commands and terminals of a sandbox, named by their process number."""

from __future__ import annotations

import asyncio
import base64
import binascii
import signal
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

from aiohttp import web

from sandboxd_client.command_handle import AsyncCommandHandle
from sandboxd_client.command_stream import AsyncCommandStream
from sandboxd_client.errors import SandboxError
from sandboxd_client.integrations.e2b.boxes import Boxes
from sandboxd_client.integrations.e2b.connect import (
    Frames,
    Message,
    Refused,
    end_frame,
    frame,
    number,
    pairs,
    parsed,
    part,
    refusal,
    text,
    texts,
)
from sandboxd_client.integrations.e2b.users import check_user
from sandboxd_client.results import CommandInfo, CommandResult, OutputGap
from sandboxd_client.sandbox import AsyncSandbox

T = TypeVar("T")
SERVICE = "/process.Process"
KEEPALIVE_SECONDS = 50
MAX_KNOWN = 10_000
PING: Message = {"event": {"keepalive": {}}}
_SIGNALS = {"SIGNAL_SIGTERM": signal.SIGTERM, "SIGNAL_SIGKILL": signal.SIGKILL}


class Processes:
    """Handlers of the process service."""

    def __init__(self, boxes: Boxes) -> None:
        self._boxes = boxes
        self._started: OrderedDict[str, Message] = OrderedDict()
        """What started commands were asked for, by exec id."""

    def routes(self) -> Sequence[web.RouteDef]:
        return [
            web.post(f"{SERVICE}/{name}", handler)
            for name, handler in (
                ("Start", self.start),
                ("Connect", self.connect),
                ("List", self.list),
                ("SendInput", self.send_input),
                ("StreamInput", self.stream_input),
                ("CloseStdin", self.close_stdin),
                ("SendSignal", self.send_signal),
                ("Update", self.update),
            )
        ]

    async def start(self, request: web.Request) -> web.StreamResponse:
        async with answering(request) as stream:
            sandbox = await self._boxes.of(request)
            check_user(request, sandbox)
            message = await stream.request()
            handle = await started(sandbox, message, stream.seconds)
            self._keep(handle.exec_id, message)
            await stream.send({"start": {"pid": handle.pid or 0}})
            await follow(stream, handle.stream(), has_terminal="pty" in message)
        return stream.response

    async def connect(self, request: web.Request) -> web.StreamResponse:
        """What a command writes from now on."""
        async with answering(request) as stream:
            sandbox = await self._boxes.of(request)
            info = await self._find(sandbox, await stream.request())
            handle = await sandbox.commands.connect(info.exec_id)
            await stream.send({"start": {"pid": info.pid}})
            events = handle.stream(stdout_offset=info.stdout_bytes, stderr_offset=info.stderr_bytes)
            await follow(stream, events, has_terminal=info.has_terminal)
        return stream.response

    async def list(self, request: web.Request) -> web.Response:
        sandbox = await self._boxes.of(request)
        running = await sandbox.commands.list(running=True)
        processes = [self._described(info) for info in running if info.pid]
        return web.json_response({"processes": processes})

    async def send_input(self, request: web.Request) -> web.Response:
        sandbox, message = await self._boxes.of(request), parsed(await request.read())
        handle = await self._handle(sandbox, message)
        await handle.send_stdin(input_of(part(message, "input")))
        return web.json_response({})

    async def stream_input(self, request: web.Request) -> web.StreamResponse:
        async with answering(request) as stream:
            sandbox = await self._boxes.of(request)
            handle: AsyncCommandHandle | None = None
            async for message in stream.requests():
                if "start" in message:
                    handle = await self._handle(sandbox, part(message, "start"))
                elif "data" in message:
                    if handle is None:
                        raise Refused("invalid_argument", "The stream does not name a process.")
                    await handle.send_stdin(input_of(part(part(message, "data"), "input")))
            await stream.write(frame({}))
        return stream.response

    async def close_stdin(self, request: web.Request) -> web.Response:
        sandbox, message = await self._boxes.of(request), parsed(await request.read())
        await (await self._handle(sandbox, message)).close_stdin()
        return web.json_response({})

    async def send_signal(self, request: web.Request) -> web.Response:
        sandbox, message = await self._boxes.of(request), parsed(await request.read())
        number_of = _SIGNALS.get(str(message.get("signal")))
        if number_of is None:
            raise Refused("invalid_argument", "signal: SIGTERM or SIGKILL")
        if not await (await self._handle(sandbox, message)).send_signal(number_of):
            raise Refused("not_found", "The process has ended.")
        return web.json_response({})

    async def update(self, request: web.Request) -> web.Response:
        sandbox, message = await self._boxes.of(request), parsed(await request.read())
        size = part(part(message, "pty"), "size")
        if size:
            handle = await self._handle(sandbox, message)
            await handle.resize(number(size, "rows"), number(size, "cols"))
        return web.json_response({})

    def _keep(self, exec_id: str, message: Message) -> None:
        self._started[exec_id] = message
        while len(self._started) > MAX_KNOWN:
            self._started.popitem(last=False)

    def _described(self, info: CommandInfo) -> Message:
        asked = self._started.get(info.exec_id, {})
        config = part(asked, "process") or {"cmd": info.command, "args": []}
        described: Message = {"config": config, "pid": info.pid}
        if "tag" in asked:
            described["tag"] = asked["tag"]
        return described

    async def _find(self, sandbox: AsyncSandbox, message: Message) -> CommandInfo:
        """The running command that a request names by number or tag."""
        selector = part(message, "process")
        pid, tag = number(selector, "pid"), text(selector, "tag")
        for info in await sandbox.commands.list(running=True):
            asked = self._started.get(info.exec_id, {})
            if (pid and info.pid == pid) or (tag and asked.get("tag") == tag):
                return info
        raise Refused("not_found", f"There is no process {tag or pid}.")

    async def _handle(self, sandbox: AsyncSandbox, message: Message) -> AsyncCommandHandle:
        info = await self._find(sandbox, message)
        return await sandbox.commands.connect(info.exec_id)


async def started(sandbox: AsyncSandbox, message: Message, seconds: float) -> AsyncCommandHandle:
    """Start what a request asks for; 0 seconds mean as long as the session allows."""
    process = part(message, "process")
    words = [text(process, "cmd"), *texts(process, "args")]
    cwd, env = text(process, "cwd") or None, pairs(process, "envs")
    limit = min(seconds, sandbox.info.limits.max_exec_timeout.seconds)
    if "pty" in message:
        size = part(part(message, "pty"), "size")
        return await sandbox.pty.create(
            words,
            rows=number(size, "rows") or 24,
            columns=number(size, "cols") or 80,
            cwd=cwd,
            env=env,
            timeout=limit,
        )
    return await sandbox.commands.run(
        words,
        background=True,
        cwd=cwd,
        env=env,
        timeout=limit,
        stdin=message.get("stdin", True) is True,
    )


def input_of(message: Message) -> bytes:
    for name in ("stdin", "pty"):
        if name in message:
            try:
                return base64.b64decode(text(message, name), validate=True)
            except binascii.Error:
                raise Refused("invalid_argument", f"{name}: not base64") from None
    return b""


async def follow(stream: ServerStream, events: AsyncCommandStream, *, has_terminal: bool) -> None:
    """Send what a command writes, and its end; pings meanwhile."""
    async with events:
        while (event := await stream.next_of(events, PING)) is not None:
            if isinstance(event, OutputGap):
                raise Refused("data_loss", "Output is no longer kept, because it was too long.")
            name = "pty" if has_terminal else event.stream
            await stream.send({"data": {name: base64.b64encode(event.data).decode()}})
    result = events.result
    assert result is not None
    if result.reason == "timed_out":
        raise Refused("deadline_exceeded", "The command was killed when its time was over.")
    await stream.send({"end": ended(result)})


def ended(result: CommandResult) -> Message:
    """As Go's os/exec reports it, which E2B's SDKs know."""
    if result.signal is not None:
        name = signal.strsignal(result.signal) or str(result.signal)
        status = f"signal: {name.lower()}"
        return {"exitCode": -1, "exited": False, "status": status, "error": status}
    status = f"exit status {result.exit_code}"
    end: Message = {"exitCode": result.exit_code, "exited": True, "status": status}
    return end if result.ok else {**end, "error": result.hint or status}


class ServerStream:
    """A stream of answers; errors after its beginning are its last frame."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self._frames = Frames()
        self.response = web.StreamResponse(
            headers={"Content-Type": "application/connect+json", "Cache-Control": "no-store"}
        )
        self.seconds = number(dict(request.headers), "Connect-Timeout-Ms") / 1000
        asked = request.headers.get("Keepalive-Ping-Interval", "")
        self._ping = (
            int(asked) if asked.isdecimal() and 0 < int(asked) < 3600 else KEEPALIVE_SECONDS
        )

    async def requests(self) -> AsyncIterator[Message]:
        async for data in self._request.content.iter_any():
            for message in self._frames.feed(data):
                yield message
        if not self._frames.is_empty:
            raise Refused("invalid_argument", "The last message is not complete.")

    async def request(self) -> Message:
        """The only message of a call."""
        async for message in self.requests():
            return message
        raise Refused("invalid_argument", "The request has no message.")

    async def send(self, event: Message) -> None:
        await self.write(frame({"event": event}))

    async def write(self, data: bytes) -> None:
        await self.begin()
        await self.response.write(data)

    async def begin(self) -> None:
        if not self.response.prepared:
            await self.response.prepare(self._request)

    async def next_of(self, events: AsyncIterator[T], ping: Message) -> T | None:
        """The next event, None at the end; the caller gets a ping if it takes long."""
        waiting = asyncio.ensure_future(_next(events))
        try:
            while not (await asyncio.wait([waiting], timeout=self._ping))[0]:
                await self.write(frame(ping))
            return waiting.result()
        finally:
            if not waiting.done():
                waiting.cancel()
                with suppress(asyncio.CancelledError):
                    await waiting


async def _next(events: AsyncIterator[T]) -> T | None:
    try:
        return await anext(events)
    except StopAsyncIteration:
        return None


class answering:  # noqa: N801  # used as a context manager
    """A stream whose errors are answered in the way of the protocol."""

    def __init__(self, request: web.Request) -> None:
        self._stream = ServerStream(request)
        self._request = request

    async def __aenter__(self) -> ServerStream:
        return self._stream

    async def __aexit__(
        self, kind: Any, error: BaseException | None, trace: Any
    ) -> Literal[True] | None:
        refused: Refused | None = None
        if isinstance(error, SandboxError):
            refused = refusal(error, self._request.headers.get("E2b-Sandbox-Id", ""))
        elif isinstance(error, Refused):
            refused = error
        elif isinstance(error, ConnectionResetError):
            return True  # the caller has left; a command goes on without it
        elif error is not None:
            return None
        if refused is not None and refused.status == 502 and not self._stream.response.prepared:
            raise refused  # as a proxy answers it
        with suppress(ConnectionResetError):
            await self._stream.write(end_frame(refused))
            await self._stream.response.write_eof()
        return True
