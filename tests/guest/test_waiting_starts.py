"""A command for which there is no process waits for one, and nothing waits with it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from sandboxd.guest import frames
from sandboxd.guest.commands.waiting_starts import MAX_WAITING
from sandboxd.guest.frames import Cause, Ending, Kind

from .guest_rig import Rig, guest, wait_until

GRACE = 15.0
HOWS = ("refused", "late")


def sleeping(rig: Rig) -> int:
    """A command that runs."""
    number = rig.start("echo on; exec sleep 1000")
    rig.wait_for(number, b"on\n")
    return number


def start_anew(rig: Rig, line: str, **more: object) -> int:
    """Start a command that the shell which waits is of no use to: it has its streams already."""
    return rig.start(line, stdin=True, **more)  # type: ignore[arg-type]


def start_in_vain(rig: Rig, line: str, **more: object) -> int:
    """Start a command that waits."""
    number = start_anew(rig, line, **more)
    rig.ping()
    assert not rig.channels[number].is_over
    return number


@pytest.mark.parametrize("how", HOWS)
def test_a_command_waits_for_a_process(how: str, tmp_path: Path) -> None:
    """It is not refused but runs, once, when there is a process for it."""
    with guest(tmp_path, mode="gated") as rig:
        sleeping(rig)
        rig.close_gate(how)
        number = start_in_vain(rig, "echo once >>runs; cat runs; exit 3")
        rig.open_gate(how)

        done = rig.finish(number)
        assert done.exited is not None, done.refused
        assert (done.stdout, done.exited.value) == (b"once\n", 3)


@pytest.mark.parametrize("how", HOWS)
def test_a_command_that_waits_keeps_nothing_else_waiting(how: str, tmp_path: Path) -> None:
    """Meanwhile output, ends and kills of others are served at once."""
    with guest(tmp_path, mode="gated") as rig:
        other = rig.start("echo on; read line; echo $line; exec sleep 1000", stdin=True)
        rig.wait_for(other, b"on\n")
        rig.close_gate(how)
        number = start_in_vain(rig, "echo hi")
        slowest = 0.0
        for _ in range(20):
            began = time.monotonic()
            rig.ping()
            slowest = max(slowest, time.monotonic() - began)
        rig.input(other, 0, b"more\n")
        rig.wait_for(other, b"more\n")
        rig.say(Kind.KILL, other)
        ended = rig.finish(other).exited
        rig.open_gate(how)

        assert ended is not None
        assert ended.cause == Cause.KILLED
        assert rig.finish(number).stdout == b"hi\n"
        print(f"slowest answer while a process is {how}: {slowest * 1e3:.1f} ms")
        assert slowest < 0.25, "the daemon kills a guest that is silent for so long"


def test_a_process_that_comes_late_is_used(tmp_path: Path) -> None:
    """However slow the host is, a process that was started is the command's and not thrown away."""
    with guest(tmp_path, mode="gated") as rig:
        wait_until(lambda: rig.spawned == 1)
        rig.close_gate("late_after")
        number = start_in_vain(rig, "cat")
        assert rig.spawned == 2
        rig.open_gate("late_after")
        rig.input(number, 0, b"x")
        rig.say(Kind.INPUT_END, number)

        assert rig.finish(number).stdout == b"x"
        assert rig.spawned == 2


def test_what_runs_in_the_background_outlives_a_late_process(tmp_path: Path) -> None:
    """Slowness is not held against what earlier commands have left behind."""
    with guest(tmp_path, mode="gated") as rig:
        background = rig.run("sleep 1000 >/dev/null 2>&1 & echo $!").stdout.decode().strip()
        rig.close_gate("late")
        number = start_in_vain(rig, f"kill -0 {background} && echo alive")
        rig.open_gate("late")

        assert rig.finish(number).stdout == b"alive\n"


def test_leftovers_make_room_for_a_command_that_is_refused_a_process(tmp_path: Path) -> None:
    """At the limit of processes, what earlier commands have left behind has to go."""
    with guest(tmp_path, mode="gated") as rig:
        background = rig.run("sleep 1000 >/dev/null 2>&1 & echo $!").stdout.decode().strip()
        rig.close_gate("refused")
        number = start_in_vain(rig, f"kill -0 {background} 2>/dev/null || echo gone")
        rig.open_gate("refused")

        assert rig.finish(number).stdout == b"gone\n"


@pytest.mark.parametrize("how", HOWS)
def test_waiting_has_an_end(how: str, tmp_path: Path) -> None:
    """A command that finds no process in time is refused as one that may be tried again."""
    with guest(tmp_path, mode="gated, impatient") as rig:
        sleeping(rig)
        rig.close_gate(how)
        numbers = [start_anew(rig, "touch ran") for _ in range(3)]
        refusals = [rig.finish(number).refused for number in numbers]
        assert all(one is not None and one.startswith(frames.NO_PROCESS) for one in refusals)
        rig.open_gate(how)

        assert rig.run("[ ! -e ran ]; echo $?").stdout == b"0\n"


def test_commands_that_wait_start_in_the_order_they_came(tmp_path: Path) -> None:
    """First come, first served; beyond a bound they are refused at once."""
    with guest(tmp_path, mode="gated") as rig:
        sleeping(rig)
        rig.close_gate("refused")
        numbers = [start_anew(rig, "echo $$") for _ in range(MAX_WAITING)]
        beyond = rig.finish(start_anew(rig, "echo beyond"))
        assert beyond.refused is not None
        assert beyond.refused.startswith(frames.NO_PROCESS)
        rig.open_gate("refused")

        pids = [int(rig.finish(number).stdout) for number in numbers]
        assert pids == sorted(pids)


