"""A bare grpc.aio server in a separate process: what gRPC alone costs."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.wrappers_pb2 import BytesValue, UInt64Value
from grpc import aio

CHUNK_BYTES = 1 << 16
SERVICE = "sandboxd.bench.Peer"


class Peer:
    """The client of the bare server."""

    def __init__(self, target: str) -> None:
        self._channel = aio.insecure_channel(target)
        self._echo = self._channel.unary_unary(
            f"/{SERVICE}/Echo", BytesValue.SerializeToString, BytesValue.FromString
        )
        self._flow = self._channel.unary_stream(
            f"/{SERVICE}/Flow", UInt64Value.SerializeToString, BytesValue.FromString
        )

    async def close(self) -> None:
        await self._channel.close()

    async def ready(self) -> None:
        await self._echo(BytesValue(), wait_for_ready=True, timeout=30)

    async def echo(self) -> float:
        """Seconds of a unary call that does nothing."""
        began = time.perf_counter()
        await self._echo(BytesValue(value=b"true"))
        return time.perf_counter() - began

    async def flow_bytes(self, count: int) -> int:
        """Number of bytes that a stream of chunks returns."""
        received = 0
        async for message in self._flow(UInt64Value(value=count)):
            received += len(message.value)
        return received


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[Peer]:
    """The server for the block."""
    socket = directory / "peer.sock"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.peer", str(socket), cwd=Path(__file__).parents[1]
    )
    peer = Peer(f"unix:{socket}")
    try:
        await peer.ready()
        yield peer
    finally:
        await peer.close()
        process.terminate()
        await process.wait()


async def _echo(request: BytesValue, _: Any) -> BytesValue:
    return request


async def _flow(request: UInt64Value, _: Any) -> AsyncIterator[BytesValue]:
    chunk = bytes(CHUNK_BYTES)
    for _ in range(request.value // CHUNK_BYTES):
        yield BytesValue(value=chunk)


async def _serve(socket: str) -> None:
    server = aio.server()
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Echo": grpc.unary_unary_rpc_method_handler(
            _echo, BytesValue.FromString, BytesValue.SerializeToString
        ),
        "Flow": grpc.unary_stream_rpc_method_handler(
            _flow, UInt64Value.FromString, BytesValue.SerializeToString
        ),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
