"""Files as HTTP bodies: the browser's own upload progress and download, and untrusted HTML.

A download is a link, and a link cannot carry a key. So a page asks for a ticket, which is valid
once and for a minute.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
import time
from collections.abc import Callable
from contextlib import aclosing
from typing import NamedTuple, TypeVar

from aiohttp import web

from sandboxd.access import Caller
from sandboxd.access.shares import DOCUMENT_BYTES, TICKETS, Held, Share, evicted, holder_of
from sandboxd.http.transfers import CHUNK, attachment, feeding
from sandboxd.service import bodies
from sandboxd.service.in_process import CallRefused, InProcessCalls

TICKET_SECONDS = 60.0
MAX_HEADER = 64 << 10
MAX_DOCUMENT = 5 << 20
DOCUMENT_OVERHEAD = 64 << 10
"""Counted for each document beside its bytes, so that their number is bounded, too."""
FIRST = "X-Sandboxd-Message"
"""Header with the first message of a call, base64."""
STATUS_TYPE = "application/x-google-rpc-status"
MESSAGE_TYPE = "application/x-protobuf"
_STATUSES = {3: 400, 5: 404, 6: 409, 7: 403, 8: 429, 9: 409, 11: 400, 14: 503, 16: 401}
"""HTTP status for codes of a google.rpc.Status; what matters is in the body."""
DOCUMENT_POLICY = (
    "sandbox{scripts}; default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; "
    "font-src data:; media-src data:{script_src}"
)
"""For HTML of a sandbox: an origin of its own, nothing is loaded, scripts only if someone asked."""
_REACHING = (
    (re.compile(rb"<(/?)(?=(?:link|embed|frame(?!set)))", re.IGNORECASE), rb"<\1meta x-"),
    (
        re.compile(rb"<(/?)(?=(?:iframe|frameset|object|fencedframe|portal))", re.IGNORECASE),
        rb"<\1x-",
    ),
)
"""Elements by which a browser connects to hosts that no policy governs, such as `<link
rel=preconnect>`, or that hold a document in which such an element is written in another way. What
they would load is refused anyway. In place of those without an end, one that has none either."""
DOCUMENT_HEADERS = {
    "X-DNS-Prefetch-Control": "off",
    "Connection-Allowlist": "()",
}
"""No look-ups for links; and for browsers that know it, no connection at all."""


class _Ticket(NamedTuple):
    ends_at: float
    caller: Caller
    path: str
    message: bytes
    name: str


class _Document(NamedTuple):
    ends_at: float
    caller: Caller
    html: bytes
    with_scripts: bool


AnyTicket = TypeVar("AnyTicket", _Ticket, _Document)


class Bodies:
    """The routes for files. `find_caller` gives the caller of a request, or raises."""

    def __init__(
        self,
        calls: InProcessCalls,
        find_caller: Callable[[web.Request], Caller],
        on_admitted: Callable[[web.Request], None],
    ) -> None:
        """`on_admitted` is called with requests that have a ticket."""
        self._on_admitted = on_admitted
        self._calls = calls
        self._find_caller = find_caller
        self._tickets: dict[str, _Ticket] = {}
        self._documents: dict[str, _Document] = {}

    def routes(self) -> list[web.RouteDef]:
        return [
            web.put("/upload/{service}/{method}", self.upload),
            web.post("/ticket/{service}/{method}", self.make_ticket),
            web.get("/download/{ticket}", self.download),
            web.post("/document", self.make_document),
            web.get("/document/{ticket}", self.document),
        ]

    async def upload(self, request: web.Request) -> web.Response:
        """Feed the body into a call that takes a file, and answer with its message."""
        caller, path = self._find_caller(request), _path(request)
        if path not in bodies.UPLOADS:
            raise web.HTTPNotFound(text="This is not a call that takes a file.")
        conversation = self._calls.begin(path, caller, peer=_peer(request))
        try:
            chunks = request.content.iter_chunked(CHUNK)
            async with feeding(chunks, conversation, _first_message(request)):
                async for message in conversation.responses():
                    return web.Response(body=message, content_type=MESSAGE_TYPE)
        except CallRefused as refused:
            return _refusal(refused)
        raise web.HTTPInternalServerError(text="The call had no answer.")

    async def make_ticket(self, request: web.Request) -> web.Response:
        """A ticket for a download; the body is the message of its request."""
        caller, path = self._find_caller(request), _path(request)
        if path not in bodies.DOWNLOADS:
            raise web.HTTPNotFound(text="This is not a call that returns a file.")
        message = await _body(request, MAX_HEADER)
        name = request.query.get("name", "")[:256] or "download"
        ticket = _Ticket(time.monotonic() + TICKET_SECONDS, caller, path, message, name)
        return web.json_response({"ticket": _keep(self._tickets, ticket, TICKETS)})

    async def download(self, request: web.Request) -> web.StreamResponse:
        ticket = _take(self._tickets, request.match_info["ticket"])
        self._on_admitted(request)
        conversation = self._calls.begin(ticket.path, ticket.caller, peer=_peer(request))
        await conversation.put(ticket.message)
        await conversation.put(None)
        async with aclosing(conversation.responses()) as answers:
            try:
                first = await anext(answers)  # so that a refusal is not a broken file
            except CallRefused as refused:
                return _refusal(refused)
            response = web.StreamResponse(headers=attachment(ticket.name))
            response.enable_chunked_encoding()
            await response.prepare(request)
            await response.write(bodies.chunk_of(ticket.path, first))
            try:
                async for message in answers:
                    await response.write(bodies.chunk_of(ticket.path, message))
            except CallRefused:
                # The browser must not take what it has for the whole file.
                if request.transport is not None:
                    request.transport.abort()
                return response
        await response.write_eof()
        return response

    async def make_document(self, request: web.Request) -> web.Response:
        """A ticket for a frame that shows this HTML."""
        caller = self._find_caller(request)
        html = await _body(request, MAX_DOCUMENT)
        with_scripts = request.query.get("scripts") == "1"
        document = _Document(time.monotonic() + TICKET_SECONDS, caller, html, with_scripts)
        return web.json_response({"ticket": _keep(self._documents, document, DOCUMENT_BYTES)})

    async def document(self, request: web.Request) -> web.Response:
        # As a page by itself, it could navigate away and take what it shows with it.
        if request.headers.get("Sec-Fetch-Dest") != "iframe":
            raise web.HTTPForbidden(text="This is shown in a frame of the console only.")
        document = _take(self._documents, request.match_info["ticket"])
        return web.Response(
            body=without_connections(document.html),
            content_type="text/html",
            charset="utf-8",
            headers={
                **DOCUMENT_HEADERS,
                "Content-Security-Policy": document_policy(document.with_scripts),
            },
        )


def without_connections(html: bytes) -> bytes:
    """HTML without the elements that connect. As UTF-8 without a mark of its order of bytes: such
    a mark would make a browser read it as another encoding than the one that was looked at."""
    text = html.decode(errors="replace").lstrip("\ufeff").encode()
    for pattern, replacement in _REACHING:
        text = pattern.sub(replacement, text)
    return text


def document_policy(with_scripts: bool) -> str:
    scripts = (" allow-scripts", "; script-src 'unsafe-inline'") if with_scripts else ("", "")
    return DOCUMENT_POLICY.format(scripts=scripts[0], script_src=scripts[1])


def _path(request: web.Request) -> str:
    return f"/{request.match_info['service']}/{request.match_info['method']}"


def _peer(request: web.Request) -> str:
    return f"console:{request.remote}"


def _first_message(request: web.Request) -> bytes:
    given = request.headers.get(FIRST, "")
    try:
        return base64.b64decode(given, validate=True)
    except binascii.Error:
        raise web.HTTPBadRequest(text=f"The header {FIRST} is not base64.") from None


async def _body(request: web.Request, limit: int) -> bytes:
    data = bytearray()
    async for chunk in request.content.iter_chunked(CHUNK):
        data += chunk
        if len(data) > limit:
            raise web.HTTPRequestEntityTooLarge(max_size=limit, actual_size=len(data))
    return bytes(data)


def _refusal(refused: CallRefused) -> web.Response:
    code = refused.status[1] if refused.status[:1] == b"\x08" else 0
    return web.Response(
        status=_STATUSES.get(code, 500), body=refused.status, content_type=STATUS_TYPE
    )


def _size(ticket: _Ticket | _Document) -> int:
    return len(ticket.html) + DOCUMENT_OVERHEAD if isinstance(ticket, _Document) else 1


def _keep(kept: dict[str, AnyTicket], value: AnyTicket, share: Share) -> str:
    now = time.monotonic()
    for ticket in [ticket for ticket, held in kept.items() if held.ends_at <= now]:
        del kept[ticket]
    held = [Held(key, holder_of(one.caller), _size(one)) for key, one in kept.items()]
    for key in evicted(share, held, holder_of(value.caller), _size(value)):
        del kept[key]
    ticket = secrets.token_urlsafe(24)
    kept[ticket] = value
    return ticket


def _take(kept: dict[str, AnyTicket], ticket: str) -> AnyTicket:
    held = kept.pop(ticket, None)
    if held is None or held.ends_at <= time.monotonic():
        raise web.HTTPGone(text="This link was used, or is too old; ask the console again.")
    return held
