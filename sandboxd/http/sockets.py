"""WebSockets: calls whose messages go both ways, and terminals.

A text frame is a message as JSON. Where the messages are the bytes of a connection, binary frames
are those bytes, and an empty one ends the caller's side. A refusal is a text frame with `error`,
and then the socket closes with 1008.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from sandboxd.http import problems
from sandboxd.http.calls import HttpCalls
from sandboxd.service.in_process import CallRefused, Conversation
from sandboxd.service.json_messages import Method, as_json, from_body

MAX_FRAME = 4 << 20
HEARTBEAT_SECONDS = 20.0
SEND_SECONDS = 60.0


async def converse(
    request: web.Request, calls: HttpCalls, method: Method, fields: dict[str, Any]
) -> web.WebSocketResponse:
    """A call with streams in both directions. What the path names is its first message."""
    conversation = calls.begin(request, method.path)
    socket = await _accepted(request)
    if fields:
        await conversation.put(method.packed(fields))

    async def take() -> None:
        async for frame in socket:
            await _put(conversation, method, frame)

    async def show() -> None:
        async with aclosing(conversation.responses()) as answers:
            async for packed in answers:
                answer = method.answer(packed)
                if data := getattr(answer, "data", b""):
                    await _send(socket.send_bytes(data))
                else:
                    await _send(socket.send_str(json.dumps(as_json(answer))))

    return await _both(socket, take(), show())


async def terminal(
    request: web.Request, calls: HttpCalls, fields: Mapping[str, Any]
) -> web.WebSocketResponse:
    """A running command as a terminal: binary frames are keys and output, text frames are
    `{"resize": {"rows": 40, "columns": 120}}` and `{"signal": 2}`, and at the end the
    daemon sends `{"exited": ...}`. With `?offset=` it begins there."""
    ids = {name: fields[name] for name in ("session_id", "exec_id")}
    wanted = {**ids, "stdout_offset": request.query.get("offset", "0")}
    attach = Method.named("ExecService.AttachExec")
    socket = await _accepted(request)

    async def take() -> None:
        async for frame in socket:
            if frame.type is WSMsgType.BINARY:
                typed = {"data": _base64(frame.data), "append": True}
                await calls.call(request, "ExecService.WriteStdin", {**ids, **typed})
                continue
            wish = from_body(frame.data.encode())
            if "resize" in wish:
                size = {"terminal": wish["resize"]}
                await calls.call(request, "ExecService.ResizeExec", {**ids, **size})
            if "signal" in wish:
                signal = {"signal": wish["signal"]}
                await calls.call(request, "ExecService.SignalExec", {**ids, **signal})

    async def show() -> None:
        async with aclosing(calls.answers(request, attach, wanted)) as answers:
            async for answer in answers:
                for event in answer.events:
                    await _show(socket, event)

    return await _both(socket, take(), show())


async def _both(
    socket: web.WebSocketResponse,
    take: Coroutine[Any, Any, None],
    show: Coroutine[Any, Any, None],
) -> web.WebSocketResponse:
    """Take what the caller sends and show what the call answers, until either is over."""
    tasks = [
        asyncio.create_task(take, name="frames of a caller"),
        asyncio.create_task(show, name="answers to a caller"),
    ]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for error in (task.exception() for task in tasks if not task.cancelled()):
        if isinstance(error, CallRefused):
            await _refuse(socket, error)
        elif error is not None and not isinstance(error, ConnectionError):
            raise error
    await socket.close()
    return socket


async def _show(socket: web.WebSocketResponse, event: Any) -> None:
    kind = event.WhichOneof("event")
    if kind in ("stdout", "stderr"):
        await _send(socket.send_bytes(getattr(event, kind).data))
    else:
        await _send(socket.send_str(json.dumps(as_json(event))))


async def _accepted(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(
        heartbeat=HEARTBEAT_SECONDS, max_msg_size=MAX_FRAME, compress=False
    )
    try:
        await socket.prepare(request)
    except ValueError:  # a key that is no base64
        raise web.HTTPBadRequest(text="The handshake of the WebSocket is malformed.") from None
    return socket


async def _put(conversation: Conversation, method: Method, frame: WSMessage) -> None:
    if frame.type is WSMsgType.TEXT:
        await conversation.put(method.packed(from_body(frame.data.encode())))
    elif not frame.data:
        await conversation.put(None)
    else:
        await conversation.put(method.packed({"data": _base64(frame.data)}))


async def _refuse(socket: web.WebSocketResponse, refused: CallRefused) -> None:
    try:
        await _send(socket.send_str(problems.as_text(refused)))
        await socket.close(code=WSCloseCode.POLICY_VIOLATION)
    except ConnectionError:
        pass  # the caller is gone


async def _send(sending: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await sending
    except TimeoutError:
        raise ConnectionError("the caller takes nothing") from None


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
