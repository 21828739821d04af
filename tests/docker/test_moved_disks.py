"""The disk of a lost session in a warm sandbox: what it holds, who owns it, what limits it, and
what is left of the disk that the sandbox had."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sqlite3
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import NamedTuple

import aiodocker
import pytest
import pytest_asyncio

from sandboxd_client import AsyncSandbox, SandboxError
from sandboxd_proto.v1 import admin_service_pb2
from tests.docker.daemon_process import DaemonProcess, served
from tests.docker.faulty_daemon import STEPS
from tests.docker.snapshot_tree import MAKE_TREE, tree_of
from tests.service.project_client import ProjectClient

pytestmark = pytest.mark.timeout(300)
WAIT_SECONDS = 60.0
TIMES = 8
# Without it no process may say which ids of a disk are which ids elsewhere.
UNABLE = ("setpriv", "--bounding-set", "-setfcap", "--inh-caps", "-setfcap")
SETTINGS = {"POOL_SIZE": "2", "MAX_WORKSPACE_SIZE_MB": "32", "MAX_TOTAL_FILES": "300"}


# An access list with a user that is nobody here, as the kernel stores it.
SET_ACCESS_LIST = """
import os, struct
none = 0xffffffff
entries = [(1, 6, none), (2, 4, 4242), (4, 0, none), (16, 4, none), (32, 0, none)]
packed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
open("listed", "w").close()
os.setxattr("listed", "system.posix_acl_access", packed)
"""
GET_ACCESS_LIST = 'import os; print(os.getxattr("listed", "system.posix_acl_access").hex())'


class Place(NamedTuple):
    """What the daemon's records say about a session."""

    sandbox_id: str
    uid: int
    disk_id: str
    disk_uid: int


def place_of(daemon: DaemonProcess, session_id: str) -> Place:
    registry = daemon.directory / "state" / "registry.sqlite"
    with closing(sqlite3.connect(registry)) as connection:
        query = "SELECT sandbox_id, uid, disk_id, disk_uid FROM sessions WHERE session_id = ?"
        return Place(*connection.execute(query, (session_id,)).fetchone())


async def pid_of(docker: aiodocker.Docker, daemon: DaemonProcess, session_id: str) -> int:
    """The first process of its sandbox, on the host."""
    name = f"sandboxd-{daemon.instance}-{place_of(daemon, session_id).sandbox_id}"
    pid = (await docker.containers.container(name).show())["State"]["Pid"]
    assert isinstance(pid, int)
    return pid


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon() -> AsyncIterator[DaemonProcess]:
    async with served(DaemonProcess(**SETTINGS)) as daemon:
        yield daemon


@asynccontextmanager
async def opened(
    daemon: DaemonProcess, thread: str, **fields: object
) -> AsyncIterator[AsyncSandbox]:
    """A sandbox whose session is closed afterwards."""
    sandbox = await open_one(daemon, thread, **fields)
    try:
        yield sandbox
    finally:
        with suppress(SandboxError):
            await sandbox.kill()
        await sandbox.aclose()


async def open_one(daemon: DaemonProcess, thread: str, **fields: object) -> AsyncSandbox:
    return await AsyncSandbox.open(
        "ada",
        thread,
        server_url=f"unix:{daemon.socket}",
        **fields,  # type: ignore[arg-type]
    )


async def lose(docker: aiodocker.Docker, daemon: DaemonProcess, sandbox: AsyncSandbox) -> None:
    """Kill its first process, and wait until all of it is gone and others are warm."""
    pid = await pid_of(docker, daemon, sandbox.session_id)
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(WAIT_SECONDS):
        while (await sandbox.refresh()).state != "stopped" or _runs(pid):
            await asyncio.sleep(0.02)
    await daemon.wait_until_warm()


