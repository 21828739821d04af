"""Calls about sessions of this worker, which end when it may not answer for them any longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc

from sandboxd.service.transport.routing import named_session
from sandboxd.service.wire import Context


class ServedHere:
    """The calls that are being answered."""

    def __init__(self) -> None:
        self._calls: set[asyncio.Task[Any]] = set()
        self._ended: set[asyncio.Task[Any]] = set()

    def end_all(self) -> None:
        """The lease of this worker is over: another may have its sessions, so that nothing which
        happens here from now on may be reported as done."""
        for call in self._calls - self._ended:
            self._ended.add(call)
            call.cancel()

    @asynccontextmanager
    async def call(self, request: Any, context: Context) -> AsyncIterator[None]:
        """Answer a call as long as the block lasts."""
        task = asyncio.current_task()
        if task is None or request is None or not named_session(request):
            yield
            return
        self._calls.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if task not in self._ended:
                raise
            task.uncancel()
            # Without details, as for a connection that broke: nobody knows what was done.
            await context.abort(
                grpc.StatusCode.UNAVAILABLE,
                "This worker has lost touch with the others, and another may have the session.",
            )
        finally:
            self._calls.discard(task)
            self._ended.discard(task)
