"""What one session can learn of another or take from it: nothing."""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import aiodocker
import grpc
import pytest
import pytest_asyncio

from sandboxd_proto.v1 import exec_service_pb2, session_service_pb2
from tests.docker.commands import exec_request, run
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.hostile.arena import (
    async_execs,
    async_sessions,
    close_session,
    open_session,
    uid_of,
)
from tests.hostile.compiled import upload_command
from tests.hostile.host_view import find_sandbox
from tests.hostile.scoreboard import Scoreboard, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = f"marker-{secrets.token_hex(8)}"
"""In the daemon's environment, where tokens would be."""
LATER, MOST_LATER = 8, 48
"""Later sessions: as many as there are uids, and how many until one must have the uid again."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def daemon() -> AsyncIterator[DaemonProcess]:
    """With so few uids that each is soon given to another sandbox."""
    few = {"POOL_SIZE": "2", "MAX_POOL_SIZE": "6", "SANDBOXD_UID_COUNT": "8"}
    async with running_daemon(**few, MAX_WORKSPACE_SIZE_MB="32", HOSTILE_MARKER=SECRET) as daemon:
        yield daemon


@pytest_asyncio.fixture(loop_scope="module")
async def api(daemon: DaemonProcess) -> AsyncIterator[Api]:
    async with daemon.api() as api:
        yield api


@pytest_asyncio.fixture(loop_scope="module")
async def docker() -> AsyncIterator[aiodocker.Docker]:
    async with aiodocker.Docker() as client:
        yield client


@asynccontextmanager
async def session_of(api: Api, user: str, programs: Path | None = None) -> AsyncIterator[str]:
    """A session of a user of its own, with the programs in it if they are given."""
    name = f"{user}-{secrets.token_hex(4)}"
    session_id = (await open_session(api, name, f"thread-of-{name}")).session_id
    try:
        if programs is not None:
            uploaded = await run(api, session_id, upload_command(programs), timeout=20)
            assert uploaded.exit.code == 0, uploaded
        yield session_id
    finally:
        await close_session(api, session_id)


async def output_of(api: Api, session_id: str, command: str) -> str:
    answer = await run(api, session_id, command, timeout=20)
    return answer.stdout.data.decode(errors="replace")


def settle(scoreboard: Scoreboard, case_id: str, title: str, problems: Iterable[str]) -> None:
    """Put a case on the board, and fail if there is anything to complain about."""
    verdict = Verdict(id=case_id, title=title, problems=list(problems))
    scoreboard.verdicts.append(verdict)
    assert verdict.problems == []


async def test_guessed_session_is_like_an_absent_one(api: Api, scoreboard: Scoreboard) -> None:
    """An id one character off a real one is answered as one that never was, by every call."""
    problems = []
    async with session_of(api, "owner") as real:
        absent = re.sub(".", "0", real.removeprefix("ses_"))
        expected = await _refusals(api, f"ses_{absent}")
        for position in range(len("ses_"), len(real)):
            other = "1" if real[position] != "1" else "2"
            guess = real[:position] + other + real[position + 1 :]
            if await _refusals(api, guess) != expected:
                problems.append(f"{guess} is answered otherwise")
        if not all(code == grpc.StatusCode.NOT_FOUND for code, _ in expected):
            problems.append(f"an absent session is answered {expected}")
    settle(scoreboard, "C03", "guessed ids of other sessions", problems)


async def _refusals(api: Api, session_id: str) -> list[tuple[grpc.StatusCode, str]]:
    sessions = async_sessions(api)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: run(api, session_id, "true"),
        lambda: sessions.GetSession(session_service_pb2.GetSessionRequest(session_id=session_id)),
        lambda: sessions.TouchSession(
            session_service_pb2.TouchSessionRequest(session_id=session_id)
        ),
        lambda: sessions.UpdateSession(
            session_service_pb2.UpdateSessionRequest(session_id=session_id, metadata={"a": "b"})
        ),
        lambda: sessions.CloseSession(
            session_service_pb2.CloseSessionRequest(session_id=session_id)
        ),
    ]
    refusals = []
    for call in calls:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call()
        text = str(caught.value.details()).replace(session_id, "ID")
        refusals.append((caught.value.code(), text))
    return refusals


async def test_environment_of_the_daemon_is_not_visible(api: Api, scoreboard: Scoreboard) -> None:
    """Nothing a command can read holds what is in the daemon's environment."""
    own = f"own-{secrets.token_hex(8)}"
    # Through descriptors, so that the search does not find itself.
    search = (
        "grep -lsaF -f <(printf '%s%s' {} {}) /proc/self/environ /proc/[0-9]*/environ "
        "/proc/[0-9]*/cmdline /proc/[0-9]*/mountinfo /proc/[0-9]*/maps /proc/net/unix; "
        "grep -rlsaF -f <(printf '%s%s' {} {}) /etc /tmp /run /var /workspace "
        "/.sandboxd/guest; true"
    )
    async with session_of(api, "searcher") as session_id:
        halves = (SECRET[:9], SECRET[9:])
        found = await output_of(api, session_id, search.format(*halves, *halves))
        halves = (own[:9], own[9:])
        answer = await run(
            api, session_id, search.format(*halves, *halves), env={"OWN": own}, timeout=20
        )
    problems = [f"found in {path}" for path in found.split()]
    if b"/environ" not in answer.stdout.data:
        problems.append("the search does not even find what is there")
    settle(scoreboard, "C05", "secrets of the daemon", problems)


