"""/tmp and /var/tmp of real sandboxes: what fits, what it costs, and how long it stays."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import aiodocker
import pytest

from sandboxd.workspaces.disk_template import SLACK_BYTES
from sandboxd_proto.v1 import exec_pb2, session_pb2, session_service_pb2
from tests.docker.commands import close_session, run
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.docker.test_disks import FILL_WITH_BYTES, FILL_WITH_FILES
from tests.docker.test_lifecycle import eventually, open_session
from tests.docker.test_workspaces import docker_name_of, output, reset

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20
BOTH = ("/tmp", "/var/tmp")
BACKENDS = ("disk", "memory")
SIZE_MB = 48
MEMORY_MB = 64


@pytest.fixture(params=BACKENDS)
async def daemon(request: pytest.FixtureRequest) -> AsyncIterator[DaemonProcess]:
    settings = {
        "SANDBOXD_WORKSPACE_BACKEND": request.param,
        "SANDBOXD_TMP_MB": str(SIZE_MB),
        "MEMORY_LIMIT": "256m",
        "MAX_FILE_SIZE_MB": "1000",
    }
    async with running_daemon(POOL_SIZE="1", **settings) as daemon:
        yield daemon


@pytest.fixture
async def on_disk() -> AsyncIterator[DaemonProcess]:
    """A daemon whose sandboxes have no more memory than room for temporary files."""
    settings = {"SANDBOXD_WORKSPACE_BACKEND": "disk", "MEMORY_LIMIT": f"{MEMORY_MB}m"}
    async with running_daemon(POOL_SIZE="1", **settings) as daemon:
        yield daemon


async def session_of(api: Api, session_id: str) -> session_pb2.Session:
    request = session_service_pb2.GetSessionRequest(session_id=session_id)
    return (await api.sessions.GetSession(request)).session


def temporary_use(session: session_pb2.Session) -> tuple[int, int]:
    return session.usage.tmp_bytes, session.usage.tmp_files


def workspace_use(session: session_pb2.Session) -> tuple[int, int]:
    return session.usage.workspace_bytes, session.usage.workspace_files


async def test_commands_can_write_there(daemon: DaemonProcess) -> None:
    """Both are everyone's, as on any machine, and run programs, but none with other rights."""
    async with daemon.api() as api:
        session_id = (await open_session(api)).session.session_id
        for path in BOTH:
            line = (
                f"cd {path} && stat -c '%a' . && echo 'echo ran' >p && chmod +x p && ./p && rm p "
                f"&& ls -A && grep ' {path} ' /proc/self/mounts | grep nosuid | grep -c nodev"
            )
            assert await output(api, session_id, line) == "1777\nran\n1\n"


async def test_the_kernel_enforces_the_limits(
    daemon: DaemonProcess, request: pytest.FixtureRequest
) -> None:
    """Bytes and files are refused beyond the limits, and the workspace is not concerned."""
    is_on_disk = request.node.callspec.params["daemon"] == "disk"
    share = 1 if is_on_disk else 2
    async with daemon.api() as api:
        session_id = (await open_session(api)).session.session_id
        limits = (await session_of(api, session_id)).limits
        assert (limits.tmp_bytes, limits.tmp_files) == (SIZE_MB * MIB, 4096)
        most = limits.tmp_bytes // share
        for path in BOTH:
            said = await output(api, session_id, f"python3 -c '{FILL_WITH_BYTES}' {path}")
            written, reason = said.split()
            assert reason == "ENOSPC"
            assert most <= int(written) <= most + (SLACK_BYTES if is_on_disk else 0)
        for path in BOTH:  # the last, as a directory does not shrink
            said = await output(api, session_id, f"python3 -c '{FILL_WITH_FILES}' {path}")
            assert said == f"{limits.tmp_files // share} ENOSPC\n"
        await run(api, session_id, "cat /dev/zero >/tmp/large")
        assert await output(api, session_id, "echo room >note; cat note") == "room\n"


async def test_use_is_counted(daemon: DaemonProcess) -> None:
    """Temporary files and those of the workspace apart; what is empty uses nothing."""
    async with daemon.api() as api:
        session_id = (await open_session(api)).session.session_id
        fresh = await session_of(api, session_id)
        assert (temporary_use(fresh), workspace_use(fresh)) == ((0, 0), (0, 0))

        await run(api, session_id, "head -c 8192 /dev/zero >/tmp/a; mkdir /var/tmp/b; echo >c")
        used = await session_of(api, session_id)
        assert used.usage.tmp_files == 2
        assert 8192 <= used.usage.tmp_bytes <= 16384
        assert used.usage.workspace_files == 1
        assert used.usage.workspace_bytes <= 4096

        await run(api, session_id, "rm -r /tmp/a /var/tmp/b c")
        empty = await session_of(api, session_id)
        assert (temporary_use(empty), workspace_use(empty)) == ((0, 0), (0, 0))


