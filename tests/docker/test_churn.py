"""Nothing piles up, however many sessions come and go."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import aiodocker
import pytest

from sandboxd_proto.v1 import session_service_pb2
from tests.docker.commands import run
from tests.docker.daemon_process import Api, running_daemon
from tests.docker.test_lifecycle import _count, eventually, open_session
from tests.scale import SCALE

FIRST_CYCLES = 50
"""Until allocators and caches have settled."""
CYCLES = round(150 * SCALE)
PARALLEL = 4


async def cycle(api: Api, number: int) -> None:
    session_id = (await open_session(api, f"churn-{number}")).session.session_id
    answer = await run(api, session_id, f"echo {number}")
    assert answer.stdout.data == b"%d\n" % number
    await api.sessions.CloseSession(session_service_pb2.CloseSessionRequest(session_id=session_id))


async def cycles(api: Api, numbers: range) -> None:
    remaining = iter(numbers)

    async def worker() -> None:
        for number in remaining:
            await cycle(api, number)

    await asyncio.gather(*(worker() for _ in range(PARALLEL)))


def resident_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.alone
@pytest.mark.timeout(300 + 200 * SCALE)
async def test_many_sessions_leave_nothing_behind(docker: aiodocker.Docker) -> None:
    """After hundreds of open/exec/close cycles there are as many containers as the pool holds, and
    the daemon has not grown."""
    async with running_daemon(POOL_SIZE="6", SANDBOXD_LOG_LEVEL="warning") as daemon:
        async with daemon.api() as api:
            await cycles(api, range(FIRST_CYCLES))
            await daemon.wait_until_warm()
            await eventually(lambda: _count(docker, daemon, 6))
            memory, files = resident_kb(daemon.pid), descriptors(daemon.pid)
            await cycles(api, range(FIRST_CYCLES, FIRST_CYCLES + CYCLES))
            await daemon.wait_until_warm()
            await eventually(lambda: _count(docker, daemon, 6))
            status = await api.status()

        assert status.pool.in_use == 0
        assert status.active_sessions == 0
        assert descriptors(daemon.pid) <= files + 4
        grown = resident_kb(daemon.pid) - memory
        print(f"churn: {CYCLES} cycles, daemon grew by {grown} kB, descriptors {files}")
        assert grown < 4096 + 12 * CYCLES
