"""The layout of real workspaces, what of them survives what, and how a session is reset."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import statistics
import time
from collections.abc import AsyncIterator

import aiodocker
import pytest
from grpc import StatusCode

from sandboxd_proto.v1 import exec_pb2, session_service_pb2
from tests.docker.commands import Streamed, close_session, exec_request, run, start
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.docker.test_lifecycle import containers, eventually, open_session
from tests.service.client import refused
from tests.service.file_client import FileClient

pytestmark = pytest.mark.timeout(300)

CRASHES = 6


async def reset(api: Api, session_id: str, **fields: int) -> int:
    """Returns the incarnation."""
    request = session_service_pb2.ResetSessionRequest(session_id=session_id, **fields)
    return (await api.sessions.ResetSession(request, timeout=60)).session.incarnation


async def output(api: Api, session_id: str, line: str) -> str:
    done = await run(api, session_id, line, timeout=60)
    return (done.stdout.data + done.stderr.data).decode()


def projects_of(daemon: DaemonProcess) -> set[str]:
    return {path.name for path in (daemon.directory / "state" / "projects").iterdir()}


# --- layout ---


@pytest.mark.parametrize("backend", ["disk", "memory"])
async def test_the_shared_layout(backend: str) -> None:
    """Commands start in the workspace, of which agent_workspace is another name; project files are
    theirs to read, and nothing they do moves them."""
    async with (
        running_daemon(POOL_SIZE="1", SANDBOXD_WORKSPACE_BACKEND=backend) as daemon,
        daemon.api() as api,
    ):
        session_id = (await open_session(api)).session.session_id
        files = FileClient(api.files, session_id)
        await files.upload("project_files/dir/p", b"read me\n", make_parents=True, mode=0o600)

        assert await output(api, session_id, "pwd; echo $HOME; ls; cat project_files/dir/p") == (
            "/workspace\n/workspace\nagent_workspace\noutputs\nproject_files\nread me\n"
        )
        assert await output(
            api, session_id, "cd agent_workspace && touch a && ls /workspace/a"
        ) == ("/workspace/a\n")
        for line in (
            "touch project_files/x",
            "rm project_files/dir/p",
            "echo more >>project_files/dir/p",
            "chmod 777 project_files",
            "mv project_files other",
            "rm -rf project_files",
            "mkdir new && mv new project_files",
        ):
            done = await run(api, session_id, line)
            assert done.exit.code != 0, line
        assert await files.download("project_files/dir/p") == b"read me\n"
        assert await files.edit_text("project_files/dir/p", "me", "you") == 1
        assert await output(api, session_id, "cat project_files/dir/p") == "read you\n"
        await files.move("project_files/dir/p", "project_files/q")
        assert await files.remove("project_files/dir") == 1
        assert await output(api, session_id, "ls project_files") == "q\n"


@pytest.mark.parametrize("backend", ["disk", "memory"])
async def test_the_separate_layout(backend: str) -> None:
    """Commands and relative paths start in agent_workspace; paths of a listing can be asked for."""
    settings = {"SANDBOXD_WORKSPACE_BACKEND": backend, "SANDBOXD_WORKSPACE_LAYOUT": "separate"}
    async with running_daemon(POOL_SIZE="1", **settings) as daemon, daemon.api() as api:
        session_id = (await open_session(api)).session.session_id
        files = FileClient(api.files, session_id)
        await files.upload("data.json", b"{}\n")
        await files.upload("/workspace/outputs/o", b"o\n")
        await files.upload("project_files/p", b"p\n")

        line = "pwd; cat data.json /workspace/outputs/o ../project_files/p; ls; ls /workspace"
        assert await output(api, session_id, line) == (
            "/workspace/agent_workspace\n{}\no\np\n"
            "data.json\nagent_workspace\noutputs\nproject_files\n"
        )
        listed = await files.names(recursive=True)
        assert "agent_workspace/data.json" in listed
        assert await files.download("agent_workspace/data.json") == b"{}\n"
        assert await output(api, session_id, "mkdir sub; cd sub; pwd") == (
            "/workspace/agent_workspace/sub\n"
        )
        done = await run(api, session_id, "pwd", cwd="sub")
        assert done.stdout.data == b"/workspace/agent_workspace/sub\n"


# --- what survives ---


async def test_project_files_live_as_long_as_their_session(docker: aiodocker.Docker) -> None:
    """A lost sandbox, a crash and a restart of the daemon leave them; a close does not."""
    async with running_daemon(POOL_SIZE="1") as daemon, daemon.api() as api:
        session_id = (await open_session(api)).session.session_id
        files = FileClient(api.files, session_id)
        await files.upload("project_files/p", b"mine")
        await files.upload("w", b"work")
        container = await docker_name_of(docker, daemon, session_id, api)
        await container.kill()

        async def is_lost() -> bool:
            try:
                await files.stat("w")
            except Exception:
                return True
            return False

        await eventually(is_lost)
        with refused(StatusCode.ABORTED, "SANDBOX_LOST"):
            await files.stat("w")
        assert (await open_session(api)).workspace_kept
        assert await files.download("project_files/p") == b"mine"
        assert await files.download("w") == b"work"

        await daemon.signal(signal.SIGKILL)
        await daemon.start()
        assert await files.download("project_files/p") == b"mine"
        assert await files.download("w") == b"work"
        await daemon.wait_until_warm()
        assert len(projects_of(daemon)) == 2

        await close_session(api, session_id)

        async def is_one_left() -> bool:
            return len(projects_of(daemon)) == 1

        await eventually(is_one_left)


async def docker_name_of(
    docker: aiodocker.Docker, daemon: DaemonProcess, session_id: str, api: Api
) -> aiodocker.containers.DockerContainer:
    """The container that has a file of the session."""
    await run(api, session_id, "touch /tmp/this-one")
    for container_id in await containers(docker, daemon):
        container = docker.containers.container(container_id)
        pid = (await container.show())["State"]["Pid"]
        if pid and os.access(f"/proc/{pid}/root/tmp/this-one", os.F_OK):
            return container
    raise AssertionError("no container has it")


# --- reset ---


@pytest.fixture
async def spare() -> AsyncIterator[DaemonProcess]:
    async with running_daemon(POOL_SIZE="2", MAX_TOTAL_FILES="20000") as daemon:
        await daemon.wait_until_warm()
        yield daemon


HOSTILE = {
    "an idle one": "true",
    "directories 10^4 deep": (
        "python3 -c \"import os\nfor _ in range(10**4): os.mkdir('d'); os.chdir('d')\" || true"
    ),
    "a file being written": (
        "(setsid sh -c 'while :; do head -c 8M /dev/zero >f; done' &) ; sleep 0.2"
    ),
    "a full disk": "head -c 60M /dev/zero >f; for i in $(seq 900); do echo >f$i; done; true",
    # It waits without a process of its own, for which there may be no room for long.
    "a fork bomb": "mkfifo p; exec 3<>p; (:(){ :|:& };: 2>/dev/null &) ; read -t 0.3 -u 3",
    "attempts to mount": "mkdir m; mount -t tmpfs none m 2>/dev/null; chmod 000 m; true",
    "one that ignores signals": (
        "(setsid bash -c 'trap \"\" TERM HUP INT; while :; do :; done' &) ; sleep 0.1"
    ),
}


@pytest.mark.parametrize("line", HOSTILE.values(), ids=HOSTILE)
async def test_reset_wipes_whatever_a_workspace_prepares(line: str, spare: DaemonProcess) -> None:
    """Files, processes and limits are those of a new sandbox; only project files stay."""
    async with spare.api() as api:
        session_id = (await open_session(api)).session.session_id
        files = FileClient(api.files, session_id)
        await files.upload("project_files/kept", b"kept")
        call = api.execs.Exec(
            exec_request(session_id, f"{line}; echo ready; exec sleep 1000", timeout=90)
        )
        streamed = Streamed()
        while b"ready" not in streamed.stdout and not streamed.exits:
            streamed.add(await call.read())
        await spare.wait_until_warm()
        began = time.monotonic()
        assert await reset(api, session_id) == 2
        took = time.monotonic() - began
        while not streamed.exits:
            streamed.add(await call.read())

        assert streamed.exit.reason in (
            exec_pb2.EXIT_REASON_SESSION_CLOSED,
            exec_pb2.EXIT_REASON_SWEPT,
        )
        assert await output(api, session_id, "ls -A; ls -A /tmp") == (
            "agent_workspace\noutputs\nproject_files\n"
        )
        # The guest, perhaps its waiting shell, and those that count.
        assert int(await output(api, session_id, "ls /proc | grep -c '^[0-9]'")) <= 6
        assert await files.download("project_files/kept") == b"kept"
        usage = (await files.list()).usage
        assert (usage.used_files, usage.used_bytes) == (0, 0)
        print(f"reset: {took * 1e3:.0f} ms")


async def test_resets_are_quick_and_leave_nothing(spare: DaemonProcess) -> None:
    """With a warm sandbox there, a reset is a swap; disks and directories of the old ones go."""
    async with spare.api() as api:
        session_id = (await open_session(api)).session.session_id
        files = FileClient(api.files, session_id)
        await files.upload("project_files/kept", b"kept")
        took = []
        for number in range(2, 12):
            await spare.wait_until_warm()
            await run(api, session_id, "echo x >f")
            began = time.monotonic()
            assert await reset(api, session_id, incarnation=number - 1) == number
            took.append(time.monotonic() - began)
        with refused(StatusCode.FAILED_PRECONDITION, "SESSION_RECREATED"):
            await reset(api, session_id, incarnation=3)
        await spare.wait_until_warm()

        async def is_at_rest() -> bool:
            disks = list((spare.directory / "state" / "disks").glob("*.img"))
            return len(disks) == len(projects_of(spare)) == 3

        await eventually(is_at_rest)
        assert await files.download("project_files/kept") == b"kept"
        print(f"reset: {statistics.median(took) * 1e3:.1f} ms p50 of {len(took)}")


async def test_file_calls_end_with_the_reset_that_overtakes_them(spare: DaemonProcess) -> None:
    """Uploads and a watch that are under way are told, and nothing of them appears."""
    async with spare.api() as api:
        session_id = (await open_session(api)).session.session_id
        files = FileClient(api.files, session_id)
        uploads = []
        for path in ("half", "project_files/half"):
            call = api.files.UploadFile(timeout=30)
            await call.write(files.header(path))
            uploads.append(call)
        watch = files.watch()
        assert (await watch.read()).watching
        await reset(api, session_id)
        for ended in (*uploads, watch.read()):
            with refused(StatusCode.ABORTED, "SANDBOX_LOST"):
                await ended

        assert await files.names() == ["agent_workspace", "outputs", "project_files"]
        assert await files.names("project_files") == []


async def test_a_daemon_killed_in_the_middle_of_a_reset_loses_no_project_file() -> None:
    """Whenever it dies: the session is found, on its old or its next incarnation, with all of its
    project files, and can be reset again."""
    chance = random.Random(5)
    async with running_daemon(POOL_SIZE="1") as daemon:
        async with daemon.api() as api:
            session_id = (await open_session(api)).session.session_id
            files = FileClient(api.files, session_id)
            for number in range(20):
                await files.upload(f"project_files/{number}", b"%d" % number)
        for _ in range(CRASHES):
            await daemon.wait_until_warm()
            async with daemon.api() as api:
                call = asyncio.ensure_future(reset(api, session_id))
                await asyncio.sleep(chance.random() * 0.012)
                await daemon.signal(signal.SIGKILL)
                await asyncio.wait([call])
                call.exception()
            await daemon.start()
            async with daemon.api() as api:
                files = FileClient(api.files, session_id)
                await open_session(api)
                names = await files.names("project_files")
                assert len(names) == 20
                for name in names:
                    assert f"project_files/{(await files.download(name)).decode()}" == name
        async with daemon.api() as api:
            await reset(api, session_id)
            await start(api, session_id, "true", exec_id="last")