async def test_closed_session_leaves_nothing_to_the_next(
    api: Api, programs: Path, scoreboard: Scoreboard
) -> None:
    """Files, processes, shared memory and queues of a closed session are not in any later one,
    also where it has the same uid."""
    mark = secrets.token_hex(6)
    look = (
        f"ls -A /workspace /tmp /dev/shm /dev/mqueue; cat /workspace/note-{mark}; "
        "ps -e -o args= | grep -v -e '^ps ' -e '^bash' -e python3.11; id -u >&2"
    )
    uids, problems = [], []
    async with session_of(api, "before", programs) as session_id:
        first_uid = await uid_of(api, session_id)
        leave = (
            f"for d in /workspace /tmp /dev/shm; do echo {mark} > $d/note-{mark}; done; "
            f"bin/quotas mqueue leave; setsid sleep 86399 >/dev/null 2>&1 & sleep 0.1; {look}"
        )
        left = await output_of(api, session_id, leave)
        if not (left.count(f"note-{mark}") == 3 and "hostile-0" in left and "86399" in left):
            problems.append(f"not everything was left: {left}")
    for number in range(MOST_LATER):
        async with session_of(api, f"after-{number}") as session_id:
            uids.append(await uid_of(api, session_id))
            seen = await output_of(api, session_id, look)
            problems += [
                f"session {number} sees {trace}"
                for trace in (mark, "hostile-", "86399")
                if trace in seen
            ]
        if first_uid in uids and number + 1 >= LATER:
            break
    if first_uid not in uids:
        problems.append(f"uid {first_uid} was not used again: {uids}")
    settle(scoreboard, "C06", "what a closed session left", problems)


async def test_containers_do_not_name_their_sessions(
    api: Api, daemon: DaemonProcess, docker: aiodocker.Docker, scoreboard: Scoreboard
) -> None:
    """Users see their own sessions in a list, and nobody's names are in what the engine knows."""
    problems = []
    async with session_of(api, "alice") as first, session_of(api, "bob") as second:
        listed = await async_sessions(api).ListSessions(
            session_service_pb2.ListSessionsRequest(page_size=1000), timeout=10
        )
        users = {one.session_id: one.user_id for one in listed.sessions}
        own = await async_sessions(api).ListSessions(
            session_service_pb2.ListSessionsRequest(user_id=users[first]), timeout=10
        )
        if [one.session_id for one in own.sessions] != [first]:
            problems.append("a user's list holds sessions of others")
        for session_id in (first, second):
            uid = await uid_of(api, session_id)
            sandbox = await find_sandbox(docker, instance=daemon.instance, uid=uid)
            assert sandbox is not None
            shown = json.dumps(await docker.containers.container(sandbox.container_id).show())
            names = (users[session_id], f"thread-of-{users[session_id]}", session_id)
            problems += [f"the engine knows {name}" for name in names if name in shown]
    settle(scoreboard, "C07", "names of others in lists and labels", problems)


VISIBLE = (
    "hostname; cat /proc/self/mountinfo /proc/self/cgroup /proc/1/cpuset /proc/net/unix "
    "/etc/hostname /etc/hosts /proc/sys/kernel/hostname; env"
)
EMPTY = "/etc/resolv.conf /proc/cmdline /proc/version /proc/diskstats /proc/loadavg /proc/keys"


async def test_host_is_not_recognisable(
    api: Api, daemon: DaemonProcess, docker: aiodocker.Docker, scoreboard: Scoreboard
) -> None:
    """Names, ids and settings of the host and of the session are not to be seen from inside."""
    async with session_of(api, "curious") as session_id:
        uid = await uid_of(api, session_id)
        sandbox = await find_sandbox(docker, instance=daemon.instance, uid=uid)
        assert sandbox is not None
        seen = await output_of(api, session_id, VISIBLE)
        empty = await output_of(api, session_id, f"cat {EMPTY} /proc/sys/kernel/random/boot_id")
        tracks = await output_of(api, session_id, "ls /sys/fs /sys/block /sys/class /sys/module")
        forbidden = {
            "the session": session_id,
            "the user": "curious",
            "the container": sandbox.container_id[:12],
            "the host's name": os.uname().nodename,
            "the daemon's socket": str(daemon.socket),
        }
    # As words: a short host name may well be part of another one.
    problems = [
        f"{what} shows: {text}"
        for what, text in forbidden.items()
        if re.search(rf"(?<![\w-]){re.escape(text)}(?![\w-])", seen)
    ]
    if not seen.startswith("sandbox\n"):
        problems.append(f"the host name is {seen.splitlines()[0]}")
    if empty:
        problems.append(f"not empty: {empty[:200]}")
    if set(tracks.split()) - {"/sys/fs:", "/sys/block:", "/sys/class:", "/sys/module:"}:
        problems.append(f"devices show: {tracks[:200]}")
    settle(scoreboard, "C08", "traces of the host", problems)


