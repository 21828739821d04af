"""What one session may cost the daemon and its host through files, on real sandboxes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import aiodocker
import pytest
from grpc import StatusCode, aio

from sandboxd.files.compression import zstd
from sandboxd.guest.files import watch
from sandboxd.guest.worker_budget import ADVANCE_SECONDS
from sandboxd.isolation.cgroups import CPU_PERIOD_US
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import files_pb2
from tests.docker.commands import run
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.docker.test_command_limits import open_session
from tests.docker.test_lifecycle import eventually
from tests.hostile.neighbour import Neighbour
from tests.service.client import refused
from tests.service.file_client import FileClient

pytestmark = pytest.mark.timeout(300)

MIB = 1 << 20
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
BOMBS = 8
BUSY_TICKS = 3
"""Processor time that no worker has used before it searches."""
WATCHES = 4
STORM = """
import os, time
until, count = time.monotonic() + 5, 0
while time.monotonic() < until:
    name = f"f{count % 1000}"
    os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
    os.unlink(name)
    count += 2
print(count)
"""


def _ticks(pid: int) -> int:
    """Processor time of a process so far; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(fields[11]) + int(fields[12])


@contextmanager
def _cost(pid: int) -> Iterator[list[float]]:
    """Fills in the seconds of processor time that a process used in the block."""
    cost: list[float] = []
    before = _ticks(pid)
    yield cost
    cost.append((_ticks(pid) - before) / TICKS_PER_SECOND)


# --- archives ---


