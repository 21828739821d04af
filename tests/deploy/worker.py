"""A gRPC server in place of a worker: it says who it is, and holds calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health

SERVICE = "deploy.test.Worker"


@dataclass
class Worker:
    name: str
    port: int = 0
    calls: int = 0
    """Those that named nobody, too; not health checks."""
    held: int = 0
    """Calls of Hold that have not ended."""
    cancelled: int = 0
    metadata: dict[str, str | bytes] = field(default_factory=dict)
    """Of the last call of Who."""
    seconds_left: float | None = None
    """Until the deadline of the last call, as the worker knows it."""
    let_go: asyncio.Event = field(default_factory=asyncio.Event)
    health: Any = field(default_factory=health.HealthServicer)

    async def set_healthy(self, is_healthy: bool) -> None:
        status = health_pb2.HealthCheckResponse
        await self.health.set("", status.SERVING if is_healthy else status.NOT_SERVING)

    async def _who(self, request: bytes, context: Any) -> bytes:
        self.calls += 1
        self.seconds_left = context.time_remaining()
        self.metadata = dict(context.invocation_metadata())
        return self.name.encode()

    async def _hold(self, request: bytes, context: Any) -> bytes:
        self.calls += 1
        self.held += 1
        self.seconds_left = context.time_remaining()
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.held -= 1
        return self.name.encode()

    async def _echo(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        self.calls += 1
        async for request in requests:
            yield self.name.encode() + b":" + request

    @property
    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Who": grpc.unary_unary_rpc_method_handler(self._who),
                "Hold": grpc.unary_unary_rpc_method_handler(self._hold),
                "Echo": grpc.stream_stream_rpc_method_handler(self._echo),
            },
        )


@asynccontextmanager
async def running(
    name: str, credentials: grpc.ServerCredentials | None = None
) -> AsyncIterator[Worker]:
    """A healthy worker on a port of loopback."""
    worker = Worker(name)
    limit = [("grpc.max_receive_message_length", 8 << 20)]
    server = grpc.aio.server(options=limit)
    server.add_generic_rpc_handlers((worker.handler,))
    health_pb2_grpc.add_HealthServicer_to_server(worker.health, server)
    if credentials is None:
        worker.port = server.add_insecure_port("127.0.0.1:0")
    else:
        worker.port = server.add_secure_port("127.0.0.1:0", credentials)
    await worker.set_healthy(True)
    await server.start()
    try:
        yield worker
    finally:
        await server.stop(0)