DISKS = (
    "find /sys -path '*block*' -name stat -exec cat {} +; "
    "find /sys -name backing_file -exec cat {} +; find /sys -name 'loop*'; "
    "cat /proc/diskstats /proc/partitions /proc/locks /proc/swaps"
)
"""What shows disks: how much was written to them, and where they are."""


async def test_writes_of_a_neighbour_are_not_visible(api: Api, scoreboard: Scoreboard) -> None:
    """Neither the disks of other sandboxes nor how much is written to them can be seen."""
    async with session_of(api, "watcher") as watcher, session_of(api, "writer") as writer:
        before = await output_of(api, watcher, f"({DISKS}) 2>/dev/null")
        written = await output_of(api, writer, "head -c 8M /dev/urandom > large; sync; echo done")
        after = await output_of(api, watcher, f"({DISKS}) 2>/dev/null")
        processors = await output_of(api, watcher, "cat /sys/devices/system/cpu/online; nproc")
    lines = len(before.splitlines())
    problems = [] if written == "done\n" else [f"nothing was written: {written}"]
    if before:
        problems.append(f"{lines} lines show disks: {before[:200]}")
    if after != before:
        problems.append("they show that a neighbour wrote")
    if len(processors.splitlines()) != 2:
        problems.append("the processors can no longer be counted")
    scoreboard.figures.append(f"disks of the host: {lines} lines seen in a sandbox")
    settle(scoreboard, "C09", "disks of others", problems)


@pytest.mark.parametrize(
    ("case_id", "quota"),
    [("U01", "inotify"), ("U02", "mqueue"), ("U03", "signals"), ("U04", "pipes")],
)
async def test_attacker_cannot_take_the_quota_of_another(
    api: Api, programs: Path, scoreboard: Scoreboard, case_id: str, quota: str
) -> None:
    """What the kernel counts per user, a session gets in full while another takes what it can."""
    async with session_of(api, "victim", programs) as victim:
        alone = _taken(await output_of(api, victim, f"bin/quotas {quota}"))
        async with session_of(api, "taker", programs) as taker:
            await _hold(api, taker, f"bin/quotas {quota} hold")
            beside = _taken(await output_of(api, victim, f"bin/quotas {quota}"))
    problems = [] if alone > 0 else ["the victim gets nothing even when it is alone"]
    # How many pipes fit depends on what else the sandbox has open at that moment.
    if beside < 0.75 * alone:
        problems.append(f"the victim got {beside} instead of {alone}")
    settle(scoreboard, case_id, f"all of another's {quota}", problems)


def _taken(output: str) -> int:
    """The sum of what the programs took."""
    found = re.findall(r" taken: (\d+)$", output, re.MULTILINE)
    assert found, output
    return sum(map(int, found))


async def test_terminals_of_the_machine_are_shared(
    api: Api, programs: Path, scoreboard: Scoreboard
) -> None:
    """Of the terminals, which the kernel counts for the whole machine, one session gets a part."""
    async with session_of(api, "taker", programs) as taker:
        most = int(await output_of(api, taker, "cat /proc/sys/kernel/pty/max")) // 4
        # Two hold more than a part, but not so many that others here would feel it.
        command = "bin/quotas terminals hold & exec bin/quotas terminals hold"
        taken = _taken(await _hold(api, taker, command, times=2))
    problems = [f"one session took {taken}"] if taken > most else []
    settle(scoreboard, "U05", "terminals of the whole machine", problems)


async def test_named_sockets_are_not_shared(
    api: Api, programs: Path, scoreboard: Scoreboard
) -> None:
    """A socket that has a name but no file is there for its own session only."""
    name = secrets.token_hex(8)
    async with (
        session_of(api, "listener", programs) as listener,
        session_of(api, "caller", programs) as caller,
    ):
        await _hold(api, listener, f"bin/kernel abstract listen {name}", until="listen: ok")
        own = await output_of(api, listener, f"bin/kernel abstract connect {name}")
        other = await output_of(api, caller, f"bin/kernel abstract connect {name}")
    problems = []
    if own != "connect: ok\n":
        problems.append(f"it cannot be reached by its own session: {own!r}")
    if other != "connect: ECONNREFUSED\n":
        problems.append(f"the other session got {other!r}")
    settle(scoreboard, "E18b", "named sockets of another session", problems)


async def _hold(
    api: Api, session_id: str, command: str, *, until: str = "holding: ok", times: int = 1
) -> str:
    """Start a command that stays, and return what it said by the time it was ready."""
    request = exec_request(session_id, command, timeout=60)
    request.on_disconnect = exec_service_pb2.ON_DISCONNECT_KEEP_RUNNING
    call = async_execs(api).Exec(request, timeout=30)
    said = b""
    async for message in call:
        said += b"".join(event.stdout.data for event in message.events)
        if said.count(until.encode()) == times:
            call.cancel()
            return said.decode(errors="replace")
    raise AssertionError(said)
