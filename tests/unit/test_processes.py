"""Which processes are ended with a command."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.guest.commands import processes
from sandboxd.guest.commands.processes import Beginning, Process, victims

LEADER = 100
OTHER = 200
WAITING = 300
NOW = 50
"""The tick at which the command began."""

# The shell of the command was waiting before the command began, so it is older than that.
leader = Process(LEADER, 1, LEADER, 40)
other = Process(OTHER, 1, OTHER, 45)
waiting = Process(WAITING, 1, WAITING, 60)


def doomed(*there: Process, seen: tuple[Process, ...] = ()) -> set[int]:
    beginning = Beginning(NOW, frozenset((one.pid, one.started) for one in seen))
    found = victims(there, leader=LEADER, beginning=beginning, spared_leaders={OTHER, WAITING})
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param([], set(), id="nobody is left"),
        pytest.param([leader], {100}, id="the first process, though it is older"),
        pytest.param(
            [leader, Process(101, 100, 100, 55), Process(102, 101, 100, 56)],
            {100, 101, 102},
            id="children and grandchildren",
        ),
        pytest.param(
            [leader, Process(101, 1, 101, 55), Process(102, 101, 101, 56)],
            {100, 101, 102},
            id="a daemon with a session and a child of its own",
        ),
        pytest.param(
            [Process(101, 1, 101, 55), Process(102, 1, 100, 55)],
            {101, 102},
            id="what the first process left behind",
        ),
        pytest.param(
            [leader, Process(101, 100, 100, NOW)], {100, 101}, id="one of the very first tick"
        ),
        pytest.param(
            [leader, Process(101, 100, 0, 55)],
            {100, 101},
            id="one whose session is not ours to see",
        ),
    ],
)
def test_processes_of_a_command_are_ended(there: list[Process], expected: set[int]) -> None:
    """Wherever a process of the command has gone, it ends with it."""
    assert doomed(*there, other, waiting) == expected


@pytest.mark.parametrize(
    "spared",
    [
        pytest.param([other], id="another command"),
        pytest.param([waiting], id="the shell that waits"),
        pytest.param(
            [other, Process(201, 200, 200, 55), Process(202, 201, 200, 56)],
            id="children of another command",
        ),
        pytest.param(
            [other, Process(201, 1, 200, 55)], id="an orphan in the session of another command"
        ),
        pytest.param(
            [other, Process(201, 200, 201, 55), Process(202, 201, 202, 56)],
            id="a child of another command with a session of its own",
        ),
        pytest.param([Process(90, 1, 90, 10)], id="a daemon of an earlier command"),
        pytest.param(
            [Process(90, 1, 90, 10), Process(91, 90, 91, 70), Process(92, 1, 90, 70)],
            id="what an earlier daemon starts now",
        ),
    ],
)
def test_processes_of_others_are_spared(spared: list[Process]) -> None:
    """What is not of the command lives on."""
    assert doomed(leader, Process(101, 100, 100, 55), *spared) == {100, 101}


def test_daemon_of_another_running_command_cannot_be_told_apart() -> None:
    """One that left its parent and session while both ran is ended: killing too little is worse."""
    assert doomed(leader, other, Process(201, 1, 201, 55)) == {100, 201}


def test_process_of_the_same_tick_is_spared_if_it_was_seen_before() -> None:
    """Commands in quick succession do not end each other's daemons."""
    earlier = Process(90, 1, 90, NOW)

    assert doomed(leader, earlier, seen=(earlier,)) == {100}
    assert doomed(leader, earlier) == {100, 90}
    assert doomed(leader, earlier._replace(started=NOW + 1), seen=(earlier,)) == {100, 90}
    moved = earlier._replace(parent=1, session=earlier.pid)
    assert doomed(leader, moved, seen=(earlier,)) == {100}


some_processes = st.lists(
    st.builds(
        Process,
        pid=st.sampled_from([LEADER, OTHER, WAITING, *range(2, 30)]),
        parent=st.sampled_from([1, LEADER, OTHER, *range(2, 30)]),
        session=st.sampled_from([0, LEADER, OTHER, *range(2, 30)]),
        started=st.integers(NOW - 3, NOW + 3),
    ),
    unique_by=lambda process: process.pid,
    max_size=25,
)


@given(there=some_processes)
def test_victims_of_any_family_tree(there: list[Process]) -> None:
    """Always the first process, never another's, no older one outside of its session, and no child
    of what is spared."""
    found = doomed(*there)
    by_pid = {process.pid: process for process in there}
    spared = set(by_pid) - found

    assert found <= set(by_pid)
    assert LEADER in found or LEADER not in by_pid
    assert not found & {OTHER, WAITING}
    own = {pid for pid, process in by_pid.items() if process.session == LEADER}
    assert all(by_pid[pid].started >= NOW for pid in found - own - {LEADER})
    assert all(by_pid[pid].parent not in spared for pid in found - {LEADER})