@pytest.mark.parametrize("how", HOWS)
def test_a_killed_command_that_waits_never_runs(how: str, tmp_path: Path) -> None:
    """It ends at once, as one that was killed, and the next one is not concerned."""
    with guest(tmp_path, mode="gated") as rig:
        sleeping(rig)
        rig.close_gate(how)
        number = start_in_vain(rig, "touch ran")
        began = time.monotonic()
        rig.say(Kind.KILL, number)
        ended = rig.finish(number).exited
        took = time.monotonic() - began
        rig.open_gate(how)

        assert ended is not None
        assert (ended.ending, ended.value, ended.cause) == (Ending.SIGNAL, 9, Cause.KILLED)
        assert took < 0.25
        assert rig.run("[ ! -e ran ]; echo $?").stdout == b"0\n"


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_kill_does_not_take_a_command_along_that_waits(is_alone: bool, tmp_path: Path) -> None:
    """The end of another may hit a process that is on its way; then it is given another."""
    with guest(tmp_path, mode="gated") as rig:
        victim = sleeping(rig)
        if not is_alone:
            rig.start("exec sleep 1000")
        rig.ping()
        before = rig.spawned
        rig.close_gate("late_after")
        number = start_anew(rig, "cat; exit 4")
        wait_until(lambda: rig.spawned > before)
        rig.say(Kind.KILL, victim)
        assert rig.finish(victim).exited is not None
        rig.open_gate("late_after")
        rig.say(Kind.INPUT_END, number)

        done = rig.finish(number)
        assert done.exited is not None, done.refused
        assert (done.exited.ending, done.exited.value) == (Ending.CODE, 4)


@pytest.mark.parametrize("how", HOWS)
def test_what_is_asked_of_a_command_that_waits_is_done_later(how: str, tmp_path: Path) -> None:
    """Input arrives in order, a signal reaches it, and a terminal has the last size."""
    with guest(tmp_path, mode="gated") as rig:
        sleeping(rig)
        rig.ping()
        rig.close_gate(how)
        reader = start_in_vain(rig, "cat")
        signalled = start_anew(rig, "exec sleep 1000")
        until = 'until [[ $(stty size) == "31 100" ]]; do sleep 0.01; done'
        sized = rig.start(until, terminal={"rows": 24, "columns": 80})
        rig.input(reader, 0, b"one ")
        rig.input(reader, 4, b"two")
        rig.say(Kind.INPUT_END, reader)
        rig.signal(signalled, signal.SIGTERM)
        for rows in (30, 31):
            rig.link.send(frames.encode_resize(sized, rows, 100))
        rig.ping()
        rig.open_gate(how)

        assert rig.finish(reader).stdout == b"one two"
        ended = rig.finish(signalled).exited
        assert ended is not None
        assert (ended.ending, ended.value, ended.cause) == (Ending.SIGNAL, 15, Cause.ITSELF)
        assert rig.finish(sized).exited is not None


@pytest.mark.parametrize("how", HOWS)
def test_the_next_daemon_finds_a_command_that_waits(how: str, tmp_path: Path) -> None:
    """It is named as one that runs, goes on waiting, and takes its input from where it was."""
    with guest(tmp_path, mode="gated", grace_seconds=GRACE) as rig:
        sleeping(rig)
        rig.ping()
        rig.close_gate(how)
        number = start_in_vain(rig, "cat", label="mine")
        rig.input(number, 0, b"one ")
        rig.ping()
        rig.reconnect()
        state = rig.link.states[number]
        assert (state.exited, state.stdout_bytes, state.label) == (None, 0, b"mine")
        rig.ping()
        rig.open_gate(how)
        rig.link.until(lambda: rig.channels[number].taken == 4)
        rig.input(number, 4, b"two")
        rig.say(Kind.INPUT_END, number)

        assert rig.finish(number).stdout == b"one two"


def test_nobody_is_refused_while_no_daemon_is_there(tmp_path: Path) -> None:
    """A command whose time is over meanwhile is the next daemon's, and has it anew."""
    with guest(tmp_path, mode="gated, impatient", grace_seconds=GRACE) as rig:
        sleeping(rig)
        rig.close_gate("refused")
        number = start_anew(rig, "echo hi")
        rig.ping()
        rig.hide()
        rig.link.close()
        over = time.monotonic() + 0.5
        wait_until(lambda: time.monotonic() > over)
        rig.show()
        rig.link = rig.accept()
        rig.welcome(rig.link)
        assert rig.link.states[number].exited is None
        rig.open_gate("refused")
        for known in rig.link.states:
            rig.link.resume(known)

        assert rig.finish(number).stdout == b"hi\n"


def test_a_kept_command_that_was_killed_while_it_waited_is_kept(tmp_path: Path) -> None:
    """Its end is told to the next daemon, until it is released."""
    with guest(tmp_path, mode="gated", grace_seconds=GRACE) as rig:
        sleeping(rig)
        rig.close_gate("refused")
        number = start_in_vain(rig, "echo hi", keep=True, label="kept")
        rig.say(Kind.KILL, number)
        rig.finish(number)
        rig.reconnect()

        state = rig.link.states[number]
        assert state.exited is not None
        assert (state.exited.cause, state.label) == (Cause.KILLED, b"kept")
        rig.say(Kind.RELEASE, number)
        rig.reconnect()
        assert number not in rig.link.states
