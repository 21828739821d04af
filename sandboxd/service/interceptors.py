"""What happens around every call: admission, errors, log fields."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import structlog
from grpc import aio

from sandboxd.errors import SandboxdError, TooManyRequests
from sandboxd.service.status import internal_status, to_status
from sandboxd.service.wire import Context

log = structlog.get_logger()

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class ErrorInterceptor(aio.ServerInterceptor):
    """Maps every exception to a status, once, and limits the calls served at once.

    Without it grpc.aio would send the text of an unexpected exception to the caller.
    """

    def __init__(self, *, max_calls: int) -> None:
        self._max_calls = max_calls
        self._calls = 0

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        method = str(handler_call_details.method)
        if handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(
                self._unary(handler.unary_unary, method),
                handler.request_deserializer,
                handler.response_serializer,
            )
        if handler.unary_stream is not None:
            return grpc.unary_stream_rpc_method_handler(
                self._stream(handler.unary_stream, method),
                handler.request_deserializer,
                handler.response_serializer,
            )
        # Reflection and health watch: not ours, and they map their own errors.
        return handler

    def _unary(self, behaviour: Any, method: str) -> Any:
        async def call(request: Any, context: Context) -> Any:
            try:
                self._admit()
            except TooManyRequests as error:
                await self._fail(error, context, method)
            try:
                return await behaviour(request, context)
            except (Exception, GeneratorExit) as error:
                await self._fail(error, context, method)
            finally:
                self._calls -= 1

        return call

    def _stream(self, behaviour: Any, method: str) -> Any:
        async def call(request: Any, context: Context) -> AsyncIterator[Any]:
            try:
                self._admit()
            except TooManyRequests as error:
                await self._fail(error, context, method)
            try:
                async for response in behaviour(request, context):
                    yield response
            except Exception as error:
                await self._fail(error, context, method)
            finally:
                self._calls -= 1

        return call

    def _admit(self) -> None:
        self._calls += 1
        if self._calls > self._max_calls:
            self._calls -= 1
            raise TooManyRequests(
                "The daemon serves as many calls as it may; try again in a moment.",
                retry_after_seconds=1.0,
            )

    async def _fail(self, error: BaseException, context: Context, method: str) -> None:
        if isinstance(error, aio.AbortError):
            raise error  # the handler has answered by itself
        if isinstance(error, SandboxdError):
            log.info("call.refused", method=method, reason=error.reason, message=error.message)
            await context.abort_with_status(to_status(error))
        error_id = secrets.token_hex(6)
        log.error("call.failed", method=method, error_id=error_id, exc_info=error)
        await context.abort_with_status(internal_status(error_id))