def _runs(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


async def hits_and_misses(daemon: DaemonProcess) -> tuple[int, int]:
    async with daemon.api() as api:
        pool = (await api.status()).pool
    return pool.hits, pool.misses


async def output(sandbox: AsyncSandbox, line: str) -> str:
    ran = await sandbox.commands.run(line, timeout=60)
    return ran.stdout + ran.stderr


class Mount(NamedTuple):
    point: str
    options: Sequence[str]
    peers: str
    """What it shares with other mounts; `-` if nothing."""


def workspace_mounts(pid: int) -> Sequence[Mount]:
    """Mounts that the sandbox has at the workspace and below."""
    lines = Path(f"/proc/{pid}/mountinfo").read_text().splitlines()
    found = [Mount(fields[4], fields[5].split(","), fields[6]) for fields in map(str.split, lines)]
    return [mount for mount in found if mount.point.split("/")[1] == "workspace"]


async def is_settled(daemon: DaemonProcess) -> None:
    """Every sandbox has two devices, nothing is mounted on the host, and no disk is without use."""

    async def fits() -> bool:
        async with daemon.api() as api:
            pool = (await api.status()).pool
        count = pool.warm + pool.in_use
        images = list((daemon.directory / "state" / "disks").glob("*.img"))
        held = daemon.held_by_the_host()
        is_warm = pool.warm >= pool.target and not pool.starting
        return is_warm and len(held) == 2 * count and len(images) == count

    async with asyncio.timeout(WAIT_SECONDS):
        while not await fits():
            await asyncio.sleep(0.05)


# --- what a moved disk is ---


async def test_lost_session_continues_in_a_warm_sandbox(
    daemon: DaemonProcess, docker: aiodocker.Docker
) -> None:
    """With its files as they were, and its owner; commands, file calls and code work there; no
    sandbox is started for it; and what the sandbox had before is gone."""
    async with opened(daemon, "lost") as sandbox:
        await sandbox.commands.run(MAKE_TREE, check=True)
        await sandbox.files.write("project_files/given.txt", "from the caller")
        wanted = await tree_of(sandbox)
        first = place_of(daemon, sandbox.session_id)
        for times in (1, 2):
            await lose(docker, daemon, sandbox)
            hits, misses = await hits_and_misses(daemon)
            again = await open_one(daemon, "lost")
            place = place_of(daemon, sandbox.session_id)

            assert (again.info.status, again.info.workspace_kept) == ("recreated", True)
            assert again.info.incarnation == times + 1
            assert await hits_and_misses(daemon) == (hits + 1, misses)
            assert (place.disk_id, place.disk_uid) == (first.disk_id, first.uid)
            assert place.uid != first.uid
            assert await output(again, "pwd; ls -d plain.txt") == "/workspace\nplain.txt\n"
            assert await tree_of(again) == wanted
            assert await again.files.read("project_files/given.txt") == "from the caller"
            assert "Read-only" in await output(again, "touch project_files/x")
            assert await output(again, "stat -c %u plain.txt . outputs; id -u") == (
                f"{place.uid}\n0\n{place.uid}\n{place.uid}\n"
            )
            wanted = await changed(again, times)
            pid = await pid_of(docker, daemon, sandbox.session_id)
            points = [mount.point for mount in workspace_mounts(pid)]
            assert points == ["/workspace", "/workspace/project_files"]
            await again.aclose()
        await is_settled(daemon)


async def changed(sandbox: AsyncSandbox, number: int) -> str:
    """Change files in every way that there is; returns the tree of after."""
    await sandbox.commands.run(
        f"set -e; echo more >> private; chmod 700 deep; rm -f deep/two; mkdir d{number}; "
        f"echo {number} > d{number}/f; mv d{number}/f d{number}/g; echo x > outputs/x",
        check=True,
    )
    await sandbox.files.write(f"by-call-{number}", "x" * 100_000)
    ran = await sandbox.code.run(f"open('by-code-{number}', 'w').write('x')")
    assert ran.ok
    owners = await output(sandbox, f"stat -c %U d{number}/g by-call-{number} by-code-{number}")
    assert len(set(owners.split())) == 1
    return await tree_of(sandbox)


async def test_limits_hold_on_a_moved_disk(daemon: DaemonProcess, docker: aiodocker.Docker) -> None:
    """Of bytes, files and the speed of writes; and what is reported is about this disk."""
    async with opened(daemon, "limits") as sandbox:
        await sandbox.commands.run("mkdir d; head -c 9000000 /dev/zero > nine", check=True)
        await lose(docker, daemon, sandbox)
        again = await open_one(daemon, "limits")
        made = "i=0; while : 2>/dev/null > d/$i; do i=$((i+1)); done; echo $i"

        assert int((await output(again, made)).splitlines()[0]) == 300 - 2
        full = await again.commands.run("echo x > one-more")
        assert full.exit_code != 0
        assert "No space left" in full.stderr
        assert "workspace" in (full.hint or "")
        await again.commands.run("rm -r d", check=True)
        await again.commands.run("head -c 99000000 /dev/zero > rest", timeout=60)
        size = int(await output(again, "stat -c %s rest"))
        assert abs(size - ((32 << 20) - 9_000_000)) < 64 << 10
        await again.commands.run("rm rest", check=True)
        usage = (await again.refresh()).usage
        assert usage is not None
        assert abs(usage.workspace_bytes - 9_000_000) < 64 << 10
        pid = await pid_of(docker, daemon, sandbox.session_id)
        device = os.stat(f"/proc/{pid}/root/workspace").st_dev
        assert f"{os.major(device)}:{os.minor(device)} {200 << 20}" in write_limits(pid)
        await again.aclose()


def write_limits(pid: int) -> str:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "blkio" in controllers.split(","):
            place = Path("/sys/fs/cgroup/blkio") / path.lstrip("/")
            return (place / "blkio.throttle.write_bps_device").read_text()
    raise AssertionError("there is no cgroup that limits writes")


async def test_hostile_files_mean_nothing_on_a_moved_disk(
    daemon: DaemonProcess, docker: aiodocker.Docker
) -> None:
    """Set-id bits give nothing, access lists name whom they named, what is root's stays root's, and
    links lead nowhere else than before."""
    async with opened(daemon, "hostile") as sandbox:
        await sandbox.commands.run(
            "cp /usr/bin/id id; chmod 6755 id; mv project_files gone; rmdir project_files; "
            "ln -s /etc project_files/x; ln -s / root; ln -s ../../etc/shadow outputs/link; "
            f"python3 -c {shlex.quote(SET_ACCESS_LIST)}; true",
        )
        acl = await output(sandbox, f"python3 -c {shlex.quote(GET_ACCESS_LIST)}")
        await lose(docker, daemon, sandbox)
        again = await open_one(daemon, "hostile")
        place = place_of(daemon, sandbox.session_id)

        assert await output(again, "./id -u; ./id -ru") == f"{place.uid}\n" * 2
        assert await output(again, f"python3 -c {shlex.quote(GET_ACCESS_LIST)}") == acl != ""
        assert await output(again, "readlink root outputs/link") == "/\n../../etc/shadow\n"
        for line in ("mv project_files gone", "rmdir project_files", "chown 0 id", "chmod 700 ."):
            assert (await again.commands.run(line)).exit_code != 0, line
        assert await output(again, "stat -c '%u %a %F' . project_files") == (
            "0 1777 directory\n0 755 directory\n"
        )
        pid = await pid_of(docker, daemon, sandbox.session_id)
        mount, project = workspace_mounts(pid)
        assert {"rw", "nosuid", "nodev", "noatime", "idmapped"} <= set(mount.options)
        assert {"ro", "nosuid", "nodev"} <= set(project.options)
        assert mount.peers == project.peers == "-"
        await again.aclose()


async def test_moved_disk_is_rewound_and_parked(
    daemon: DaemonProcess, docker: aiodocker.Docker
) -> None:
    """Snapshots are read from a moved disk, and restored, as from any other."""
    async with opened(daemon, "snapshots") as sandbox:
        await sandbox.commands.run(MAKE_TREE, check=True)
        await sandbox.snapshots.create("before")
        wanted = await tree_of(sandbox)
        await lose(docker, daemon, sandbox)
        again = await open_one(daemon, "snapshots")
        await again.commands.run("rm -rf deep; echo x > new", check=True)
        await again.snapshots.create("after")
        changed_tree = await tree_of(again)
        await daemon.wait_until_warm()
        await again.rewind(snapshot="before")
        assert await tree_of(again) == wanted
        await again.rewind(snapshot="after")
        assert await tree_of(again) == changed_tree
        await lose(docker, daemon, again)
        moved = await open_one(daemon, "snapshots")
        await moved.park()
        back = await open_one(daemon, "snapshots")
        assert back.info.status == "unparked"
        assert await tree_of(back) == changed_tree
        for one in (again, moved, back):
            await one.aclose()
    await is_settled(daemon)


async def test_session_with_a_project_gets_both(
    daemon: DaemonProcess, docker: aiodocker.Docker
) -> None:
    """Its disk, and on it the files of the project, which it cannot change."""
    async with daemon.api() as api:
        project = ProjectClient(api.projects, user_id="ada", project_id="book")
        await project.create()
        await project.upload("a.txt", b"of the project")
    async with opened(daemon, "project", project="book") as sandbox:
        await sandbox.commands.run("echo mine > mine; cp project_files/a.txt copy", check=True)
        await lose(docker, daemon, sandbox)
        hits, misses = await hits_and_misses(daemon)
        again = await open_one(daemon, "project")

        assert await hits_and_misses(daemon) == (hits + 1, misses)
        assert await output(again, "cat mine copy project_files/a.txt") == (
            "mine\nof the projectof the project"
        )
        assert "Read-only" in await output(again, "touch project_files/x")
        await again.aclose()
    await is_settled(daemon)


# --- crashes ---


async def test_moved_disk_outlives_a_killed_daemon(docker: aiodocker.Docker) -> None:
    """Right after the open: the next daemon adopts the sandbox with its disk, a command that runs
    goes on, and the session can be lost and opened once more."""
    daemon = DaemonProcess(**SETTINGS)
    async with served(daemon), opened(daemon, "killed") as sandbox:
        await sandbox.commands.run(MAKE_TREE, check=True)
        wanted = await tree_of(sandbox)
        await lose(docker, daemon, sandbox)
        again = await open_one(daemon, "killed")
        await again.commands.run("sleep 2; echo end > /tmp/end", background=True)
        place = place_of(daemon, sandbox.session_id)
        await daemon.signal(signal.SIGKILL)
        await daemon.start()
        adopted = await open_one(daemon, "killed")

        assert adopted.info.status == "attached"
        assert place_of(daemon, sandbox.session_id) == place
        assert await tree_of(adopted) == wanted
        async with asyncio.timeout(WAIT_SECONDS):
            while not await adopted.files.exists("/tmp/end"):
                await asyncio.sleep(0.05)
        usage = (await adopted.refresh()).usage
        assert usage is not None
        assert usage.workspace_bytes > 5_000_000
        await lose(docker, daemon, adopted)
        last = await open_one(daemon, "killed")
        assert await tree_of(last) == wanted
        assert place_of(daemon, sandbox.session_id).disk_uid == place.disk_uid
        await sandbox.kill()
        await is_settled(daemon)
        for one in (again, adopted, last):
            await one.aclose()


@pytest.mark.parametrize("step", STEPS)
async def test_daemon_killed_in_the_middle_of_a_move(step: str, docker: aiodocker.Docker) -> None:
    """Wherever it dies, the session is found with all of its files and can be used; nothing stays
    mounted or attached, and no disk is left over."""
    daemon = DaemonProcess(**{**SETTINGS, "POOL_SIZE": "1"})
    program = daemon.program
    daemon.program = [sys.executable, "-m", "tests.docker.faulty_daemon", "serve"]
    daemon.environment["SANDBOXD_TEST_KILLED_AT"] = step
    async with served(daemon):
        sandbox = await open_one(daemon, "step")
        await sandbox.commands.run(MAKE_TREE, check=True)
        await sandbox.files.write("project_files/given.txt", "from the caller")
        wanted = await tree_of(sandbox)
        await lose(docker, daemon, sandbox)
        opening = asyncio.create_task(open_one(daemon, "step"))
        assert daemon.process is not None
        async with asyncio.timeout(WAIT_SECONDS):
            assert await daemon.process.wait() == -signal.SIGKILL
        opening.cancel()
        await asyncio.wait([opening])
        daemon.program = program
        await daemon.start()
        again = await open_one(daemon, "step")

        assert again.info.workspace_kept
        assert await tree_of(again) == wanted
        assert await again.files.read("project_files/given.txt") == "from the caller"
        await again.commands.run("echo more > more", check=True)
        await is_settled(daemon)
        await again.kill()
        await is_settled(daemon)
        for one in (sandbox, again):
            await one.aclose()


# --- hosts that do not allow it ---


async def test_host_that_cannot_map_ids_starts_a_sandbox(docker: aiodocker.Docker) -> None:
    """The status says why, and the session gets its disk in a container that is started for it."""
    unable = DaemonProcess(**SETTINGS)
    unable.program = [*UNABLE, *unable.program]
    async with served(unable), opened(unable, "unable") as sandbox:
        async with unable.api() as api:
            protections = (await api.status()).protections
        (moving,) = [one for one in protections if one.name == "moving"]
        await sandbox.commands.run(MAKE_TREE, check=True)
        wanted = await tree_of(sandbox)
        first = place_of(unable, sandbox.session_id)
        await lose(docker, unable, sandbox)
        hits, misses = await hits_and_misses(unable)
        again = await open_one(unable, "unable")

        assert moving.state == admin_service_pb2.PROTECTION_STATE_WEAKER
        assert "cannot map the owner of files: Operation not permitted" in moving.detail
        assert await hits_and_misses(unable) == (hits, misses + 1)
        assert place_of(unable, sandbox.session_id).uid == first.uid
        assert await tree_of(again) == wanted
        await again.aclose()


async def test_disk_moves_between_hosts_that_can_and_cannot() -> None:
    """A session whose disk was moved is opened by a daemon that cannot move, and the other way
    round: with its files, and as their owner."""
    daemon = DaemonProcess(**SETTINGS)
    able = daemon.program
    async with served(daemon):
        sandbox = await open_one(daemon, "both")
        await sandbox.commands.run(MAKE_TREE, check=True)
        wanted = await tree_of(sandbox)
        first = place_of(daemon, sandbox.session_id)
        for program in (able, [*UNABLE, *able], able):
            await daemon.stop()  # which ends its sandboxes
            daemon.program = list(program)
            await daemon.start()
            await daemon.wait_until_warm()
            again = await open_one(daemon, "both")
            place = place_of(daemon, sandbox.session_id)

            assert again.info.status == "recreated"
            assert await tree_of(again) == wanted
            assert (place.uid == first.uid) == (program != able)
            assert place.disk_uid == first.uid
            await again.aclose()
        await sandbox.kill()
        await sandbox.aclose()


# --- time ---


@pytest.mark.alone
async def test_time_of_a_moved_disk_beside_a_started_sandbox(docker: aiodocker.Docker) -> None:
    """Both ways in one run are printed; nothing fails because of them."""
    able, unable = DaemonProcess(**SETTINGS), DaemonProcess(**SETTINGS)
    unable.program = [*UNABLE, *unable.program]
    times: dict[str, list[float]] = {"moved": [], "started": []}
    first: dict[str, list[float]] = {"moved": [], "started": []}
    async with served(able), served(unable):
        held = {"moved": await open_one(able, "time"), "started": await open_one(unable, "time")}
        for _ in range(TIMES):
            for name, one in (("moved", able), ("started", unable)):
                await lose(docker, one, held[name])
                began = time.perf_counter()
                again = await open_one(one, "time")
                opened_at = time.perf_counter()
                await again.commands.run("true", check=True)
                times[name].append(opened_at - began)
                first[name].append(time.perf_counter() - opened_at)
                await held[name].aclose()
                held[name] = again
        for sandbox in held.values():
            await sandbox.kill()
            await sandbox.aclose()
    shown = {
        name: f"{statistics.median(found) * 1000:.1f} ms p50, {max(found) * 1000:.1f} max"
        for name, found in times.items()
    }
    commands = {name: f"{statistics.median(found) * 1000:.1f} ms" for name, found in first.items()}
    print(
        f"reopened lost session: moved into a warm sandbox {shown['moved']}, in a started one "
        f"{shown['started']}; the first command {commands['moved']} and {commands['started']}"
    )