@pytest.mark.parametrize("form", ["gzip", "zstd"])
async def test_members_without_content_cost_nothing(
    form: str, shared_daemon: DaemonProcess, api: Api, session_id: str
) -> None:
    """A MiB of empty members is refused after the first of them."""
    empty = bytes.fromhex("1f8b08000000000000ff03000000000000000000")
    kind = files_pb2.TAR_COMPRESSION_GZIP
    if form == "zstd":
        empty, kind = zstd.compress(b""), files_pb2.TAR_COMPRESSION_ZSTD
    files = FileClient(api.files, session_id)
    with (
        _cost(shared_daemon.pid) as cost,
        refused(StatusCode.INVALID_ARGUMENT, "INVALID_ARCHIVE") as refusal,
    ):
        await files.upload_tar("", empty * (MIB // len(empty)), compression=kind)

    print(f"processor time for a mib of empty {form} members: {cost[0]:.2f} s")
    assert "too many compressed members" in refusal.message


# --- searches ---


async def _first_processes(docker: aiodocker.Docker, daemon: DaemonProcess) -> Sequence[int]:
    label = f"sandboxd.instance={daemon.instance}"
    containers = await docker.containers.list(filters={"label": [label]})
    return [(await container.show())["State"]["Pid"] for container in containers]


def _busy_children(pids: Sequence[int]) -> Sequence[int]:
    children = []
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            children += [int(word) for word in task.read_text().split()]
    return [pid for pid in children if _ticks(pid) > BUSY_TICKS]


def _is_under_quota(pid: int) -> bool:
    lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
    fields = [line.split(":", 2) for line in lines]
    return any(
        path.endswith("/cmd")
        for number, controllers, path in fields
        if number == "0" or "cpu" in controllers.split(",")
    )


async def test_searches_share_the_processor_time_of_commands(
    docker: aiodocker.Docker, shared_daemon: DaemonProcess, api: Api, session_id: str
) -> None:
    """Patterns that never end, as many as a session may search for at once, although no command
    runs: every worker is under the quota of the commands, which is one processor."""
    files = FileClient(api.files, session_id)
    await files.upload("bomb", b"a" * 40 + b"b\n")
    pids = await _first_processes(docker, shared_daemon)
    began = time.monotonic()
    searches = [asyncio.ensure_future(files.grep("(a+)+$", regex=True)) for _ in range(BOMBS)]
    try:

        async def all_are_under_quota() -> bool:
            busy = _busy_children(pids)
            return len(busy) == BOMBS and all(map(_is_under_quota, busy))

        await eventually(all_are_under_quota)
        busy = _busy_children(pids)
        before, began = sum(map(_ticks, busy)), time.monotonic()
        await asyncio.sleep(2)
        used = (sum(map(_ticks, busy)) - before) / TICKS_PER_SECOND
        print(f"processors used by {BOMBS} searches: {used / (time.monotonic() - began):.2f}")
    finally:
        found = await asyncio.gather(*searches)
    assert not any(result.complete for result in found)


# --- many short calls ---

CALLERS = 8
LISTS = 10
"""By each caller."""
SMALL_QUOTA = 5000
"""Microseconds per 100 ms: a twentieth of a processor."""


def _used_by_ended_children(pid: int) -> float:
    """Seconds of processor time of a process's children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / TICKS_PER_SECOND


async def _list_again_and_again(docker: aiodocker.Docker, quota: int) -> tuple[float, float]:
    """Seconds of processor time that workers use for many lists at once, and the time it takes."""
    async with running_daemon(POOL_SIZE="0", CPU_QUOTA=str(quota)) as daemon, daemon.api() as api:
        session_id = await open_session(api, "caller")
        files = FileClient(api.files, session_id)
        await run(api, session_id, "mkdir d; cd d; touch {1..2000}", timeout=60)
        (pid,) = await _first_processes(docker, daemon)

        async def keep_listing() -> None:
            for _ in range(LISTS):
                await files.list("d", page_size=1)

        before, began = _used_by_ended_children(pid), time.monotonic()
        await asyncio.gather(*(keep_listing() for _ in range(CALLERS)))
        return _used_by_ended_children(pid) - before, time.monotonic() - began


async def test_many_short_calls_share_the_processor_time_of_workers(
    docker: aiodocker.Docker,
) -> None:
    """Calls that end before their workers could be moved under a quota do not use more of the
    processor than it allows, however many there are."""
    freely, at_once = await _list_again_and_again(docker, 0)
    used, seconds = await _list_again_and_again(docker, SMALL_QUOTA)

    before, after = freely / at_once, used / seconds
    print(f"processors used by {CALLERS} callers that list files: {before:.2f} -> {after:.2f}")
    share = SMALL_QUOTA / CPU_PERIOD_US
    at_the_end = 2 * used / LISTS  # of those that ran at the same time, nothing was known yet
    assert used <= share * (seconds + ADVANCE_SECONDS) + at_the_end


# --- watches ---


async def _count_changes(
    call: aio.UnaryStreamCall[pb.WatchFilesRequest, pb.WatchFilesResponse],
) -> list[int]:
    """Changes and reports that arrive, until the call is cancelled."""
    counts = [0, 0]
    try:
        while report := await call.read():
            counts[0] += len(report.changes)
            counts[1] += 1
    except asyncio.CancelledError:
        pass
    return counts


async def test_a_storm_of_changes_has_a_bounded_cost(
    shared_daemon: DaemonProcess, api: Api, session_id: str
) -> None:
    """Under as many watches as there may be, what reaches the daemon is within the budget of each,
    however many files change; the figures say what a neighbour noticed."""
    files = FileClient(api.files, session_id)
    await files.upload("storm.py", STORM.encode())
    await run(api, session_id, "mkdir d")
    calls = [files.watch("d") for _ in range(WATCHES)]
    for call in calls:
        assert (await call.read()).watching
    readers = [asyncio.ensure_future(_count_changes(call)) for call in calls]
    began = time.monotonic()
    async with Neighbour(api, await open_session(api, "neighbour")) as neighbour:
        quiet = await neighbour.quiet_ms()
        begin = len(neighbour.took_ms)
        with _cost(shared_daemon.pid) as cost:
            done = await run(api, session_id, "cd d; python3 ../storm.py", timeout=30)
        during = sorted(neighbour.took_ms[begin:])
    seconds = time.monotonic() - began
    for call in calls:
        call.cancel()
    counts = await asyncio.gather(*readers)

    changes, reports = (sum(column) for column in zip(*counts, strict=True))
    made = int(done.stdout.data)
    print(f"storm of {made} changes: {changes} reported in {reports} reports")
    print(f"processor time of the daemon: {cost[0]:.2f} s in 5 s")
    middle = during[len(during) // 2]
    print(f"a neighbour's command: {quiet:.1f} ms, then {middle:.1f} ms, worst {during[-1]:.1f} ms")
    budget = watch.MAX_GATHERED + watch.CHANGES_PER_SECOND * seconds
    assert changes <= WATCHES * budget
    assert reports <= changes / watch.BATCH_CHANGES + WATCHES * (seconds / watch.REPORT_SECONDS + 2)
