"""Methods that are answered by the worker which has the session they are about."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from google.protobuf.descriptor import MethodDescriptor

from sandboxd.access import current_caller
from sandboxd.errors import OwnedElsewhere, OwnershipNotKnown, SessionNotFound
from sandboxd.service.transport.forwarding import Forwarder, Moved
from sandboxd.service.transport.listing import Listing
from sandboxd.service.transport.routing import Routing, is_direct
from sandboxd.service.transport.served_here import ServedHere
from sandboxd.service.wire import Context

MAX_TRIES = 5
"""How often the worker for a call is looked for: its session may move meanwhile."""

_LISTS_SESSIONS = "ListSessions"


class Cluster:
    """Wraps methods once, when they are registered."""

    def __init__(self, routing: Routing, forwarder: Forwarder, listing: Listing) -> None:
        self._routing = routing
        self._forwarder = forwarder
        self._listing = listing
        self.here = ServedHere()

    def routed(self, method: MethodDescriptor, behaviour: Any) -> Any:
        """The method, here or on the worker that its request is for."""
        assert method.containing_service is not None
        path = f"/{method.containing_service.full_name}/{method.name}"
        if method.containing_service.name == "ClusterService":
            return behaviour  # about the directory, which all share, or about this worker
        if method.name == _LISTS_SESSIONS:
            return self._listing.of_all(path, behaviour)
        if method.client_streaming and method.server_streaming:
            return self._conversation(path, behaviour)
        if method.client_streaming:
            return self._upload(path, behaviour)
        if method.server_streaming:
            return self._stream(path, behaviour)
        return self._unary(path, behaviour)

    @asynccontextmanager
    async def _here(self, request: Any, context: Context) -> AsyncIterator[None]:
        """Answer a call here as long as the block lasts. Moved if this worker has just let go of
        the session, and another has it."""
        async with self.here.call(request, context):
            try:
                yield
            except SessionNotFound:
                if await self._routing.is_elsewhere(request):
                    raise Moved from None
                raise

    def _unary(self, path: str, behaviour: Any) -> Any:
        async def answer(request: Any, context: Context) -> Any:
            peer = await self._routing.peer(request, context)
            if peer is None:
                async with self._here(request, context):
                    return await behaviour(request, context)
            return await self._forwarder.unary(peer, path, request, context, current_caller())

        async def serve(request: Any, context: Context) -> Any:
            for _ in range(MAX_TRIES):
                try:
                    return await answer(request, context)
                except OwnedElsewhere:
                    if is_direct(context):
                        raise
                except Moved:
                    self._routing.forget_view()
            raise OwnershipNotKnown("it is being moved", retry_after_seconds=1.0)

        return serve

    def _stream(self, path: str, behaviour: Any) -> Any:
        async def serve(request: Any, context: Context) -> AsyncIterator[Any]:
            peer = await self._routing.peer(request, context)
            if peer is None:
                with _moved_as_unknown():
                    async with self._here(request, context):
                        async for answer in behaviour(request, context):
                            yield answer
                return
            caller = current_caller()
            with _moved_as_unknown():
                async for answer in self._forwarder.stream(peer, path, request, context, caller):
                    yield answer

        return serve

    def _upload(self, path: str, behaviour: Any) -> Any:
        async def serve(requests: AsyncIterator[Any], context: Context) -> Any:
            first = await anext(requests, None)
            peer = await self._routing.peer(first, context)
            if peer is None:
                with _moved_as_unknown():
                    async with self._here(first, context):
                        return await behaviour(_with_first(first, requests), context)
            with _moved_as_unknown():
                return await self._forwarder.upload(
                    peer, path, _with_first(first, requests), context, current_caller()
                )

        return serve

    def _conversation(self, path: str, behaviour: Any) -> Any:
        async def serve(requests: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
            first = await anext(requests, None)
            peer = await self._routing.peer(first, context)
            every = _with_first(first, requests)
            if peer is None:
                with _moved_as_unknown():
                    async with self._here(first, context):
                        async for answer in behaviour(every, context):
                            yield answer
                return
            caller = current_caller()
            with _moved_as_unknown():
                async for answer in self._forwarder.conversation(
                    peer, path, every, context, caller
                ):
                    yield answer

        return serve


@contextmanager
def _moved_as_unknown() -> Iterator[None]:
    try:
        yield
    except Moved:
        raise OwnershipNotKnown("it is being moved", retry_after_seconds=1.0) from None


async def _with_first(first: Any, rest: AsyncIterator[Any]) -> AsyncIterator[Any]:
    if first is not None:
        yield first
        async for request in rest:
            yield request
