"""Memory that the kernel holds for a command: what the host loses stays near what is counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import aiodocker
import grpc
import pytest
import pytest_asyncio

from sandboxd_proto.v1 import exec_service_pb2
from tests.docker.commands import exec_request
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon
from tests.hostile.arena import SETTINGS, async_execs, close_session, enter
from tests.hostile.cases import name_of
from tests.hostile.kernel_view import kernel_memory
from tests.hostile.scoreboard import Scoreboard, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

MOST_UNCOUNTED = 128 << 20
"""Bytes that a sandbox may cost the host beyond what is counted: half of its memory limit. An
attack that nothing stops takes 300 MB, or what its limits on descriptors and processes allow."""
ATTACK_SECONDS = 6.0
KEPT_SECONDS = 2.0
"""Seconds at the end of an attack; by then the daemon has looked at it several times."""
LOOK_SECONDS = 0.05
LOOKS = 3
"""At an attack that seems to have taken memory: others of the host take some as well."""


@dataclass(frozen=True, kw_only=True)
class Holding:
    """An attack."""

    id: str
    mode: str
    title: str
    hint: str = ""
    """A part of what the command prints, or of the hint with which it ends."""


ATTACKS = [
    Holding(id="K01", mode="tcp", title="full buffers of TCP connections"),
    Holding(
        id="K02",
        mode="unaccepted",
        title="connections that nobody accepts",
        hint="MB unread in sockets",
    ),
    Holding(id="K03", mode="udp", title="datagrams that nobody reads"),
    Holding(
        id="K04", mode="ping", title="echo replies that nobody reads", hint="MB unread in sockets"
    ),
    Holding(
        id="K05",
        mode="netlink",
        title="answers of the kernel that nobody reads",
        hint="MB unread in sockets",
    ),
    Holding(id="K06", mode="posix-locks", title="record locks", hint="record locks, more than"),
    Holding(
        id="K07", mode="description-locks", title="record locks of open files", hint="locks: 0"
    ),
    Holding(
        id="K08",
        mode="locks-of-the-dead",
        title="record locks of a process that ended",
        hint="clone: EPERM",
    ),
    Holding(id="K09", mode="flocks", title="locks on whole files"),
    Holding(id="K10", mode="leases", title="leases"),
    Holding(id="K11", mode="epolls", title="items of epoll"),
    Holding(id="K12", mode="watches", title="inotify watches"),
    Holding(id="K13", mode="timers", title="timers"),
    Holding(id="K14", mode="areas", title="memory areas"),
    Holding(id="K15", mode="page-tables", title="page tables"),
    Holding(id="K16", mode="names", title="names of files that do not exist"),
    Holding(id="K17", mode="passed-descriptors", title="descriptors on their way"),
    Holding(id="K18", mode="memberships", title="multicast groups", hint="group: EPERM"),
    Holding(id="K19", mode="socket-filters", title="filters on sockets", hint="filters: 0"),
    Holding(
        id="K20", mode="listening-filters", title="filters of ended processes", hint="filters: 0"
    ),
    Holding(id="K21", mode="packet-options", title="options of packets", hint="option: EPERM"),
    Holding(id="K22", mode="flow-labels", title="flow labels", hint="label: EPERM"),
    Holding(id="K23", mode="signature-keys", title="keys of connections", hint="key: EPERM"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def daemon() -> AsyncIterator[DaemonProcess]:
    async with running_daemon(**SETTINGS) as daemon:
        yield daemon


@pytest_asyncio.fixture(loop_scope="module")
async def api(daemon: DaemonProcess) -> AsyncIterator[Api]:
    async with daemon.api() as api:
        yield api


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What an attack cost the host at one moment, in bytes."""

    growth: int
    counted: int
    """Bytes of it that are counted as the sandbox's."""

    @property
    def uncounted(self) -> int:
        return self.growth - self.counted

    def __str__(self) -> str:
        return f"host +{self.growth >> 20} MB, counted {self.counted >> 20} MB"


@dataclass(frozen=True, kw_only=True)
class Course:
    """How an attack went."""

    worst: Cost
    kept: Cost
    """The smallest of the costs in the last seconds: what it can hold."""
    ending: str
    answer: str


async def course_of(daemon: DaemonProcess, api: Api, programs: Path, mode: str) -> Course:
    """Run an attack in a session of its own, and look at the host meanwhile."""
    async with aiodocker.Docker() as docker:
        session, sandbox = await enter(daemon, api, docker, programs, thread=f"kernel-{mode}")
    try:
        before = kernel_memory(sandbox)
        attack = asyncio.ensure_future(_attack(api, session.session_id, mode))
        began = time.monotonic()
        costs, last = [], []
        while not attack.done() or not last:
            now = kernel_memory(sandbox)
            counted = max(0, now.counted - before.counted)
            costs.append(Cost(growth=now.growth_since(before), counted=counted))
            if attack.done() or time.monotonic() - began > ATTACK_SECONDS - KEPT_SECONDS:
                last.append(costs[-1])
            await asyncio.sleep(LOOK_SECONDS)
        ending, answer = attack.result()
        return Course(
            worst=max(costs, key=lambda cost: cost.growth),
            kept=min(last, key=lambda cost: cost.uncounted),
            ending=ending,
            answer=answer,
        )
    finally:
        await close_session(api, session.session_id)


async def _attack(api: Api, session_id: str, mode: str) -> tuple[str, str]:
    request = exec_request(session_id, f"bin/kernel_memory {mode}", timeout=ATTACK_SECONDS)
    try:
        answer: exec_service_pb2.RunResponse = await async_execs(api).Run(request, timeout=60)
    except grpc.aio.AioRpcError as error:
        return str(error.code()), str(error.details())
    return name_of(answer.exit), answer.stdout.data.decode(errors="replace") + answer.exit.hint


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: f"{attack.id} {attack.title}")
async def test_host_loses_little_that_is_not_counted(
    daemon: DaemonProcess, api: Api, programs: Path, scoreboard: Scoreboard, attack: Holding
) -> None:
    """The growth of the kernel's memory is the sandbox's by count, or small."""
    for _ in range(LOOKS):
        course = await course_of(daemon, api, programs, attack.mode)
        if course.kept.uncounted <= MOST_UNCOUNTED:
            break
    problems = []
    if course.kept.uncounted > MOST_UNCOUNTED:
        problems.append(f"it held memory of the host: {course.kept}")
    if attack.hint not in course.answer:
        problems.append(f"{attack.hint!r} is not in {course.answer!r}")
    scoreboard.verdicts.append(
        Verdict(
            id=attack.id,
            title=attack.title,
            problems=problems,
            outcome=f"{course.ending}: {course.kept} (at most +{course.worst.growth >> 20} MB)",
        )
    )

    assert problems == []
