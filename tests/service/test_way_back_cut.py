"""Calls whose way back is cut while they end: they end as cancelled ones."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import grpc
import pytest
from grpc import aio
from structlog.testing import capture_logs

from sandboxd.access import CallPlaces
from sandboxd.errors import PoolExhausted
from sandboxd.service.transport.guard import CallGuard
from sandboxd.service.transport.server import _GRPC_LOGGER, _is_no_lost_caller
from sandboxd_proto.v1 import exec_service_pb2 as pb
from sandboxd_proto.v1 import exec_service_pb2_grpc as pb_grpc
from tests.cluster.proxy import Proxy

SECONDS = 60.0


class Elsewhere:
    """An event loop in a thread, which goes on while that of the test stands still."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, Any]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(SECONDS)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(SECONDS)
        self._loop.close()


@pytest.fixture
def elsewhere() -> Iterator[Elsewhere]:
    elsewhere = Elsewhere()
    yield elsewhere
    elsewhere.end()


class Servicer(pb_grpc.ExecServiceServicer):
    """Cuts the way to its caller, and then ends the call."""

    def __init__(self, cut: Any) -> None:
        self._cut = cut
        self.ending = ""
        self.unsent: list[Exception] = []
        """What showed that gRPC could not send a status."""

    async def Run(self, _: pb.ExecRequest, context: Any) -> pb.RunResponse:  # noqa: N802
        await self._end(context)
        return pb.RunResponse(exec_id="done")

    async def Exec(  # noqa: N802
        self, _: pb.ExecRequest, context: Any
    ) -> AsyncIterator[pb.ExecResponse]:
        yield pb.ExecResponse()
        await self._end(context)

    async def _end(self, context: Any) -> None:
        self._cut()
        time.sleep(0.05)  # noqa: ASYNC251 - the loop stands still: gRPC's own thread hears of the end, we do not
        if self.ending == "refused":
            raise PoolExhausted("All are in use.", retry_after_seconds=1.0)
        try:  # as forwarded calls end
            await context.abort(grpc.StatusCode.UNAVAILABLE, "as the other worker said")
        except aio.InternalError as error:
            self.unsent.append(error)
            raise


@pytest.mark.parametrize("ending", ["refused", "aborted"])
@pytest.mark.parametrize("method", ["Run", "Exec"])
async def test_call_ends_as_a_cancelled_one(
    method: str, ending: str, elsewhere: Elsewhere, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is logged as an error, by us or by gRPC, no call counts as failed for a reason of
    ours, and its place is free."""
    places = CallPlaces(total=1)
    proxy: Proxy
    servicer = Servicer(lambda: elsewhere.do(proxy.reset()))
    servicer.ending = ending
    server = aio.server()
    service = pb.DESCRIPTOR.services_by_name["ExecService"]
    server.add_generic_rpc_handlers((CallGuard(places=places).handler(service, servicer),))
    proxy = Proxy(server.add_insecure_port("127.0.0.1:0"))
    await server.start()
    elsewhere.do(proxy.start())
    with capture_logs() as lines, caplog.at_level(logging.WARNING, _GRPC_LOGGER):
        async with aio.insecure_channel(f"127.0.0.1:{proxy.port}") as channel, _limit():
            stub = pb_grpc.ExecServiceStub(channel)
            calls = 0
            while not servicer.unsent and calls < (5 if ending == "refused" else 1000):
                calls += 1
                with suppress(aio.AioRpcError):
                    if method == "Run":
                        await stub.Run(pb.ExecRequest(), wait_for_ready=True)
                    else:
                        async for _ in stub.Exec(pb.ExecRequest(), wait_for_ready=True):
                            pass
            while places.taken:
                await asyncio.sleep(0.01)
        elsewhere.do(proxy.stop())
        await server.stop(None)
    assert [line for line in lines if line["log_level"] == "error"] == []
    assert [record.getMessage() for record in caplog.records] == []


def _limit() -> asyncio.Timeout:
    return asyncio.timeout(SECONDS)


async def test_answer_that_was_not_sent_is_no_error_of_grpc() -> None:
    """What gRPC logs of an answer to a caller who is gone does not reach our log; the rest does."""
    logger = logging.getLogger(_GRPC_LOGGER)

    def record(error: Exception) -> logging.LogRecord:
        info = (type(error), error, None)
        return logger.makeRecord(_GRPC_LOGGER, logging.ERROR, "", 0, "raised", (), info)

    assert not _is_no_lost_caller(record(aio.InternalError("execute_batch")))
    assert _is_no_lost_caller(record(KeyError("x")))
    assert _is_no_lost_caller(
        logger.makeRecord(_GRPC_LOGGER, logging.ERROR, "", 0, "none", (), None)
    )
