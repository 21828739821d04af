"""What happens around every call of our services: admission and errors.

Wrapped around the methods once, not an interceptor: grpc.aio runs those anew for every call, which
costs more than all of our own code on the way of a short command.
"""

from __future__ import annotations

import inspect
import secrets
from collections.abc import AsyncIterator
from typing import Any, NoReturn, TypeVar

import structlog
from google.protobuf.descriptor import ServiceDescriptor
from grpc import aio

from sandboxd.errors import SandboxdError, TooManyRequests
from sandboxd.service.status import internal_status, to_status
from sandboxd.service.wire import Context

log = structlog.get_logger()

Servicer = TypeVar("Servicer")


class CallGuard:
    """Maps every exception to a status, once, and limits the calls served at once.

    Without it grpc.aio would send the text of an unexpected exception to the caller.
    """

    def __init__(self, *, max_calls: int) -> None:
        self._max_calls = max_calls
        self._calls = 0

    def around(self, servicer: Servicer, service: ServiceDescriptor) -> Servicer:
        """The servicer, with every method of the service wrapped."""
        for method in service.methods:
            behaviour = getattr(servicer, method.name)
            wrap = self._stream if inspect.isasyncgenfunction(behaviour) else self._unary
            setattr(servicer, method.name, wrap(behaviour, method.name))
        return servicer

    def _unary(self, behaviour: Any, method: str) -> Any:
        async def call(request: Any, context: Context) -> Any:
            self._calls += 1
            try:
                self._refuse_if_full()
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
                self._refuse_if_full()
                async for response in behaviour(request, context):
                    yield response
            except Exception as error:
                await self._fail(error, context, method)
            finally:
                self._calls -= 1

        return call

    def _refuse_if_full(self) -> None:
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
