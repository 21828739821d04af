"""A guest ends what an ended exec has left, when the daemon asks for that."""

from __future__ import annotations

from pathlib import Path

from sandboxd.guest.commands.ended_execs import MAX_FAILED
from sandboxd.guest.frames import Cause, Ending, RunEnd

from .guest_rig import Rig, guest

LEAVES = "sleep 60 & setsid sleep 60 & (setsid sh -c 'sleep 60 & wait' &) ; echo there; exit 1"


def sleepers(rig: Rig) -> int:
    return int(rig.run("pgrep -c -x sleep || true").stdout)


def failed(rig: Rig, line: str = LEAVES, **more: object) -> int:
    number = rig.start(line, **more)  # type: ignore[arg-type]
    exited = rig.finish(number).exited
    assert exited is not None
    assert (exited.ending, exited.cause, exited.value) == (Ending.CODE, Cause.ITSELF, 1)
    return number


def test_what_it_left_is_gone_and_nothing_else(tmp_path: Path) -> None:
    """In whatever session and of whatever parent it is. What is older, what runs beside it and what
    began meanwhile is spared."""
    with guest(tmp_path) as rig:
        rig.run("setsid sleep 60 >/dev/null 2>&1 & exit 0")
        beside = rig.start("sleep 60 & echo up; read line; echo on; exit 3", stdin=True)
        rig.wait_for(beside, b"up")
        number = failed(rig)
        later = rig.start("sleep 60 & echo up; wait")
        rig.wait_for(later, b"up")
        assert sleepers(rig) == 6
        assert rig.sweep(number)
        assert sleepers(rig) == 3
        rig.input(beside, 0, b"\n")
        exited = rig.finish(beside).exited
        assert exited is not None
        assert (exited.cause, exited.value) == (Cause.ITSELF, 3)
        assert rig.sweep(number)


def test_next_daemon_can_ask_as_well(tmp_path: Path) -> None:
    """What was kept of the exec, and what was not, makes no difference."""
    with guest(tmp_path, grace_seconds=30.0) as rig:
        numbers = failed(rig, keep=True, label="kept"), failed(rig)
        rig.reconnect()
        for number in numbers:
            assert rig.sweep(number)
        assert sleepers(rig) == 0


def test_what_is_not_known_is_not_swept(tmp_path: Path) -> None:
    """A command that succeeded, one that never was, and one that many have failed since."""
    with guest(tmp_path) as rig:
        number = rig.start("setsid sleep 60 >/dev/null 2>&1 & exit 0")
        rig.finish(number)
        oldest = failed(rig, "exit 1")
        for _ in range(MAX_FAILED):
            failed(rig, "exit 1")
        assert [rig.sweep(one) for one in (number, 4711, oldest)] == [False] * 3
        assert rig.sweep(oldest + 1)
        assert sleepers(rig) == 1


def test_fork_bomb_that_was_left_is_ended(tmp_path: Path) -> None:
    """With everything, if it takes that: other commands end as swept, and the guest serves on."""
    bomb = "import os\nwhile True:\n    if os.fork(): os._exit(0)\n    os.setsid()\n"
    with guest(tmp_path) as rig:
        number = failed(rig, f"python3 -c '{bomb}' >/dev/null 2>&1 & exit 1")
        assert rig.sweep(number)
        assert int(rig.run("pgrep -c -x python3 || true").stdout) <= 1
        assert rig.run("echo on").stdout == b"on\n"


def test_context_and_what_earlier_code_started_live_on(tmp_path: Path) -> None:
    """Of a run that failed only what it has started itself is ended."""
    sleep = "subprocess.Popen(['sleep', '60'], start_new_session={})"
    with guest(tmp_path) as rig:
        rig.run_code(f"import subprocess\na, b = {sleep.format(False)}, {sleep.format(True)}")
        number = rig.start_code(f"c, d = {sleep.format(False)}, {sleep.format(True)}\n1 / 0")
        exited = rig.finish(number).exited
        assert exited is not None
        assert (exited.ending, exited.value) == (Ending.DONE, RunEnd.RAISED)
        assert rig.sweep(number)
        look = rig.run_code("print(*(p.poll() for p in (a, b, c, d)))")
        assert look.stdout == b"None None -9 -9\n"


def test_code_of_a_lost_context_leaves_nothing(tmp_path: Path) -> None:
    """Nothing can use what it has started any longer."""
    with guest(tmp_path) as rig:
        code = "import os, subprocess\nsubprocess.Popen(['sleep', '60'])\nos.kill(os.getpid(), 9)"
        number = rig.start_code(code)
        rig.finish(number)
        assert rig.sweep(number)
        assert sleepers(rig) == 0
