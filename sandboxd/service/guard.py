"""What happens around every call of our services: admission, who may enter, and errors.

Wrapped around the methods once, not an interceptor: grpc.aio runs those anew for every call, which
costs more than all of our own code on the way of a short command.
"""

from __future__ import annotations

import asyncio
import secrets
import shlex
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from sandboxd.calls import Call, current
from sandboxd.errors import InvalidRequest, SandboxdError, TooManyRequests, UploadStalled
from sandboxd.journal import MAX_COMMAND, Journal
from sandboxd.service.chunk_messages import chunk_in
from sandboxd.service.entrance import Entrance
from sandboxd.service.status import internal_status, to_status
from sandboxd.service.wire import Context
from sandboxd.statistics import Statistics

if TYPE_CHECKING:
    from sandboxd.traces import Traces

log = structlog.get_logger()

RETRY_METADATA = "sandboxd-retry"
"""Set by clients on calls that they repeat by themselves."""
_ASKED = {
    "user": "user_id",
    "thread": "thread_id",
    "session": "session_id",
    "exec": "exec_id",
    "command": "shell",
    "path": "path",
}
HEAR_OUT_SECONDS = 2.0


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
        journal: Journal | None = None,
        statistics: Statistics | None = None,
        traces: Traces | None = None,
    ) -> None:
        """`idle_seconds`: how long a caller that streams may send nothing."""
        self._max_calls = max_calls
        self._entrance = entrance or Entrance()
        self._idle_seconds = idle_seconds
        self._journal = journal or Journal()
        self._statistics = statistics or Statistics()
        self._traces = traces
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
        async def serve(request: Any, context: Context) -> Any:
            call = self._begin(request, context, method)
            try:
                self._admit(request)
                response = await behaviour(request, context)
                self._statistics.retries_succeeded += call.is_retry
                return response
            except Exception as error:
                await self._fail(error, context, call, request)
            finally:
                self._end(call)

        return serve

    def _stream(self, behaviour: Any, method: str) -> Any:
        async def serve(request: Any, context: Context) -> AsyncIterator[Any]:
            call = self._begin(request, context, method)
            try:
                self._admit(request)
                async for response in behaviour(request, context):
                    yield response
                self._statistics.retries_succeeded += call.is_retry
            except Exception as error:
                await self._fail(error, context, call, request)
            finally:
                self._end(call)

        return serve

    def _upload(self, behaviour: Any, method: str) -> Any:
        async def serve(requests: AsyncIterator[Any], context: Context) -> Any:
            call = self._begin(None, context, method)
            upload = _Upload(requests, idle_seconds=self._idle_seconds)
            try:
                self._check_room()
                response = await behaviour(upload.messages(), context)
                self._statistics.retries_succeeded += call.is_retry
                return response
            except Exception as error:
                if not isinstance(error, UploadStalled):
                    await upload.hear_out()
                await self._fail(error, context, call, upload.header)
            finally:
                self._end(call)

        return serve

    def _begin(self, request: Any, context: Context, method: str) -> Call:
        """Note the call, for logs, figures and traces."""
        self._calls += 1
        call = Call(
            method,
            session_id=getattr(request, "session_id", ""),
            exec_id=getattr(request, "exec_id", ""),
        )
        current.set(call)
        self._statistics.calls[method] += 1
        metadata = context.invocation_metadata() or ()
        for key, _ in metadata:
            if key == RETRY_METADATA:
                call.is_retry = True
                self._statistics.retries += 1
                break
        if self._traces is not None:
            self._traces.begin_call(call, metadata)
        return call

    def _end(self, call: Call) -> None:
        self._calls -= 1
        if self._traces is not None:
            self._traces.end_call(call)

    def _admit(self, request: Any) -> None:
        self._check_room()
        _check_readable(request)

    def _check_room(self) -> None:
        if self._calls > self._max_calls:
            raise TooManyRequests(
                "The daemon serves as many calls as it may; try again in a moment.",
                retry_after_seconds=1.0,
            )

    async def _fail(
        self, error: Exception, context: Context, call: Call, request: Any = None
    ) -> NoReturn:
        method = call.method
        self._statistics.failed_calls[method] += 1
        call.failure = error.reason if isinstance(error, SandboxdError) else "INTERNAL"
        if isinstance(error, aio.AbortError):
            raise error  # the handler has answered by itself
        if isinstance(error, SandboxdError):
            log.info("call.refused", method=method, reason=error.reason, message=error.message)
            self._journal.on_refused(error, _asked(request))
            await context.abort_with_status(to_status(error))
        error_id = secrets.token_hex(6)
        log.error("call.failed", method=method, error_id=error_id, exc_info=error)
        await context.abort_with_status(internal_status(error_id))
        raise AssertionError("abort returned")


class _Upload:
    """What a caller streams, and what its first message said that it is."""

    def __init__(self, requests: AsyncIterator[Any], *, idle_seconds: float) -> None:
        self._requests = requests
        self._idle_seconds = idle_seconds
        self.header: Any = None
        """None until there was one."""

    async def messages(self) -> AsyncIterator[Any]:
        """Those of a caller that does not pause for too long."""
        is_first = True
        while True:
            try:
                async with asyncio.timeout(self._idle_seconds):
                    request = await anext(self._requests)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise UploadStalled(self._idle_seconds) from None
            _check_readable(request)
            if is_first:
                is_first = False
                self.header = getattr(request, "header", None)
            yield request

    async def hear_out(self) -> None:
        """Let a caller finish what it is sending, for a while: to one that has an answer before
        that, grpc.aio tells of an internal error and not what the answer was.

        Of one that was refused before its first message, that one is read here.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(HEAR_OUT_SECONDS):
                async for request in self._requests:
                    if self.header is None:
                        self.header = getattr(request, "header", None)


def _check_readable(request: Any) -> None:
    if request is None:
        raise InvalidRequest(
            "request", "it is no such message, or a string in it is not UTF-8; check the stubs"
        )


def _asked(request: Any) -> dict[str, Any]:
    """What a request was about, in the words of the audit log."""
    named = {word: getattr(request, field, "") for word, field in _ASKED.items()}
    named["path"] = named["path"] or getattr(request, "path_bytes", b"").decode(errors="replace")
    if words := getattr(getattr(request, "argv", None), "args", ()):
        named["command"] = shlex.join(words)
    return {word: value[:MAX_COMMAND] for word, value in named.items() if value}


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
