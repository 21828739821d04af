"""Commands apart from their guest: where they live, what they may use, what is told of it."""

from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiodocker
import pytest

from sandboxd.config import Config
from sandboxd.daemon.composition import running
from sandboxd.environments.environment import Environment
from sandboxd.isolation import cgroups
from sandboxd.isolation.cgroups import CgroupsV1
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd_proto.v1 import admin_service_pb2, exec_pb2, exec_service_pb2, session_service_pb2
from tests.docker.commands import (
    Streamed,
    attach,
    exec_request,
    list_execs,
    run,
    start,
    write,
)
from tests.docker.daemon_process import (
    RUNTIME,
    Api,
    DaemonProcess,
    first_uid,
    running_daemon,
    served,
)

WHERE = "grep -E ':(memory|pids|cpuacct):' /proc/self/cgroup | cut -d: -f3 | sort -u"


async def open_session(api: Api, thread: str = "t") -> str:
    opened = await api.sessions.OpenSession(
        session_service_pb2.OpenSessionRequest(user_id="limits", thread_id=thread)
    )
    return str(opened.session.session_id)


@pytest.mark.parametrize(
    ("command", "fields"),
    [
        pytest.param(WHERE, {}, id="waiting shell"),
        pytest.param(WHERE + " #" + "x" * 20_000, {}, id="own shell, long command"),
        pytest.param(WHERE, {"env": {"IFS": " ", "odd-name": "1"}}, id="own shell, odd variable"),
        pytest.param(["bash", "-c", WHERE], {}, id="argv"),
        pytest.param(f'(setsid bash -c "{WHERE}")', {}, id="a daemon of it"),
    ],
)
async def test_every_command_is_in_the_cgroup_for_commands(
    command: str | list[str], fields: dict[str, dict[str, str]], api: Api, session_id: str
) -> None:
    """However a command is started, it has the limits of commands, in every hierarchy."""
    for _ in range(3):
        done = await run(api, session_id, command, **fields)
        assert (done.stdout.data, done.stderr.data) == (b"/cmd\n", b"")


async def test_quota_reaches_what_runs_for_more_than_a_moment(api: Api, session_id: str) -> None:
    """A command, and what it leaves behind, gets no more processor time than the quota gives."""
    wait = "until grep -q ':cpu[,:a-z]*:/cmd' /proc/$$/cgroup; do sleep 0.01; done; echo under it"
    done = await run(api, session_id, wait, timeout=10)
    left = await run(api, session_id, f"(setsid bash -c '{wait}' >outputs/left &)")
    found = await run(
        api, session_id, "until [ -s outputs/left ]; do sleep 0.01; done; cat outputs/left"
    )
    spin = "for i in 1 2 3 4; do timeout 2 sha256sum /dev/zero & done; wait"
    busy = await run(api, session_id, spin, timeout=10)

    assert done.stdout.data == found.stdout.data == b"under it\n"
    assert left.exit.code == 0
    assert busy.exit.usage.cpu_time.seconds + busy.exit.usage.cpu_time.nanos / 1e9 < 2.7


async def test_use_is_counted_by_the_host(api: Api, session_id: str) -> None:
    """Memory, processor time and processes of a command are on its exit."""
    program = "x = bytearray(60 << 20); sum(range(10**6))"
    done = await run(api, session_id, ["python3", "-c", program])
    quiet = await run(api, session_id, "true")

    usage = done.exit.usage
    assert 60 << 20 <= usage.peak_memory_bytes <= 256 << 20
    assert usage.cpu_time.seconds + usage.cpu_time.nanos / 1e9 > 0.01
    assert usage.peak_processes >= 1
    assert (usage.oom_kills, usage.refused_forks) == (0, 0)
    assert quiet.exit.usage.peak_memory_bytes < 30 << 20


async def test_out_of_memory_is_told_and_costs_only_the_command(api: Api, session_id: str) -> None:
    """The reason comes from the kernel's counter, not from exit code 137."""
    killed = await run(api, session_id, ["python3", "-c", "bytearray(1 << 30)"])
    pretended = await run(api, session_id, "exit 137")
    survived = await run(api, session_id, "python3 -c 'bytearray(1 << 30)'; true")
    after = await run(api, session_id, "echo ok")

    assert killed.exit.reason == exec_pb2.EXIT_REASON_OUT_OF_MEMORY
    assert "Out of memory" in killed.exit.hint
    assert killed.exit.usage.oom_kills >= 1
    assert pretended.exit.reason == exec_pb2.EXIT_REASON_EXITED
    assert survived.exit.reason == exec_pb2.EXIT_REASON_EXITED
    assert "memory limit" in survived.exit.hint
    assert after.stdout.data == b"ok\n"


