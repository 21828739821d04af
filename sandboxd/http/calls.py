"""From a request of HTTP to a call of the API: who calls, which method, what is answered."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from aiohttp import web

from sandboxd.access import Caller
from sandboxd.errors import Unauthenticated
from sandboxd.service.in_process import Conversation, InProcessCalls
from sandboxd.service.json_messages import Method, as_json, refusal
from sandboxd.service.transport.guard import CallGuard

CALLER = web.RequestKey("caller", Caller)
PASSED_ON = ("sandboxd-passive", "sandboxd-retry", "sandboxd-turn-id", "traceparent", "tracestate")
"""Headers that mean what the metadata of that name means over gRPC."""


class _Visitor:
    """A request of HTTP, as the entrance looks at calls."""

    def __init__(self, request: web.Request, *, is_unix: bool) -> None:
        self._request = request
        self._is_unix = is_unix

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        given = self._request.headers.get("Authorization")
        return () if given is None else (("authorization", given),)

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        transport = self._request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        subject = dict(part[0] for part in (certificate or {}).get("subject", ()))
        name = subject.get("commonName")
        return {"x509_common_name": [name.encode()]} if name else {}

    def peer(self) -> str:
        return "unix:http" if self._is_unix else f"http:{self._request.remote}"


class HttpCalls:
    """Calls on behalf of requests."""

    def __init__(
        self,
        calls: InProcessCalls,
        guard: CallGuard,
        *,
        is_unix: bool,
        on_admitted: Callable[[web.Request], None],
    ) -> None:
        """`on_admitted` is called with requests whose caller is known."""
        self._calls = calls
        self._guard = guard
        self._is_unix = is_unix
        self._on_admitted = on_admitted

    def identify(self, request: web.Request) -> Caller:
        """Who calls; CallRefused if that is unknown. Nothing of the body is read before."""
        visitor = _Visitor(request, is_unix=self._is_unix)
        try:
            caller = self._guard.identify(visitor, f"{request.method} {_route(request)}")
        except Unauthenticated as error:
            raise refusal(error) from None
        request[CALLER] = caller
        self._on_admitted(request)
        return caller

    def begin(self, request: web.Request, path: str) -> Conversation:
        """A call as the caller of this request."""
        metadata = [
            (name, value) for name in PASSED_ON if (value := request.headers.get(name)) is not None
        ]
        peer = _Visitor(request, is_unix=self._is_unix).peer()
        return self._calls.begin(path, request[CALLER], peer=peer, metadata=metadata)

    async def answers(
        self, request: web.Request, method: Method, fields: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """The answers to one message; CallRefused if the call fails."""
        conversation = self.begin(request, method.path)
        await conversation.put(method.packed(fields))
        await conversation.put(None)
        async with aclosing(conversation.responses()) as messages:
            async for message in messages:
                yield method.answer(message)

    async def call(self, request: web.Request, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        """The only answer, as JSON."""
        async with aclosing(self.answers(request, Method.named(name), fields)) as answers:
            return as_json(await anext(answers))


def _route(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "?"
