"""What SIGTERM does, in which order, for those who are connected."""

from __future__ import annotations

import asyncio
import signal
import time

import aiodocker
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from sandboxd_proto.v1 import session_pb2
from tests.docker.commands import run, send_signal, start, wait
from tests.docker.daemon_process import Api
from tests.docker.test_daemon_restarts import restarting_daemon
from tests.docker.test_lifecycle import get_session, open_session, reason

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


async def next_health(watch: grpc.aio.UnaryStreamCall) -> int:
    async with asyncio.timeout(10):
        return int((await watch.read()).status)


@pytest.mark.parametrize("keeps", [True, False])
async def test_stop_tells_health_refuses_news_and_lets_commands_end(
    keeps: bool, docker: aiodocker.Docker
) -> None:
    """First health says NOT_SERVING; new sessions and commands are refused while those that run get
    their time and answer their callers; then sessions are kept or ended, as it was set."""
    settings = {"SANDBOXD_KEEP_SESSIONS": str(keeps), "SANDBOXD_DRAIN_SECONDS": "20"}
    async with restarting_daemon(docker, POOL_SIZE="1", **settings) as daemon:
        async with daemon.api() as api:
            session_id = (await open_session(api)).session.session_id
            watch = health_pb2_grpc.HealthStub(api.channel).Watch(
                health_pb2.HealthCheckRequest(), timeout=30
            )
            assert await next_health(watch) == SERVING
            if keeps:
                await start(api, session_id, "sleep 60", exec_id="long", timeout=100)
            waiting = asyncio.ensure_future(run(api, session_id, "sleep 2; echo done"))
            await asyncio.wait([waiting], timeout=0.5)
            began = time.monotonic()
            stopping = asyncio.ensure_future(daemon.signal(signal.SIGTERM))
            assert await next_health(watch) == NOT_SERVING
            told = time.monotonic() - began
            for call in (open_session(api, "new"), run(api, session_id, "true")):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                assert reason(caught.value) == "DRAINING"
            assert not stopping.done()
            done = await waiting
            assert (done.exit.code, done.stdout.data) == (0, b"done\n")
            assert await stopping == 0
            took = time.monotonic() - began
        await daemon.start()
        async with daemon.api() as api:
            await was_kept(api, session_id) if keeps else await was_ended(api, session_id)
    print(
        f"drain {'keeping' if keeps else 'ending'} sessions: NOT_SERVING after "
        f"{told * 1000:.0f} ms, opens refused with DRAINING, 1/1 running calls answered, stopped "
        f"in {took:.1f} s"
    )


async def was_kept(api: Api, session_id: str) -> None:
    session = await get_session(api, session_id)
    assert (session.state, session.incarnation) == (session_pb2.SESSION_STATE_ACTIVE, 1)
    await send_signal(api, session_id, "long", signal.SIGKILL)
    assert (await wait(api, session_id, "long")).exit.signal == signal.SIGKILL


async def was_ended(api: Api, session_id: str) -> None:
    session = await get_session(api, session_id)
    assert session.state == session_pb2.SESSION_STATE_STOPPED
