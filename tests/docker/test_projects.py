"""Files of projects in real sandboxes: seen at once, read-only, and whatever happens to both."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiodocker
import grpc
import pytest
from grpc import StatusCode

from sandboxd_proto.v1 import environment_service_pb2, project_service_pb2, session_service_pb2
from tests.docker.commands import close_session, run
from tests.docker.daemon_process import Api, DaemonProcess, served
from tests.docker.small_disk import small_disk
from tests.docker.test_attachment import is_mounted_on_the_host
from tests.docker.test_lifecycle import containers, eventually, open_session, reason
from tests.docker.test_workspaces import docker_name_of, output, reset
from tests.service.client import refused
from tests.service.file_client import FileClient
from tests.service.project_client import ProjectClient

ENVIRONMENT = "python3.11"
"""Where the scripts of projects run."""
BUILD_SECONDS = 600.0
FILES, FILE_BYTES, PROJECTS = 1000, 100_000, 3
CRASHES = 5
REPLACE = project_service_pb2.ON_CONFLICT_REPLACE
WAYS = {
    "attached": (),
    # Without it no process enters the mount namespace of another.
    "bound": ("setpriv", "--bounding-set", "-sys_chroot", "--inh-caps", "-sys_chroot"),
}

pytestmark = pytest.mark.timeout(300)


@asynccontextmanager
async def project_daemon(way: str = "attached", **settings: str) -> AsyncIterator[DaemonProcess]:
    daemon = DaemonProcess(**{"POOL_SIZE": "1", **settings})
    daemon.program = [*WAYS[way], *daemon.program]
    async with served(daemon):
        yield daemon


def project_of(api: Api, project_id: str = "book") -> ProjectClient:
    return ProjectClient(api.projects, user_id="u", project_id=project_id)


async def listed(api: Api, session_id: str) -> list[str]:
    return (await output(api, session_id, "ls /workspace/project_files")).split()


# --- what a session sees ---


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("backend", ["disk", "memory"])
async def test_a_session_sees_the_files_of_its_project(way: str, backend: str) -> None:
    """They are there when it is open, and so is every later change; commands and the calls for
    files can read them and change nothing, and a copy can be edited."""
    async with (
        project_daemon(way, SANDBOXD_WORKSPACE_BACKEND=backend) as daemon,
        daemon.api() as api,
    ):
        project = project_of(api)
        await project.create()
        await project.upload("a.txt", b"first\n")
        opened = await open_session(api, project_id="book")
        session_id = opened.session.session_id
        assert opened.session.project_id == "book"
        (attaching,) = [one for one in (await api.status()).protections if one.name == "attaching"]
        assert way in attaching.detail

        assert await output(api, session_id, "cat project_files/a.txt") == "first\n"
        await project.upload("later.txt", b"later\n")
        await project.upload("a.txt", b"second\n", on_conflict=REPLACE)
        assert await output(api, session_id, "cat project_files/*") == "second\nlater\n"
        await project.delete_file("later.txt")
        assert await listed(api, session_id) == ["a.txt"]

        for line in (
            "echo x >>project_files/a.txt",
            "touch project_files/x",
            "rm -f project_files/a.txt",
            "chmod 777 project_files/a.txt",
            "ln project_files/a.txt linked",
            "mv project_files elsewhere",
        ):
            assert (await run(api, session_id, line)).exit.code != 0, line
        edited = await output(
            api, session_id, "cp project_files/a.txt b.txt; echo more >>b.txt; cat b.txt"
        )
        assert edited == "second\nmore\n"

        files = FileClient(api.files, session_id)
        assert await files.download("project_files/a.txt") == b"second\n"
        assert await files.names("project_files") == ["project_files/a.txt"]
        with refused(StatusCode.FAILED_PRECONDITION, "PROTECTED_PATH") as told:
            await files.upload("project_files/mine.txt", b"x")
        assert "belongs to the project 'book'" in told.message
        for call in (
            lambda: files.write_text("/workspace/project_files/a.txt", "x"),
            lambda: files.edit_text("project_files/a.txt", "second", "x"),
            lambda: files.remove("project_files/a.txt"),
            lambda: files.move("b.txt", "project_files/b.txt"),
            lambda: files.move("project_files/a.txt", "c.txt"),
            lambda: files.make_directory("project_files/dir"),
            lambda: files.upload("agent_workspace/project_files/x", b"x"),
        ):
            with refused(StatusCode.FAILED_PRECONDITION, "PROTECTED_PATH"):
                await call()
        assert await project.download("a.txt") == b"second\n"
        assert not is_mounted_on_the_host(daemon.directory / "state" / "store")


async def test_sessions_and_projects_are_kept_apart(docker: aiodocker.Docker) -> None:
    """Sessions on one project see the same files; others see theirs or none, whatever the ids of
    other users are, and a sandbox cannot tell whose files it has."""
    async with project_daemon(POOL_SIZE="2") as daemon, daemon.api() as api:
        for project_id, name in (("one", "1.txt"), ("two", "2.txt")):
            await project_of(api, project_id).create()
            await project_of(api, project_id).upload(name, name.encode())
        stranger = ProjectClient(api.projects, user_id="other", project_id="one")
        await stranger.create()
        await stranger.upload("secret.txt", b"secret")

        ids = [
            (await open_session(api, thread, **fields)).session.session_id
            for thread, fields in (
                ("a", {"project_id": "one"}),
                ("b", {"project_id": "one"}),
                ("c", {"project_id": "two"}),
                ("d", {}),
            )
        ]
        assert [await listed(api, one) for one in ids] == [["1.txt"], ["1.txt"], ["2.txt"], []]
        files = FileClient(api.files, ids[3])
        await files.upload("project_files/own.txt", b"as before")
        assert await listed(api, ids[3]) == ["own.txt"]
        assert await listed(api, ids[0]) == ["1.txt"]

        mounts = await output(api, ids[0], "grep project_files /proc/self/mountinfo")
        assert "/store/projects/" in mounts
        assert not {"/u/", "/one/", "other"} & set(mounts.split())


async def test_a_session_keeps_its_project(docker: aiodocker.Docker) -> None:
    """Another one is refused, none means the same, and an open after a close may choose anew."""
    async with project_daemon() as daemon, daemon.api() as api:
        for project_id in ("one", "two"):
            await project_of(api, project_id).create()
            await project_of(api, project_id).upload(f"{project_id}.txt", b"x")
        with refused(StatusCode.NOT_FOUND, "PROJECT_NOT_FOUND"):
            await open_session(api, project_id="three")
        assert not [session for session in await sessions_of(api) if session]

        session_id = (await open_session(api, project_id="one")).session.session_id
        assert (await open_session(api)).session.project_id == "one"
        assert (await open_session(api, project_id="one")).outcome == (
            session_service_pb2.OPEN_OUTCOME_ATTACHED
        )
        with refused(StatusCode.FAILED_PRECONDITION, "PROJECT_MISMATCH") as told:
            await open_session(api, project_id="two")
        assert "is on project 'one'" in told.message
        plain = (await open_session(api, "plain")).session
        with refused(StatusCode.FAILED_PRECONDITION, "PROJECT_MISMATCH") as told:
            await open_session(api, "plain", project_id="one")
        assert "is on no project" in told.message
        assert plain.project_id == ""

        await close_session(api, session_id)
        again = (await open_session(api, project_id="two")).session
        assert await listed(api, again.session_id) == ["two.txt"]


async def sessions_of(api: Api) -> list[str]:
    request = session_service_pb2.ListSessionsRequest()
    return [one.session_id for one in (await api.sessions.ListSessions(request)).sessions]


# --- what happens to a session ---


@pytest.mark.parametrize("way", WAYS)
async def test_the_files_stay_with_the_session(way: str, docker: aiodocker.Docker) -> None:
    """After a reset, a lost sandbox, a crash of the daemon and a restart they are there, and later
    changes are seen."""
    async with project_daemon(way, SANDBOXD_KEEP_SESSIONS="1") as daemon:
        async with daemon.api() as api:
            project = project_of(api)
            await project.create()
            await project.upload("a.txt", b"a")
            session_id = (await open_session(api, project_id="book")).session.session_id
            await run(api, session_id, "echo work >w")
            assert await reset(api, session_id) == 2
            assert await output(api, session_id, "ls; ls project_files") == (
                "agent_workspace\noutputs\nproject_files\na.txt\n"
            )

            await run(api, session_id, "echo work >w")
            await (await docker_name_of(docker, daemon, session_id, api)).kill()
            await eventually(lambda: is_lost(api, session_id), seconds=60)
            assert (await open_session(api)).workspace_kept
            assert await output(api, session_id, "cat w project_files/a.txt") == "work\na"

            await daemon.signal(signal.SIGKILL)
            await daemon.start()
            await project.upload("b.txt", b"b")
            assert await listed(api, session_id) == ["a.txt", "b.txt"]
        await daemon.stop()
        await daemon.start()
        async with daemon.api() as api:
            await project_of(api).upload("c.txt", b"c")
            assert await listed(api, session_id) == ["a.txt", "b.txt", "c.txt"]
            files = FileClient(api.files, session_id)
            with refused(StatusCode.FAILED_PRECONDITION, "PROTECTED_PATH"):
                await files.upload("project_files/mine.txt", b"x")
            assert await reset(api, session_id) == 4
            assert await listed(api, session_id) == ["a.txt", "b.txt", "c.txt"]
            await close_session(api, session_id)
            await used_ones_are_gone(api, docker, daemon)
            assert await project_of(api).names() == ["a.txt", "b.txt", "c.txt"]


async def is_lost(api: Api, session_id: str) -> bool:
    try:
        await run(api, session_id, "true")
    except grpc.aio.AioRpcError:
        return True
    return False


async def used_ones_are_gone(api: Api, docker: aiodocker.Docker, daemon: DaemonProcess) -> None:
    """No container is left but those of warm sandboxes."""

    async def are_gone() -> bool:
        pools = (await api.status()).pools
        is_at_rest = not any(pool.starting for pool in pools)
        warm = sum(pool.warm for pool in pools)
        return is_at_rest and len(await containers(docker, daemon)) == warm

    await eventually(are_gone, seconds=90)


async def test_a_deleted_project_leaves_its_sessions_without_files() -> None:
    """They see an empty directory, go on, and can be reset; a project of the same name is seen
    from the next sandbox on."""
    async with project_daemon() as daemon, daemon.api() as api:
        project = project_of(api)
        await project.create()
        await project.upload("a.txt", b"a")
        session_id = (await open_session(api, project_id="book")).session.session_id

        await project.delete()

        assert await listed(api, session_id) == []
        await reset(api, session_id)
        assert await listed(api, session_id) == []
        files = FileClient(api.files, session_id)
        with refused(StatusCode.FAILED_PRECONDITION, "PROTECTED_PATH"):
            await files.upload("project_files/mine.txt", b"x")
        await project.create()
        await project.upload("new.txt", b"new")
        await reset(api, session_id)
        assert await listed(api, session_id) == ["new.txt"]


@pytest.mark.calm  # it may have to build the environment
@pytest.mark.timeout(900)
async def test_the_workflow_of_a_project() -> None:
    """Make a project, upload a script, open a session on it, run it, see its output; a reset keeps
    it, and a close removes the sandbox."""
    script = b"import sys\nprint('Hello from', sys.argv[0])\nopen('outputs/made', 'w').write('1')\n"
    async with project_daemon() as daemon, daemon.api() as api:
        project = project_of(api, "demo")
        assert await project.create()
        stored = await project.upload("test.py", script)
        assert (stored.file.mime_type, stored.file.name) == ("text/x-python", "test.py")
        build = environment_service_pb2.BuildEnvironmentRequest(name=ENVIRONMENT)
        async for _ in api.environments.BuildEnvironment(build, timeout=BUILD_SECONDS):
            pass
        opened = await open_session(api, project_id="demo", environment=ENVIRONMENT)
        session_id = opened.session.session_id
        line = "python /workspace/project_files/test.py"
        said = await output(api, session_id, line)
        assert said == "Hello from /workspace/project_files/test.py\n"
        assert await output(api, session_id, "ls outputs") == "made\n"

        await reset(api, session_id)

        assert await output(api, session_id, "ls outputs") == ""
        assert await output(api, session_id, line) == said
        await close_session(api, session_id)
        async with aiodocker.Docker() as docker:
            await used_ones_are_gone(api, docker, daemon)


# --- many files ---


@pytest.mark.calm
@pytest.mark.timeout(600)
async def test_many_files_are_seen_at_once_and_stored_once() -> None:
    """A thousand files are there when the session is open, and three projects with the same files
    take the space of one; times and bytes are printed."""
    # The number first: random bytes may begin as those of a program do.
    contents = [b"%08d" % number + os.urandom(FILE_BYTES - 8) for number in range(FILES)]
    async with project_daemon(SANDBOXD_MAX_PROJECT_FILES=str(FILES)) as daemon, daemon.api() as api:
        began = time.perf_counter()
        for number in range(PROJECTS):
            project = project_of(api, f"p{number}")
            await project.create()
            for start in range(0, FILES, 50):
                batch = range(start, start + 50)
                await asyncio.gather(
                    *(project.upload(f"f{one:04}.bin", contents[one]) for one in batch)
                )
        per_file = (time.perf_counter() - began) / FILES / PROJECTS
        usage = (await project_of(api).all_of_user()).usage
        await daemon.wait_until_warm()

        began = time.perf_counter()
        session_id = (await open_session(api, project_id=f"p{PROJECTS - 1}")).session.session_id
        opened = time.perf_counter() - began
        seen = await listed(api, session_id)
        listed_after = time.perf_counter() - began
        await daemon.wait_until_warm()
        began = time.perf_counter()
        await open_session(api, "plain")
        plain = time.perf_counter() - began

        assert len(seen) == FILES
        assert await output(api, session_id, "cat project_files/f0999.bin | sha256sum") == (
            await output(api, session_id, "sha256sum <project_files/f0999.bin")
        )
        on_disk = used_bytes(daemon.directory / "state" / "store" / "blobs")
        assert usage.files == FILES * PROJECTS
        assert usage.size_bytes == FILES * PROJECTS * FILE_BYTES
        assert usage.stored_bytes == FILES * FILE_BYTES
        assert on_disk < 1.1 * FILES * FILE_BYTES
        print(
            f"projects: {FILES} files of {FILE_BYTES} bytes: session open after "
            f"{opened * 1000:.1f} ms, listed by a command after {listed_after * 1000:.1f} ms "
            f"(open without a project {plain * 1000:.1f} ms); {PROJECTS} projects: "
            f"{usage.size_bytes} bytes, stored in {usage.stored_bytes} ({on_disk} on the disk); "
            f"upload {per_file * 1000:.1f} ms a file"
        )


def used_bytes(directory: Path) -> int:
    """As the filesystem counts them."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


