"""The service under a real systemd, in a machine of its own with an engine of its own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio

from sandboxd.cli.install_service import unit_text
from sandboxd_proto.v1 import admin_service_pb2, exec_pb2, session_pb2
from tests.docker.commands import attach, run, start, wait
from tests.docker.daemon_process import Api
from tests.docker.test_lifecycle import eventually, get_session, open_session
from tests.e2e.machine import GUEST_RUNTIME, IMAGE, Machine, booted
from tests.service.project_client import ProjectClient

SANDBOXD = str(Path(sys.executable).with_name("sandboxd"))
SETTINGS = f"""\
CONTAINER_IMAGE={IMAGE}
SANDBOXD_GUEST_RUNTIME={GUEST_RUNTIME}
SANDBOXD_WORKSPACE_BACKEND=disk
SANDBOXD_COMMAND_POLICY=open
MAX_WORKSPACE_SIZE_MB=16
POOL_SIZE=1
MIN_POOL_SIZE=0
HOST=
"""
TOKENS = "/etc/sandboxd/tokens"
GROUP = 4242
WATCHDOG_SECONDS = 3
STALLED_WATCHDOG_SECONDS = 10
"""Longer than the daemon takes to log that its loop is blocked, also on a busy host."""
SHELL = ["/bin/busybox", "sh", "-c"]
COUNT = "i=0; until busybox test -e done; do echo $i; i=$((i + 1)); busybox sleep 0.02; done"

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def machine() -> AsyncIterator[Machine]:
    """A machine on which the service was installed and runs."""
    async with booted() as machine:
        machine.write("/etc/sandboxd/environment", SETTINGS)
        await machine.run(SANDBOXD, "install-service")
        # Sooner than the unit's own, so that a test need not wait for it.
        await set_unit(machine, f"WatchdogSec={WATCHDOG_SECONDS}")
        await machine.run("systemctl", "start", "sandboxd")
        yield machine


async def set_unit(machine: Machine, *lines: str) -> None:
    """Change settings of the unit, as an operator would."""
    text = "\n".join(("[Service]", *lines, ""))
    machine.write("/etc/systemd/system/sandboxd.service.d/test.conf", text)
    await machine.run("systemctl", "daemon-reload")


async def answers(api: Api) -> bool:
    try:
        await api.status()
    except grpc.RpcError:
        return False
    return True


async def is_service(machine: Machine, **expected: str) -> bool:
    found = {name: await machine.service(name) for name in expected}
    return found == expected


async def counting(api: Api, thread: str) -> str:
    """A session with a command that counts until it is told to end."""
    session_id = (await open_session(api, thread)).session.session_id
    await start(api, session_id, [*SHELL, COUNT], exec_id="count", timeout=120)
    return session_id


async def counted(api: Api, session_id: str) -> list[str]:
    """End the command; what it has written, which has to be every number once."""
    await run(api, session_id, [*SHELL, "echo > done"])
    ended = await wait(api, session_id, "count")
    assert (ended.exit.code, ended.exit.reason) == (0, exec_pb2.EXIT_REASON_EXITED)
    lines = (await attach(api, session_id, "count")).stdout.decode().split()
    assert lines == [str(number) for number in range(len(lines))]
    session = await get_session(api, session_id)
    assert (session.state, session.incarnation) == (session_pb2.SESSION_STATE_ACTIVE, 1)
    return lines


async def test_installed_service_is_ready_and_does_its_work(machine: Machine) -> None:
    """systemd knows that it is ready and how it is; within the unit's limits it mounts disks, sets
    limits, attaches the files of a project and reaches the engine; installing again changes
    nothing."""
    assert await is_service(machine, ActiveState="active", Type="notify", UnitFileState="enabled")
    again = await machine.run(SANDBOXD, "install-service")
    assert "sandboxd.service is up to date" in again
    async with machine.api() as api:
        session = (await open_session(api, "first")).session
        said = await run(api, session.session_id, [*SHELL, "busybox df -P /workspace | tail -1"])
        assert said.stdout.data.startswith(b"/dev/loop"), said
        project = ProjectClient(api.projects, user_id="u", project_id="p")
        await project.create()
        await project.upload("a.txt", b"attached")
        session = (await open_session(api, "on a project", project_id="p")).session
        said = await run(api, session.session_id, [*SHELL, "busybox cat project_files/a.txt"])
        assert said.stdout.data == b"attached", said
        status = await api.status()
    weak = [
        one.name
        for one in status.protections
        if one.state != admin_service_pb2.PROTECTION_STATE_IN_FORCE
    ]
    assert not {"workspace", "attaching", "moving"} & set(weak), status.protections
    await eventually(lambda: tells(machine, "sandboxes warm"))
    rated = await machine.run("systemd-analyze", "security", "sandboxd", "--no-pager")
    print(f"systemd: {rated.splitlines()[-1].split('→')[-1].strip()}")


CONFINED = """
import asyncio, os, sys
from pathlib import Path
from sandboxd.packages.build_area import AREA, BuildSettings, process_limits, view_of
from sandboxd.packages.python_installer import PYTHON, PythonSettings, tools
from sandboxd.packages.worker_process import run_worker

