"""Calls of the API from inside the process: the same guarded handlers, without a server.

Messages are bytes, as they would be on the wire, so that callers need neither gRPC nor the stubs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import grpc
from google.rpc import code_pb2, status_pb2
from grpc import aio

from sandboxd.access import Caller

TRAILER = "grpc-status-details-bin"


class CallRefused(aio.AbortError):
    """A call ended with a status; raised where gRPC raises AbortError."""

    def __init__(self, status: bytes, message: str) -> None:
        """`status`: a google.rpc.Status."""
        super().__init__(message)
        self.status = status


class NoSuchMethod(Exception):
    """The API has no method with this path."""


@dataclass(frozen=True)
class _Asked:
    """The details of a call that a server would give to find its handler."""

    method: str
    invocation_metadata: Sequence[tuple[str, str]] = ()


class Conversation:
    """One call: messages go in, messages come out. It belongs to one task."""

    def __init__(
        self, handler: Any, caller: Caller, peer: str, metadata: Sequence[tuple[str, str]]
    ) -> None:
        self._handler = handler
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=16)
        self.context = InProcessContext(self, caller, peer, metadata)

    async def put(self, message: bytes | None) -> None:
        """Send a message; None ends the caller's side. Waits while too many are unread."""
        await self._inbox.put(message)

    async def get(self) -> Any:
        """The next request of the caller; aio.EOF at its end."""
        message = await self._inbox.get()
        return aio.EOF if message is None else self._handler.request_deserializer(message)

    async def _requests(self) -> AsyncIterator[Any]:
        while (request := await self.get()) is not aio.EOF:
            yield request

    async def responses(self) -> AsyncGenerator[bytes, None]:
        """The answers; CallRefused if the call fails."""
        handler, context = self._handler, self.context
        behaviour = _behaviour(handler)
        # Handlers that read late take a stream of requests, and read from the context.
        request = self._requests() if handler.request_streaming else await self.get()
        if not handler.response_streaming:
            yield handler.response_serializer(await behaviour(request, context))
            return
        answers = behaviour(request, context)
        try:
            async for answer in answers:
                yield handler.response_serializer(answer)
        finally:
            await answers.aclose()


class InProcessContext:
    """The context that handlers see."""

    def __init__(
        self,
        conversation: Conversation,
        caller: Caller,
        peer: str,
        metadata: Sequence[tuple[str, str]],
    ) -> None:
        self._conversation = conversation
        self._peer = peer
        self._metadata = metadata
        self.caller = caller
        """Who calls; the console has identified them."""

    async def read(self) -> Any:
        return await self._conversation.get()

    def invocation_metadata(self) -> Sequence[tuple[str, str]]:
        return self._metadata

    def auth_context(self) -> dict[str, Sequence[bytes]]:
        return {}

    def peer(self) -> str:
        return self._peer

    async def send_initial_metadata(self, metadata: object) -> None:
        """Nobody waits for it."""

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: Sequence[tuple[str, str | bytes]] = (),
    ) -> NoReturn:
        packed = dict(trailing_metadata).get(TRAILER)
        assert packed is None or isinstance(packed, bytes)
        raise _refusal(code, details, packed)

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        await self.abort(status.code, status.details, status.trailing_metadata or ())


class InProcessCalls:
    """Finds handlers by their paths."""

    def __init__(self, handlers: Sequence[Any]) -> None:
        self._handlers = handlers
        self._find = cache(self._find_handler)

    def begin(
        self,
        path: str,
        caller: Caller,
        *,
        peer: str,
        metadata: Sequence[tuple[str, str]] = (),
    ) -> Conversation:
        """NoSuchMethod if the API has none with this path."""
        return Conversation(self._find(path), caller, peer, metadata)

    def _find_handler(self, path: str) -> Any:
        for handler in self._handlers:
            if (found := handler.service(_Asked(path))) is not None:
                return found
        raise NoSuchMethod(path)


def _behaviour(handler: Any) -> Any:
    if handler.request_streaming:
        return handler.stream_stream if handler.response_streaming else handler.stream_unary
    return handler.unary_stream if handler.response_streaming else handler.unary_unary


def _refusal(code: grpc.StatusCode, details: str, packed: bytes | None) -> CallRefused:
    if packed is None:
        number = code_pb2.Code.Value(code.name)
        packed = status_pb2.Status(code=number, message=details).SerializeToString()
    return CallRefused(packed, details)
