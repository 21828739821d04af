"""Sessions, commands and their output while the daemon is killed, stopped and started again."""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import random
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiodocker
import grpc
import pytest

from sandboxd_proto.v1 import exec_pb2, exec_service_pb2, session_pb2, session_service_pb2
from tests.cli.command_line import CommandLine
from tests.data.rig import sqlite_file
from tests.docker.commands import (
    Streamed,
    attach,
    attach_request,
    close_session,
    exec_request,
    host_processes,
    list_execs,
    run,
    send_signal,
    start,
    stream,
    wait,
    watching,
    write,
)
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.docker.test_lifecycle import (
    _count,
    containers,
    eventually,
    get_session,
    open_session,
    reason,
)
from tests.docker.test_moved_disks import place_of

SCREEN = exec_pb2.Terminal(rows=24, columns=80)
RUNNING = exec_pb2.EXEC_STATE_RUNNING
ACTIVE = session_pb2.SESSION_STATE_ACTIVE
STOPPED = session_pb2.SESSION_STATE_STOPPED
LOST = session_pb2.SESSION_STATE_LOST


@asynccontextmanager
async def restarting_daemon(
    docker: aiodocker.Docker, **settings: str
) -> AsyncIterator[DaemonProcess]:
    """A daemon that may be killed: what it leaves behind is ended afterwards."""
    async with running_daemon(**settings) as daemon:
        try:
            yield daemon
        finally:
            await daemon.stop()
            if await containers(docker, daemon):
                daemon.environment["SANDBOXD_KEEP_SESSIONS"] = "false"
                await daemon.start()
                await daemon.stop()
            for container_id in await containers(docker, daemon):
                await docker.containers.container(container_id).delete(force=True)


async def new_session(daemon: DaemonProcess) -> str:
    async with daemon.api() as api:
        return (await open_session(api)).session.session_id


async def kill_and_start(daemon: DaemonProcess) -> None:
    await daemon.signal(signal.SIGKILL)
    await daemon.start()


async def there(word: str) -> bool:
    return bool(host_processes(word))


async def gone(word: str) -> bool:
    return not host_processes(word)


# --- output ---

WRITER = """
import hashlib, os, time
sums = [hashlib.sha256(), hashlib.sha256()]
for block in range(800):
    for stream in (0, 1):
        lines = range(2000 * block, 2000 * block + 2000)
        text = "".join(f"{stream} {line:061d}\\n" for line in lines)
        left = memoryview(text.encode())
        sums[stream].update(left)
        while left:
            left = left[os.write(1 + stream, left):]
    time.sleep(0.01)
with open("sums", "w") as file:
    print(*(one.hexdigest() for one in sums), file=file)
"""
"""Slower than its reader, so that it is not done long before the last kill."""
WRITTEN = 800 * 2000 * 64
"""Bytes of each stream."""
CUTS = 50
KILLS = 5


