"""The SDK's calls on behalf of a request: so that routes can be written with the SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from aiohttp import web

from sandboxd.http.calls import HttpCalls
from sandboxd.service.in_process import Conversation
from sandboxd_client.call_metadata import Metadata
from sandboxd_client.connection import Connection
from sandboxd_client.methods import Method, Request, Response
from sandboxd_client.settings import Timeouts


class RequestTransport:
    """Carries calls as the caller of a request. A refusal is raised as it is, CallRefused, and
    becomes the answer to the request."""

    can_come_back = False

    def __init__(self, request: web.Request, calls: HttpCalls) -> None:
        self._request = request
        self._calls = calls

    async def start(self) -> None:
        """Nothing to prepare."""

    async def ready(self, timeout: float, session_id: str = "") -> None:
        """It is."""

    async def aclose(self) -> None:
        """The request ends its calls."""

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float,
        metadata: Metadata = (),
    ) -> Response:
        async with asyncio.timeout(timeout), aclosing(self._one(method, request)) as answers:
            return await anext(answers)

    async def stream(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float | None,
        metadata: Metadata = (),
    ) -> AsyncGenerator[Response, None]:
        async with asyncio.timeout(timeout), aclosing(self._one(method, request)) as answers:
            async for answer in answers:
                yield answer

    async def send(
        self,
        method: Method[Request, Response],
        requests: AsyncIterator[Request],
        *,
        timeout: float,
        metadata: Metadata = (),
        session_id: str = "",
    ) -> Response:
        many = self._many(method, requests)
        async with asyncio.timeout(timeout), aclosing(many) as answers:
            return await anext(answers)

    async def converse(
        self,
        method: Method[Request, Response],
        requests: AsyncIterator[Request],
        *,
        timeout: float | None,
        metadata: Metadata = (),
        session_id: str = "",
    ) -> AsyncGenerator[Response, None]:
        many = self._many(method, requests)
        async with asyncio.timeout(timeout), aclosing(many) as answers:
            async for answer in answers:
                yield answer

    async def _one(
        self, method: Method[Request, Response], request: Request
    ) -> AsyncGenerator[Response, None]:
        conversation = self._calls.begin(self._request, method.path)
        await conversation.put(request.SerializeToString())
        await conversation.put(None)
        async with aclosing(conversation.responses()) as answers:
            async for answer in answers:
                yield method.response.FromString(answer)

    async def _many(
        self, method: Method[Request, Response], requests: AsyncIterator[Request]
    ) -> AsyncGenerator[Response, None]:
        conversation = self._calls.begin(self._request, method.path)
        feeding = asyncio.create_task(_feed(conversation, requests), name="requests of a call")
        try:
            async with aclosing(conversation.responses()) as answers:
                async for answer in answers:
                    yield method.response.FromString(answer)
        finally:
            feeding.cancel()
            await asyncio.wait([feeding])


async def _feed(conversation: Conversation, requests: AsyncIterator[Request]) -> None:
    async for request in requests:
        await conversation.put(request.SerializeToString())
    await conversation.put(None)


def connection_of(request: web.Request, calls: HttpCalls) -> Connection:
    return Connection(RequestTransport(request, calls), Timeouts())
