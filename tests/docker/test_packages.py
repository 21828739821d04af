"""Packages of sessions: attached to warm sandboxes of a real daemon."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import aiodocker
import grpc
import pytest
import pytest_asyncio

from sandboxd_client import AsyncSandbox
from sandboxd_client.errors import PackagesNotReadyError
from sandboxd_proto.v1 import (
    environment_service_pb2,
    session_pb2,
    session_service_pb2,
)
from tests.cli.command_line import CommandLine
from tests.docker.commands import close_session, duration, run
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon, served
from tests.docker.test_lifecycle import containers, eventually, get_session, reason
from tests.docker.test_moved_disks import pid_of
from tests.docker.test_package_builds import held_by_the_kernel
from tests.fakes.package_index import PackageIndex
from tests.fakes.wheels import Entry, a_wheel
from tests.scale import SCALE

WAIT_SECONDS = 100.0
SET_MB = 16
DIRECTORY = "/usr/local/lib/python3.11/dist-packages"
TIMES = round(8 * SCALE)


@pytest.fixture(scope="module")
def index() -> Iterator[PackageIndex]:
    with PackageIndex().serving() as serving:
        serving.add(a_wheel("first", requires=["second"]), a_wheel("second", "1.5"))
        serving.add(a_wheel("other", "3.0"), a_wheel("slow"))
        yield serving


def settings(index: PackageIndex, **changes: str) -> dict[str, str]:
    return {
        "SANDBOXD_PACKAGES_POLICY": "open",
        "SANDBOXD_PACKAGES_INDEX": index.url,
        "SANDBOXD_PACKAGES_MIN_AGE_DAYS": "0",
        "SANDBOXD_PACKAGES_SET_MB": str(SET_MB),
        "SANDBOXD_PACKAGES_TOTAL_MB": "320",
        "SANDBOXD_PACKAGES_USER_BUILDS_PER_HOUR": "100",
        **changes,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon(index: PackageIndex) -> AsyncIterator[DaemonProcess]:
    async with running_daemon(**settings(index)) as running:
        yield running


@pytest.fixture
async def api(daemon: DaemonProcess) -> AsyncIterator[Api]:
    """With no session of another test."""
    async with daemon.api() as api:
        yield api
        listed = await api.sessions.ListSessions(session_service_pb2.ListSessionsRequest())
        for session in listed.sessions:
            await close_session(api, session.session_id)


async def open_with(
    api: Api,
    *packages: str,
    user: str = "ada",
    thread: str = "t",
    wait: float = WAIT_SECONDS,
    **config: dict[str, str],
) -> session_service_pb2.OpenSessionResponse:
    request = session_service_pb2.OpenSessionRequest(
        user_id=user,
        thread_id=thread,
        environment_config=session_pb2.EnvironmentConfig(packages=packages, **config),
        build_wait=duration(wait),
    )
    return await api.sessions.OpenSession(request, timeout=WAIT_SECONDS + 20)


async def ensure(api: Api, *packages: str) -> environment_service_pb2.PackageSet:
    request = environment_service_pb2.EnsurePackagesRequest(packages=packages)
    async for event in api.environments.EnsurePackages(request, timeout=WAIT_SECONDS + 20):
        last = event
    assert last.HasField("package_set")
    return last.package_set


async def python(api: Api, session_id: str, program: str) -> str:
    answer = await run(api, session_id, ["python3", "-c", program])
    assert answer.exit.code == 0, answer.stderr.data
    return answer.stdout.data.decode().strip()


def leftovers(daemon: DaemonProcess) -> list[Path]:
    """What builds have left in the state directory."""
    directory = daemon.directory / "state" / "packages"
    return [
        path
        for name in ("new", "trash", "areas", "view", "disks")
        for path in (directory / name).rglob("*")
        if not path.name.startswith("template-")
    ]


def sets(daemon: DaemonProcess) -> set[str]:
    return {path.name for path in (daemon.directory / "state" / "packages" / "sets").iterdir()}


IMPORT = "import first, second; print(first.VERSION, second.VERSION)"


# --- open ---


async def test_session_has_the_packages_that_it_asks_for(api: Api) -> None:
    """Before its first command, with what they depend on; and it says so."""
    opened = await open_with(api, "First", "other>=2")

    session = opened.session
    assert await python(api, session.session_id, IMPORT) == "1.0 1.5"
    assert await python(api, session.session_id, "import other; print(other.VERSION)") == "3.0"
    assert list(session.environment_config.packages) == ["first", "other>=2"]
    again = await get_session(api, session.session_id)
    assert again.environment_config == session.environment_config


async def test_sessions_without_packages_have_none(api: Api) -> None:
    """Also when the sandbox of another session has some."""
    await open_with(api, "first", thread="with")
    opened = await open_with(api, thread="without")

    answer = await run(api, opened.session.session_id, ["python3", "-c", "import first"])

    assert b"ModuleNotFoundError" in answer.stderr.data


async def test_open_does_not_wait_unless_it_is_asked_to(api: Api, index: PackageIndex) -> None:
    """It says how far the build is and when to come back, and the build goes on meanwhile."""
    index.add(a_wheel("later"))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await open_with(api, "later", wait=0.0)
    assert reason(refused.value) == "PACKAGES_NOT_READY"
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE

    async def opens() -> bool:
        try:
            await open_with(api, "later", wait=0.0)
        except grpc.aio.AioRpcError as error:
            if reason(error) != "PACKAGES_NOT_READY":
                raise
            return False
        return True

    await eventually(opens, seconds=WAIT_SECONDS)


async def test_build_reports_its_progress(api: Api, index: PackageIndex) -> None:
    """Step by step, never backwards, with the set at the end."""
    index.add(a_wheel("reported"))
    request = environment_service_pb2.EnsurePackagesRequest(packages=["reported"])
    events = [
        event async for event in api.environments.EnsurePackages(request, timeout=WAIT_SECONDS)
    ]

    *progress, last = events
    fractions = [event.progress.fraction for event in progress]
    assert fractions == sorted(fractions)
    steps = list(dict.fromkeys(event.progress.step for event in progress))
    assert steps == [step for step in STEPS if step in steps]
    assert len(steps) > 1
    (package,) = last.package_set.packages
    assert (package.kind, package.name, package.version) == ("python", "reported", "1.0")
    assert last.package_set.size_bytes
    # A set that is there is the only message.
    assert len([event async for event in api.environments.EnsurePackages(request)]) == 1


STEPS = ("resolve", "download", "unpack", "compile", "save")


async def test_packages_are_read_only_and_their_programs_come_last(
    api: Api, index: PackageIndex
) -> None:
    """Commands cannot change what others share, and no program of a package replaces a tool."""
    scripts = b"[console_scripts]\nhello-tool = app:main\nls = app:main\n"
    entries = [
        Entry("program-1.0.dist-info/entry_points.txt", scripts),
        Entry("app.py", b"def main():\n    print('hello from', __file__)\n"),
    ]
    index.add(a_wheel("program", entries=entries))
    opened = await open_with(api, "program")
    session_id = opened.session.session_id

    hello = await run(api, session_id, "hello-tool")
    assert hello.stdout.data == f"hello from {DIRECTORY}/app.py\n".encode(), hello.stderr
    found = await run(api, session_id, "command -v ls")
    assert found.stdout.data in (b"/usr/bin/ls\n", b"/bin/ls\n")
    for command in (f"touch {DIRECTORY}/x", f"rm -r {DIRECTORY}/app.py", f"chmod u+w {DIRECTORY}"):
        answer = await run(api, session_id, command)
        assert b"Read-only file system" in answer.stderr.data
    unmounted = await run(api, session_id, f"umount {DIRECTORY}")
    assert unmounted.exit.code != 0


async def test_variables_of_the_configuration_reach_commands(api: Api) -> None:
    """Those of the session and of a command override them."""
    opened = await open_with(api, "first", env_vars={"MODE": "fast", "LEVEL": "1"})
    session_id = opened.session.session_id

    plain = await run(api, session_id, "echo $MODE $LEVEL")
    changed = await run(api, session_id, "echo $MODE $LEVEL", env={"LEVEL": "2"})

    assert (plain.stdout.data, changed.stdout.data) == (b"fast 1\n", b"fast 2\n")


async def test_open_session_is_not_given_other_packages(api: Api) -> None:
    """The caller learns of it; the same packages, or none, attach to the session."""
    opened = await open_with(api, "first")

    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await open_with(api, "first", "other")
    assert reason(refused.value) == "ENVIRONMENT_MISMATCH"

    same = await open_with(api, "First")
    plain = await api.sessions.OpenSession(
        session_service_pb2.OpenSessionRequest(user_id="ada", thread_id="t")
    )
    assert {same.session.session_id, plain.session.session_id} == {opened.session.session_id}


@pytest.mark.parametrize(
    ("packages", "why"),
    [
        (["first @ https://example.org/x.whl"], "INVALID_REQUEST"),
        (["--index-url=https://example.org"], "INVALID_REQUEST"),
        (["first", "First"], "INVALID_REQUEST"),
        (["unknown-package"], "PACKAGES_NOT_RESOLVED"),
        (["hostile"], "PACKAGES_UNSAFE"),
        (["huge"], "PACKAGES_TOO_LARGE"),
    ],
)
async def test_packages_that_cannot_be_had_are_refused(
    api: Api, daemon: DaemonProcess, index: PackageIndex, packages: list[str], why: str
) -> None:
    """With a reason, for an open and for EnsurePackages alike, and nothing is left of them."""
    huge = a_wheel("huge")
    index.add(a_wheel("hostile", entries=[Entry("../../up")]), huge)
    index.endless.add(huge.file_name)

    before = sets(daemon)

    for call in (open_with(api, *packages, thread=why), ensure(api, *packages)):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call
        assert reason(refused.value) == why
    assert leftovers(daemon) == []
    assert sets(daemon) == before


async def test_operator_decides_which_packages_there_are(index: PackageIndex) -> None:
    changes = {"SANDBOXD_PACKAGES_POLICY": "listed", "SANDBOXD_PACKAGES_ALLOW": "first, second<2"}
    async with running_daemon(**settings(index, **changes)) as daemon, daemon.api() as api:
        opened = await open_with(api, "first", "second")
        assert await python(api, opened.session.session_id, IMPORT) == "1.0 1.5"

        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await open_with(api, "other", thread="u")

    assert reason(refused.value) == "PACKAGES_NOT_ALLOWED"
    assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED


async def test_sdk_opens_a_sandbox_with_packages(daemon: DaemonProcess, api: Api) -> None:
    """What the caller does not wait for is an error that says when to come back."""
    url = f"unix:{daemon.socket}"
    async with await AsyncSandbox.open(
        "ada", "sdk", packages=["first"], build_wait=WAIT_SECONDS, server_url=url
    ) as sandbox:
        ran = await sandbox.commands.run(["python3", "-c", IMPORT])
        assert ran.stdout == "1.0 1.5\n"
        assert sandbox.info.packages == ["first"]
    with pytest.raises(PackagesNotReadyError) as refused:
        await AsyncSandbox.open("ada", "new", packages=["slow"], server_url=url)
    assert refused.value.retry_after_seconds


async def test_command_line_builds_packages_and_opens_sessions_with_them(
    daemon: DaemonProcess, api: Api
) -> None:
    sandboxd = CommandLine(daemon.socket)

    built = await sandboxd("environments", "packages", "default", "other<4")
    assert built.code == 0, built
    assert built.stdout.splitlines()[1:] == ["other 3.0"]
    opened = await sandboxd("session", "open", "ada", "cli", "--package", "other<4")
    assert opened.code == 0, opened
    session_id = opened.stdout.strip()
    assert await python(api, session_id, "import other; print(other.VERSION)") == "3.0"

    refused = await sandboxd("session", "open", "ada", "x", "--package", "./wheel")
    assert refused.code != 0
    assert "packages" in refused.stderr


# --- what follows an open ---


async def test_reset_session_has_its_packages(api: Api) -> None:
    opened = await open_with(api, "first")
    session_id = opened.session.session_id

    request = session_service_pb2.ResetSessionRequest(session_id=session_id)
    reset = (await api.sessions.ResetSession(request, timeout=60)).session

    assert reset.incarnation == 2
    assert await python(api, session_id, IMPORT) == "1.0 1.5"


async def test_recreated_session_has_its_packages(
    api: Api, docker: aiodocker.Docker, daemon: DaemonProcess
) -> None:
    """As they were, on a new sandbox."""
    opened = await open_with(api, "first")
    session_id = opened.session.session_id
    for container in await containers(docker, daemon):
        with suppress(aiodocker.DockerError):  # one that is being started or removed
            await docker.containers.container(container).kill()

    async def is_stopped() -> bool:
        return (await get_session(api, session_id)).state == session_pb2.SESSION_STATE_STOPPED

    await eventually(is_stopped)
    plain = session_service_pb2.OpenSessionRequest(user_id="ada", thread_id="t")
    again = await api.sessions.OpenSession(plain, timeout=60)

    assert again.outcome == session_service_pb2.OPEN_OUTCOME_RECREATED
    assert list(again.session.environment_config.packages) == ["first"]
    assert await python(api, session_id, IMPORT) == "1.0 1.5"


async def test_lost_session_gets_disk_and_packages_in_a_warm_sandbox(
    api: Api, docker: aiodocker.Docker, daemon: DaemonProcess
) -> None:
    """None is started for it."""
    session_id = (await open_with(api, "first")).session.session_id
    await run(api, session_id, ["python3", "-c", "open('mine', 'w').write('kept')"])
    os.kill(await pid_of(docker, daemon, session_id), signal.SIGKILL)

    async def is_stopped() -> bool:
        return (await get_session(api, session_id)).state == session_pb2.SESSION_STATE_STOPPED

    await eventually(is_stopped)
    await daemon.wait_until_warm()
    before = (await api.status()).pool
    plain = session_service_pb2.OpenSessionRequest(user_id="ada", thread_id="t")
    again = await api.sessions.OpenSession(plain, timeout=60)
    after = (await api.status()).pool

    assert again.workspace_kept
    assert (after.hits, after.misses) == (before.hits + 1, before.misses)
    assert await python(api, session_id, IMPORT) == "1.0 1.5"
    assert await python(api, session_id, "print(open('mine').read())") == "kept"


async def test_session_keeps_its_packages_when_the_daemon_is_killed(index: PackageIndex) -> None:
    """The next daemon adopts it with them, and gives them to it again after a reset."""
    async with running_daemon(**settings(index)) as daemon:
        async with daemon.api() as api:
            session_id = (await open_with(api, "first")).session.session_id
        await daemon.signal(signal.SIGKILL)
        await daemon.start()
        async with daemon.api() as api:
            assert await python(api, session_id, IMPORT) == "1.0 1.5"
            request = session_service_pb2.ResetSessionRequest(session_id=session_id)
            await api.sessions.ResetSession(request, timeout=60)
            assert await python(api, session_id, IMPORT) == "1.0 1.5"
            await close_session(api, session_id)


async def test_stopped_session_comes_back_with_its_packages_or_not_at_all(
    index: PackageIndex,
) -> None:
    """After a plain stop of the daemon, and if the operator has taken them away meanwhile."""
    async with running_daemon(**settings(index)) as daemon:
        sandboxd = CommandLine(daemon.socket)
        async with daemon.api() as api:
            await open_with(api, "first")
        await daemon.stop()
        await daemon.start()
        again = await sandboxd("exec", "ada/t", "--", "python3", "-c", IMPORT)
        assert (again.code, again.stdout) == (0, "1.0 1.5\n"), again
        assert "was stopped; opened it again with its files" in again.stderr

        await daemon.stop()
        shutil.rmtree(daemon.directory / "state" / "packages" / "sets")
        daemon.environment |= {
            "SANDBOXD_PACKAGES_POLICY": "listed",
            "SANDBOXD_PACKAGES_ALLOW": "other",
        }
        await daemon.start()
        refused = await sandboxd("exec", "ada/t", "true")
        assert (refused.code, "first" in refused.stderr) == (125, True), refused
        (found,) = (await sandboxd("session", "list", "--json")).document
        assert (found["state"], found["packages"]) == ("stopped", ["first"])


async def test_daemon_that_is_killed_during_a_build_leaves_nothing(index: PackageIndex) -> None:
    """Its worker ends with it, and the next daemon deletes the rest and builds again."""
    huge = a_wheel("interrupted")
    index.add(huge)
    index.endless.add(huge.file_name)
    changes = {"SANDBOXD_PACKAGES_SET_MB": "4096", "SANDBOXD_PACKAGES_TOTAL_MB": "4096"}
    async with running_daemon(**settings(index, **changes)) as daemon:
        async with daemon.api() as api:
            with pytest.raises(grpc.aio.AioRpcError):
                await open_with(api, "interrupted", wait=0.0)

            async def is_fetching() -> bool:
                return any(path.endswith(huge.file_name) for path in index.requests)

            await eventually(is_fetching, seconds=WAIT_SECONDS)
            uids = range(int(daemon.environment["SANDBOXD_UID_START"]), 1 << 31)
            assert workers(uids)
            await daemon.signal(signal.SIGKILL)
        await daemon.start()

        async def is_clean() -> bool:
            places = (
                f"{daemon.directory}/state/packages",
                f"{daemon.directory}/run/package-mounts",
            )
            held = [line for line in held_by_the_kernel() if any(one in line for one in places)]
            return not held and not leftovers(daemon)

        await eventually(is_clean)
        index.endless.discard(huge.file_name)
        async with daemon.api() as api:
            assert await ensure(api, "interrupted")


def workers(uids: range) -> list[str]:
    """Processes of package builds with one of these uids, or that are about to get one."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            is_worker = b"sandboxd.packages.worker" in (process / "cmdline").read_bytes()
            if is_worker and process.stat().st_uid in uids:
                found.append(process.name)
        except OSError:
            continue  # it has ended
    return found


