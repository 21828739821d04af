"""What surrounds every call: errors that do not leak, and a limit on calls at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc import aio

from sandboxd.access import CallPlaces
from sandboxd.errors import PoolExhausted
from sandboxd.service.transport.guard import CallGuard
from sandboxd_proto.v1 import exec_service_pb2 as pb
from sandboxd_proto.v1 import exec_service_pb2_grpc as pb_grpc
from tests.fakes.waiting import eventually
from tests.service.client import Api, refused

SECRET = "password of /var/lib/secret"
LIMIT = 3


class Servicer(pb_grpc.ExecServiceServicer):
    """Does in both methods what the test says."""

    def __init__(self) -> None:
        self.act: Callable[[], Any] = lambda: None
        self.gate = asyncio.Event()
        self.inside = 0

    async def Run(self, request: pb.ExecRequest, context: Any) -> pb.RunResponse:  # noqa: N802
        await self._wait()
        self.act()
        return pb.RunResponse(exec_id="done")

    async def Exec(  # noqa: N802
        self, request: pb.ExecRequest, context: Any
    ) -> AsyncIterator[pb.ExecResponse]:
        yield pb.ExecResponse()
        await self._wait()
        self.act()

    async def _wait(self) -> None:
        self.inside += 1
        try:
            await self.gate.wait()
        finally:
            self.inside -= 1


@pytest.fixture
async def servicer() -> Servicer:
    return Servicer()


@pytest.fixture
async def api(servicer: Servicer, short_dir: Path) -> AsyncIterator[Api]:
    server = aio.server()
    service = pb.DESCRIPTOR.services_by_name["ExecService"]
    server.add_generic_rpc_handlers(
        (CallGuard(places=CallPlaces(total=LIMIT)).handler(service, servicer),)
    )
    server.add_insecure_port(f"unix:{short_dir}/api.sock")
    await server.start()
    async with Api(short_dir / "api.sock") as api:
        yield api
    await server.stop(None)


async def call(api: Api, method: str) -> None:
    if method == "Run":
        await api.run("s", "x")
        return
    stream = api.exec("s", "x")
    try:
        while await stream.read() is not aio.EOF:
            pass
    finally:
        stream.cancel()


def raising(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


both = pytest.mark.parametrize("method", ["Run", "Exec"])


@both
@pytest.mark.parametrize(
    "error",
    [KeyError(SECRET), RuntimeError(SECRET), OSError(5, SECRET), StopIteration(SECRET)],
    ids=lambda error: type(error).__name__,
)
async def test_unexpected_error_does_not_leak(
    error: Exception, method: str, servicer: Servicer, api: Api
) -> None:
    """A caller learns that we failed and an id for the log, and nothing of the error."""
    servicer.act = raising(error)
    servicer.gate.set()
    with refused(grpc.StatusCode.INTERNAL, "INTERNAL") as refusal:
        await call(api, method)

    assert refusal.info.metadata["errorId"] in refusal.message
    told = f"{refusal.error}{refusal.info}"
    assert not [word for word in (SECRET, "Error", "Stop", "secret") if word in refusal.message]
    assert SECRET not in told


@both
async def test_expected_error_is_told_in_full(method: str, servicer: Servicer, api: Api) -> None:
    """An error meant for the caller arrives with its words and its reason."""
    servicer.act = raising(PoolExhausted("All are in use.", retry_after_seconds=1.0))
    servicer.gate.set()
    with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "POOL_EXHAUSTED") as refusal:
        await call(api, method)

    assert refusal.message == "All are in use."


@both
async def test_one_call_too_many_is_refused(method: str, servicer: Servicer, api: Api) -> None:
    """Beyond the limit a call is answered at once, and an ended call makes room."""
    calls = [asyncio.ensure_future(call(api, method)) for _ in range(LIMIT)]
    await eventually(lambda: servicer.inside == LIMIT)
    for _ in range(2):
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "TOO_MANY_REQUESTS") as refusal:
            await call(api, method)
        assert "try again" in refusal.message
    servicer.gate.set()
    await asyncio.gather(*calls)

    await call(api, method)


@both
@pytest.mark.parametrize("way", ["fails", "is cancelled", "times out"])
async def test_place_of_an_ended_call_is_free_again(
    way: str, method: str, servicer: Servicer, api: Api
) -> None:
    """However a call ends, it no longer counts."""
    if way == "fails":
        servicer.act = raising(KeyError(SECRET))
        servicer.gate.set()
    for _ in range(2 * LIMIT):
        if way == "fails":
            with pytest.raises(aio.AioRpcError):
                await call(api, method)
            continue
        running = asyncio.ensure_future(call(api, method))
        await eventually(lambda: servicer.inside == 1)
        if way == "is cancelled":
            running.cancel()
            await asyncio.wait([running])
        else:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(running, 0.01)
        await eventually(lambda: servicer.inside == 0)
    servicer.act = lambda: None
    servicer.gate.set()

    await call(api, method)
