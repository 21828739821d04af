"""Deadlines that hold without a daemon: the guest knows them too."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from sandboxd.guest.frames import Cause, Ending

from .guest_rig import Rig, guest, wait_until

GRACE = 30.0
TIMEOUT = 0.2


def stubborn(mark: str) -> str:
    """A command whose processes carry a mark and do not end by themselves."""
    return f"trap '' TERM; (exec -a {mark} sleep 1000) & echo on; wait; wait # {mark}"


def marked(mark: str) -> list[str]:
    """Pids on the host of the processes that carry the mark."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:
            continue  # ended meanwhile
    return found


def leave_to_the_guest(rig: Rig) -> int:
    """Start a command with a deadline, go away, and come back when its processes are gone."""
    mark = uuid.uuid4().hex
    number = rig.start(stubborn(mark), timeout=TIMEOUT, keep=True)
    rig.wait_for(number, b"on\n")
    wait_until(lambda: len(marked(mark)) >= 2)
    rig.hide()
    rig.link.close()
    wait_until(lambda: not marked(mark))
    rig.show()
    return number


def test_a_deadline_holds_while_the_daemon_is_gone(tmp_path: Path) -> None:
    """The command ends with all its processes, and the next daemon learns why."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        number = leave_to_the_guest(rig)
        rig.reconnect()
        state = rig.link.states[number]
        done = rig.finish(number)

        assert done.exited is not None
        assert (done.exited.ending, done.exited.value) == (Ending.SIGNAL, 9)
        assert state.exited == done.exited
        assert done.exited.cause == Cause.DEADLINE
        assert done.stdout == b"on\n"


def test_a_daemon_of_an_earlier_release_gets_a_cause_that_it_knows(tmp_path: Path) -> None:
    """It takes the end for one that its predecessor asked for."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        number = leave_to_the_guest(rig)
        rig.link = rig.accept()
        rig.welcome(rig.link, takes_remarks=False)
        rig.link.resume(number)
        done = rig.finish(number)

        assert done.exited is not None
        assert done.exited.cause == Cause.KILLED


@pytest.mark.parametrize(("takes_remarks", "cause"), [(True, "DEADLINE"), (False, "KILLED")])
def test_a_deadline_holds_while_the_daemon_is_stopped(
    tmp_path: Path, takes_remarks: bool, cause: str
) -> None:
    """The link is open and no KILL comes: the guest ends the command with all its processes."""
    mark = uuid.uuid4().hex
    with guest(tmp_path, takes_remarks=takes_remarks) as rig:
        done = rig.finish(rig.start(stubborn(mark), timeout=TIMEOUT))

        assert done.exited is not None
        assert done.exited.cause.name == cause
        assert not marked(mark)


def test_other_commands_go_on(tmp_path: Path) -> None:
    """A deadline concerns one command."""
    with guest(tmp_path) as rig:
        other = rig.start("until [ -e stop ]; do sleep 0.01; done; echo done", timeout=60)
        unlimited = rig.start("until [ -e stop ]; do sleep 0.01; done; echo done")
        ended = rig.finish(rig.start("sleep 1000", timeout=TIMEOUT))
        (rig.workspace / "stop").touch()

        assert ended.exited is not None
        assert ended.exited.cause == Cause.DEADLINE
        assert rig.finish(other).stdout == b"done\n"
        assert rig.finish(unlimited).stdout == b"done\n"


def test_the_daemons_kill_counts(tmp_path: Path) -> None:
    """While a daemon serves, its clock decides."""
    with guest(tmp_path) as rig:
        number = rig.start("echo on; sleep 1000", timeout=TIMEOUT)
        rig.wait_for(number, b"on\n")
        rig.kill(number, report_seconds=1.0)
        done = rig.finish(number)

        assert done.exited is not None
        assert done.exited.cause == Cause.KILLED