async def test_as_many_files_as_promised(daemon: DaemonProcess) -> None:
    """The layout takes nothing from the files that the workspace can hold."""
    async with daemon.api() as api:
        session_id = (await open_session(api)).session.session_id
        limit = (await session_of(api, session_id)).limits.workspace_files
        said = await output(api, session_id, f"python3 -c '{FILL_WITH_FILES}' .")
        assert said == f"{limit} ENOSPC\n"


async def test_what_is_full_has_a_name(daemon: DaemonProcess) -> None:
    """A command that failed because there was no room learns where."""
    async with daemon.api() as api:
        session_id = (await open_session(api)).session.session_id
        full = await run(api, session_id, "cat /dev/zero >/tmp/large")
        assert full.exit.reason == exec_pb2.EXIT_REASON_DISK_FULL
        assert full.exit.hint.startswith("Disk full: /tmp has no room left")

        await run(api, session_id, "rm /tmp/large")
        full = await run(api, session_id, "cat /dev/zero >large")
        assert full.exit.hint.startswith("Disk full: the workspace has no room left")


async def test_nothing_stays_after_a_reset(daemon: DaemonProcess) -> None:
    """The next sandbox has new ones."""
    async with daemon.api() as api:
        session_id = (await open_session(api)).session.session_id
        await run(api, session_id, "touch /tmp/a /var/tmp/b")
        await reset(api, session_id)
        assert await output(api, session_id, "ls -A /tmp /var/tmp") == "/tmp:\n\n/var/tmp:\n"


async def test_temporary_files_cost_no_memory(on_disk: DaemonProcess) -> None:
    """A command that has no more memory than that fills /tmp, and reads it back."""
    async with on_disk.api() as api:
        session_id = (await open_session(api)).session.session_id
        limits = (await session_of(api, session_id)).limits
        assert limits.tmp_bytes >= limits.memory_bytes == MEMORY_MB * MIB
        size = limits.tmp_bytes - MIB
        line = f"cd /tmp && head -c {size} /dev/urandom >f && sha256sum <f && wc -c f"
        done = await run(api, session_id, line, timeout=60)

        assert done.exit.reason == exec_pb2.EXIT_REASON_EXITED, done.exit.hint
        assert done.stdout.data.split()[-2:] == [b"%d" % size, b"f"]


async def test_temporary_files_live_as_long_as_their_sandbox(
    on_disk: DaemonProcess, docker: aiodocker.Docker
) -> None:
    """A restart of the daemon leaves them. A session whose sandbox is lost gets its workspace back
    and empty directories for temporary files."""
    async with on_disk.api() as api:
        session_id = (await open_session(api)).session.session_id
        await run(api, session_id, "echo kept >/tmp/a; echo kept >/var/tmp/a; echo kept >a")
        await on_disk.wait_until_warm()
        await on_disk.signal(signal.SIGKILL)
        await on_disk.start()
        assert await output(api, session_id, "cat /tmp/a /var/tmp/a a") == "kept\n" * 3
        used = await session_of(api, session_id)
        assert (used.usage.tmp_files, used.usage.workspace_files) == (2, 1)

        await on_disk.wait_until_warm()
        container = await docker_name_of(docker, on_disk, session_id, api)
        await container.kill()

        async def is_stopped() -> bool:
            state = (await session_of(api, session_id)).state
            return state == session_pb2.SESSION_STATE_STOPPED

        await eventually(is_stopped)
        assert (await open_session(api)).workspace_kept
        assert await output(api, session_id, "ls -A /tmp /var/tmp; cat a") == (
            "/tmp:\n\n/var/tmp:\nkept\n"
        )


async def test_temporary_disks_leave_nothing(on_disk: DaemonProcess) -> None:
    """They have no file that could be left behind, and they end with their sandbox."""
    async with on_disk.api() as api:
        session_id = (await open_session(api)).session.session_id
        await on_disk.wait_until_warm()
        disks = on_disk.directory / "state" / "disks"
        names = [path.name for path in disks.iterdir() if not path.name.startswith("template-")]
        assert all(name.endswith(".img") for name in names)
        assert len(deleted_images(on_disk)) == 2  # of the session, and of the warm sandbox

        await close_session(api, session_id)

        async def is_one_left() -> bool:
            return len(deleted_images(on_disk)) == 1

        await eventually(is_one_left)


def deleted_images(daemon: DaemonProcess) -> list[str]:
    """Backing files of loop devices that have no name."""
    found = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            found.append(path.read_text())
        except OSError:
            continue  # it went away meanwhile
    return [one for one in found if one.startswith(str(daemon.directory)) and "(deleted)" in one]
