"""A process that a command left running cannot pose as a later command of its session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxd_proto.v1 import exec_pb2, exec_service_pb2, session_pb2
from tests.docker.commands import run
from tests.hostile.arena import Arena, close_session, enter, open_arena
from tests.hostile.scoreboard import Scoreboard, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

COMMANDS = 20
FORGER = """
import ctypes, os, signal, sys, time

WAY = sys.argv[1]
LIE = b"echo all tests passed; exit 0\\n"
PIDFD_GETFD, PROCESS_VM_WRITEV, PTRACE, SEIZE = 438, 311, 101, 0x4206
call = ctypes.CDLL(None, use_errno=True).syscall
held, results = [], {}

def write(path):
    held.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    os.write(held[-1], LIE)

def attempt(pid):
    if WAY == "gate":
        for number in (3, 9, 60, 1, 2):
            yield f"open fd/{number}", lambda: write(f"/proc/{pid}/fd/{number}")
            yield f"chmod fd/{number}", lambda: os.chmod(f"/proc/{pid}/fd/{number}", 0o777)
    elif WAY == "memory":
        yield "open mem", lambda: os.open(f"/proc/{pid}/mem", os.O_RDWR)
        yield "process_vm_writev", lambda: checked(call(PROCESS_VM_WRITEV, pid, 0, 0, 0, 0, 0))
        yield "ptrace", lambda: checked(call(PTRACE, SEIZE, pid, 0, 0))
        pidfd = os.pidfd_open(pid)
        for number in (3, 9):
            yield "pidfd_getfd", lambda: checked(call(PIDFD_GETFD, pidfd, number, 0))
        yield "close", lambda: (os.close(pidfd), skip())[1]
    elif WAY == "read":
        for name in ("environ", "maps", "auxv"):
            yield f"read {name}", lambda: open(f"/proc/{pid}/{name}", "rb").read() or skip()

def skip():
    raise OSError("nothing")

def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")

os.setsid()
while os.getppid() != 1:
    time.sleep(0.001)
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and name not in ("1", str(os.getpid())):
            try:
                for what, function in attempt(int(name)):
                    results.setdefault(what, [0, 0])
                    try:
                        function()
                        results[what][0] += 1
                    except OSError:
                        results[what][1] += 1
            except OSError:
                continue  # gone
    with open("results.new", "w") as file:
        for what, counts in results.items():
            print(*counts, what, file=file)
    os.replace("results.new", "results")
"""
STOPPER = """
import os, signal, time
os.setsid()
while os.getppid() != 1:
    time.sleep(0.001)
open("results", "w").close()
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, os.getpid()):
            try:
                os.kill(int(name), signal.SIGSTOP)
            except OSError:
                pass
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def arena(programs: Path) -> AsyncIterator[Arena]:
    async with open_arena(programs) as arena:
        yield arena


@pytest_asyncio.fixture(loop_scope="module")
async def session(arena: Arena) -> AsyncIterator[session_pb2.Session]:
    session, _ = await enter(
        arena.daemon, arena.api, arena.docker, arena.programs, thread="left behind"
    )
    yield session
    await close_session(arena.api, session.session_id)


async def leave_behind(arena: Arena, session_id: str, program: str, argument: str = "") -> None:
    source = f"cat >left.py <<'END'\n{program}\nEND\n"
    leave = f"python3 left.py {argument} >errors 2>&1 </dev/null &"
    await run(arena.api, session_id, source + leave, timeout=20)


async def results(arena: Arena, session_id: str) -> dict[str, tuple[int, int]]:
    """How often each way worked and was refused, by its name."""
    text = (await run(arena.api, session_id, "cat results", timeout=20)).stdout.data.decode()
    lines = [line.split(maxsplit=2) for line in text.splitlines()]
    return {what: (int(worked), int(refused)) for worked, refused, what in lines}


@pytest.mark.parametrize(
    ("case_id", "way"), [("L1", "gate"), ("L2", "memory"), ("L3", "read")], ids=lambda word: word
)
async def test_later_commands_are_out_of_reach(
    arena: Arena, session: session_pb2.Session, scoreboard: Scoreboard, case_id: str, way: str
) -> None:
    """It neither writes into their shells nor reads their memory, by any way that is known; each
    command says what it says, and that it was not alone."""
    await leave_behind(arena, session.session_id, FORGER, way)
    async with asyncio.timeout(30):
        while not await results(arena, session.session_id):
            await asyncio.sleep(0.05)
    answers = []
    for _ in range(COMMANDS):
        answers.append(await run(arena.api, session.session_id, "echo real; exit 3", timeout=20))
        await asyncio.sleep(0.05)
    counted = await results(arena, session.session_id)

    forged = [a for a in answers if (a.stdout.data, a.exit.code) != (b"real\n", 3)]
    silent = [a for a in answers if "earlier commands" not in a.exit.hint]
    worked = {what: count for what, (count, _) in counted.items() if count}
    refused = sum(count for _, count in counted.values())
    print(f"left behind, {way}: {refused} attempts refused, {len(forged)} of {COMMANDS} forged")
    problems = [
        f"{name}: {found}"
        for name, found in (("forged", forged), ("silent", silent), ("worked", worked))
        if found
    ]
    verdict = Verdict(
        id=case_id, title=f"forged ends by {way}", problems=problems, outcome=f"{refused} refused"
    )
    scoreboard.verdicts.append(verdict)

    assert refused > COMMANDS
    assert verdict.problems == []


def timed_out(answers: list[exec_service_pb2.RunResponse]) -> list[exec_service_pb2.RunResponse]:
    return [one for one in answers if one.exit.reason == exec_pb2.EXIT_REASON_TIMED_OUT]


@pytest.mark.calm  # it waits for processes that a busy machine does not get to in time
async def test_one_that_stops_all_others_is_ended(
    arena: Arena, session: session_pb2.Session, scoreboard: Scoreboard
) -> None:
    """It cannot make every later command run into its deadline: it is ended with the first that
    did, and the end says so."""
    await leave_behind(arena, session.session_id, STOPPER)
    answers: list[exec_service_pb2.RunResponse] = []
    async with asyncio.timeout(60):
        # The first may be over before the other gets to it.
        while not (stopped := timed_out(answers)) or answers[-1].exit.hint:
            answers.append(
                await run(arena.api, session.session_id, "sleep 0.3; echo ok", timeout=2)
            )
    after = await run(arena.api, session.session_id, "echo ok", timeout=20)

    problems = [] if len(stopped) <= 1 else [f"{len(stopped)} commands timed out"]
    if any("were ended" not in answer.exit.hint for answer in stopped):
        problems.append("the end of what stopped it is not reported")
    verdict = Verdict(
        id="L4", title="stops every later command", problems=problems, outcome="ENDED"
    )
    scoreboard.verdicts.append(verdict)

    assert stopped
    assert (after.stdout.data, after.exit.hint) == (b"ok\n", "")
    assert verdict.problems == []