LEFT_BEHIND = """
import time
open("outputs/begun", "w").close()
while open("outputs/go").read() == "":
    time.sleep(0.01)
held = []
while True:
    held.append(bytearray(8 << 20))
"""


@pytest.mark.calm
async def test_memory_of_a_process_left_behind_is_not_blamed_on_a_command(
    api: Api, session_id: str
) -> None:
    """A command that fails by itself while the kernel kills another process has failed by itself;
    one that needs the memory that another process has is told that it is not alone."""
    start = f"> outputs/go; python3 -c '{LEFT_BEHIND}' >/dev/null 2>&1 & echo $! > outputs/left"
    begun = "until test -e outputs/begun; do sleep 0.01; done"
    await run(api, session_id, f"{start}; {begun}")
    wait = "echo > outputs/go; while kill -0 $(cat outputs/left) 2>/dev/null; do sleep 0.01; done"
    innocent = await run(api, session_id, f"{wait}; exit 3", timeout=20)
    own = await run(api, session_id, ["python3", "-c", "bytearray(1 << 30)"])

    assert (innocent.exit.reason, innocent.exit.code) == (exec_pb2.EXIT_REASON_EXITED, 3)
    assert innocent.exit.usage.oom_kills >= 1
    assert "other commands" in innocent.exit.hint
    assert own.exit.reason == exec_pb2.EXIT_REASON_OUT_OF_MEMORY
    assert "other commands" not in own.exit.hint


async def test_process_limit_is_told(api: Api, session_id: str) -> None:
    """A command that fails because it may not fork any more says so."""
    program = "import subprocess as s\nwhile True: s.Popen(['sleep', '30'])"
    done = await run(api, session_id, ["python3", "-c", program], timeout=20)

    assert done.exit.reason == exec_pb2.EXIT_REASON_PROCESS_LIMIT
    assert done.exit.usage.peak_processes == 128
    assert done.exit.usage.refused_forks >= 1


CROWD = """
import subprocess, sys
crowd = []
try:
    while True:
        crowd.append(subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL))
except BlockingIOError:
    print("full", flush=True)
sys.stdin.read()
for process in crowd:
    process.kill()
    process.wait()
"""


@pytest.mark.calm
async def test_command_waits_for_processes_that_others_have(api: Api, session_id: str) -> None:
    """At the limit of processes a command is not refused as long as they come back soon."""
    request = exec_request(session_id, ["python3", "-c", CROWD], exec_id="crowd", stdin=True)
    crowd = api.execs.Exec(request, timeout=60)
    seen = Streamed()
    while b"full" not in seen.stdout:
        seen.add(await crowd.read())
    # The shell that waits already has to go, and its place is taken.
    await start(api, session_id, "exec sleep 30", env={"IFS": " "})
    # The guest has it before it reads that the crowd may go; its start is answered when it runs.
    starting = asyncio.create_task(start(api, session_id, "echo hi", exec_id="late"))
    async with asyncio.timeout(10):
        while "late" not in await list_execs(api, session_id):
            await asyncio.sleep(0.01)
    assert not starting.done()
    await write(api, session_id, "crowd", 0, b"", eof=True)
    await starting
    done = await attach(api, session_id, "late")

    assert (done.exit.code, done.stdout) == (0, b"hi\n")
    while not seen.exits:
        seen.add(await crowd.read())
    assert seen.exit.code == 0


async def test_full_workspace_is_told_and_usable_afterwards(api: Api, session_id: str) -> None:
    """Bytes and files beyond the limit are refused by the kernel; nothing is killed."""
    written = await run(api, session_id, "head -c 70M /dev/zero >big", timeout=30)
    size = await run(api, session_id, "stat -c %s big; rm big")
    program = "n = 0\nwhile True: open(f'outputs/{n}', 'x').close(); n += 1"
    files = await run(api, session_id, ["python3", "-c", program], timeout=30)
    count = await run(api, session_id, "ls outputs | wc -l; rm outputs/*; echo again >outputs/x")

    assert written.exit.reason == exec_pb2.EXIT_REASON_DISK_FULL
    assert b"No space left on device" in written.stderr.data
    assert "Disk full" in written.exit.hint
    assert 64 << 20 <= int(size.stdout.data) <= (64 << 20) + (64 << 10)
    assert files.exit.reason == exec_pb2.EXIT_REASON_DISK_FULL
    assert count.stdout.data == b"1000\n"
    assert count.exit.code == 0


async def test_commands_have_a_name_and_the_layout(api: Api, session_id: str) -> None:
    """`whoami` knows the user; project files can be read, not written and not moved away."""
    line = "whoami; id -gn; echo $USER $HOME; ls; touch a agent_workspace/b outputs/c && echo ok"
    done = await run(api, session_id, line)
    refused = await run(
        api, session_id, "touch project_files/x; mv project_files y; rmdir project_files; ls"
    )

    expected = "sandboxuser sandboxuser sandboxuser /workspace agent_workspace outputs "
    assert done.stdout.data.decode().split() == (expected + "project_files ok").split()
    assert refused.stderr.data.count(b"ermi") + refused.stderr.data.count(b"not permitted") >= 3
    assert b"project_files" in refused.stdout.data


