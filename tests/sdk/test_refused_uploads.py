"""Uploads that a daemon ends while they are being sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from sandboxd_client import ExhaustedError
from sandboxd_client.connection import acquire, release
from sandboxd_client.files import AsyncFiles
from sandboxd_client.methods.files import UPLOAD_FILE
from sandboxd_client.session import SessionHold
from sandboxd_client.settings import resolve
from tests.sdk.scripted import TIMEOUTS, Scripted, hold_on


@asynccontextmanager
async def refusing_server(url: str) -> AsyncIterator[None]:
    """Answers after the first message of an upload, whatever comes behind it."""

    async def refuse(requests: AsyncIterator[Any], context: grpc.aio.ServicerContext) -> None:
        await anext(requests)
        await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "there is no room")

    method = UPLOAD_FILE
    handler = grpc.stream_unary_rpc_method_handler(refuse, method.request.FromString)
    service = f"sandboxd.v1.{method.service}"
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {method.name: handler})]
    )
    server.add_insecure_port(url)
    await server.start()
    try:
        yield
    finally:
        await server.stop(None)


async def test_refusal_is_told_in_its_own_words(short_dir: Path) -> None:
    """Though more was being written when it came: not as an internal error of gRPC."""
    url = f"unix:{short_dir}/refusing.sock"
    settings = resolve("remote", url)
    async with refusing_server(url):
        connection = await acquire(settings, TIMEOUTS)
        files = AsyncFiles(SessionHold(connection, hold_on(Scripted({})).info))
        try:
            for _ in range(10):
                with pytest.raises(ExhaustedError, match="there is no room"):
                    await files.write("x", bytes(5 << 20))
        finally:
            await release(connection)
