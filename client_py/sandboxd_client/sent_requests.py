"""Calls that send many messages, ended as their server has ended them.

When a call ends while grpc.aio writes to it, the write fails, and grpc.aio puts an internal error
in the place of the status (https://github.com/grpc/grpc/issues/36066).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
from grpc import aio

_WRITE_FAILED = "Internal error from Core"
_STATUS_SECONDS = 1.0


def send_all(call: Any, requests: AsyncIterator[Any]) -> asyncio.Task[None]:
    """Sends the requests until the call ends. Fails as they do."""
    is_writing = False

    async def write() -> None:
        nonlocal is_writing
        try:
            async for request in requests:
                if call.done():
                    return
                is_writing = True
                await call.write(request)
                is_writing = False
            is_writing = True
            await call.done_writing()
        except (aio.AioRpcError, asyncio.InvalidStateError):
            pass  # an ended call accepts no more requests; its status says why it ended

    def stop(_: object) -> None:
        # Before the write fails and replaces the status. But what is being read for the next
        # request is read to its end.
        if is_writing:
            writing.cancel()

    writing = asyncio.create_task(write(), name="requests of a call")
    call.add_done_callback(stop)
    return writing


async def ended(call: Any, error: aio.AioRpcError) -> aio.AioRpcError | None:
    """What has ended a call that failed with this error; None if it did not fail.

    If a write failed before the status was there, the status replaces its error very soon.
    """
    if error.details() != _WRITE_FAILED:
        return error
    look_again, until = 0.001, asyncio.get_running_loop().time() + _STATUS_SECONDS
    while await call.details() == _WRITE_FAILED and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(look_again)
        look_again *= 2
    code = await call.code()
    if code is grpc.StatusCode.OK:
        return None
    return aio.AioRpcError(
        code,
        await call.initial_metadata(),
        await call.trailing_metadata(),
        await call.details(),
        await call.debug_error_string(),
    )
