"""Contexts in the guest: runs, pipes that outlive them, ends, and code that attacks its channel."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxd.code.events import EventParser, Result
from sandboxd.guest import frames
from sandboxd.guest.frames import (
    Cause,
    ContextPhase,
    ContextRun,
    Ending,
    Kind,
    Remark,
    RunEnd,
    StartFailure,
    Stream,
    Target,
)
from tests.guest.guest_rig import Channel, Rig, guest, wait_until


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with guest(tmp_path_factory.mktemp("contexts")) as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    yield shared
    shared.drop_context("main", is_forgotten=True)
    wait_until(lambda: shared.describe_context().phase == ContextPhase.ABSENT)


def result_of(channel: Channel) -> str:
    """The result of a run as JSON."""
    placed = EventParser().feed(channel.events)
    return next(one.event.json for one in placed if isinstance(one.event, Result))


def is_ok(channel: Channel) -> bool:
    assert channel.exited is not None, channel.refused
    return (channel.exited.ending, channel.exited.value) == (Ending.DONE, RunEnd.OK)


def test_variables_survive_and_runs_are_counted(rig: Rig) -> None:
    """Each run finds what the one before it left, and knows which run of which process it is."""
    first, second = rig.run_code("x = 41"), rig.run_code("x + 1")

    assert is_ok(first)
    assert is_ok(second)
    assert result_of(second) == "42"
    assert (first.context, second.context) == (ContextRun(1, 1), ContextRun(1, 2))
    state = rig.describe_context()
    assert (state.runs, state.phase, state.label) == (2, ContextPhase.IDLE, b"of main")
    assert state.version.startswith("3.")


def test_contexts_run_side_by_side(rig: Rig) -> None:
    """One that waits does not keep another from running."""
    slow = rig.start_code("import time\nprint('there', flush=True)\ntime.sleep(60)", "slow")
    rig.wait_for(slow, b"there")
    assert is_ok(rig.run_code("1"))
    rig.drop_context("slow", is_forgotten=True)
    ended = rig.finish(slow)
    assert ended.exited is not None
    assert (ended.exited.ending, ended.exited.value) == (Ending.SIGNAL, signal.SIGKILL)


def test_busy_context_refuses_another_run(rig: Rig) -> None:
    """The daemon queues; a second run that comes nevertheless does not disturb the first."""
    running = rig.start_code(
        "input_never_comes = 1\nimport time\nprint(1, flush=True)\ntime.sleep(60)"
    )
    rig.wait_for(running, b"1")
    second = rig.run_code("2")
    assert second.refused is not None
    assert "busy" in second.refused
    rig.signal(running, signal.SIGINT, Target.LEADER)
    ended = rig.finish(running).exited
    assert ended is not None
    assert (ended.ending, ended.value) == (Ending.DONE, RunEnd.INTERRUPTED)


def test_events_never_come_before_earlier_text(rig: Rig) -> None:
    """What was printed before a display is passed on before it, however much it is."""
    code = "for n in range(90):\n    print('x' * 5000, n)\n    display(n)\n"
    channel = rig.run_code(code)
    printed = displayed = 0
    assert is_ok(channel)
    for stream, data in channel.order:
        if stream is Stream.STDOUT:
            printed += data.count(b"\n")
        else:
            displayed += data.count(b"text/plain")
            assert displayed <= printed
    assert (printed, displayed) == (90, 90)


def test_more_output_than_the_window_holds(rig: Rig) -> None:
    """A run with much output ends when all of it was taken, and the next one has none of it."""
    channel = rig.run_code("import sys; n = sys.stdout.write('y' * (5 << 20))")
    assert is_ok(channel)
    assert len(channel.stdout) == 5 << 20
    assert rig.run_code("print('next')").stdout == b"next\n"


def test_output_between_runs_is_not_that_of_the_next(rig: Rig) -> None:
    """What a thread writes when no run is under way is found in the description of the context."""
    code = (
        "import threading, time\n"
        "def later():\n"
        "    time.sleep(0.2)\n"
        "    print('from behind', flush=True)\n"
        "threading.Thread(target=later).start()\n"
    )
    assert is_ok(rig.run_code(code))
    wait_until(lambda: b"from behind" in rig.describe_context().background)
    assert rig.run_code("print('mine')").stdout == b"mine\n"


@pytest.mark.parametrize(
    ("code", "ending", "value"),
    [
        ("import os; os._exit(3)", Ending.CODE, 3),
        ("import os; os.kill(os.getpid(), 9)", Ending.SIGNAL, 9),
        ("import os; os.abort()", Ending.SIGNAL, 6),
    ],
)
def test_process_that_ends_is_reported_as_it_ended(
    code: str, ending: Ending, value: int, rig: Rig
) -> None:
    """A run whose process ends has its true status, and the next one a fresh process."""
    ended = rig.run_code(f"x = 1\n{code}")
    assert ended.exited is not None
    assert ended.exited[:3] == (ending, Cause.ITSELF, value)
    assert not ended.remarks & Remark.BROKE_CHANNEL
    assert rig.describe_context().phase == ContextPhase.LOST
    following = rig.run_code("'x' in globals()")
    assert following.context == ContextRun(2, 1)
    assert result_of(following) == "false"


def test_generation_is_not_swapped_silently(rig: Rig) -> None:
    """A run that counts on a process which is gone is refused; one that asks for any is not."""
    assert is_ok(rig.run_code("x = 1", generation=1))
    rig.run_code("import os; os._exit(0)")
    refused = rig.run_code("x", generation=1)
    assert refused.failure is StartFailure.CONTEXT_LOST
    assert rig.run_code("2", generation=2).context == ContextRun(2, 1)


def test_end_between_runs_is_reported_once(rig: Rig) -> None:
    """A context that another command kills is described as lost, unasked."""
    assert is_ok(rig.run_code("import os; print(os.getpid())"))
    rig.link.contexts.clear()
    pid = result_of(rig.run_code("os.getpid()"))
    rig.run(f"kill -9 {pid}")
    rig.link.until(lambda: rig.link.contexts)
    state = rig.link.contexts[0]
    assert (state.phase, state.ending, state.value) == (ContextPhase.LOST, Ending.SIGNAL, 9)


ATTACKS = {
    "closes everything": "import os; os.closerange(3, 1024)\nimport time; time.sleep(60)",
    "forges the end": (
        "import os, struct\n"
        "for d in range(3, 1024):\n"
        "    try:\n"
        "        os.write(d, struct.pack('!BBI', 2, 0, 99))\n"
        "    except OSError:\n"
        "        pass\n"
        "import time; time.sleep(60)"
    ),
    "garbage everywhere": (
        "import os\n"
        "for d in range(3, 1024):\n"
        "    try:\n"
        "        os.write(d, b'garbage' * 100)\n"
        "    except OSError:\n"
        "        pass\n"
        "import time; time.sleep(60)"
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_context_that_breaks_its_channel_is_killed(attack: str, rig: Rig) -> None:
    """It is lost, and says why; the guest answers and the next run works."""
    ended = rig.run_code(ATTACKS[attack])
    assert ended.exited is not None
    assert (ended.exited.ending, ended.exited.value) == (Ending.SIGNAL, signal.SIGKILL)
    assert ended.remarks & Remark.BROKE_CHANNEL
    rig.ping()
    assert is_ok(rig.run_code("1"))


def test_context_that_closes_its_channel_between_runs_gets_no_more(rig: Rig) -> None:
    """Its process lives on for a moment; a run that comes then gets a fresh one, and the guest does
    not stumble over the closed channel."""
    # It is stopped before it notices: the thread does not let go of the interpreter in between.
    code = (
        "import ctypes, os, sys, threading, time\n"
        "libc = ctypes.PyDLL(None)\n"
        "def later():\n"
        "    time.sleep(0.1)\n"
        "    sys.setswitchinterval(100)\n"
        "    for d in range(3, 1024): libc.shutdown(d, 2)\n"
        "    os.kill(os.getpid(), 19)\n"
        "threading.Thread(target=later).start()"
    )
    assert is_ok(rig.run_code(code))
    following = rig.run_code("1")
    while following.context is not None and following.context.generation == 1:
        following = rig.run_code("1")

    assert is_ok(following)
    assert following.context == ContextRun(2, 1)
    rig.ping()


def test_stopped_parent_and_context_do_not_stop_the_guest(tmp_path: Path) -> None:
    """Code that stops the parent, the context forked ahead and itself keeps nobody else waiting."""
    with guest(tmp_path) as rig:
        assert is_ok(rig.run_code("1"))
        parent = rig.link.code_parents[0]
        stopped = rig.start_code("import os\nos.kill(os.getpid(), 19)")
        rig.run(f"kill -STOP $(pgrep -x python3); kill -STOP {parent}")
        rig.ping()
        assert rig.run("echo fine").stdout == b"fine\n"
        late = rig.start_code("2", "late")
        rig.ping()
        for number in (stopped, late):
            rig.kill(number, report_seconds=0.05)
            ended = rig.finish(number).exited
            assert ended is not None
            assert ended.cause == Cause.KILLED
        assert is_ok(rig.run_code("3", "new"))


def test_killed_parent_is_replaced(tmp_path: Path) -> None:
    """Contexts live on without it, and the next one gets another."""
    with guest(tmp_path) as rig:
        assert is_ok(rig.run_code("x = 1"))
        rig.run(f"kill -9 {rig.link.code_parents[0]}")
        assert is_ok(rig.run_code("2", "other"))
        assert len(rig.link.code_parents) == 2


def test_kill_of_a_command_spares_contexts(tmp_path: Path) -> None:
    """Neither a command that is killed nor a context takes others along."""
    with guest(tmp_path) as rig:
        assert is_ok(rig.run_code("x = 1"))
        assert is_ok(rig.run_code("y = 1", "other"))
        number = rig.start("sleep 60 & setsid sleep 60 & echo there; wait")
        rig.wait_for(number, b"there")
        rig.kill(number, report_seconds=0.05)
        rig.finish(number)
        forking = (
            "import os, time\n"
            "for _ in range(20):\n"
            "    if not os.fork():\n"
            "        os.setsid()\n"
            "        time.sleep(60)\n"
            "        os._exit(0)\n"
            "print('there', flush=True)\n"
            "time.sleep(60)"
        )
        before = int(rig.run("pgrep -c -x python3").stdout)
        running = rig.start_code(forking, "other")
        rig.wait_for(running, b"there")
        rig.kill(running, report_seconds=0.05)
        assert rig.finish(running).exited is not None
        assert result_of(rig.run_code("x + 1")) == "2"
        assert rig.run("pgrep -c -x sleep || true").stdout == b"0\n"
        assert int(rig.run("pgrep -c -x python3").stdout) <= before


def test_daemon_that_is_replaced_mid_run_loses_nothing(tmp_path: Path) -> None:
    """The next daemon gets every byte of all three streams, the contexts, and the variables."""
    code = (
        "import time\nx = 41\n"
        "for n in range(200):\n    print(n)\n    debug(n)\n    time.sleep(0.005)\n"
    )
    with guest(tmp_path, grace_seconds=30.0) as rig:
        number = rig.start_code(code, keep=True, label="mine")
        rig.wait_for(number, b"20\n")
        rig.reconnect()
        rig.wait_for(number, b"100\n")
        rig.reconnect()
        channel = rig.finish(number)
        assert is_ok(channel)
        assert channel.stdout == b"".join(b"%d\n" % n for n in range(200))
        assert sum(1 for _ in EventParser().feed(channel.events)) == 200
        assert [state.name for state in rig.link.contexts] == ["main"]
        assert channel.context == ContextRun(1, 1)
        assert result_of(rig.run_code("x + 1")) == "42"


def test_deadline_without_a_daemon_interrupts_first(tmp_path: Path) -> None:
    """A guest that is alone ends a run that takes too long, and its context keeps its variables."""
    with guest(tmp_path, grace_seconds=60.0) as rig:
        number = rig.start_code("x = 7\nwhile True: pass", keep=True, timeout=0.5)
        rig.link.until(lambda: rig.channels[number].context)
        rig.hide()
        rig.link.close()
        rig.show()
        rig.link = rig.accept()
        rig.welcome(rig.link)
        for known in rig.link.states:
            rig.link.resume(known)
        ended = rig.finish(number).exited
        assert ended is not None
        assert ended[:3] == (Ending.DONE, Cause.DEADLINE, RunEnd.INTERRUPTED)
        assert result_of(rig.run_code("x")) == "7"


def test_environment_and_directory_are_those_of_the_context(rig: Rig) -> None:
    """A context begins in the workspace with the variables of commands and its own."""
    assert result_of(rig.run_code("import os; os.getcwd()")) == f'"{rig.workspace}"'
    assert result_of(rig.run_code("os.environ['GIVEN']")) == '"by the daemon"'


def test_no_context_before_the_daemon_has_placed_the_parent(tmp_path: Path) -> None:
    """Contexts are born where their limits are, or not at all."""
    with guest(tmp_path) as rig:
        rig.link.answers_place = False
        number = rig.start_code("1")
        rig.link.until(lambda: rig.link.code_parents)
        rig.ping()
        assert not rig.channels[number].is_over
        rig.link.send(frames.encode(Kind.CODE_PARENT_PLACED))
        assert is_ok(rig.finish(number))
        assert os.getpid() != rig.link.code_parents[0]
