"""What earlier commands left running is reported, and does not keep later ones from running."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.guest.frames import Cause, Remark

from .guest_rig import Rig, guest, wait_until

WHEN_LEFT = """
import os, signal, time
os.setsid()
while os.getppid() != 1:
    time.sleep(0.001)
open("ready", "w").close()
"""
STAY = WHEN_LEFT + "time.sleep(1000)"
HOP = (
    WHEN_LEFT
    + """
while True:
    time.sleep(0.002)
    if os.fork():
        os._exit(0)
"""
)
KEEP_STOPPING = (
    WHEN_LEFT
    + """
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) not in (1, os.getpid()):
            try:
                os.kill(int(name), signal.SIGSTOP)
            except OSError:
                pass
"""
)


REACH = """
import os, time
ours = {os.getpid(), os.getppid(), 1}
while not (others := {int(name) for name in os.listdir("/proc") if name.isdigit()} - ours):
    time.sleep(0.001)
for pid in others:
    for name in ("fd/9", "fd/3", "fd/1", "mem"):
        try:
            os.close(os.open(f"/proc/{pid}/{name}", os.O_RDONLY))
            print("reached", name, open(f"/proc/{pid}/cmdline").read().split(chr(0))[:3])
        except PermissionError:
            print("refused")
        except OSError:
            pass
"""


def leave_behind(rig: Rig, program: str) -> None:
    (rig.workspace / "left.py").write_text(program)
    rig.run("python3 left.py >/dev/null 2>&1 </dev/null &")
    wait_until((rig.workspace / "ready").exists)


def test_a_command_alone_has_no_remarks(tmp_path: Path) -> None:
    """Neither its own processes nor the shell that waits count."""
    with guest(tmp_path) as rig:
        for line in ("true", "(true); true", "sleep 0.1", "true"):
            assert rig.run(line).remarks == Remark(0), line


def test_a_running_command_is_no_company(tmp_path: Path) -> None:
    """Commands that run side by side are known to their caller."""
    with guest(tmp_path) as rig:
        rig.start("(sleep 1000)")
        rig.run("true")

        assert rig.run("true").remarks == Remark(0)


@pytest.mark.parametrize("program", [STAY, HOP], ids=["stays", "hops"])
def test_what_was_left_running_is_reported(tmp_path: Path, program: str) -> None:
    """With every command that has such company, also if the company changes its pid; not with one
    that comes when it is gone."""
    with guest(tmp_path) as rig:
        leave_behind(rig, program)
        seen = [rig.run("true").remarks for _ in range(5)]
        rig.run("kill -9 -1")

        assert seen == 5 * [Remark.COMPANY]
        wait_until(lambda: rig.run("true").remarks == Remark(0))


def test_a_daemon_of_an_earlier_release_gets_no_remarks(tmp_path: Path) -> None:
    """It would take them for a breach of the protocol."""
    with guest(tmp_path, takes_remarks=False) as rig:
        leave_behind(rig, STAY)
        done = rig.run("true")

        assert done.exited is not None
        assert done.remarks == Remark(0)


def test_company_that_stops_every_command_is_ended(tmp_path: Path) -> None:
    """A command that it keeps from running ends late, and says so; the next one is alone."""
    with guest(tmp_path, mode="stopped again") as rig:
        leave_behind(rig, KEEP_STOPPING)
        wait_until(lambda: is_waiting_shell_stopped(rig))
        number = rig.start("echo ran")
        rig.kill(number, report_seconds=1.0)
        hindered = rig.finish(number)
        after = rig.run("echo ran")

        assert hindered.exited is not None
        assert hindered.exited.cause == Cause.KILLED
        assert hindered.remarks == Remark.COMPANY | Remark.HINDERED
        assert (after.stdout, after.remarks) == (b"ran\n", Remark(0))


def is_waiting_shell_stopped(rig: Rig) -> bool:
    (guest_pid,) = children(rig.process.pid)
    states = [Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1] for pid in children(guest_pid)]
    return any(state.split()[0] == "T" for state in states)


def children(pid: int) -> list[int]:
    """Those of all its threads."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(word) for path in lists for word in path.read_text().split()]


def test_a_command_runs_once_its_company_is_ended(tmp_path: Path) -> None:
    """A command that does not begin for long, as its shell is stopped again whenever it is woken,
    is freed from what stops it."""
    with guest(tmp_path, mode="stopped again") as rig:
        leave_behind(rig, KEEP_STOPPING)
        wait_until(lambda: is_waiting_shell_stopped(rig))
        done = rig.run("echo ran")

        assert done.stdout == b"ran\n"
        assert done.remarks == Remark.COMPANY | Remark.HINDERED


@pytest.mark.parametrize("with_stdin", [False, True], ids=["waiting shell", "new shell"])
def test_a_running_command_does_not_reach_the_shell_that_waits(
    tmp_path: Path, with_stdin: bool
) -> None:
    """Neither one that ran in the waiting shell before it, nor one that runs beside it."""
    with guest(tmp_path) as rig:
        (rig.workspace / "reach.py").write_text(REACH)
        looks = [rig.run("python3 reach.py; true", stdin=with_stdin) for _ in range(5)]

        for look in looks:
            assert set(look.stdout.splitlines()) == {b"refused"}, look.stderr


@pytest.mark.parametrize("with_stdin", [False, True], ids=["used", "not used"])
def test_a_shell_that_was_started_late_is_no_company(tmp_path: Path, with_stdin: bool) -> None:
    """It is the guest's own, although it is not known when the processes are looked at; also while
    it is ending, as a command needs another one."""
    with guest(tmp_path, mode="gated") as rig:
        rig.close_gate("late_after")
        number = rig.start("until [ -e stop ]; do sleep 0.01; done")
        wait_until(lambda: rig.spawned == 2)
        (rig.workspace / "stop").touch()
        rig.finish(number)
        rig.ping()
        rig.open_gate("late_after")

        assert rig.run("true", stdin=with_stdin).remarks == Remark(0)
