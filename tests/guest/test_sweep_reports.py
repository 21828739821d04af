"""A guest reports commands that it was asked to end for as long as they have not ended."""

from __future__ import annotations

from pathlib import Path

from sandboxd.guest import frames
from sandboxd.guest.frames import Cause, Kind, Stream

from .guest_rig import Rig, guest

PERIOD = 0.02
SLOW = "seq 1 400000"
"""Does not end before its output is taken, also when it is killed."""


def started(rig: Rig) -> int:
    """A command that will take a while to end."""
    rig.acknowledge_nothing()
    number = rig.start(SLOW)
    rig.link.until(lambda: rig.channels[number].window <= 0)
    return number


def let_end(rig: Rig, number: int) -> None:
    rig.link.acknowledge(number, Stream.STDOUT, 2 * frames.PIPES_COST)
    exited = rig.finish(number).exited
    assert exited is not None
    assert (exited.cause, exited.value) == (Cause.KILLED, 9)


def test_kill_that_takes_long_is_reported_until_the_end(tmp_path: Path) -> None:
    """Reports are numbered from 1, the exit is the last word, and the guest serves on."""
    with guest(tmp_path) as rig:
        number = started(rig)
        rig.kill(number, report_seconds=PERIOD)
        rig.link.until(lambda: rig.channels[number].sweep_reports >= 3)
        let_end(rig, number)
        last = len(rig.link.log)

        assert rig.run("echo on").stdout == b"on\n"
        assert Kind.SWEEPING not in [kind for kind, _ in rig.link.log[last:]]


def test_kill_of_a_short_command_is_not_reported(tmp_path: Path) -> None:
    """A command that ends sooner than the first report is due costs no report."""
    with guest(tmp_path) as rig:
        number = rig.start("echo up; sleep 60")
        rig.wait_for(number, b"up\n")
        rig.kill(number, report_seconds=60.0)

        assert rig.finish(number).sweep_reports == 0


def test_kill_by_a_daemon_that_asks_for_no_reports_has_none(tmp_path: Path) -> None:
    """An older daemon would take them for a lie."""
    with guest(tmp_path) as rig:
        unreported, reported = started(rig), started(rig)
        rig.say(Kind.KILL, unreported)
        rig.kill(reported, report_seconds=PERIOD)
        rig.link.until(lambda: rig.channels[reported].sweep_reports >= 3)

        assert rig.channels[unreported].sweep_reports == 0
        let_end(rig, unreported)
        let_end(rig, reported)


def test_next_daemon_has_no_reports_of_a_kill_that_it_did_not_ask_for(tmp_path: Path) -> None:
    """Each daemon hears of its own kills, from the first report on."""
    with guest(tmp_path, grace_seconds=20.0) as rig:
        number, other = started(rig), started(rig)
        rig.kill(number, report_seconds=PERIOD)
        rig.kill(other, report_seconds=PERIOD)
        rig.link.until(lambda: rig.channels[number].sweep_reports >= 2)
        rig.reconnect()
        rig.link.until(lambda: min(rig.channels[n].window for n in (number, other)) <= 0)
        rig.kill(number, report_seconds=PERIOD)
        rig.link.until(lambda: rig.channels[number].sweep_reports >= 3)

        assert rig.channels[other].sweep_reports == 0


def test_kill_that_arrives_while_a_shell_is_moved_is_reported(tmp_path: Path) -> None:
    """Nothing is served while the guest waits for the daemon, but it is not taken for one that
    hangs."""
    with guest(tmp_path, asks_to_place=True) as rig:
        number = rig.start("echo up; sleep 60")
        rig.wait_for(number, b"up\n")
        rig.link.answers_place = False
        places = rig.link.places
        rig.start("true", stdin=True)  # has a shell started for it, and moved
        rig.link.until(lambda: rig.link.places > places)
        rig.kill(number, report_seconds=PERIOD)
        rig.link.until(lambda: rig.channels[number].sweep_reports >= 2)
        assert not rig.channels[number].is_over
        rig.link.answers_place = True
        rig.link.send(frames.encode(Kind.PLACED))

        exited = rig.finish(number).exited
        assert exited is not None
        assert exited.cause == Cause.KILLED