def test_living_finds_this_process() -> None:
    """The listing knows pid, parent and session, whatever a process calls itself."""
    if os.getpid() == 1:
        pytest.fail("PID 1 is left out of the listing on purpose; run the tests as another")
    mine = next(one for one in processes.living() if one.pid == os.getpid())

    assert (mine.parent, mine.session) == (os.getppid(), os.getsid(0))
    assert 0 < mine.started <= processes.ticks_now()


def test_only_pid_1_may_kill_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside of a sandbox the sweep does nothing but complain."""
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *what: killed.append(what))
    monkeypatch.setattr(os, "getpid", lambda: 4242)

    with pytest.raises(RuntimeError, match="only PID 1"):
        processes.kill_everything()
    assert killed == []


class Host:
    """Processes and clocks as a test says; each look at the processes takes `look_seconds`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.look_seconds = self.look_processor_seconds = 0.0
        self.is_fork_bomb = False
        self.looks = 0
        self.killed: list[int] = []
        self.sweeps = 0
        self._clock = self._processor_clock = 0.0
        monkeypatch.setattr(processes, "living", self._living)
        monkeypatch.setattr(processes, "kill", self.killed.append)
        monkeypatch.setattr(processes, "kill_everything", self._sweep)
        monkeypatch.setattr(processes.time, "monotonic", lambda: self._clock)
        monkeypatch.setattr(processes.time, "thread_time", lambda: self._processor_clock)

    def end_command(self, *, waits: bool = False) -> bool:
        return processes.end_command(
            leader=LEADER,
            beginning=Beginning(NOW, frozenset()),
            spared_leaders={OTHER},
            reap=lambda: None,
            waits=waits,
        )

    def pass_time(self, seconds: float) -> None:
        self.looks += 1
        self._clock += seconds

    def _living(self) -> list[Process]:
        self.looks += 1
        self._clock += self.look_seconds
        self._processor_clock += self.look_processor_seconds
        child = Process(LEADER + self.looks, LEADER, LEADER, NOW)
        found = [leader, other, child] if self.is_fork_bomb else [leader, other]
        return [process for process in found if process.pid not in self.killed]

    def _sweep(self) -> None:
        self.sweeps += 1


def test_slow_looks_are_no_sign_of_a_fork_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host the other commands of a session live on, though each look takes long."""
    host = Host(monkeypatch)
    host.look_seconds = processes.KILL_SECONDS / 3

    assert host.end_command() is False
    assert (host.killed, host.sweeps) == ([LEADER], 0)


@pytest.mark.parametrize(
    ("look_seconds", "look_processor_seconds", "looks"),
    [
        pytest.param(0.001, 0.001, processes.KILL_ROUNDS, id="after so many looks"),
        pytest.param(0.04, 0.04, 2, id="after so much processor time"),
        pytest.param(0.4, 0.001, 3, id="after so much time"),
    ],
)
def test_fork_bomb_is_ended_with_everything(
    monkeypatch: pytest.MonkeyPatch,
    look_seconds: float,
    look_processor_seconds: float,
    looks: int,
) -> None:
    """Looks for processes that keep turning up are bounded in number and in time."""
    host = Host(monkeypatch)
    host.is_fork_bomb = True
    host.look_seconds, host.look_processor_seconds = look_seconds, look_processor_seconds

    assert host.end_command() is True
    assert (host.looks, host.sweeps) == (looks, 1)


CONTEXT = 400


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        pytest.param([Process(401, CONTEXT, CONTEXT, 55)], {401}, id="a child of the run"),
        pytest.param([Process(401, CONTEXT, 401, 55)], {401}, id="one with a session of its own"),
        pytest.param([Process(401, CONTEXT, CONTEXT, 30)], set(), id="a child of an earlier run"),
        pytest.param(
            [Process(401, CONTEXT, 401, 30), Process(402, 401, 401, 55)],
            set(),
            id="what that has started since",
        ),
        pytest.param(
            [other, Process(201, OTHER, OTHER, 55)], set(), id="a command that runs beside it"
        ),
    ],
)
@pytest.mark.parametrize("born", [20, 60], ids=["before the run", "for the run"])
def test_context_that_outlives_its_run_keeps_what_is_older(
    born: int, there: list[Process], expected: set[int]
) -> None:
    """The context and what earlier runs have started are spared, what this run has started is
    not."""
    context = Process(CONTEXT, 300, CONTEXT, born)
    found = victims(
        [context, *there],
        leader=CONTEXT,
        beginning=Beginning(NOW, frozenset()),
        spared_leaders={CONTEXT, OTHER, WAITING},
    )

    assert set(found) == expected


def test_sweep_waits_until_memory_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only until everything is killed, and not for ever."""
    host = Host(monkeypatch)
    dying = Process(LEADER + 1, LEADER, LEADER, NOW)
    monkeypatch.setattr(processes, "living", lambda: [other, dying][: 1 + (host.looks < 5)])
    monkeypatch.setattr(processes.time, "sleep", host.pass_time)

    assert host.end_command(waits=True) is False
    assert host.looks == 5
    host.looks = -10_000
    assert host.end_command(waits=True) is False
    assert host.looks < 0