async def test_guest_that_stops_is_ended_from_the_host() -> None:
    """When the guest is late, the host kills it; the command ends as timed out, the session is
    told, its files are kept, and each step is counted."""
    async with running_daemon(POOL_SIZE="0") as daemon, daemon.api() as api:
        session_id = await open_session(api)
        await run(api, session_id, "echo here >f")
        easy = await run(api, session_id, "sleep 100", timeout=0.3)
        async with aiodocker.Docker() as docker:
            pids = await _first_processes(docker, daemon)
        running_command = asyncio.ensure_future(run(api, session_id, "sleep 100", timeout=1))
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            while (await api.status()).running_execs != 1:
                await asyncio.sleep(0.01)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        stuck = await running_command
        kill_counts = (await api.status()).kill_counts
        again = await api.sessions.OpenSession(
            session_service_pb2.OpenSessionRequest(user_id="limits", thread_id="t")
        )
        after = await run(api, session_id, "cat f")

    assert easy.exit.reason == stuck.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT
    assert (kill_counts.by_guest, kill_counts.by_host, kill_counts.by_engine) == (1, 1, 0)
    assert again.workspace_kept
    assert after.stdout.data == b"here\n"


async def _first_processes(docker: aiodocker.Docker, daemon: DaemonProcess) -> list[int]:
    listed = await docker.containers.list(
        filters={"label": [f"sandboxd.instance={daemon.instance}"]}
    )
    return [(await container.show())["State"]["Pid"] for container in listed]


async def test_disk_of_a_session_goes_with_it() -> None:
    """Closed or expired, a session leaves no file on the host; lost and left, it expires too."""
    async with running_daemon(POOL_SIZE="0") as daemon, daemon.api() as api:
        disks = daemon.directory / "state" / "disks"

        def images() -> int:
            return len(list(disks.glob("*.img")))

        first = await open_session(api, "closed")
        assert images() == 1
        await api.sessions.CloseSession(session_service_pb2.CloseSessionRequest(session_id=first))
        await _until(lambda: images() == 0)

        request = session_service_pb2.OpenSessionRequest(
            user_id="limits", thread_id="lost", idle_timeout={"seconds": 2}
        )
        await api.sessions.OpenSession(request)
        async with aiodocker.Docker() as docker:
            for pid in await _first_processes(docker, daemon):
                os.kill(pid, signal.SIGKILL)
        await _until(lambda: images() == 0)
        reopened = await api.sessions.OpenSession(request)

        assert reopened.outcome == session_service_pb2.OPEN_OUTCOME_RECREATED
        assert not reopened.workspace_kept


async def _until(holds: object, seconds: float = 15.0) -> None:
    assert callable(holds)
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.05)


async def test_files_survive_a_killed_daemon() -> None:
    """kill -9 and a new start: the session goes on with its files; no disk but its own and those
    of the pool is left."""
    async with running_daemon(POOL_SIZE="2") as daemon:
        async with daemon.api() as api:
            session_id = await open_session(api)
            await run(api, session_id, "echo still here >outputs/f")
        await daemon.signal(signal.SIGKILL)
        await daemon.start()
        async with daemon.api() as api:
            request = session_service_pb2.OpenSessionRequest(user_id="limits", thread_id="t")
            opened = await api.sessions.OpenSession(request)
            done = await run(api, session_id, "cat outputs/f; ls -ld outputs | cut -d' ' -f3")
            await daemon.wait_until_warm()
        images = list((daemon.directory / "state" / "disks").glob("*.img"))

    assert opened.session.session_id == session_id
    assert opened.workspace_kept
    assert done.stdout.data == b"still here\nsandboxuser\n"
    assert len(images) == 3


async def test_low_disk_space_refuses_new_workspaces() -> None:
    """Below the reserve no workspace is made, and the caller is told why."""
    reserve = str(1 << 30)
    async with (
        running_daemon(POOL_SIZE="0", SANDBOXD_DISK_RESERVE_MB=reserve) as daemon,
        daemon.api() as api,
    ):
        with pytest.raises(Exception, match="disk space left"):
            await open_session(api)
        assert (await api.status()).pool.in_use == 0
        assert not list(daemon.directory.glob("state/disks/*.img"))


# --- a daemon that is not root ---