# --- crashes ---


async def test_a_killed_daemon_keeps_what_it_has_answered() -> None:
    """Uploads in parallel, and kill -9 at a random moment: every file that was answered is there
    and whole, none is there in part, and nothing else is left on the disk."""
    chance = random.Random(7)
    answered: dict[str, bytes] = {}
    async with project_daemon(POOL_SIZE="0") as daemon:
        async with daemon.api() as api:
            await project_of(api).create()
        for crash in range(CRASHES):
            async with daemon.api() as api:
                work = [
                    asyncio.ensure_future(upload_until_killed(api, f"{crash}-{n}", answered))
                    for n in range(4)
                ]
                await asyncio.sleep(0.2 + chance.random() * 0.5)
                await daemon.signal(signal.SIGKILL)
                await asyncio.wait(work)
            await daemon.start()
            store = daemon.directory / "state" / "store"
            async with daemon.api() as api:
                project = project_of(api)
                names = await project.names()
                assert set(names) >= answered.keys()
                # Those without an answer are at most the last of each.
                assert len(names) <= len(answered) + 4 * (crash + 1)
                for name in names:
                    data = await project.download(name)
                    assert answered.get(name, data) == data
                assert list((store / "unfinished").iterdir()) == []
                assert len([p for p in (store / "blobs").rglob("*") if p.is_file()]) == len(names)
    assert answered
    print(f"projects: {len(answered)} answered uploads, {CRASHES} kills, none lost")


