"""Streams of answers: a line of JSON each, or server-sent events that a reader can come back to.

The id of an event says how far its reader is. A request with it in `Last-Event-ID` continues there:
no byte of a command's output comes twice, none is left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from aiohttp import web

from sandboxd.http import problems
from sandboxd.http.calls import HttpCalls
from sandboxd.http.transfers import write
from sandboxd.service.in_process import CallRefused
from sandboxd.service.json_messages import Method, Positions, as_json, has_positions

EVENTS, LINES = "text/event-stream", "application/x-ndjson"
FIRST_SECONDS = 1.0
"""How long the head of an answer waits for the first message: a refusal then has its status."""
SILENT_SECONDS = 15.0
"""After which a stream of events says that it is alive, for what stands in between."""
LAST_EVENT = "Last-Event-ID"
MAX_PIECE = 1 << 20
ATTACH = "ExecService.AttachExec"


async def send_events(
    request: web.Request, calls: HttpCalls, method: Method, fields: dict[str, Any]
) -> web.StreamResponse:
    """Answer with all that a call streams."""
    positions = None
    if has_positions(method):
        positions = _start(request, fields)
        if positions.exec_id and LAST_EVENT in request.headers:
            method, fields = Method.named(ATTACH), _attachment(fields, positions)
    is_sse = EVENTS in request.headers.get("Accept", "")
    async with aclosing(calls.answers(request, method, fields)) as answers:
        return await _Stream(request, positions, is_sse=is_sse).send(answers)


class _Stream:
    """One stream on its way to a reader."""

    def __init__(self, request: web.Request, positions: Positions | None, *, is_sse: bool) -> None:
        self._request = request
        self._positions = positions
        self._is_sse = is_sse
        self._response = web.StreamResponse(
            headers={"Content-Type": EVENTS if is_sse else LINES, "Cache-Control": "no-store"}
        )

    async def send(self, answers: AsyncGenerator[Any, None]) -> web.StreamResponse:
        upcoming = asyncio.ensure_future(anext(answers))
        try:
            await asyncio.wait([upcoming], timeout=FIRST_SECONDS)
            if upcoming.done() and isinstance(error := upcoming.exception(), CallRefused):
                raise error
            await self._response.prepare(self._request)
            while await self._send_one(upcoming):
                upcoming = asyncio.ensure_future(anext(answers))
        finally:
            if not upcoming.done():
                upcoming.cancel()
                await asyncio.wait([upcoming])
        await self._response.write_eof()
        return self._response

    async def _send_one(self, upcoming: asyncio.Future[Any]) -> bool:
        """Send the next answer; False at the end."""
        while not (await asyncio.wait([upcoming], timeout=SILENT_SECONDS))[0]:
            if self._is_sse:
                await self._write(b": still here\n\n")
        try:
            message = upcoming.result()
        except StopAsyncIteration:
            if self._is_sse:
                await self._write(b"event: end\ndata: {}\n\n")
            return False
        except CallRefused as refused:
            await self._write(self._form(problems.as_text(refused), "error"))
            return False
        if self._positions is not None:
            self._positions.take(message)
        text = json.dumps(as_json(message), separators=(",", ":"))
        await self._write(self._form(text))
        return True

    def _form(self, text: str, kind: str = "") -> bytes:
        if not self._is_sse:
            return text.encode() + b"\n"
        lines = [f"event: {kind}"] if kind else []
        if self._positions is not None and not kind:
            lines.append(f"id: {self._positions}")
        return "\n".join((*lines, f"data: {text}", "", "")).encode()

    async def _write(self, data: bytes) -> None:
        for begin in range(0, len(data), MAX_PIECE):
            await write(self._response, data[begin : begin + MAX_PIECE])


def _start(request: web.Request, fields: dict[str, Any]) -> Positions:
    """Where the reader is: where its last event left it, or where its request begins."""
    came_back = Positions.read(request.headers.get(LAST_EVENT, ""))
    if came_back is not None:
        return came_back
    numbers = (str(fields.get(name, "")) for name in _OFFSETS)
    offsets = [int(number) if number.isascii() and number.isdigit() else 0 for number in numbers]
    return Positions(str(fields.get("exec_id", "")), *offsets)


_OFFSETS = ("stdout_offset", "stderr_offset", "events_offset")


def _attachment(fields: dict[str, Any], positions: Positions) -> dict[str, Any]:
    session_id = fields.get("session_id") or fields.get("run", {}).get("session_id", "")
    offsets = zip(_OFFSETS, (positions.stdout, positions.stderr, positions.events), strict=True)
    return {"session_id": session_id, "exec_id": positions.exec_id, **dict(offsets)}