async def test_without_the_right_to_attach_a_new_sandbox_is_started_with_the_packages(
    index: PackageIndex,
) -> None:
    """The daemon lacks a capability, as under an older unit."""
    daemon = DaemonProcess(**settings(index))
    dropped = ["setpriv", "--bounding-set=-sys_chroot", "--inh-caps=-sys_chroot"]
    daemon.program = [*dropped, sys.executable, "-m", "sandboxd", "serve"]
    async with served(daemon), daemon.api() as api:
        protections = (await api.status()).protections
        (detail,) = [one.detail for one in protections if "attach" in one.name]
        assert "bound" in detail
        session_id = (await open_with(api, "first")).session.session_id
        assert await python(api, session_id, IMPORT) == "1.0 1.5"
        request = session_service_pb2.ResetSessionRequest(session_id=session_id)
        await api.sessions.ResetSession(request, timeout=60)
        assert await python(api, session_id, IMPORT) == "1.0 1.5"


# --- figures ---


@pytest.mark.calm
@pytest.mark.timeout(600)
async def test_twenty_sets_stay_within_the_limit_and_break_no_session(index: PackageIndex) -> None:
    """Each session that is open goes on with its set, whatever was deleted meanwhile."""
    for number in range(20):
        data = Entry(f"large{number}/data.bin", os.urandom(8 << 20))
        index.add(a_wheel(f"large{number}", entries=[data]))
    changes = {"SANDBOXD_PACKAGES_TOTAL_MB": "64"}
    async with running_daemon(**settings(index, **changes)) as daemon, daemon.api() as api:
        first = await open_with(api, "large0", "first", thread="stays")
        sizes = []
        for number in range(1, 20):
            await ensure(api, f"large{number}")
            sizes.append(size_of_sets(daemon))
        program = f"{IMPORT}; import os; print(os.path.getsize('{DIRECTORY}/large0/data.bin'))"
        printed = await python(api, first.session.session_id, program)

        assert printed.split() == ["1.0", "1.5", str(8 << 20)]
        assert max(sizes) <= 64 << 20
        print(
            f"package sets: 20 of 8 MiB and more with a limit of 64 MiB, at most "
            f"{max(sizes) / (1 << 20):.0f} MiB on the disk"
        )