root, uid, lines = Path("/var/lib/sandboxd/confined"), 4243, []
settings = BuildSettings(
    max_bytes=1 << 20, seconds=30.0, min_age_days=0, build_dir=root / "view"
)
python = PythonSettings(index="", uv=Path("/bin/true"), runtime_dir=Path("GUEST_RUNTIME"))
for name in ("view", "area"):
    (root / name).mkdir(parents=True)
os.chown(root / "area", uid, uid)
program = f"import os; open('{AREA}/x', 'w'); print(os.getuid(), os.getpid())"
job = {
    "limits": process_limits(settings)._asdict(),
    "view": view_of(settings, root / "area", uid, tools(python), has_network=False)._asdict(),
    "argv": [PYTHON, "-I", "-S", "-c", program],
    "environment": {},
}
finished = asyncio.run(run_worker(job, environment={}, seconds=30.0, on_line=lines.append))
print("confined:", lines, finished.errors)
sys.exit(0 if lines == [f"{uid} 1"] else 1)
"""


async def test_unit_lets_the_process_that_installs_packages_confine_itself(
    machine: Machine,
) -> None:
    """Namespaces, mounts and another user: all within what the unit allows."""
    machine.write("/etc/sandboxd/confined.py", CONFINED.replace("GUEST_RUNTIME", GUEST_RUNTIME))
    python = f"{Path(SANDBOXD).parent}/python /etc/sandboxd/confined.py"
    unit = unit_text(Path(SANDBOXD)).replace(f"{SANDBOXD} serve", python)
    unit = re.sub("Type=notify|NotifyAccess=.*|WatchdogSec=.*|Restart=.*", "", unit)
    machine.write("/etc/systemd/system/confined.service", f"{unit}\n[Service]\nType=oneshot\n")
    await machine.run("systemctl", "daemon-reload")

    code, _ = await machine.attempt("systemctl", "start", "confined")

    _, said = await machine.attempt("journalctl", "-u", "confined", "-a", "--no-pager")
    assert code == 0, said


async def tells(machine: Machine, text: str) -> bool:
    return text in await machine.service("StatusText")


async def test_reload_reads_a_new_token_in_the_same_process(machine: Machine) -> None:
    """A token that was added is known after `systemctl reload`, without a restart; a file with a
    mistake in it changes nothing."""
    (first, first_line), (second, second_line) = [await new_token(machine) for _ in range(2)]
    machine.write(TOKENS, f"{first_line}\n", mode=0o600)
    needed = f"Environment=SANDBOXD_SOCKET_AUTH=token SANDBOXD_TOKENS_FILE={TOKENS}"
    await set_unit(machine, needed)
    await machine.run("systemctl", "restart", "sandboxd")
    before = await machine.service("MainPID")
    async with machine.api() as api:
        await eventually(lambda: is_known(api, first))
        assert not await is_known(api, second)
        machine.write(TOKENS, f"{first_line}\n{second_line}\n", mode=0o600)
        began = time.monotonic()
        await machine.run("systemctl", "reload", "sandboxd")
        await eventually(lambda: is_known(api, second))
        print(f"reload: a new token known after {time.monotonic() - began:.2f} s")
        await eventually(lambda: says(machine, "daemon.reloaded"))
        machine.write(TOKENS, "this is no token\n", mode=0o600)
        await machine.run("systemctl", "reload", "sandboxd")
        await eventually(lambda: says(machine, "part.reload_failed"))
        assert await is_known(api, first)
        assert await is_known(api, second)
    assert await is_service(machine, ActiveState="active", MainPID=before)
    await set_unit(machine, f"WatchdogSec={WATCHDOG_SECONDS}")
    await machine.run("systemctl", "restart", "sandboxd")


async def new_token(machine: Machine) -> tuple[str, str]:
    """A token, and the line that makes it known."""
    said = (await machine.run(SANDBOXD, "token", "create", "--admin")).splitlines()
    return next(line for line in said if line.startswith("sbx_")), said[-1]


async def is_known(api: Api, token: str) -> bool:
    try:
        await api.admin.GetStatus(
            admin_service_pb2.GetStatusRequest(),
            metadata=[("authorization", f"Bearer {token}")],
            timeout=10,
        )
    except grpc.aio.AioRpcError as error:
        if error.code() not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNAVAILABLE):
            raise
        return False
    return True


async def says(machine: Machine, text: str) -> bool:
    return text in await machine.journal()


async def test_group_of_the_unit_may_open_the_socket(machine: Machine) -> None:
    """Of the users of a host, those in the group of the service reach the API, and no others; what
    the service does it does as before."""
    await machine.run("groupadd", "--gid", str(GROUP), "sandboxd-users")
    await set_unit(machine, f"WatchdogSec={WATCHDOG_SECONDS}", "Group=sandboxd-users")
    await machine.run("systemctl", "restart", "sandboxd")
    assert await may_open_socket(machine, group=GROUP)
    assert not await may_open_socket(machine, group=GROUP + 1)
    async with machine.api() as api:
        session = (await open_session(api, "grouped")).session
        said = await run(api, session.session_id, [*SHELL, "echo hi >f; busybox cat f"])
        assert said.stdout.data == b"hi\n", said
    await set_unit(machine, f"WatchdogSec={WATCHDOG_SECONDS}")
    await machine.run("systemctl", "restart", "sandboxd")
    assert not await may_open_socket(machine, group=GROUP)


async def may_open_socket(machine: Machine, *, group: int) -> bool:
    """Whether somebody who is nobody else may who is in this group."""
    who = ("--reuid=65534", f"--regid={group}", "--clear-groups")
    test = ("test", "-w", "/run/sandboxd/sandboxd.sock")
    return (await machine.attempt("setpriv", *who, "--bounding-set=-all", *test))[0] == 0


@pytest.mark.parametrize("how", ["stopped", "stalled"])
async def test_watchdog_restarts_a_daemon_whose_loop_does_not_turn(
    how: str, machine: Machine
) -> None:
    """A daemon that gives no signs of life is replaced, and a command that runs goes on."""
    watchdog_seconds = WATCHDOG_SECONDS
    if how == "stalled":
        watchdog_seconds = STALLED_WATCHDOG_SECONDS
        stalling = Path(__file__).with_name("stalling_daemon.py")
        program = f"ExecStart={sys.executable} {stalling} serve"
        repository = f"Environment=PYTHONPATH={stalling.parents[2]}"
        seconds = f"WatchdogSec={watchdog_seconds}"
        await set_unit(machine, seconds, "ExecStart=", program, repository)
        await machine.run("systemctl", "restart", "sandboxd")
    async with machine.api() as api:
        session_id = await counting(api, how)
        restarts = int(await machine.service("NRestarts"))
        began = time.monotonic()
        number = signal.SIGSTOP if how == "stopped" else signal.SIGUSR1
        os.kill(await machine.host_pid(), number)
        await eventually(lambda: is_service(machine, NRestarts=str(restarts + 1)), seconds=40)
        noticed = time.monotonic() - began
        await eventually(lambda: answers(api), seconds=30)
        back = time.monotonic() - began
        lines = await counted(api, session_id)
    journal = await machine.journal()
    assert "Watchdog timeout" in journal
    if how == "stalled":
        assert "loop.blocked" in journal
        assert "stand_still" in journal
        await set_unit(machine, f"WatchdogSec={WATCHDOG_SECONDS}")
    print(
        f"watchdog ({how}): WatchdogSec {watchdog_seconds}, ended and started again after "
        f"{noticed:.1f} s, answers after {back:.1f} s, sessions lost 0, {len(lines)} lines of a "
        "running command, none lost or doubled"
    )


async def test_upgrade_in_place_loses_no_session(machine: Machine) -> None:
    """A restart of the service, which is what an upgrade is, leaves sessions and commands running;
    the unit of the new release is taken over."""
    machine.write("/etc/systemd/system/sandboxd.service", "[Service]\nExecStart=/bin/true\n")
    async with machine.api() as api:
        session_id = await counting(api, "upgraded")
        before = await machine.service("MainPID")
        began = time.monotonic()
        done = asyncio.ensure_future(machine.run(SANDBOXD, "install-service", "--now"))
        gaps = await longest_silence(api, done)
        took = time.monotonic() - began
        assert await machine.service("MainPID") != before
        lines = await counted(api, session_id)
    print(
        f"upgrade: restart in {took:.1f} s, API silent for {gaps:.2f} s, sessions lost 0, "
        f"{len(lines)} lines of a running command, none lost or doubled"
    )


async def longest_silence(api: Api, until: asyncio.Future[str]) -> float:
    longest, heard_at = 0.0, time.monotonic()
    while not until.done() or not await answers(api):
        if await answers(api):
            heard_at = time.monotonic()
        longest = max(longest, time.monotonic() - heard_at)
        await asyncio.sleep(0.02)
    until.result()
    return max(longest, time.monotonic() - heard_at)


async def test_stop_of_the_engine_does_not_stop_the_service(machine: Machine) -> None:
    """While docker.service is restarted, the service goes on and so do commands."""
    before = await machine.service("MainPID")
    async with machine.api() as api:
        session_id = await counting(api, "engine")
        await machine.run("systemctl", "stop", "docker")
        assert await is_service(machine, ActiveState="active", MainPID=before)
        await machine.run("systemctl", "start", "docker")
        await counted(api, session_id)
        await eventually(lambda: is_warm(api))


async def is_warm(api: Api) -> bool:
    pool = (await api.status()).pool
    return pool.warm >= pool.target


async def test_uninstall_ends_the_service_and_keeps_its_data(machine: Machine) -> None:
    """Afterwards there is no unit and no process; installed again, sessions are still there."""
    uninstall = (SANDBOXD, "install-service", "--uninstall")
    async with machine.api() as api:
        session_id = await counting(api, "uninstalled")
        await machine.run(*uninstall)
        assert (await machine.attempt("systemctl", "is-active", "sandboxd"))[0] != 0
        assert "is not installed" in await machine.run(*uninstall)
        await machine.run(SANDBOXD, "install-service", "--now")
        await counted(api, session_id)