class Resumed:
    """What a client that is cut again and again has received, stream by stream."""

    def __init__(self) -> None:
        self.counts = {"stdout": 0, "stderr": 0}
        self.sums = {"stdout": hashlib.sha256(), "stderr": hashlib.sha256()}
        self.exits: list[exec_pb2.ExitStatus] = []
        self.failures = 0
        """How often the daemon was not there."""

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, event: exec_pb2.ExecEvent) -> None:
        kind = event.WhichOneof("event")
        if kind == "exited":
            self.exits.append(event.exited)
        elif kind in ("stdout", "stderr"):
            chunk: exec_pb2.OutputChunk = getattr(event, kind)
            assert chunk.offset == self.counts[kind], "lost or doubled"
            self.counts[kind] += len(chunk.data)
            self.sums[kind].update(chunk.data)
        else:
            assert kind == "started", event

    async def follow(
        self,
        daemon: DaemonProcess,
        session_id: str,
        exec_id: str,
        *,
        until: float = math.inf,
        then: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Read up to that many bytes or to the end, with as many attempts as it takes. What comes
        `then` happens while the stream is open but not read, so the command cannot run ahead."""
        while True:
            request = attach_request(
                session_id, exec_id, stdout=self.counts["stdout"], stderr=self.counts["stderr"]
            )
            try:
                async with daemon.api() as api:
                    call = api.execs.AttachExec(request, timeout=60)
                    async for message in call:
                        for event in message.events:
                            self.add(event)
                        if self.total >= until:
                            break
                    if then is not None:
                        await then()
                    call.cancel()
                return
            except grpc.aio.AioRpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                self.failures += 1
                await asyncio.sleep(0.01)


class Restarts:
    """Kills the daemon while `exec_id` runs, and starts it again in the background."""

    def __init__(self, daemon: DaemonProcess, session_id: str, exec_id: str) -> None:
        self._daemon = daemon
        self._session_id = session_id
        self._exec_id = exec_id
        self._starting: asyncio.Task[None] | None = None
        self.count = 0

    async def kill(self) -> None:
        await self.finish()
        async with self._daemon.api() as api:
            assert (await list_execs(api, self._session_id))[self._exec_id].state == RUNNING
        await self._daemon.signal(signal.SIGKILL)
        self.count += 1
        self._starting = asyncio.create_task(self._daemon.start())

    async def finish(self) -> None:
        if self._starting is not None:
            await self._starting


async def test_output_survives_cuts_and_kills(docker: aiodocker.Docker) -> None:
    """200 MB over two streams arrive whole, although the client is cut 50 times and the daemon
    killed 5 times: nothing lost, nothing doubled, one end."""
    chance = random.Random()
    places = sorted(chance.uniform(0, 0.9) * 2 * WRITTEN for _ in range(CUTS + KILLS))
    kills = set(chance.sample(places, KILLS))
    received = Resumed()
    began = time.monotonic()
    settings = {"SANDBOXD_SPOOL_BYTES": "128m", "SANDBOXD_SESSION_SPOOL_BYTES": "512m"}
    async with restarting_daemon(docker, POOL_SIZE="0", **settings) as daemon:
        session_id = await new_session(daemon)
        async with daemon.api() as api:
            await start(api, session_id, ["python3", "-c", WRITER], exec_id="big", timeout=110)
        restarts = Restarts(daemon, session_id, "big")
        async with asyncio.timeout(90):
            for place in places:
                then = restarts.kill if place in kills else None
                await received.follow(daemon, session_id, "big", until=place, then=then)
                assert not received.exits
            await received.follow(daemon, session_id, "big")
            await restarts.finish()
        seconds = time.monotonic() - began
        async with daemon.api() as api:
            sums = (await run(api, session_id, "cat sums")).stdout.data.decode().split()
            ended = await wait(api, session_id, "big")

    (end,) = received.exits
    print(
        f"resume: {received.total / 1e6:.0f} MB, {CUTS} cuts, {restarts.count} kills, "
        f"{received.total - 2 * WRITTEN} bytes lost or doubled, {seconds:.1f} s"
    )
    assert received.counts == {"stdout": WRITTEN, "stderr": WRITTEN}
    assert [one.hexdigest() for one in received.sums.values()] == sums
    assert end == ended.exit
    assert (end.code, end.reason) == (0, exec_pb2.EXIT_REASON_EXITED)
    assert (end.stdout_bytes, end.stderr_bytes) == (WRITTEN, WRITTEN)
    assert not end.stdout_dropped_bytes + end.stderr_dropped_bytes


async def test_kill_while_a_client_reads(docker: aiodocker.Docker) -> None:
    """A client whose daemon is killed under it goes on where it was, although nothing of what it
    got is on disk yet."""
    line = "for i in $(seq 1 600); do echo $i; sleep 0.01; done"
    received = Resumed()
    async with restarting_daemon(docker, POOL_SIZE="0") as daemon:
        session_id = await new_session(daemon)
        async with daemon.api() as api:
            await start(api, session_id, line, exec_id="lines", timeout=60)
        async with asyncio.timeout(60):
            reading = asyncio.create_task(received.follow(daemon, session_id, "lines"))
            for _ in range(3):
                so_far = received.total
                while received.total <= so_far:
                    await asyncio.sleep(0.001)
                await kill_and_start(daemon)
            await reading

    assert received.failures >= 3
    text = "".join(f"{number}\n" for number in range(1, 601)).encode()
    assert received.sums["stdout"].digest() == hashlib.sha256(text).digest()
    assert len(received.exits) == 1


# --- starts ---


async def test_racing_starts_run_once(docker: aiodocker.Docker) -> None:
    """200 starts of 20 ids from 4 clients, through a kill of the daemon: each runs once."""
    ids = [f"id-{number:02d}" for number in range(20)]
    # Each client has its own order, and some ids are still new to all when the daemon is killed.
    chance = random.Random()
    asked = sorted([*ids, *ids, *ids[::2]])
    orders = [sorted(asked, key=lambda one: int(one[3:]) + chance.uniform(0, 3)) for _ in range(4)]
    answers: list[exec_service_pb2.StartExecResponse] = []
    retries = 0
    enough = asyncio.Event()

    async def client(daemon: DaemonProcess, session_id: str, order: list[str]) -> None:
        nonlocal retries
        for exec_id in order:
            line = f"echo {exec_id} >> ran; sleep 0.5"
            request = exec_request(session_id, line, exec_id=exec_id, timeout=20)
            while True:
                try:
                    async with daemon.api() as api:
                        answers.append(await api.execs.StartExec(request, timeout=20))
                    break
                except grpc.aio.AioRpcError as error:
                    if error.code() != grpc.StatusCode.UNAVAILABLE:
                        raise
                    retries += 1
                    await asyncio.sleep(0.05)
            if len(answers) >= 45:
                enough.set()

    async with restarting_daemon(docker, POOL_SIZE="0") as daemon:
        session_id = await new_session(daemon)
        async with asyncio.timeout(60), asyncio.TaskGroup() as clients:
            for order in orders:
                clients.create_task(client(daemon, session_id, order))
            await enough.wait()
            await kill_and_start(daemon)
        async with daemon.api() as api:
            ends = [await wait(api, session_id, exec_id) for exec_id in ids]
            ran = (await run(api, session_id, "cat ran")).stdout.data.decode().split()

    fresh = sum(not answer.already_started for answer in answers)
    print(
        f"exactly once: {len(answers)} starts of {len(ids)} ids, {retries} retries, {len(ran)} ran"
    )
    assert len(answers) == 200
    assert sorted(ran) == ids
    assert fresh <= len(ids)
    assert [one.exit.code for one in ends] == [0] * len(ids)


# --- adoption ---

COUNTING = "for i in $(seq 1 2000); do echo $i; sleep 0.05; done"


async def open_counting(api: Api, threads: list[str]) -> dict[str, session_pb2.Session]:
    """Sessions by thread, in each of which `count` runs."""
    opened = {}
    for thread in threads:
        opened[thread] = (await open_session(api, thread)).session
        session_id = opened[thread].session_id
        await start(api, session_id, COUNTING, exec_id="count", timeout=100)
        async with watching(api, session_id, "count") as count:
            await count.shows("1\n")
    return opened


async def are_adopted(daemon: DaemonProcess, sessions: list[session_pb2.Session]) -> bool:
    """Whether the daemon is there and all sessions are what they were, with their commands."""
    try:
        # A fresh channel: one that failed waits for a second before it tries again.
        async with daemon.api() as api:
            for session in sessions:
                now = await get_session(api, session.session_id)
                execs = await list_execs(api, session.session_id)
                assert (now.state, now.incarnation) == (ACTIVE, session.incarnation)
                assert execs["count"].state == RUNNING
    except grpc.aio.AioRpcError as error:
        if error.code() != grpc.StatusCode.UNAVAILABLE:
            raise
        return False
    return True


async def goes_on(api: Api, session_id: str) -> None:
    """Its output is whole and goes on."""
    so_far = (await list_execs(api, session_id))["count"].stdout_bytes
    async with watching(api, session_id, "count") as count:
        async with asyncio.timeout(20):
            while len(count.streamed.stdout) <= so_far + 3:
                await count.read()
        numbers = count.streamed.stdout.decode().rpartition("\n")[0].split("\n")
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]


@pytest.mark.parametrize(
    ("how", "number"), [(signal.SIGKILL, 10), (signal.SIGTERM, 3)], ids=["kill", "stop"]
)
async def test_sessions_are_adopted(
    docker: aiodocker.Docker, how: signal.Signals, number: int
) -> None:
    """After a kill, or a stop that keeps sessions, the next daemon has every session with what
    runs in it, and no container that belongs to nobody."""
    threads = [f"thread {index}" for index in range(number)]
    async with restarting_daemon(
        docker, POOL_SIZE="2", SANDBOXD_KEEP_SESSIONS="true", SANDBOXD_DRAIN_SECONDS="0.5"
    ) as daemon:
        async with daemon.api() as api:
            opened = await open_counting(api, threads)
        await daemon.signal(how)
        daemon.is_forked = False  # its time is printed
        began = time.monotonic()
        starting = asyncio.create_task(daemon.start())
        await eventually(lambda: are_adopted(daemon, list(opened.values())))
        seconds = time.monotonic() - began
        await starting
        async with daemon.api() as api:
            await asyncio.gather(*(goes_on(api, one.session_id) for one in opened.values()))
            for thread, session in opened.items():
                again = await open_session(api, thread)
                assert again.outcome == session_service_pb2.OPEN_OUTCOME_ATTACHED
                assert again.session.session_id == session.session_id
            await daemon.wait_until_warm()
            await eventually(lambda: _count(docker, daemon, number + 2))
            print(f"adoption: {number} of {number} after {how.name}, {seconds:.2f} s, 0 orphans")
            for session in opened.values():
                await close_session(api, session.session_id)
            await daemon.wait_until_warm()
            await eventually(lambda: _count(docker, daemon, 2))
        await daemon.stop()
        assert await containers(docker, daemon) == []


async def test_adopted_command_can_be_acted_on(docker: aiodocker.Docker) -> None:
    """After a restart a command takes input where it was left, signals, and its named shell still
    has its state."""
    async with restarting_daemon(docker, POOL_SIZE="0") as daemon:
        session_id = await new_session(daemon)
        async with daemon.api() as api:
            await start(api, session_id, ["cat"], exec_id="cat", stdin=True)
            assert await write(api, session_id, "cat", 0, b"before ") == 7
            await start(api, session_id, "echo up; sleep 100", exec_id="sleeper", timeout=60)
            await run(api, session_id, "cd /usr; export WORD=kept", shell_name="main")
            await start(api, session_id, ["bash", "--norc"], exec_id="tty", terminal=SCREEN)
            await write(api, session_id, "tty", 0, b"x=before\n")
            line = "sleep 1; echo $WORD; cd /etc"
            await start(api, session_id, line, exec_id="in-shell", shell_name="main")
            async with watching(api, session_id, "sleeper") as sleeper:
                await sleeper.shows("up\n")
        await kill_and_start(daemon)
        async with daemon.api() as api:
            assert await write(api, session_id, "cat", 0, b"before after", eof=True) == 12
            await send_signal(api, session_id, "sleeper", signal.SIGTERM)
            look = await run(api, session_id, "pwd; echo $WORD", shell_name="main")

            await write(api, session_id, "tty", 9, b"echo [$x]; exit 6\n")
            typed = await attach(api, session_id, "tty")
            assert typed.exit.code == 6
            assert b"[before]\r\n" in typed.stdout
            assert (await attach(api, session_id, "cat")).stdout == b"before after"
            slept = await attach(api, session_id, "sleeper")
            assert (bytes(slept.stdout), slept.exit.signal) == (b"up\n", signal.SIGTERM)
            assert (await attach(api, session_id, "in-shell")).stdout == b"kept\n"
            assert look.stdout.data == b"/etc\nkept\n"


async def test_end_while_the_daemon_was_away(docker: aiodocker.Docker) -> None:
    """A command that ends while there is no daemon is told afterwards: code, reason, output."""
    line = "echo out; echo err >&2; sleep 1.03125; echo last; exit 7"
    async with restarting_daemon(docker, POOL_SIZE="0") as daemon:
        session_id = await new_session(daemon)
        async with daemon.api() as api:
            await start(api, session_id, line, exec_id="alone")
            await eventually(lambda: there("1.03125"))
        await daemon.signal(signal.SIGKILL)
        assert host_processes("1.03125")
        await eventually(lambda: gone("1.03125"))
        await daemon.start()
        await told_of_its_end(daemon, session_id)
        # Its guest may have forgotten it by now.
        await kill_and_start(daemon)
        await told_of_its_end(daemon, session_id)


async def told_of_its_end(daemon: DaemonProcess, session_id: str) -> None:
    async with daemon.api() as api:
        ended = await wait(api, session_id, "alone")
        streamed = await attach(api, session_id, "alone")

    assert (ended.exit.code, ended.exit.reason) == (7, exec_pb2.EXIT_REASON_EXITED)
    assert streamed.stdout == b"out\nlast\n"
    assert streamed.stderr == b"err\n"
    assert streamed.exit == ended.exit


async def test_run_without_id_goes_with_its_caller(docker: aiodocker.Docker) -> None:
    """A Run that nobody can ask about again is ended by the next daemon; its session goes on."""
    async with restarting_daemon(docker, POOL_SIZE="0") as daemon:
        session_id = await new_session(daemon)
        async with daemon.api() as api:
            call = asyncio.create_task(run(api, session_id, "sleep 91.03125", timeout=100))
            await eventually(lambda: there("91.03125"))
            await daemon.signal(signal.SIGKILL)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await call
        assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
        assert host_processes("91.03125")
        await daemon.start()
        await eventually(lambda: gone("91.03125"))
        async with daemon.api() as api:
            assert (await get_session(api, session_id)).state == ACTIVE
            assert (await run(api, session_id, "echo on")).stdout.data == b"on\n"
            assert await list_execs(api, session_id) == {}


async def test_caller_of_exec_may_come_back(docker: aiodocker.Docker) -> None:
    """A command that should not outlive its caller lives on when it is the daemon that went, and
    its caller finds it again, as it was asked for."""
    line = "echo a; until [ -e go ]; do sleep 0.05; done; echo b"
    async with restarting_daemon(docker, POOL_SIZE="0") as daemon:
        session_id = await new_session(daemon)
        request = exec_request(session_id, line, exec_id="mine", timeout=60)
        async with daemon.api() as api:
            first = Streamed()
            async for message in api.execs.Exec(request, timeout=60):
                first.add(message)
                if first.stdout:
                    break
            await daemon.signal(signal.SIGKILL)
        await daemon.start()
        async with daemon.api() as api:
            await run(api, session_id, "touch go")
            again = await stream(api, session_id, line, exec_id="mine", timeout=60)

        assert again.stdout == b"a\nb\n"
        assert again.exit.code == 0


async def test_timeouts_count_through_a_restart(docker: aiodocker.Docker) -> None:
    """A deadline is kept by the next daemon, at once if it passed while there was none."""
    async with restarting_daemon(docker, POOL_SIZE="0") as daemon:
        session_id = await new_session(daemon)
        async with daemon.api() as api:
            await start(api, session_id, "echo a; sleep 93.03125", exec_id="three", timeout=3)
            await start(api, session_id, "echo b; sleep 92.03125", exec_id="passed", timeout=0.7)
            await eventually(lambda: there("92.03125"))
            await eventually(lambda: there("93.03125"))
        await daemon.signal(signal.SIGKILL)
        await asyncio.sleep(1)
        assert host_processes("92.03125")
        await daemon.start()
        async with daemon.api() as api:
            passed = await attach(api, session_id, "passed")
            ended = await attach(api, session_id, "three")

        assert passed.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT
        assert passed.stdout == b"b\n"
        assert ended.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT
        assert ended.stdout == b"a\n"
        assert 3 <= ended.exit.duration.ToTimedelta().total_seconds() < 3 + 5
        await eventually(lambda: gone("92.03125"))
        await eventually(lambda: gone("93.03125"))


async def test_nothing_outlives_the_grace_time(docker: aiodocker.Docker) -> None:
    """Without a daemon for longer than the grace time, sandboxes end by themselves; the session is
    then stopped, and its files are kept."""
    async with restarting_daemon(docker, POOL_SIZE="1", SANDBOXD_GRACE_SECONDS="2") as daemon:
        session_id = await new_session(daemon)
        async with daemon.api() as api:
            await run(api, session_id, "echo kept > file; sync")
            await start(api, session_id, "sleep 94.03125", exec_id="long", timeout=100)
            await eventually(lambda: there("94.03125"))
            await daemon.wait_until_warm()
        await daemon.signal(signal.SIGKILL)
        assert host_processes("94.03125")
        began = time.monotonic()
        await eventually(lambda: gone("94.03125"), seconds=10)
        seconds = time.monotonic() - began
        await eventually(lambda: none_runs(docker, daemon), seconds=10)
        print(f"grace: 2 s, command gone after {seconds:.1f} s")
        assert seconds > 1
        await daemon.start()
        async with daemon.api() as api:
            assert (await get_session(api, session_id)).state == session_pb2.SESSION_STATE_STOPPED
            again = await open_session(api)
            assert again.outcome == session_service_pb2.OPEN_OUTCOME_RECREATED
            assert again.workspace_kept
            assert (await run(api, session_id, "cat file")).stdout.data == b"kept\n"
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await wait(api, session_id, "long")
        assert reason(caught.value) == "EXEC_NOT_FOUND"


async def none_runs(docker: aiodocker.Docker, daemon: DaemonProcess) -> bool:
    label = f"sandboxd.instance={daemon.instance}"
    return not await docker.containers.list(filters={"label": [label]})


async def listed(api: Api) -> dict[str, session_pb2.Session]:
    found = await api.sessions.ListSessions(session_service_pb2.ListSessionsRequest())
    return {session.thread_id: session for session in found.sessions}


async def test_plain_stop_ends_sessions_but_keeps_files(
    docker: aiodocker.Docker, tmp_path: Path
) -> None:
    """A stop that keeps no sessions leaves no container. The sessions are stopped: they are listed
    so with the time that their files have, and go on with all that they had, or not at all, when
    their files are asked for. One is lost if its files are, and one that is closed has none."""
    lite = json.dumps({"lite": {"engine": "sqlite", "path": str(sqlite_file(tmp_path))}})
    async with restarting_daemon(
        docker, POOL_SIZE="1", SANDBOXD_DRAIN_SECONDS="0.5", SANDBOXD_DATA_SOURCES=lite
    ) as daemon:
        sandboxd = CommandLine(daemon.socket)
        options = ("--env", "A=1", "--policy", "strict", "--data-source", "lite")
        for thread in ("kept", "looked", "lost", "closed"):
            more = options if thread == "kept" else ()
            assert (await sandboxd("session", "open", "ada", thread, *more)).code == 0
        async with daemon.api() as api:
            sessions = {thread: one.session_id for thread, one in (await listed(api)).items()}
            for session_id in sessions.values():
                await run(api, session_id, "echo kept > file")
            await start(api, sessions["looked"], "sleep 95.03125", exec_id="long", timeout=100)
            await eventually(lambda: there("95.03125"))
        assert await daemon.stop() == 0
        assert await containers(docker, daemon) == []
        assert await gone("95.03125")
        image_of(daemon, sessions["lost"]).unlink()

        await daemon.start()
        async with daemon.api() as api:
            states = {thread: one.state for thread, one in (await listed(api)).items()}
            assert states == dict.fromkeys(sessions, STOPPED) | {"lost": LOST}
            await are_listed(sandboxd)
            await has_all_again(sandboxd, "ada/kept")
            again = (await listed(api))["kept"]
            assert (again.session_id, again.incarnation) == (sessions["kept"], 2)
            shown = await sandboxd("ls", sessions["looked"])
            assert " file\n" in shown.stdout
            assert shown.stderr == f"sandboxd: {sessions['looked']} {AGAIN}\n"
            await is_closed_with_its_files(sandboxd, daemon, sessions["closed"])
            assert "was lost" in (await sandboxd("cat", "ada/lost:file")).stderr
            opened = await sandboxd("exec", "ada/lost", "ls -A")
            assert (opened.code, "file" in opened.stdout.split()) == (0, False)
            assert "had ended; opened it again without its files" in opened.stderr

        await daemon.stop()
        daemon.environment["SANDBOXD_DATA_SOURCES"] = "{}"
        await daemon.start()
        refused = await sandboxd("exec", "ada/kept", "ls")
        assert (refused.code, refused.stdout) == (125, "")
        assert "no data source 'lite'" in refused.stderr
        assert "The session has it from an earlier open" in refused.stderr
        shown = await sandboxd("cp", "ada/looked:file", "-")
        assert (shown.code, shown.stdout) == (0, "kept\n")
        async with daemon.api() as api:
            assert (await listed(api))["kept"].state == STOPPED


AGAIN = "was stopped; opened it again with its files"


def image_of(daemon: DaemonProcess, session_id: str) -> Path:
    disk_id = place_of(daemon, session_id).disk_id
    return daemon.directory / "state" / "disks" / f"{disk_id}.img"


async def are_listed(sandboxd: CommandLine) -> None:
    """Those that keep their files, without asking for ended ones."""
    found = (await sandboxd("session", "list", "--json")).document
    assert {one["thread_id"] for one in found} == {"kept", "looked", "closed"}
    assert {(one["state"], one["workspace_kept"]) for one in found} == {("stopped", True)}
    _, line = (await sandboxd("session", "list", "--thread", "kept")).stdout.splitlines()
    assert re.search(r"kept +stopped, files kept .* [0-9]+m$", line)


async def has_all_again(sandboxd: CommandLine, session: str) -> None:
    """A look at a file opens it, as it was."""
    shown = await sandboxd("cat", f"{session}:file")
    assert (shown.code, shown.stdout) == (0, "kept\n")
    assert shown.stderr == f"sandboxd: {session} {AGAIN}\n"
    found = (await sandboxd("session", "show", session, "--json")).document
    assert (found["state"], found["command_policy"]) == ("active", "strict")
    assert found["data_sources"] == ["lite"]
    count = "db_query('SELECT count(*) AS n FROM users', source='lite')[0]['n']"
    code = await sandboxd("code", "run", "-s", session, "-c", count)
    assert code.stdout.strip() == "1000", code
    assert (await sandboxd("exec", session, "echo $A")).stdout == "1\n"


async def is_closed_with_its_files(
    sandboxd: CommandLine, daemon: DaemonProcess, session_id: str
) -> None:
    """At once, and not when they would have expired."""
    image = image_of(daemon, session_id)
    assert image.exists()
    (closed,) = (await sandboxd("session", "close", session_id, "--json")).document
    assert (closed["state"], closed["workspace_kept"]) == ("closed", False)

    async def is_deleted() -> bool:
        return not image.exists()

    await eventually(is_deleted)
