"""Faults of the daemon's host: its disk, its clock, its limits and its registry. What callers are
told, what is kept, and how soon all is well again. Each on an engine of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import grpc
import pytest

from sandboxd_proto.v1 import exec_pb2, session_pb2
from tests.docker.commands import attach, close_session, run, start, wait
from tests.docker.daemon_process import Api, DaemonProcess, served
from tests.docker.private_engine import IMAGE, PrivateEngine, private_engine
from tests.docker.small_disk import small_disk
from tests.docker.test_engine_faults import SHELL, UNTIL_TOLD, has_containers, refused
from tests.docker.test_lifecycle import eventually, get_session, open_session, reason

MIB = 1 << 20

pytestmark = pytest.mark.timeout(300)


def prepared(engine: PrivateEngine, **settings: str) -> DaemonProcess:
    """A daemon on this engine that is not started yet."""
    sizes = {"MAX_WORKSPACE_SIZE_MB": "16", "SANDBOXD_TMP_MB": "4"}
    wanted = {"POOL_SIZE": "1", **sizes, **settings}
    return DaemonProcess(CONTAINER_IMAGE=IMAGE, DOCKER_HOST=engine.url, **wanted)


@asynccontextmanager
async def warm(daemon: DaemonProcess) -> AsyncIterator[Api]:
    """The daemon, started and with a full pool."""
    async with served(daemon), daemon.api() as api:
        await daemon.wait_until_warm()
        yield api


async def opened(api: Api, thread: str) -> str:
    return (await open_session(api, thread)).session.session_id


async def opened_soon(api: Api, thread: str, *, told: set[str]) -> str:
    """Try until it works; until then only these reasons may be told."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await opened(api, thread)
            except grpc.aio.AioRpcError as error:
                if reason(error) not in told:
                    raise
                await asyncio.sleep(0.1)


@pytest.mark.calm
async def test_full_disk_is_told_and_loses_nothing(short_dir: Path) -> None:
    """On a state directory without a byte left, opens are refused with a reason, commands run and
    their ends are told, what was answered before is there, also for a daemon that is killed then;
    with space back, all is well by itself."""
    async with private_engine() as engine:
        state = short_dir / "state"
        daemon = prepared(engine, SANDBOXD_DISK_RESERVE_MB="0", SANDBOXD_STATE_DIR=str(state))
        with small_disk(short_dir / "disk.img", state, size_bytes=160 * MIB) as disk:
            async with warm(daemon) as api:
                kept = await opened(api, "kept")
                closed = await opened(api, "closed")
                await run(api, kept, [*SHELL, "echo before > file"])
                await start(api, kept, [*SHELL, "echo before"], exec_id="before")
                await wait(api, kept, "before")
                await start(api, kept, [*SHELL, UNTIL_TOLD], exec_id="through", timeout=120)
                await daemon.wait_until_warm()
                await settled(state / "execs", "before")
                disk.fill()

                reasons = set()
                for number in range(4):
                    why, seconds = await refused(open_session(api, f"new {number}"))
                    reasons.add(why)
                    assert seconds < 35
                assert reasons <= {"DISK_SPACE_LOW", "STATE_NOT_SAVED"}, reasons
                loud = await run(api, kept, [*SHELL, "busybox yes | busybox head -c 300000"])
                assert loud.stdout.data.startswith(b"y\ny\n")
                assert (await run(api, kept, ["/bin/busybox", "cat", "file"])).exit.code == 0
                await close_session(api, closed)

                await daemon.signal(signal.SIGKILL)
                await daemon.start()
                before = await attach(api, kept, "before")
                assert bytes(before.stdout) == b"before\n"
                said = await run(api, kept, ["/bin/busybox", "cat", "file"])
                assert said.stdout.data == b"before\n"

                disk.free()
                began = time.monotonic()
                new = await opened_soon(api, "new", told=reasons)
                first = time.monotonic() - began
                said = await run(api, new, [*SHELL, "busybox df -P /workspace | busybox tail -1"])
                assert said.stdout.data.startswith(b"/dev/loop"), "not on a disk of its own"
                await run(api, kept, [*SHELL, "echo > go"])
                assert (await wait(api, kept, "through")).exit.code == 0
                assert (await get_session(api, kept)).incarnation == 1
                await daemon.wait_until_warm()
                print(
                    f"fault disk full: 4/4 opens refused with {' and '.join(sorted(reasons))}, "
                    "commands ran, the daemon was killed and started while it was full, 0 of 1 "
                    f"sessions lost, acknowledged writes lost 0; space back: first session after "
                    f"{first:.1f} s"
                )


