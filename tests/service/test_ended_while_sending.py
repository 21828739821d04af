"""Calls that end while their caller sends: it gets what the server sent, and not an internal error
that grpc.aio puts in its place."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from grpc import aio

from sandboxd.access import Caller, Scope
from sandboxd.service.transport.forwarding import Forwarder
from sandboxd.service.transport.routing import Peer
from sandboxd_client.errors import SandboxError
from sandboxd_client.methods.method import Method
from sandboxd_client.remote import RemoteTransport
from sandboxd_client.sent_requests import ended
from sandboxd_client.settings import Settings
from sandboxd_proto.v1 import port_service_pb2 as pb

TRIES = 30
ANSWERS = 5
REFUSAL = "not this one"
BROKEN = (
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNAVAILABLE,
)
CALLER = Caller(name="ops", scope=Scope.ADMIN)


async def _ends(requests: AsyncIterator[bytes], _: Any) -> AsyncIterator[bytes]:
    await anext(requests)
    for _ in range(ANSWERS):
        yield pb.ForwardPortResponse(data=bytes(1000)).SerializeToString()


async def _refuses(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    async for answer in _ends(requests, context):
        yield answer
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, REFUSAL)


async def _refuses_upload(requests: AsyncIterator[bytes], context: Any) -> None:
    await anext(requests)
    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, REFUSAL)


async def _breaks(_: Any, context: Any) -> None:
    await context.abort(BROKEN[int(dict(context.invocation_metadata())["number"])], "RST_STREAM")


async def _data() -> AsyncIterator[pb.ForwardPortRequest]:
    for _ in range(500):
        yield pb.ForwardPortRequest(data=bytes(64 << 10))


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[str]:
    """A server whose methods end while much is being sent to them."""
    server = aio.server()
    handlers = {
        "Refuse": grpc.stream_stream_rpc_method_handler(_refuses),
        "End": grpc.stream_stream_rpc_method_handler(_ends),
        "Upload": grpc.stream_unary_rpc_method_handler(_refuses_upload),
        "BreakOne": grpc.unary_unary_rpc_method_handler(_breaks),
        "BreakUpload": grpc.stream_unary_rpc_method_handler(_breaks),
    }
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("sandboxd.v1.PortService", handlers),)
    )
    server.add_insecure_port(target := f"unix:{tmp_path}/server.sock")
    await server.start()
    yield target
    await server.stop(None)


class Refused(Exception):
    pass


class Context:
    """Of a call that is passed on."""

    def invocation_metadata(self) -> tuple[()]:
        return ()

    async def abort(self, _: grpc.StatusCode, message: str, __: object) -> None:
        raise Refused(message)


@asynccontextmanager
async def forwarder() -> AsyncIterator[Forwarder]:
    async def is_lost(_: str) -> bool:
        return False

    forwarder = Forwarder(bytes(32), is_lost=is_lost)
    yield forwarder
    await forwarder.aclose()


@pytest.mark.parametrize("name", ["End", "Refuse"])
async def test_client_gets_the_answers_and_the_end(name: str, target: str) -> None:
    """Of a conversation, every time."""
    transport = RemoteTransport(Settings("remote", target))
    await transport.start()
    method = Method("PortService", name, pb.ForwardPortRequest, pb.ForwardPortResponse)
    for _ in range(TRIES):
        answers, failure = 0, ""
        try:
            async for _ in transport.converse(method, _data(), timeout=30):
                answers += 1
        except SandboxError as error:
            failure = str(error)
        assert (answers, failure) == (ANSWERS, REFUSAL if name == "Refuse" else "")
    await transport.aclose()


@pytest.mark.parametrize("name", ["End", "Refuse"])
async def test_conversation_that_is_passed_on_ends_as_it_is_ended(name: str, target: str) -> None:
    """With all answers, every time."""
    path, context = f"/sandboxd.v1.PortService/{name}", cast("Any", Context())
    async with forwarder() as passing:
        for _ in range(TRIES):
            answers, failure = 0, ""
            try:
                async for _ in passing.conversation(
                    Peer("w", target, 1), path, _data(), context, CALLER
                ):
                    answers += 1
            except Refused as error:
                failure = str(error)
            assert (answers, failure) == (ANSWERS, REFUSAL if name == "Refuse" else "")


async def test_upload_that_is_passed_on_is_refused_as_it_is_refused(target: str) -> None:
    """Every time."""
    path, context = "/sandboxd.v1.PortService/Upload", cast("Any", Context())
    async with forwarder() as passing:
        refusals = await asyncio.gather(
            *(
                passing.upload(Peer("w", target, 1), path, _data(), context, CALLER)
                for _ in range(TRIES)
            ),
            return_exceptions=True,
        )
    assert {str(refusal) for refusal in refusals} == {REFUSAL}


@pytest.mark.parametrize("number", range(len(BROKEN)))
async def test_broken_connection_to_a_worker_is_no_internal_error(number: int, target: str) -> None:
    """However gRPC ends a call whose connection broke, its caller gets UNAVAILABLE."""
    codes = []

    class Told(Context):
        def invocation_metadata(self) -> Any:
            return (("number", str(number)),)

        async def abort(self, code: grpc.StatusCode, message: str, _: object) -> None:
            codes.append(code)
            raise Refused(message)

    context, peer, path = cast("Any", Told()), Peer("w", target, 1), "/sandboxd.v1.PortService/"
    request = pb.ForwardPortRequest()
    async with forwarder() as passing:
        with pytest.raises(Refused, match="Worker w cannot be reached"):
            await passing.unary(peer, f"{path}BreakOne", request, context, CALLER)
        with pytest.raises(Refused, match="Worker w cannot be reached"):
            await passing.upload(peer, f"{path}BreakUpload", _data(), context, CALLER)
    assert codes == [grpc.StatusCode.UNAVAILABLE] * 2


class FailedCall:
    """A call whose write has failed; its status comes when it has been looked for twice."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code
        self._looks = 0

    async def details(self) -> str:
        self._looks += 1
        return "Internal error from Core" if self._looks < 3 else REFUSAL

    async def code(self) -> grpc.StatusCode:
        return self._code

    async def metadata(self) -> aio.Metadata:
        return aio.Metadata()

    initial_metadata = trailing_metadata = metadata

    async def debug_error_string(self) -> str:
        return ""


async def test_status_that_comes_after_the_failed_write_counts() -> None:
    """Both when it is a refusal and when the call went well."""
    metadata = aio.Metadata()
    error = aio.AioRpcError(
        grpc.StatusCode.INTERNAL, metadata, metadata, "Internal error from Core"
    )
    refusal = await ended(FailedCall(grpc.StatusCode.NOT_FOUND), error)
    assert refusal is not None
    assert (refusal.code(), refusal.details()) == (grpc.StatusCode.NOT_FOUND, REFUSAL)
    assert await ended(FailedCall(grpc.StatusCode.OK), error) is None
