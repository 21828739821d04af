"""Deadlines of commands while the daemon is stopped or dead."""

from __future__ import annotations

import signal
import time
from contextlib import suppress
from pathlib import Path

import aiodocker
import pytest

from sandboxd_proto.v1 import exec_pb2
from tests.docker.commands import host_processes, start, wait
from tests.docker.test_daemon_restarts import gone, new_session, restarting_daemon, there
from tests.docker.test_lifecycle import eventually

TIMEOUT = 2
"""Seconds; more than it takes to stop the daemon."""
TIMED_OUT = exec_pb2.EXIT_REASON_TIMED_OUT


async def both_sleep(word: str) -> bool:
    """Whether both processes run `sleep`: one that is still to become it may not be found later."""
    return names(word) == ["sleep\n"] * 2


def names(word: str) -> list[str]:
    found = []
    for pid in host_processes(word):
        with suppress(FileNotFoundError):  # it ended meanwhile
            found.append(Path(f"/proc/{pid}/comm").read_text())
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=lambda which: which.name)
async def test_a_deadline_holds_without_the_daemon(
    docker: aiodocker.Docker, how: signal.Signals
) -> None:
    """The processes of a command are gone before a daemon serves again, and its end is told as
    what it was."""
    word = f"43210.{how.value}5"
    async with restarting_daemon(docker) as daemon:
        session_id = await new_session(daemon)
        async with daemon.api() as api:
            began = time.monotonic()
            await start(
                api,
                session_id,
                f"echo on; setsid sleep {word} & sleep {word}",
                exec_id="late",
                timeout=TIMEOUT,
            )
            await eventually(lambda: both_sleep(word))
        assert daemon.process is not None
        daemon.process.send_signal(how)
        await eventually(lambda: gone(word))
        print(f"deadline without a daemon: kept {time.monotonic() - began - TIMEOUT:.1f} s late")
        if how == signal.SIGKILL:
            await daemon.signal(how)
            await daemon.start()
        else:
            daemon.process.send_signal(signal.SIGCONT)
        async with daemon.api() as api:
            ended = await wait(api, session_id, "late")

    assert (ended.exit.reason, ended.exit.signal) == (TIMED_OUT, signal.SIGKILL)
    assert ended.stdout_bytes == len("on\n")
    assert host_processes(word) == []


async def test_a_deadline_that_was_kept_is_reported_by_the_next_daemon(
    docker: aiodocker.Docker,
) -> None:
    """A daemon that is killed right after it has ended a command does not take the reason along."""
    async with restarting_daemon(docker) as daemon:
        session_id = await new_session(daemon)
        async with daemon.api() as api:
            await start(api, session_id, "sleep 43211.25", exec_id="kept", timeout=0.5)
            await eventually(lambda: there("43211.25"))
            first = await wait(api, session_id, "kept")
        await daemon.signal(signal.SIGKILL)
        await daemon.start()
        async with daemon.api() as api:
            again = await wait(api, session_id, "kept")

    assert [first.exit.reason, again.exit.reason] == [TIMED_OUT, TIMED_OUT]
