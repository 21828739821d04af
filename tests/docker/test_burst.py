"""A burst of opens on a small pool."""

from __future__ import annotations

import asyncio
import time

import pytest

from sandboxd_proto.v1 import session_service_pb2
from tests.docker.daemon_process import running_daemon
from tests.docker.test_lifecycle import open_session

OPENS, POOL, MOST = 30, 5, 40


@pytest.mark.alone
async def test_a_burst_of_opens_is_served() -> None:
    """Thirty opens at once on a pool of five all get a session, and the status tells how."""
    settings = {"POOL_SIZE": str(POOL), "MAX_POOL_SIZE": str(MOST)}
    async with running_daemon(**settings) as daemon, daemon.api() as api:
        await daemon.wait_until_warm()
        began = time.monotonic()
        waits: list[float] = []

        async def opened(number: int) -> str:
            session = (await open_session(api, f"burst-{number}")).session
            waits.append(time.monotonic() - began)
            return session.session_id

        sessions = await asyncio.gather(*map(opened, range(OPENS)))
        pool = (await api.status()).pool

        assert len(set(sessions)) == OPENS
        assert (pool.in_use, pool.hits, pool.misses) == (OPENS, POOL, OPENS - POOL)
        assert (pool.waiting, pool.gave_up, pool.refused) == (0, 0, 0)
        assert pool.waits.count == OPENS - POOL
        starts = pool.starts
        print(
            f"burst: {OPENS} opens on a pool of {POOL}, all served within {waits[-1]:.1f} s, "
            f"median {sorted(waits)[OPENS // 2]:.1f} s, start p50 {starts.p50.ToTimedelta()}, "
            f"p95 {starts.p95.ToTimedelta()}, at once {pool.concurrency}"
        )
        for session_id in sessions:
            await api.sessions.CloseSession(
                session_service_pb2.CloseSessionRequest(session_id=session_id)
            )