@pytest.fixture
async def unprivileged() -> AsyncIterator[DaemonProcess]:
    """A daemon of a user who is in the group of the engine's socket and has no other rights."""
    daemon = DaemonProcess(POOL_SIZE="1")
    socket_group = os.stat("/var/run/docker.sock").st_gid
    nobody = pwd.getpwnam("nobody")
    os.chown(daemon.directory, nobody.pw_uid, nobody.pw_gid)
    daemon.directory.chmod(0o711)
    as_nobody = _as_user(nobody.pw_uid, nobody.pw_gid, socket_group)
    daemon.program = [*as_nobody, *daemon.program]
    async with served(daemon):
        yield daemon


def _as_user(uid: int, gid: int, group: int) -> list[str]:
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    # Reading is all it may do as root could: the sources may be where only root can go.
    reads = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    return [setpriv, f"--reuid={uid}", f"--regid={gid}", f"--groups={group}", *reads]


async def test_daemon_without_root_says_what_is_weaker_and_tells_the_truth(
    unprivileged: DaemonProcess,
) -> None:
    """In the docker group only: commands work, limits are shared and said to be, memory bombs are
    told as such, and the session can go on."""
    await unprivileged.wait_until_warm()
    async with unprivileged.api() as api:
        session_id = await open_session(api)
        plain = await run(api, session_id, "whoami; cat /proc/self/oom_score_adj; pwd")
        bomb = await run(api, session_id, ["python3", "-c", "bytearray(1 << 30)"], timeout=20)
        again = await open_session(api)
        after = await run(api, again, "echo ok")
        states = {one.name: one.state for one in (await api.status()).protections}

    assert plain.stdout.data == b"sandboxuser\n1000\n/workspace\n"
    assert bomb.exit.reason == exec_pb2.EXIT_REASON_OUT_OF_MEMORY
    assert after.stdout.data == b"ok\n"
    weaker = admin_service_pb2.PROTECTION_STATE_WEAKER, admin_service_pb2.PROTECTION_STATE_MISSING
    assert states["command limits"] in weaker
    assert states["workspace"] in weaker
    assert states["host kill"] in weaker


async def test_daemon_without_root_has_the_engine_end_a_stopped_guest(
    unprivileged: DaemonProcess,
) -> None:
    """Where the host may not kill, the last step is the engine's, and it is counted."""
    await unprivileged.wait_until_warm()
    async with unprivileged.api() as api, aiodocker.Docker() as docker:
        session_id = await open_session(api)
        running_command = asyncio.ensure_future(run(api, session_id, "sleep 100", timeout=1))
        async with asyncio.timeout(10):
            while (await api.status()).running_execs != 1:
                await asyncio.sleep(0.01)
        for pid in await _first_processes(docker, unprivileged):
            os.kill(pid, signal.SIGSTOP)
        stuck = await running_command
        kill_counts = (await api.status()).kill_counts
        again = await open_session(api)
        after = await run(api, again, "echo ok")

    assert stuck.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT
    assert (kill_counts.by_guest, kill_counts.by_host, kill_counts.by_engine) == (0, 0, 1)
    assert after.stdout.data == b"ok\n"


# --- the way of cgroup version 2 ---


async def test_shells_can_be_moved_one_by_one(short_dir: Path) -> None:
    """Where no thread can be placed, the guest has each shell moved before it gets a command."""

    class Asking(CgroupsV1):
        """Version 1, with the ways of version 2."""

        def __init__(self) -> None:
            super().__init__(cgroups._v1_mounts(Path("/proc/self/mountinfo")), asks=True)

    made: list[Sandbox] = []

    class Maker(SandboxMaker):
        async def make(self, environment: Environment, kept: object = None) -> Sandbox:
            assert kept is None
            made.append(await super().make(environment))
            return made[-1]

    config = Config(
        host="",
        state_dir=short_dir / "state",
        run_dir=short_dir / "run",
        sandbox_uid_start=first_uid(),
        guest_runtime=RUNTIME,
        pool_size=1,
        min_pool_size=0,
        workspace_backend="memory",
        command_policy="open",
    )

    def maker(engine: object, settings: object, host: Host) -> SandboxMaker:
        asking = Host(uids=host.uids, cgroups=Asking(), disks=host.disks)
        return Maker(engine, settings, asking)  # type: ignore[arg-type]

    async with running(config, maker=maker):
        api = Api(f"unix:{config.api_socket}")
        session_id = await open_session(api)
        requests = [
            exec_service_pb2.ExecRequest(session_id=session_id, shell=WHERE) for _ in range(20)
        ]
        one_by_one = [(await api.execs.Run(request, timeout=30)) for request in requests[:10]]
        at_once = await asyncio.gather(*(api.execs.Run(one, timeout=30) for one in requests[10:]))
        started = time.monotonic()
        ended = await run(api, session_id, "sleep 50", timeout=0.5)
        assert time.monotonic() - started < 10
        await api.channel.close()

    assert {done.stdout.data for done in (*one_by_one, *at_once)} == {b"/cmd\n"}
    assert ended.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT
