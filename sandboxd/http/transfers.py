"""Files as bodies: what a caller sends goes into a call piece by piece, and what a call returns
leaves as the bytes of the file, whole or a range of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

from aiohttp import web

from sandboxd.http.calls import HttpCalls
from sandboxd.service import bodies
from sandboxd.service.in_process import CallRefused, Conversation
from sandboxd.service.json_messages import Method, as_json, has_field

CHUNK = 256 << 10
SEND_SECONDS = 60.0
"""How long a reader may take nothing at all."""
_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})", re.ASCII)
DOCUMENT_POLICY = "sandbox; default-src 'none'"


@asynccontextmanager
async def feeding(
    chunks: AsyncIterator[bytes], conversation: Conversation, first: bytes
) -> AsyncIterator[None]:
    """Pass the bytes of a file on to a call, while the call is answered. A body that breaks off
    cancels the call: it must not look like a whole one."""
    answering = asyncio.current_task()

    async def feed() -> None:
        try:
            await conversation.put(first)
            async for data in chunks:
                await conversation.put(bodies.chunk_message(data))
            await conversation.put(None)
        except Exception:
            if answering is not None:
                answering.cancel()

    task = asyncio.create_task(feed(), name="body of a request")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def receive(
    request: web.Request, calls: HttpCalls, method: Method, fields: dict[str, Any]
) -> web.Response:
    """Feed the body into a call that takes a file, and answer with its message."""
    header = fields.setdefault("header", {})
    chunks = request.content.iter_chunked(CHUNK)
    if request.content_length is not None and _takes_size(method):
        header.setdefault("size_bytes", request.content_length)
    return web.json_response(await feed_into(request, calls, method, fields, chunks))


async def feed_into(
    request: web.Request,
    calls: HttpCalls,
    method: Method,
    fields: dict[str, Any],
    chunks: AsyncIterator[bytes],
) -> dict[str, Any]:
    """The answer of a call that takes these bytes."""
    conversation = calls.begin(request, method.path)
    async with (
        feeding(chunks, conversation, method.packed(fields)),
        aclosing(conversation.responses()) as answers,
    ):
        return as_json(method.answer(await anext(answers)))


def _takes_size(method: Method) -> bool:
    header = method.request.DESCRIPTOR.fields_by_name["header"].message_type
    return "size_bytes" in header.fields_by_name


class Range(NamedTuple):
    begin: int
    end: int
    """Behind the last byte."""


class Unsatisfiable(Exception):
    """The file has no byte of the range."""


async def send(
    request: web.Request, calls: HttpCalls, method: Method, fields: dict[str, Any]
) -> web.StreamResponse:
    """Answer with the bytes of a file, or with the range of them that was asked for."""
    async with aclosing(_parts(request, calls, method, fields)) as parts:
        about = await anext(parts)
        tag = _tag(about)
        if tag and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        size = getattr(about, "size_bytes", 0)
        try:
            wanted = _wanted(request, size, tag)
        except Unsatisfiable:
            return web.Response(status=416, headers={"Content-Range": f"bytes */{size}"})
        response = _head(request, fields, size, tag, wanted)
        if request.method == "HEAD":
            await response.prepare(request)
            return response
        if wanted is None or not has_field(method.request, "offset"):
            return await _pass_on(request, response, parts, wanted)
    assert wanted is not None
    fields |= {"offset": wanted.begin, "length": wanted.end - wanted.begin}
    async with aclosing(_parts(request, calls, method, fields)) as parts:
        if _tag(await anext(parts)) != tag:
            raise web.HTTPPreconditionFailed(text="The file has just changed; ask again.")
        return await _pass_on(request, response, parts, Range(0, wanted.end - wanted.begin))


async def write(response: web.StreamResponse, data: bytes) -> None:
    """ConnectionError if the reader is gone, or takes nothing for too long."""
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await response.write(data)
    except TimeoutError:
        raise ConnectionResetError("the reader takes nothing") from None


async def _parts(
    request: web.Request, calls: HttpCalls, method: Method, fields: dict[str, Any]
) -> AsyncGenerator[Any, None]:
    """What the file is, None for an archive; then its bytes."""
    is_first = True
    async with aclosing(calls.answers(request, method, fields)) as answers:
        async for answer in answers:
            kind = answer.WhichOneof("part")
            if is_first:
                is_first = False
                yield None if kind in ("chunk", "end") else getattr(answer, kind)
            if kind == "chunk":
                yield answer.chunk


async def _pass_on(
    request: web.Request,
    response: web.StreamResponse,
    parts: AsyncGenerator[Any, None],
    wanted: Range | None,
) -> web.StreamResponse:
    await response.prepare(request)
    position, sent = 0, 0
    try:
        async for chunk in parts:
            data = chunk
            if wanted is not None:
                data = chunk[max(0, wanted.begin - position) : max(0, wanted.end - position)]
            position += len(chunk)
            if data:
                sent += len(data)
                await write(response, data)
            if wanted is not None and position >= wanted.end:
                break
    except CallRefused:
        return _broken(request, response)
    if response.content_length is not None and sent != response.content_length:
        return _broken(request, response)  # the file became shorter meanwhile
    await response.write_eof()
    return response


def _broken(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """The reader must not take what it has for the whole file."""
    if request.transport is not None:
        request.transport.abort()
    return response


def _wanted(request: web.Request, size: int, tag: str) -> Range | None:
    """The range that a request asks for; None for the whole file."""
    if request.headers.get("If-Range", tag) != tag or not size:
        return None
    return wanted_range(request.headers.get("Range", ""), size)


def wanted_range(text: str, size: int) -> Range | None:
    """The range that a header asks for, of so many bytes. None for the whole file, which is a right
    answer to several ranges, too, and to what is none; Unsatisfiable."""
    match = _RANGE.fullmatch(text)
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:
        begin, end = max(0, size - int(match[2])), size
    else:
        begin = int(match[1])
        end = min(size, int(match[2]) + 1) if match[2] else size
        if match[2] and int(match[2]) < begin:
            return None
    if begin >= end:
        raise Unsatisfiable
    return Range(begin, end)


def _head(
    request: web.Request, fields: Mapping[str, Any], size: int, tag: str, wanted: Range | None
) -> web.StreamResponse:
    response = web.StreamResponse(
        status=200 if wanted is None else 206, headers=attachment(_name(request, fields))
    )
    if tag:
        response.headers["ETag"] = tag
        response.headers["Accept-Ranges"] = "bytes"
    if wanted is not None:
        response.headers["Content-Range"] = f"bytes {wanted.begin}-{wanted.end - 1}/{size}"
        response.content_length = wanted.end - wanted.begin
    elif size:
        response.content_length = size
    return response


def attachment(name: str) -> dict[str, str]:
    """Whatever the name is, one header that a browser takes for a file to save."""
    return {
        "Content-Type": "application/octet-stream",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Security-Policy": DOCUMENT_POLICY,
    }


def _name(request: web.Request, fields: Mapping[str, Any]) -> str:
    path = str(fields.get("path") or fields.get("name") or "")
    return path.rstrip("/").rpartition("/")[2][:256] or request.path.rpartition("/")[2]


def _tag(about: Any) -> str:
    """The ETag of a file: its hash where that is known, else its time and size."""
    if about is None:
        return ""
    if digest := getattr(about, "sha256", b""):
        return f'"{digest.hex() if isinstance(digest, bytes) else digest}"'
    if not hasattr(about, "modify_time"):
        return ""
    moment = about.modify_time
    return f'"{moment.seconds:x}.{moment.nanos:x}-{about.size_bytes:x}"'
