"""Requests that are sent one after the other, against a server that ends the call as it likes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from sandboxd_client.errors import ClientClosedError, SandboxError
from sandboxd_client.methods.files import UPLOAD_FILE
from sandboxd_client.remote import RemoteTransport
from sandboxd_client.settings import Settings
from sandboxd_proto.v1 import file_service_pb2 as pb

Handler = Callable[[AsyncIterator[pb.UploadFileRequest], Any], Awaitable[Any]]
LARGE = pb.UploadFileRequest(chunk=bytes(1 << 20))


@asynccontextmanager
async def connected(directory: Path, handler: Handler) -> AsyncIterator[RemoteTransport]:
    """A transport to a server whose UploadFile is this function."""
    server = aio.server()
    method = grpc.stream_unary_rpc_method_handler(
        handler,
        request_deserializer=pb.UploadFileRequest.FromString,
        response_serializer=pb.UploadFileResponse.SerializeToString,
    )
    handlers = {"UploadFile": method}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("sandboxd.v1.FileService", handlers),)
    )
    target = f"unix:{directory}/server.sock"
    server.add_insecure_port(target)
    await server.start()
    transport = RemoteTransport(Settings("remote", target))
    await transport.start()
    try:
        yield transport
    finally:
        await transport.aclose()
        await server.stop(None)


async def all_read(requests: AsyncIterator[pb.UploadFileRequest], _: Any) -> pb.UploadFileResponse:
    size = 0
    async for request in requests:
        size += len(request.chunk)
    answer = pb.UploadFileResponse()
    answer.entry.size_bytes = size
    return answer


async def some(count: int) -> AsyncIterator[pb.UploadFileRequest]:
    for _ in range(count):
        yield LARGE


async def test_all_arrive_in_order_and_the_answer_returns(tmp_path: Path) -> None:
    """Also when there is none at all."""
    async with connected(tmp_path, all_read) as transport:
        for count in (0, 1, 5):
            answer = await transport.send(UPLOAD_FILE, some(count), timeout=30)
            assert answer.entry.size_bytes == count << 20


async def test_a_refusal_in_the_middle_is_reported_as_it_is(tmp_path: Path) -> None:
    """Not as the failure of the write that it interrupts."""

    async def refuse(requests: AsyncIterator[pb.UploadFileRequest], context: Any) -> None:
        await anext(requests)
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not this one")

    async with connected(tmp_path, refuse) as transport:
        for _ in range(20):
            with pytest.raises(SandboxError, match="not this one"):
                await transport.send(UPLOAD_FILE, some(50), timeout=30)


async def test_what_is_read_when_the_call_ends_is_read_to_its_end(tmp_path: Path) -> None:
    """A next attempt reads from the same file, which a thread may be reading until then."""
    is_refused, was_read = asyncio.Event(), asyncio.Event()

    async def refuse(requests: AsyncIterator[pb.UploadFileRequest], context: Any) -> None:
        await anext(requests)
        is_refused.set()
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not this one")

    async def slow() -> AsyncIterator[pb.UploadFileRequest]:
        yield LARGE
        await is_refused.wait()
        for _ in range(50):
            await asyncio.sleep(0.001)
        was_read.set()
        yield LARGE

    async with connected(tmp_path, refuse) as transport:
        with pytest.raises(SandboxError, match="not this one"):
            await transport.send(UPLOAD_FILE, slow(), timeout=30)
        assert was_read.is_set()


async def test_requests_that_fail_end_the_call(tmp_path: Path) -> None:
    """The caller gets their exception, and the server does not wait for more."""
    is_over = asyncio.Event()

    async def wait(requests: AsyncIterator[pb.UploadFileRequest], context: Any) -> None:
        context.add_done_callback(lambda _: is_over.set())
        await asyncio.Event().wait()

    async def broken() -> AsyncIterator[pb.UploadFileRequest]:
        yield LARGE
        raise OSError("the disk is gone")

    async with connected(tmp_path, wait) as transport:
        with pytest.raises(OSError, match="the disk is gone"):
            await transport.send(UPLOAD_FILE, broken(), timeout=30)
        await asyncio.wait_for(is_over.wait(), 10)


@pytest.mark.parametrize("cancels", [1, 3])
async def test_a_cancelled_caller_gets_its_own_exception(tmp_path: Path, cancels: int) -> None:
    """However often it is cancelled; what it sends from can be closed then."""
    has_begun = asyncio.Event()

    async def wait(requests: AsyncIterator[pb.UploadFileRequest], _: Any) -> None:
        await anext(requests)
        has_begun.set()
        await asyncio.Event().wait()

    async with connected(tmp_path, wait) as transport:

        async def sent() -> None:
            async with aclosing(endless()) as requests:
                await transport.send(UPLOAD_FILE, requests, timeout=30)

        async def endless() -> Any:
            while True:
                yield LARGE
                await asyncio.sleep(0)

        task = asyncio.create_task(sent())
        await asyncio.wait_for(has_begun.wait(), 10)
        for _ in range(cancels):
            task.cancel("by the scope")
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError, match="by the scope"):
            await task


async def test_a_closed_transport_ends_what_is_sent(tmp_path: Path) -> None:
    """With the error that says so, not as a cancelled caller."""
    has_begun = asyncio.Event()

    async def wait(requests: AsyncIterator[pb.UploadFileRequest], _: Any) -> None:
        await anext(requests)
        has_begun.set()
        await asyncio.Event().wait()

    async with connected(tmp_path, wait) as transport:
        task = asyncio.create_task(transport.send(UPLOAD_FILE, some(1000), timeout=30))
        await asyncio.wait_for(has_begun.wait(), 10)
        await transport.aclose()
        with pytest.raises(ClientClosedError):
            await task
