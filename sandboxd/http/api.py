"""The routes of protos/http.yaml: what kind each is follows from the messages of its method."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from aiohttp import web

from sandboxd.errors import InvalidRequest, RequestTooLarge
from sandboxd.http import events, sockets, transfers
from sandboxd.http.calls import HttpCalls
from sandboxd.http.routes import ROUTES, Route
from sandboxd.service.json_messages import (
    Method,
    as_json,
    from_body,
    from_query,
    refusal,
    with_field,
)

MAX_BODY = 9 << 20
"""As the largest request over gRPC."""
TERMINAL = "/v1/sessions/{session_id}/execs/{exec_id}/terminal"
_VARIABLE = re.compile(r"\{([a-z_.]+)(=\*\*)?\}")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_Send = Callable[[web.Request, HttpCalls, Method, dict[str, Any]], Awaitable[web.StreamResponse]]


def api_routes(calls: HttpCalls) -> Iterator[web.RouteDef]:
    """All routes of the API."""
    for route in ROUTES:
        path, names = _pattern(route.path)
        handler = partial(_serve, calls, Method.named(route.method), route, names)
        make = web.get if route.verb == "GET" else partial(web.route, route.verb)
        yield make(path, handler)
    path, names = _pattern(TERMINAL)
    yield web.get(path, partial(_serve_terminal, calls, names), allow_head=False)


async def _serve(
    calls: HttpCalls, method: Method, route: Route, names: dict[str, str], request: web.Request
) -> web.StreamResponse:
    calls.identify(request)
    fields = await _fields(method, route, request)
    for name, field in names.items():
        with_field(fields, field, request.match_info[name])
    return await _SENDERS[route.kind](request, calls, method, fields)


async def _serve_terminal(
    calls: HttpCalls, names: dict[str, str], request: web.Request
) -> web.StreamResponse:
    calls.identify(request)
    fields = {field: request.match_info[name] for name, field in names.items()}
    return await sockets.terminal(request, calls, fields)


async def _fields(method: Method, route: Route, request: web.Request) -> dict[str, Any]:
    prefix = "header." if route.kind == "upload" else ""
    fields = from_query(method, request.query.items(), prefix)
    if route.has_body:
        fields |= from_body(await body_of(request))
    return fields


async def body_of(request: web.Request) -> bytes:
    """The whole body, up to the limit."""
    data = bytearray()
    async for chunk in request.content.iter_chunked(transfers.CHUNK):
        data += chunk
        if len(data) > MAX_BODY:
            raise refusal(RequestTooLarge("request", f"the body has more than {MAX_BODY} bytes"))
    return bytes(data)


async def _answer_once(
    request: web.Request, calls: HttpCalls, method: Method, fields: dict[str, Any]
) -> web.Response:
    answers = calls.answers(request, method, fields)
    async for answer in answers:
        return web.json_response(as_json(answer))
    raise refusal(InvalidRequest("request", "the call had no answer"))


_SENDERS: dict[str, _Send] = {
    "call": _answer_once,
    "events": events.send_events,
    "upload": transfers.receive,
    "download": transfers.send,
    "socket": sockets.converse,
}


def _pattern(path: str) -> tuple[str, dict[str, str]]:
    """A path as aiohttp has it, and the fields of its variables by their names there."""
    names: dict[str, str] = {}

    def variable(match: re.Match[str]) -> str:
        name = match[1].replace(".", "__")
        names[name] = match[1]
        return f"{{{name}:.+}}" if match[2] else f"{{{name}}}"

    return _VARIABLE.sub(variable, path), names
