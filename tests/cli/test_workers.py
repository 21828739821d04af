"""`sandboxd worker` and `sandboxd drain`."""

from __future__ import annotations

import asyncio
import os
import pty
import sys

import pytest

from sandboxd import __version__
from sandboxd.daemon.composition import Daemon
from tests.cli.command_line import SECONDS, CommandLine


async def test_daemon_alone_is_its_only_worker(sandboxd: CommandLine, daemon: Daemon) -> None:
    """It is ready, has no lease, and has every session."""
    session_id = (await sandboxd("session", "open", "ada", "1", "--json")).document["session_id"]
    listed = await sandboxd("worker", "list")
    document = (await sandboxd("worker", "list", "--json")).document
    found = await sandboxd("worker", "find", "ada/1")

    header, line = listed.stdout.splitlines()
    name = daemon.config.worker_id
    assert header.split() == ["WORKER", "STATE", "ADDRESS", "VERSION", "SESSIONS", "WARM", "LEASE"]
    assert line.split()[:4] == [f"{name}*", "ready", "-", __version__]
    assert line.split()[-1] == "-"
    assert document["answered_by"] == name
    assert document["workers"][0]["state"] == "WORKER_STATE_READY"
    assert found.stdout.splitlines()[0].split() == ["worker", name]
    assert (await sandboxd("worker", "find", session_id, "--json")).document["worker"] == name


async def test_session_that_nobody_has_is_not_found(sandboxd: CommandLine) -> None:
    """With the exit code of other commands about sessions."""
    missing = await sandboxd("worker", "find", "ses_" + "0" * 24)
    assert missing.code == 3
    assert "sandboxd: " in missing.stderr


async def test_worker_without_sessions_is_drained_and_ready_again(sandboxd: CommandLine) -> None:
    """Both spellings; progress on standard error, the result on standard output."""
    for words in (("drain",), ("worker", "drain", "--timeout", "5")):
        drained = await sandboxd(*words)
        assert (drained.code, drained.stdout) == (
            0,
            "drained: 0 sessions moved, 0 could not be moved\n",
        )
        assert "0 moved, 0 left, 0 commands running" in drained.stderr
        assert _state((await sandboxd("worker", "list")).stdout) == "draining"
    ready = await sandboxd("drain", "--cancel")
    assert (ready.code, ready.stdout) == (0, "ready: takes new sessions\n")
    assert _state((await sandboxd("worker", "list")).stdout) == "ready"


async def test_sessions_that_stay_are_a_failure(sandboxd: CommandLine) -> None:
    """Here there are no disks to take a snapshot of: whoever stops the daemon must know."""
    await sandboxd("session", "open", "ada", "1")
    drained = await sandboxd("drain", "--timeout", "1")
    assert drained.code == 1
    assert "takes no snapshots" in drained.stderr


@pytest.mark.parametrize(("typed", "state"), [(b"n\n", "ready"), (b"y\n", "draining")])
async def test_worker_that_is_alone_is_drained_after_a_question(
    sandboxd: CommandLine, typed: bytes, state: str
) -> None:
    """At a terminal; scripts, such as the hook that stops a pod, are not asked."""
    master, terminal = pty.openpty()
    try:
        os.write(master, typed)
        asked = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sandboxd", "drain"),
            env=sandboxd.environment,
            stdin=terminal,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(SECONDS):
            _, stderr = await asked.communicate()
    finally:
        os.close(master)
        os.close(terminal)

    assert b"sandboxd drain --cancel" in stderr
    assert _state((await sandboxd("worker", "list")).stdout) == state


async def test_wrong_times_are_refused(sandboxd: CommandLine) -> None:
    """Before anything is asked."""
    assert (await sandboxd("drain", "--timeout", "0")).code == 2


def _state(listed: str) -> str:
    return listed.splitlines()[1].split()[1]