async def settled(records: Path, exec_id: str) -> None:
    """Wait until the end of an exec is on disk."""

    await eventually(lambda: is_named(records, exec_id))


async def is_named(directory: Path, word: str) -> bool:
    return any(word in name for name in os.listdir(directory))


async def test_stepped_clock_moves_no_deadline() -> None:
    """With the wall clock an hour ahead or behind, from one moment to the next, sessions expire and
    commands time out when they should, files of lost sessions stay, and a daemon that starts with
    another clock adopts commands with the time they have left."""
    async with private_engine() as engine:
        daemon = prepared(engine, POOL_SIZE="2")
        daemon.program = [sys.executable, str(Path(__file__).with_name("stepping_daemon.py"))]
        daemon.program.append("serve")
        daemon.environment["PYTHONPATH"] = str(Path(__file__).parents[2])
        async with warm(daemon) as api:
            idle = (await open_session(api, "idle", idle_timeout={"seconds": 6})).session.session_id
            idle_since = time.monotonic()
            lost = await opened(api, "lost")
            await run(api, lost, [*SHELL, "echo kept > file; busybox sync"])
            (session,) = await engine.containers(
                "--filter", f"name={await sandbox_of(daemon, lost)}"
            )
            await engine.docker("kill", session)
            await eventually(lambda: is_state(api, lost, session_pb2.SESSION_STATE_STOPPED))
            busy = await opened(api, "busy")
            began = time.monotonic()
            await start(api, busy, [*SHELL, "busybox sleep 100"], exec_id="timed", timeout=8)
            os.kill(daemon.pid, signal.SIGUSR1)
            await run(api, busy, [*SHELL, "echo an hour ahead"])
            assert (await get_session(api, idle)).state == session_pb2.SESSION_STATE_ACTIVE
            os.kill(daemon.pid, signal.SIGUSR2)
            await daemon.signal(signal.SIGKILL)
            await daemon.start()  # with the clock as it was, that is an hour ahead of what it saw

            ended = await wait(api, busy, "timed")
            timed = time.monotonic() - began
            assert ended.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT, ended.exit
            assert 7.5 < timed < 30  # not an hour, however busy the machine is
            os.kill(daemon.pid, signal.SIGUSR2)
            await eventually(lambda: is_state(api, idle, session_pb2.SESSION_STATE_EXPIRED))
            expired = time.monotonic() - idle_since
            assert expired >= 6
            again = await open_session(api, "lost")
            assert again.workspace_kept
            said = await run(api, lost, ["/bin/busybox", "cat", "file"])
            assert said.stdout.data == b"kept\n"
            print(
                f"fault clock stepped: an hour ahead, then behind, through a kill; time-out of 8 s "
                f"after {timed:.1f} s, deadlines fired early 0, files of a lost session kept"
            )


async def sandbox_of(daemon: DaemonProcess, session_id: str) -> str:
    with closing(sqlite3.connect(daemon.directory / "state" / "registry.sqlite")) as registry:
        query = "SELECT sandbox_id FROM sessions WHERE session_id = ?"
        (row,) = registry.execute(query, (session_id,)).fetchall()
    return str(row[0])


async def is_state(api: Api, session_id: str, state: session_pb2.SessionState.ValueType) -> bool:
    return (await get_session(api, session_id)).state == state


async def test_limit_of_open_files_is_told_before_it_is_reached() -> None:
    """With few files to open, sessions beyond are refused with a reason, those there are work, and
    one that closes makes room for another."""
    limit = 128
    async with private_engine() as engine:
        daemon = prepared(engine)
        lowered = (
            "import resource, sys; from sandboxd.cli import run; "
            f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit})); run()"
        )
        daemon.program = [sys.executable, "-c", lowered, "serve"]
        async with warm(daemon) as api:
            sessions: list[str] = []
            while len(sessions) < limit:
                try:
                    sessions.append(await opened(api, f"t{len(sessions)}"))
                except grpc.aio.AioRpcError as error:
                    why = error
                    break
            assert reason(why) == "OPEN_FILES_EXHAUSTED"
            assert why.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
            used = len(os.listdir(f"/proc/{daemon.pid}/fd"))
            done = await asyncio.gather(*(run(api, one, [*SHELL, "echo ok"]) for one in sessions))
            assert [one.stdout.data for one in done] == [b"ok\n"] * len(sessions)
            for one in sessions[:4]:
                await close_session(api, one)
            began = time.monotonic()
            await opened_soon(api, "after", told={"OPEN_FILES_EXHAUSTED"})
            back = time.monotonic() - began
            print(
                f"fault open files: limit {limit}, {len(sessions)} sessions opened, the next "
                f"refused with OPEN_FILES_EXHAUSTED at {used} files, {len(done)}/{len(done)} "
                f"commands ran; after closes, first session in {back:.1f} s"
            )


