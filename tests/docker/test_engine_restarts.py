"""What becomes of sessions and commands when the Docker Engine itself is restarted."""

from __future__ import annotations

import asyncio
import signal
import time

import pytest

from sandboxd_proto.v1 import session_pb2
from tests.docker.commands import run, start, wait
from tests.docker.daemon_process import running_daemon
from tests.docker.private_engine import IMAGE, private_engine
from tests.docker.test_lifecycle import get_session, open_session

SHELL = ["/bin/busybox", "sh", "-c"]
COMMANDS_DURING_OUTAGE = 5


@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
async def test_commands_go_on_through_a_restart_of_the_engine(how: signal.Signals) -> None:
    """While a live-restore engine is stopped or killed and started again, what runs goes on to its
    end, new commands run, no session is lost, and new sessions open as soon as it is back."""
    async with (
        private_engine() as engine,
        running_daemon(CONTAINER_IMAGE=IMAGE, DOCKER_HOST=engine.url) as daemon,
        daemon.api() as api,
    ):
        await daemon.wait_until_warm()
        session_id = (await open_session(api)).session.session_id
        line = "echo before; until busybox test -e go; do busybox sleep 0.05; done; echo after"
        await start(api, session_id, [*SHELL, line], exec_id="through", timeout=120)

        await engine.end(how)
        assert not await engine.answers()
        done = [
            await run(api, session_id, [*SHELL, f"echo {number}"])
            for number in range(COMMANDS_DURING_OUTAGE)
        ]
        assert [one.stdout.data for one in done] == [b"%d\n" % n for n in range(len(done))]

        began = time.monotonic()
        await engine.start()
        back = time.monotonic() - began
        await run(api, session_id, [*SHELL, "echo > go"])
        ended = await wait(api, session_id, "through")
        assert (ended.exit.code, ended.stdout_bytes) == (0, len("before\nafter\n"))
        session = await get_session(api, session_id)
        assert session.state == session_pb2.SESSION_STATE_ACTIVE
        assert session.incarnation == 1

        async with asyncio.timeout(60):
            other = (await open_session(api, thread="after the restart")).session
        assert (await run(api, other.session_id, [*SHELL, "echo ok"])).stdout.data == b"ok\n"
        print(
            f"engine restart ({how.name}): {len(done)}/{len(done)} commands completed during the "
            f"outage, 1/1 went on through it, engine back in {back:.1f} s, sessions lost 0"
        )