def size_of_sets(daemon: DaemonProcess) -> int:
    """Bytes of all sets on the disk, without those that are being deleted."""
    sets = daemon.directory / "state" / "packages" / "sets"
    return sum(path.stat().st_blocks * 512 for path in sets.rglob("*") if path.is_file())


@pytest.mark.calm
@pytest.mark.timeout(900)
async def test_pandas_costs_an_open_nothing() -> None:
    """Built once from the package index; then an open with it is an open without it."""
    async with running_daemon(POOL_SIZE="4") as daemon, daemon.api() as api:
        began = time.monotonic()
        built = await ensure(api, "pandas")
        build_seconds = time.monotonic() - began
        await daemon.wait_until_warm()
        first, session_id = await timed_open(api, daemon, "first", "pandas")
        program = "import pandas; print(pandas.DataFrame({'a': [1, 2]}).a.sum())"
        assert await python(api, session_id, program) == "3"
        await close_session(api, session_id)
        times: dict[tuple[str, ...], list[float]] = {(): [], ("pandas",): []}
        for number in range(TIMES):
            for packages, measured in times.items():
                name = f"{number}{'-'.join(packages)}"
                seconds, session_id = await timed_open(api, daemon, name, *packages)
                measured.append(seconds)
                await close_session(api, session_id)
        plain, with_pandas = (statistics.median(measured) * 1000 for measured in times.values())
        print(
            f"pandas as packages: built in {build_seconds:.1f} s, "
            f"{built.size_bytes / (1 << 20):.0f} MiB; first open {first * 1000:.1f} ms; median of "
            f"{TIMES} opens {with_pandas:.2f} ms, without packages {plain:.2f} ms"
        )


async def timed_open(
    api: Api, daemon: DaemonProcess, thread: str, *packages: str
) -> tuple[float, str]:
    """Seconds of an open by a user who has never been here, on a warm sandbox."""
    await daemon.wait_until_warm()
    began = time.monotonic()
    opened = await open_with(api, *packages, user=f"user-{thread}", thread=thread, wait=0.0)
    return time.monotonic() - began, opened.session.session_id


async def test_second_user_waits_for_nothing(api: Api, index: PackageIndex) -> None:
    """Not for the index either: it is not asked."""
    await open_with(api, "first", user="ada")
    asked = index.requests.total()

    opened = await asyncio.gather(
        *(open_with(api, "first", user=f"user{n}", wait=0.0) for n in range(2))
    )

    assert index.requests.total() == asked
    for one in opened:
        assert await python(api, one.session.session_id, IMPORT) == "1.0 1.5"