async def upload_until_killed(api: Api, prefix: str, answered: dict[str, bytes]) -> None:
    project, number = project_of(api), 0
    while True:
        name, data = f"{prefix}-{number}.bin", b"data" + os.urandom(random.randrange(10, 300_000))
        try:
            await project.upload(name, data)
        except grpc.aio.AioRpcError:
            return
        answered[name] = data
        number += 1


async def test_a_project_works_without_the_right_to_attach_and_with_it() -> None:
    """A daemon that gets the right later attaches what the one before it has bound."""
    async with project_daemon("bound", SANDBOXD_KEEP_SESSIONS="1") as daemon:
        async with daemon.api() as api:
            await project_of(api).create()
            await project_of(api).upload("a.txt", b"a")
            session_id = (await open_session(api, project_id="book")).session.session_id
        await daemon.stop()
        daemon.program = daemon.program[len(WAYS["bound"]) :]
        await daemon.start()
        async with daemon.api() as api:
            assert await listed(api, session_id) == ["a.txt"]
            await reset(api, session_id)
            assert await listed(api, session_id) == ["a.txt"]
            await close_session(api, session_id)
            async with aiodocker.Docker() as docker:
                await used_ones_are_gone(api, docker, daemon)


async def test_a_full_disk_is_reported_and_loses_nothing(short_dir: Path) -> None:
    """Without a byte left, also for a daemon that starts then, files can be read and deleted, and
    uploads are refused and leave nothing; with space back, they are stored."""
    state = short_dir / "state"
    settings = {
        "SANDBOXD_STATE_DIR": str(state),
        "SANDBOXD_DISK_RESERVE_MB": "0",
        "SANDBOXD_WORKSPACE_BACKEND": "memory",
        "POOL_SIZE": "0",
    }
    with small_disk(short_dir / "disk.img", state, size_bytes=32 << 20) as disk:
        async with project_daemon(**settings) as daemon, daemon.api() as api:
            project = project_of(api)
            await project.create()
            for name in ("kept.bin", "deleted.bin"):
                await project.upload(name, name.encode() * 1000)
            disk.fill()
            for _ in range(2):
                for size in (3_000_000, None):
                    with refused_for_lack_of_space():
                        await project.upload("new.bin", bytes(3_000_000), size_bytes=size)
                assert await project.download("kept.bin") == b"kept.bin" * 1000
                assert await project.names() == ["deleted.bin", "kept.bin"]
                assert list((state / "store" / "unfinished").iterdir()) == []
                await daemon.signal(signal.SIGKILL)
                await daemon.start()

            disk.free()
            await project.delete_file("deleted.bin")
            await project.upload("new.bin", bytes(3_000_000))
            assert await project.names() == ["kept.bin", "new.bin"]


@contextmanager
def refused_for_lack_of_space() -> Iterator[None]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        yield
    assert reason(caught.value) in ("DISK_SPACE_LOW", "STATE_NOT_SAVED")
