"""State on disk that is damaged costs what it was about: never a session or a workspace."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import aiodocker
import pytest

from sandboxd_proto.v1 import exec_pb2, session_service_pb2
from tests.docker.commands import attach, list_execs, run, start, write
from tests.docker.daemon_process import DaemonProcess
from tests.docker.test_daemon_restarts import restarting_daemon
from tests.docker.test_lifecycle import eventually, open_session


def state(daemon: DaemonProcess) -> Path:
    return daemon.directory / "state"


def lose_registry(daemon: DaemonProcess, how: str) -> None:
    for file in state(daemon).glob("registry.sqlite*"):
        if how == "emptied":
            file.write_bytes(b"")
        else:
            file.unlink()


@pytest.mark.parametrize("how", ["emptied", "removed"])
async def test_sessions_come_back_from_the_copies(docker: aiodocker.Docker, how: str) -> None:
    """Session, running command and files are there again, as if nothing was lost."""
    async with restarting_daemon(docker, POOL_SIZE="1") as daemon:
        async with daemon.api() as api:
            before = (await open_session(api)).session
            await run(api, before.session_id, "echo precious > file")
            await start(api, before.session_id, "sleep 1000", exec_id="e", timeout=600)
        await daemon.signal(signal.SIGKILL)
        lose_registry(daemon, how)
        await daemon.start()
        async with daemon.api() as api:
            opened = await open_session(api)
            assert opened.outcome == session_service_pb2.OPEN_OUTCOME_ATTACHED
            assert opened.session.session_id == before.session_id
            execution = (await list_execs(api, before.session_id))["e"]
            assert execution.state == exec_pb2.EXEC_STATE_RUNNING
            answer = await run(api, before.session_id, "cat file")
            assert answer.stdout.data == b"precious\n"


async def test_workspaces_that_nothing_names_are_moved_aside(docker: aiodocker.Docker) -> None:
    """Without registry and copies the disk of a session stays, beside the others; the spare one of
    the pool, which no session has had, is deleted."""
    async with restarting_daemon(docker, POOL_SIZE="1", MIN_POOL_SIZE="1") as daemon:
        async with daemon.api() as api:
            session_id = (await open_session(api)).session.session_id
            await run(api, session_id, "echo precious > file; sync")
        await daemon.wait_until_warm()
        disks = state(daemon) / "disks"
        before = {path.name for path in disks.glob("*.img")}
        assert len(before) == 2
        await daemon.signal(signal.SIGKILL)
        lose_registry(daemon, "removed")
        shutil.rmtree(state(daemon) / "registry.copies")
        await daemon.start()

        (aside,) = (disks / "unknown").iterdir()
        assert aside.name in before
        assert not before & {path.name for path in disks.glob("*.img")}
        assert b"precious\n" in aside.read_bytes()


OUTPUT_BYTES = 3 << 20
"""More than a guest keeps."""


@pytest.mark.parametrize("how", ["emptied", "removed", "cut off"])
async def test_damaged_spools_cost_their_output_only(docker: aiodocker.Docker, how: str) -> None:
    """Session and running command go on; what is lost of it, and of one that has ended, is
    reported as a gap of that size."""
    flood = f"head -c {OUTPUT_BYTES} /dev/zero"
    async with restarting_daemon(docker, POOL_SIZE="0") as daemon:
        async with daemon.api() as api:
            session_id = (await open_session(api)).session.session_id
            await run(api, session_id, flood, exec_id="ended")
            await start(api, session_id, f"{flood}; read -r x; echo $x", exec_id="e", stdin=True)

            async def is_written() -> bool:
                execs = await list_execs(api, session_id)
                return execs["e"].stdout_bytes == OUTPUT_BYTES

            await eventually(is_written)
            await eventually(lambda: recorded(daemon))
        await daemon.signal(signal.SIGKILL)
        for file in (state(daemon) / "spool").iterdir():
            damage(file, how)
        await daemon.start()
        async with daemon.api() as api:
            answer = await run(api, session_id, "echo there", incarnation=1)
            assert answer.stdout.data == b"there\n"
            await write(api, session_id, "e", 0, b"end\n", eof=True)
            running = await attach(api, session_id, "e")
            ended = await attach(api, session_id, "ended")

    assert running.exit.reason == ended.exit.reason == exec_pb2.EXIT_REASON_EXITED
    assert bytes(running.stdout).endswith(b"end\n")
    for streamed, total in ((running, OUTPUT_BYTES + 4), (ended, OUTPUT_BYTES)):
        dropped = sum(gap.bytes for gap in streamed.gaps)
        assert dropped
        assert dropped + len(streamed.stdout) == total == streamed.exit.stdout_bytes


async def recorded(daemon: DaemonProcess) -> bool:
    return any((state(daemon) / "execs").iterdir())


def damage(file: Path, how: str) -> None:
    if how == "emptied":
        file.write_bytes(b"")
    elif how == "removed":
        file.unlink()
    else:
        with file.open("r+b") as opened:
            opened.truncate(file.stat().st_size - (1 << 20))
