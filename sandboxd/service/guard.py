"""What happens around every call of our services: admission and errors.

Wrapped around the methods once, not an interceptor: grpc.aio runs those anew for every call, which
costs more than all of our own code on the way of a short command.
"""

from __future__ import annotations

import secrets
import shlex
from collections.abc import AsyncIterator, Callable
from typing import Any, NoReturn

import grpc
import structlog
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from grpc import aio

from sandboxd import calls
from sandboxd.errors import InvalidRequest, SandboxdError, TooManyRequests
from sandboxd.journal import MAX_COMMAND, Journal
from sandboxd.service.status import internal_status, to_status
from sandboxd.service.wire import Context
from sandboxd.statistics import Statistics

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


class CallGuard:
    """Maps every exception to a status, once, and limits the calls served at once.

    Without it grpc.aio would send the text of an unexpected exception to the caller.
    """

    def __init__(
        self,
        *,
        max_calls: int,
        journal: Journal | None = None,
        statistics: Statistics | None = None,
    ) -> None:
        self._max_calls = max_calls
        self._journal = journal or Journal()
        self._statistics = statistics or Statistics()
        self._calls = 0

    def handler(self, service: ServiceDescriptor, servicer: object) -> grpc.GenericRpcHandler:
        """How the server is to answer calls of a service."""
        handlers = {
            method.name: self._method(method, getattr(servicer, method.name))
            for method in service.methods
        }
        return grpc.method_handlers_generic_handler(service.full_name, handlers)

    def _method(self, method: MethodDescriptor, behaviour: Any) -> Any:
        read = _readable(GetMessageClass(method.input_type))
        write = GetMessageClass(method.output_type).SerializeToString
        if method.server_streaming:
            stream = self._stream(behaviour, method.name)
            return grpc.unary_stream_rpc_method_handler(stream, read, write)
        unary = self._unary(behaviour, method.name)
        return grpc.unary_unary_rpc_method_handler(unary, read, write)

    def _unary(self, behaviour: Any, method: str) -> Any:
        async def call(request: Any, context: Context) -> Any:
            self._calls += 1
            is_retry = self._begin(request, context, method)
            try:
                self._admit(request)
                response = await behaviour(request, context)
                self._statistics.retries_succeeded += is_retry
                return response
            except Exception as error:
                await self._fail(error, context, method, request)
            finally:
                self._calls -= 1

        return call

    def _stream(self, behaviour: Any, method: str) -> Any:
        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            self._calls += 1
            is_retry = self._begin(request, context, method)
            try:
                self._admit(request)
                async for response in behaviour(request, context):
                    yield response
                self._statistics.retries_succeeded += is_retry
            except Exception as error:
                await self._fail(error, context, method, request)
            finally:
                self._calls -= 1

        return call

    def _begin(self, request: Any, context: Context, method: str) -> bool:
        """Note the call, for logs and figures; True if its client says that it repeats it."""
        session_id = getattr(request, "session_id", "")
        calls.current.set(
            calls.Call(method, session_id=session_id, exec_id=getattr(request, "exec_id", ""))
        )
        self._statistics.calls[method] += 1
        is_retry = any(key == RETRY_METADATA for key, _ in context.invocation_metadata() or ())
        self._statistics.retries += is_retry
        return is_retry

    def _admit(self, request: Any) -> None:
        if self._calls > self._max_calls:
            raise TooManyRequests(
                "The daemon serves as many calls as it may; try again in a moment.",
                retry_after_seconds=1.0,
            )
        if request is None:
            raise InvalidRequest(
                "request", "it is no such message, or a string in it is not UTF-8; check the stubs"
            )

    async def _fail(
        self, error: Exception, context: Context, method: str, request: Any = None
    ) -> NoReturn:
        self._statistics.failed_calls[method] += 1
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


def _asked(request: Any) -> dict[str, Any]:
    """What a request was about, in the words of the audit log."""
    named = {word: getattr(request, field, "") for word, field in _ASKED.items()}
    if words := getattr(getattr(request, "argv", None), "args", ()):
        named["command"] = shlex.join(words)
    return {word: value[:MAX_COMMAND] for word, value in named.items() if value}


def _readable(request_type: type[Message]) -> Callable[[bytes], Message | None]:
    """Deserialise, or give None: an exception at that point would go to the caller as it is."""

    def read(data: bytes) -> Message | None:
        try:
            return request_type.FromString(data)
        except DecodeError:
            return None

    return read