async def test_locked_registry_is_told_in_time() -> None:
    """While another program has the registry locked, opens are refused soon and with a reason,
    commands run, a close is answered and written down later."""
    async with private_engine() as engine:
        daemon = prepared(engine)
        path = daemon.directory / "state" / "registry.sqlite"
        async with warm(daemon) as api:
            first, second = await opened(api, "first"), await opened(api, "second")
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                tries = await asyncio.gather(
                    *(refused(open_session(api, f"new {number}")) for number in range(3))
                )
                assert {why for why, _ in tries} == {"STATE_NOT_SAVED"}
                slowest = max(seconds for _, seconds in tries)
                assert slowest < 20
                assert (await run(api, first, [*SHELL, "echo ok"])).exit.code == 0
                await close_session(api, second)
                other.execute("ROLLBACK")
            began = time.monotonic()
            await opened_soon(api, "after", told={"STATE_NOT_SAVED"})
            back = time.monotonic() - began
            await eventually(lambda: is_recorded(path, second, "closed"))
            await daemon.signal(signal.SIGKILL)
            await daemon.start()
            assert await is_state(api, first, session_pb2.SESSION_STATE_ACTIVE)
            assert await is_state(api, second, session_pb2.SESSION_STATE_CLOSED)
            print(
                f"fault registry locked: 3/3 opens refused with STATE_NOT_SAVED within "
                f"{slowest:.1f} s, commands ran, a close was kept; unlocked: first session after "
                f"{back:.1f} s"
            )


async def is_recorded(path: Path, session_id: str, state: str) -> bool:
    with closing(sqlite3.connect(path)) as registry:
        query = "SELECT state FROM sessions WHERE session_id = ?"
        return registry.execute(query, (session_id,)).fetchall() == [(state,)]


@pytest.mark.parametrize("when", ["while it runs", "while it is down"])
async def test_damaged_registry_is_replaced_and_sessions_go_on(when: str) -> None:
    """The damaged file is kept and reported; sessions whose sandboxes go on are there again, with
    their commands and files."""
    async with private_engine() as engine:
        daemon = prepared(engine, POOL_SIZE="2")
        path = daemon.directory / "state" / "registry.sqlite"
        async with warm(daemon) as api:
            sessions = [await opened(api, f"t{number}") for number in range(3)]
            await run(api, sessions[0], [*SHELL, "echo kept > file"])
            await start(api, sessions[0], [*SHELL, UNTIL_TOLD], exec_id="through", timeout=120)
            if when == "while it runs":
                overwrite(path)
                sessions.append(await opened(api, "found it"))
            await daemon.signal(signal.SIGKILL)
            if when == "while it is down":
                overwrite(path)
            began = time.monotonic()
            await daemon.start()
            back = time.monotonic() - began
            for one in sessions:
                assert await is_state(api, one, session_pb2.SESSION_STATE_ACTIVE)
            said = await run(api, sessions[0], ["/bin/busybox", "cat", "file"])
            assert said.stdout.data == b"kept\n"
            await run(api, sessions[0], [*SHELL, "echo > go"])
            assert (await wait(api, sessions[0], "through")).exit.code == 0
            assert "registry.damaged" in daemon.log.read_text()
            assert list(path.parent.glob("registry.sqlite.damaged-*"))
            await eventually(lambda: has_containers(engine, len(sessions) + 2), seconds=60)
            print(
                f"fault registry damaged {when}: {len(sessions)}/{len(sessions)} sessions and 1/1 "
                f"commands went on, serving {back:.1f} s after the start, orphans 0, the damaged "
                "file is kept"
            )


def overwrite(path: Path) -> None:
    """As a failing disk does: what is written is not what is read."""
    for part in path.parent.glob(f"{path.name}*"):
        if part.is_file() and not part.name.endswith("-shm"):
            size = part.stat().st_size
            with part.open("r+b") as file:
                file.write(os.urandom(size))
