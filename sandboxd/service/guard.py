"""What happens around every call of our services: admission, who may enter, and errors.

Wrapped around the methods once, not an interceptor: grpc.aio runs those anew for every call, which
costs more than all of our own code on the way of a short command.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import grpc
import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from sandboxd.errors import InvalidRequest, SandboxdError, TooManyRequests, UploadStalled
from sandboxd.service.chunk_messages import chunk_in
from sandboxd.service.entrance import Entrance
from sandboxd.service.status import internal_status, to_status
from sandboxd.service.wire import Context

log = structlog.get_logger()


class CallGuard:
    """Maps every exception to a status, once, and limits the calls served at once.

    Without it grpc.aio would send the text of an unexpected exception to the caller.
    """

    def __init__(
        self,
        *,
        max_calls: int,
        entrance: Entrance | None = None,
        idle_seconds: float = 60.0,
    ) -> None:
        """`idle_seconds`: how long a caller that streams may send nothing."""
        self._max_calls = max_calls
        self._entrance = entrance or Entrance()
        self._idle_seconds = idle_seconds
        self._calls = 0

    def handler(self, service: ServiceDescriptor, servicer: object) -> grpc.GenericRpcHandler:
        """How the server is to answer calls of a service."""
        handlers = {
            method.name: self._method(method, self._entrance.before(method, servicer))
            for method in service.methods
        }
        return grpc.method_handlers_generic_handler(service.full_name, handlers)

    def _method(self, method: MethodDescriptor, behaviour: Any) -> Any:
        read = _readable(GetMessageClass(method.input_type))
        write = GetMessageClass(method.output_type).SerializeToString
        if method.client_streaming:
            upload = self._upload(behaviour, method.name)
            return grpc.stream_unary_rpc_method_handler(upload, _chunk_or(read), write)
        if method.server_streaming:
            stream = self._stream(behaviour, method.name)
            return grpc.unary_stream_rpc_method_handler(stream, read, _written_or(write))
        unary = self._unary(behaviour, method.name)
        return grpc.unary_unary_rpc_method_handler(unary, read, write)

    def _unary(self, behaviour: Any, method: str) -> Any:
        async def call(request: Any, context: Context) -> Any:
            self._calls += 1
            try:
                self._admit(request)
                return await behaviour(request, context)
            except Exception as error:
                await self._fail(error, context, method)
            finally:
                self._calls -= 1

        return call

    def _stream(self, behaviour: Any, method: str) -> Any:
        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            self._calls += 1
            try:
                self._admit(request)
                async for response in behaviour(request, context):
                    yield response
            except Exception as error:
                await self._fail(error, context, method)
            finally:
                self._calls -= 1

        return call

    def _upload(self, behaviour: Any, method: str) -> Any:
        async def call(requests: AsyncIterator[Any], context: Context) -> Any:
            self._calls += 1
            try:
                self._check_room()
                return await behaviour(self._arriving(requests), context)
            except Exception as error:
                await self._fail(error, context, method)
            finally:
                self._calls -= 1

        return call

    async def _arriving(self, requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The messages of a caller that does not pause for too long."""
        while True:
            try:
                async with asyncio.timeout(self._idle_seconds):
                    request = await anext(requests)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise UploadStalled(self._idle_seconds) from None
            _check_readable(request)
            yield request

    def _admit(self, request: Any) -> None:
        self._check_room()
        _check_readable(request)

    def _check_room(self) -> None:
        if self._calls > self._max_calls:
            raise TooManyRequests(
                "The daemon serves as many calls as it may; try again in a moment.",
                retry_after_seconds=1.0,
            )

    async def _fail(self, error: Exception, context: Context, method: str) -> NoReturn:
        if isinstance(error, aio.AbortError):
            raise error  # the handler has answered by itself
        if isinstance(error, SandboxdError):
            log.info("call.refused", method=method, reason=error.reason, message=error.message)
            await context.abort_with_status(to_status(error))
        error_id = secrets.token_hex(6)
        log.error("call.failed", method=method, error_id=error_id, exc_info=error)
        await context.abort_with_status(internal_status(error_id))
        raise AssertionError("abort returned")


def _check_readable(request: Any) -> None:
    if request is None:
        raise InvalidRequest(
            "request", "it is no such message, or a string in it is not UTF-8; check the stubs"
        )


def _chunk_or(read: Callable[[bytes], Message | None]) -> Callable[[bytes], object]:
    def read_part(data: bytes) -> object:
        chunk = chunk_in(data)
        return read(data) if chunk is None else chunk

    return read_part


def _written_or(write: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    """For messages that are given as what goes over the wire, or not."""
    return lambda message: message if type(message) is bytes else write(message)


def _readable(request_type: type[Message]) -> Callable[[bytes], Message | None]:
    """Deserialise, or give None: an exception at that point would go to the caller as it is."""

    def read(data: bytes) -> Message | None:
        try:
            return request_type.FromString(data)
        except DecodeError:
            return None

    return read
