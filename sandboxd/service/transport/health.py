"""The health service, which answers everyone and keeps nothing of what strangers send.

That of grpcio-health-checking keeps the name and a stream for every service that a caller makes up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health, health_pb2

from sandboxd.service.wire import Context

SERVICE = health.SERVICE_NAME
MAX_REQUEST_BYTES = 1024
MAX_WATCHES = 32
"""Streams at once. Each can hold what its caller has sent and nobody reads, up to a window."""
MAX_READS = 4
"""Requests that are read at once. Each can be as large as any message."""
READ_SECONDS = 5.0
"""How long a caller may take to say which service it asks about."""


class Health:
    """The state of the daemon, which is that of each of its services.

    Methods are registered as if callers streamed, so that grpc.aio reads nothing by itself.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(("", *services))
        self._is_stopping = asyncio.Event()
        self._reads = asyncio.Semaphore(MAX_READS)
        self._watches = 0

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        write = health_pb2.HealthCheckResponse.SerializeToString
        methods = {
            "Check": grpc.stream_unary_rpc_method_handler(self._check, _service, write),
            "Watch": grpc.stream_stream_rpc_method_handler(self._watch, _service, write),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    def announce_stop(self) -> None:
        """Report to all, also to those who watch, that the daemon no longer serves."""
        self._is_stopping.set()

    async def _check(self, _: object, context: Context) -> health_pb2.HealthCheckResponse:
        # A stranger who makes every read last must not make the daemon look ill to others. Only the
        # answer to a name that it does not serve depends on the name.
        service = "" if self._reads.locked() else await self._read(context)
        if service not in self._services:
            await _abort_unknown(context)
        return self._answer()

    async def _watch(
        self, _: object, context: Context
    ) -> AsyncIterator[health_pb2.HealthCheckResponse]:
        if self._watches >= MAX_WATCHES:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"The daemon serves at most {MAX_WATCHES} watches; use Check, or try again later.",
            )
        self._watches += 1
        try:
            if await self._read(context) not in self._services:
                await _abort_unknown(context)
            yield self._answer()
            if not self._is_stopping.is_set():
                await self._is_stopping.wait()
                yield self._answer()
            # A client whose watch ends would begin another at once.
            await asyncio.get_running_loop().create_future()
        finally:
            self._watches -= 1

    def _answer(self) -> health_pb2.HealthCheckResponse:
        is_serving = not self._is_stopping.is_set()
        status = health_pb2.HealthCheckResponse.SERVING
        return health_pb2.HealthCheckResponse(
            status=status if is_serving else health_pb2.HealthCheckResponse.NOT_SERVING
        )

    async def _read(self, context: Context) -> str | None:
        """The service that the caller names; None if that cannot be one of ours."""
        try:
            async with asyncio.timeout(READ_SECONDS), self._reads:
                name = await context.read()
        except TimeoutError:
            return None
        return name if isinstance(name, str) else None


def _service(data: bytes) -> str | None:
    if len(data) > MAX_REQUEST_BYTES:
        return None
    try:
        return str(health_pb2.HealthCheckRequest.FromString(data).service)
    except DecodeError:
        return None


async def _abort_unknown(context: Context) -> None:
    await context.abort(grpc.StatusCode.NOT_FOUND, "This daemon has no service of this name.")
