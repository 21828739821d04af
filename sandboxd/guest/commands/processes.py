"""Which processes belong to a command, and how all of them are ended."""

import os
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
KILL_ROUNDS = 10
KILL_PROCESSOR_SECONDS = 0.06
KILL_SECONDS = 1.0
"""Looks for further processes of a command, and time for them, before everything is killed.

Mostly the guest's own processor time: on a busy host a few looks take long, which does not make the
command a fork bomb."""
LEFTOVER_SECONDS = 0.1
"""The guest serves nothing else meanwhile, and a command that finds no room yet waits for it."""
FOLLOWER_SECONDS = 0.2
SWEEP_SECONDS = 0.02
LOOK_SECONDS = 0.001
_GONE = b"X"
_DEAD = (b"Z", _GONE)


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    started: int
    """Clock ticks since boot."""


def ticks_now() -> int:
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * TICKS_PER_SECOND)


class Census(NamedTuple):
    processes: list[Process]
    """Every process but the guest and the dead ones that wait to be reaped."""
    is_complete: bool
    """False if one ended meanwhile: it may have left a successor that was not listed."""


def census() -> Census:
    found = []
    is_complete = True
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == "1":
            continue
        fields = _state(int(name))
        if fields[0] not in _DEAD:
            found.append(Process(int(name), int(fields[1]), int(fields[3]), int(fields[19])))
        elif fields[0] == _GONE:
            is_complete = False
    return Census(found, is_complete)


def living() -> list[Process]:
    return census().processes


def is_alive(process: Process) -> bool:
    fields = _state(process.pid)
    return fields[0] not in _DEAD and int(fields[19]) == process.started


def is_stopped(pid: int) -> bool:
    return _state(pid)[0] == b"T"


def _state(pid: int) -> list[bytes]:
    """What the kernel says of a process, from its state on."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
    except OSError:
        return [_GONE]
    # The name in parentheses may hold anything, so count from its end.
    return text[text.rindex(b")") + 2 :].split()


class Beginning(NamedTuple):
    """The moment a command began: what was there before is not of it."""

    tick: int
    seen: frozenset[tuple[int, int]]
    """Pid and start of processes known to be there before, which stay when parent and session
    change; ticks alone are too coarse for quick successions."""

    def is_after(self, process: Process) -> bool:
        return process.started < self.tick or (process.pid, process.started) in self.seen


_NEVER = Beginning(0, frozenset())
"""Before everything: nothing is spared for its age."""


def victims(
    processes: Iterable[Process], *, leader: int, beginning: Beginning, spared_leaders: set[int]
) -> list[int]:
    """Pids of the command led by `leader`.

    A process can leave its session and its parent, but it cannot join another command. So what is
    spared is decided, not what is killed: other leaders, processes older than the command, and what
    descends from or shares a session with those. In the leader's own session nothing is spared for
    its age: a context runs one piece of code after another there. A daemon that another running
    command started meanwhile cannot be told apart and goes too.

    A leader that is spared itself is a context that outlives its run: what earlier runs started is
    spared like anything that is older, and what this one started is not spared for its parent.
    """
    lives = leader in spared_leaders
    by_pid = {process.pid: process for process in processes}
    spared = {
        process.pid
        for process in by_pid.values()
        if process.pid in spared_leaders
        or (beginning.is_after(process) and (lives or leader not in (process.pid, process.session)))
    }
    sessions = {by_pid[pid].session for pid in spared} | spared_leaders
    sessions -= {leader, 0}
    spared |= {p.pid for p in by_pid.values() if p.session in sessions and p.pid != leader}
    grew = True
    while grew:
        children = {
            process.pid
            for process in by_pid.values()
            if process.parent in spared - {leader} and process.pid not in spared | {leader}
        }
        spared |= children
        grew = bool(children)
    return [pid for pid in by_pid if pid not in spared]


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # ended by itself


def are_any() -> bool:
    """Whether there is any process besides the guest."""
    try:
        os.kill(-1, 0)
    except ProcessLookupError:
        return False
    return True


def kill_everything() -> None:
    """SIGKILL to all but PID 1, in one call that no fork can outrun."""
    if os.getpid() != 1:
        raise RuntimeError("only PID 1 of a sandbox may kill everything")
    kill(-1)


def sweep(reap: Callable[[], None]) -> None:
    """Kill everything, and wait a moment until it is gone."""
    kill_everything()
    give_up_at = time.monotonic() + SWEEP_SECONDS
    while are_any() and time.monotonic() < give_up_at:
        time.sleep(LOOK_SECONDS)
        reap()


def left_behind(processes: Sequence[Process], leaders: set[int]) -> list[Process]:
    """Those that belong to none of these leaders."""
    if all(process.pid in leaders for process in processes):
        return []  # as a rule
    pids = victims(processes, leader=0, beginning=_NEVER, spared_leaders=leaders)
    return [process for process in processes if process.pid in pids]


def end_leftovers(running_leaders: set[int], reap: Callable[[], None]) -> None:
    """Kill what belongs to no running command, and wait a moment until it is gone."""
    give_up_at = time.monotonic() + LEFTOVER_SECONDS
    while time.monotonic() < give_up_at:
        if running_leaders:
            doomed = [process.pid for process in left_behind(living(), running_leaders)]
            for pid in doomed:
                kill(pid)
        else:
            doomed = [process.pid for process in living()]
            if doomed:
                kill_everything()
        reap()
        if not doomed:
            return
        time.sleep(LOOK_SECONDS)


def end_followers(leaders: set[int], reap: Callable[[], None]) -> None:
    """Kill what is in the sessions of these leaders besides them, and wait a moment until it is
    gone."""
    give_up_at = time.monotonic() + FOLLOWER_SECONDS
    while time.monotonic() < give_up_at:
        doomed = [p.pid for p in living() if p.session in leaders and p.pid not in leaders]
        for pid in doomed:
            kill(pid)
        reap()
        if not doomed:
            return


def end_command(
    *,
    leader: int,
    beginning: Beginning,
    spared_leaders: set[int],
    reap: Callable[[], None],
    waits: bool = False,
) -> bool:
    """Kill a command with all its processes; True if everything else had to be killed as well.

    Killing one by one can lose against a program that forks without pause; the sweep cannot. Return
    at once, or `waits` a moment until the processes have given their memory back.
    """

    def found() -> list[int]:
        return victims(living(), leader=leader, beginning=beginning, spared_leaders=spared_leaders)

    killed: set[int] = set()
    give_up_at = time.monotonic() + KILL_SECONDS
    worked_enough_at = time.thread_time() + KILL_PROCESSOR_SECONDS
    for _ in range(KILL_ROUNDS):
        if time.monotonic() > give_up_at or time.thread_time() > worked_enough_at:
            break
        fresh = set(found()) - killed
        if not fresh:  # what is still listed is dying
            if waits:
                _wait_until_none(found, reap)
            return False
        for pid in fresh:
            kill(pid)
        killed |= fresh
        reap()
    kill_everything()
    if waits:
        _wait_until_none(living, reap)
    return True


def _wait_until_none(found: Callable[[], Sequence[object]], reap: Callable[[], None]) -> None:
    give_up_at = time.monotonic() + KILL_SECONDS
    while found() and time.monotonic() < give_up_at:
        time.sleep(LOOK_SECONDS)
        reap()
