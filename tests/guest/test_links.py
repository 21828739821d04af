"""A guest outlives the daemon it serves, and the next one finds everything."""

from __future__ import annotations

import random
from collections import deque
from pathlib import Path

import pytest

from sandboxd.guest import frames
from sandboxd.guest.frames import Cause, Ending, Kind, Stream

from .guest_rig import PATIENCE, Closed, Rig, guest, wait_until

GRACE = 15.0


def test_a_plain_command(tmp_path: Path) -> None:
    """A command's output and exit code arrive, and nothing of it stays."""
    with guest(tmp_path) as rig:
        done = rig.run("echo out; echo err >&2; exit 3")

        assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
        assert done.exited is not None
        assert (done.exited.ending, done.exited.value) == (Ending.CODE, 3)
        assert rig.link.hello == (frames.PROTOCOL_VERSION, 1, False)


def test_without_grace_a_guest_ends_with_its_daemon(tmp_path: Path) -> None:
    """A daemon that sets no grace time leaves no sandbox behind."""
    with guest(tmp_path) as rig:
        rig.start("sleep 1000")
        rig.ping()
        rig.link.close()

        assert rig.process.wait(PATIENCE) == 0


def test_a_daemon_that_does_not_come_back_leaves_nothing(tmp_path: Path) -> None:
    """After the grace time the guest ends, and every process with it."""
    with guest(tmp_path, grace_seconds=0.5) as rig:
        number = rig.start("sleep 1000 & echo on; wait")
        rig.wait_for(number, b"on\n")
        rig.hide()
        rig.link.close()

        assert rig.process.wait(PATIENCE) == 0


def test_the_grace_time_runs_until_a_welcome(tmp_path: Path) -> None:
    """A listener that takes the link and says nothing does not keep a sandbox alive."""
    with guest(tmp_path, grace_seconds=0.5) as rig:
        rig.link.close()
        rig.link = rig.accept()

        with pytest.raises(Closed):
            rig.link.until(lambda: False)
        assert rig.process.wait(PATIENCE) == 0


def test_a_running_command_goes_on(tmp_path: Path) -> None:
    """A command that runs while the daemon is away is named after it, with its label."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        number = rig.start("echo one; exec sleep 1000", label="ä label")
        rig.wait_for(number, b"one\n")
        rig.reconnect()

        assert rig.link.hello == (frames.PROTOCOL_VERSION, 1, True)
        state = rig.link.states[number]
        assert (state.exited, state.stdout_bytes, state.label) == (None, 4, "ä label".encode())
        assert len(rig.link.states) == 1


def test_an_exit_while_the_daemon_is_away(tmp_path: Path) -> None:
    """Output and exit of a command that ended meanwhile are told to the next daemon."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        number = rig.start("sleep 0.2; echo late; touch done; exit 7")
        rig.ping()
        rig.hide()
        rig.link.close()
        wait_until((rig.workspace / "done").exists)
        rig.show()
        rig.reconnect()
        done = rig.finish(number)

        assert done.stdout == b"late\n"
        assert done.exited is not None
        assert done.exited.value == 7


def test_a_kept_exec_stays_until_it_is_released(tmp_path: Path) -> None:
    """An ended exec that is to be kept is told again after each broken link, until RELEASE."""
    rig: Rig
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        rig.acknowledge_nothing()
        number = rig.start("echo kept; echo this >&2; exit 4", keep=True, label="k")
        passing = rig.start("echo gone")
        rig.finish(number)
        rig.finish(passing)
        for _ in range(2):
            del rig.channels[number]
            rig.reconnect()
            assert set(rig.link.states) == {number}
            state = rig.link.states[number]
            assert state.exited is not None
            assert (state.exited.value, state.label) == (4, b"k")
            assert rig.finish(number).stdout == b"kept\n"
            assert rig.channels[number].stderr == b"this\n"
        rig.say(Kind.RELEASE, number)
        rig.ping()
        rig.reconnect()

        assert rig.link.states == {}


def test_acknowledged_output_is_not_sent_again(tmp_path: Path) -> None:
    """What the daemon says it has is left out, in the middle of a piece too."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        rig.acknowledge_nothing()
        number = rig.start("printf 0123456789", keep=True)
        rig.finish(number)
        del rig.channels[number].output[Stream.STDOUT][4:]
        rig.channels[number].exited = None
        rig.reconnect()

        assert rig.finish(number).stdout == b"0123456789"


def test_output_that_was_given_up_is_a_gap(tmp_path: Path) -> None:
    """A daemon that asks for acknowledged bytes is told that they are gone, and gets the rest."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        number = rig.start("echo one; read -r line; echo two", stdin=True)
        rig.wait_for(number, b"one\n")
        rig.ping()
        rig.channels.clear()
        rig.reconnect()
        rig.wait_for(number, b"????")
        rig.input(number, 0, b"\n")

        assert rig.finish(number).stdout == b"????two\n"


def test_a_window_bounds_what_is_read_meanwhile(tmp_path: Path) -> None:
    """Without a daemon a command is read up to its window, then it waits; nothing is lost."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        rig.acknowledge_nothing()
        number = rig.start("seq 1 400000; seq 1 1000 >&2")
        rig.link.until(lambda: rig.channels[number].window < frames.WINDOW)
        rig.reconnect()
        state = rig.link.states[number]
        assert state.stdout_bytes + state.stderr_bytes <= frames.WINDOW
        rig.link.acks = True
        rig.link.acknowledge(number, Stream.STDOUT, 0)
        rig.link.until(lambda: rig.channels[number].window <= 0 or rig.channels[number].is_over)
        missing = frames.WINDOW - rig.channels[number].window
        rig.link.acknowledge(number, Stream.STDOUT, missing)
        done = rig.finish(number)

        assert done.stdout == b"".join(b"%d\n" % i for i in range(1, 400001))
        assert done.stderr == b"".join(b"%d\n" % i for i in range(1, 1001))


def test_a_daemon_killed_with_unread_data(tmp_path: Path) -> None:
    """A link that is reset, not closed, is dialled again like any other."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        number = rig.start("seq 1 200000")
        rig.link.read(100)
        rig.reconnect()  # much is unread, so the guest sees a reset
        done = rig.finish(number)

        assert done.stdout == b"".join(b"%d\n" % i for i in range(1, 200001))


def test_links_that_break_at_any_point(tmp_path: Path) -> None:
    """200 broken links in the midst of output on both streams: not a byte is lost or doubled."""
    chance = random.Random(4)
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        line = "i=0; while [ ! -e stop ]; do i=$((i+1)); echo $i; echo err $i >&2; done; exit 5"
        number = rig.start(line, keep=True)
        for _ in range(200):
            rig.acks = chance.random() < 0.7
            for _ in range(chance.randrange(6)):
                if rig.channels[number].window <= 0:
                    break  # it waits for an ACK that this daemon does not give
                rig.link.read(chance.choice([1, 7, 13, 100, 5000, 1 << 16]))
            rig.reconnect()
        (rig.workspace / "stop").touch()
        rig.acks = True
        rig.reconnect()
        done = rig.finish(number)

        assert done.exited is not None
        assert done.exited.value == 5
        count = done.stdout.count(b"\n")
        assert done.stdout == b"".join(b"%d\n" % i for i in range(1, count + 1))
        assert done.stderr == b"".join(b"err %d\n" % i for i in range(1, count + 1))


def test_a_kill_after_the_link_came_back(tmp_path: Path) -> None:
    """A resumed exec can be killed, with all its processes."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        number = rig.start("setsid sleep 1000 & echo on; sleep 1000")
        rig.wait_for(number, b"on\n")
        rig.reconnect()
        rig.say(Kind.KILL, number)
        done = rig.finish(number)

        assert done.exited is not None
        assert (done.exited.cause, done.exited.value) == (Cause.KILLED, 9)
        assert rig.run("pgrep -c sleep").stdout == b"0\n"


def test_new_settings_are_taken(tmp_path: Path) -> None:
    """The next daemon's environment is that of later commands."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        assert rig.run("echo $GIVEN $IN_IMAGE").stdout == b"by the daemon yes\n"
        rig.link.close()
        rig.link = rig.accept()
        rig.welcome(rig.link, env={"GIVEN": "anew"})

        assert rig.run("echo $GIVEN $IN_IMAGE").stdout == b"anew yes\n"


def test_settings_need_not_be_given_again(tmp_path: Path) -> None:
    """Without new ones the old settings stay in force."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        for _ in range(2):
            rig.link.close()
            rig.link = rig.accept()
            rig.link.send(frames.encode(Kind.WELCOME, payload=b"{}"))
            rig.link.until(lambda: rig.link.is_ready)

        assert rig.run("echo $GIVEN; pwd").stdout == f"by the daemon\n{rig.workspace}\n".encode()


def test_a_daemon_that_hangs_up_before_the_welcome(tmp_path: Path) -> None:
    """It is as good as none: the guest dials on."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        number = rig.start("echo on; exec sleep 1000")
        rig.wait_for(number, b"on\n")
        for _ in range(3):
            rig.link.close()
            rig.link = rig.accept()
        rig.reconnect()

        assert set(rig.link.states) == {number}


def test_a_shell_that_cannot_be_placed_is_not_used(tmp_path: Path) -> None:
    """A link that breaks while a shell waits to be moved ends neither guest nor commands, and the
    command that was to run in that shell does not."""
    with guest(tmp_path, grace_seconds=GRACE, asks_to_place=True) as rig:
        running = rig.start("echo on; exec sleep 1000")
        rig.wait_for(running, b"on\n")
        rig.link.answers_place = False
        seen = rig.link.places
        lost = rig.start("touch ran", env={"BASH_ENV": "/dev/null"})
        rig.link.until(lambda: rig.link.places > seen)
        rig.reconnect()

        assert set(rig.link.states) == {running}
        assert lost not in rig.link.states
        assert rig.run("ls").stdout == b""


def test_a_command_that_comes_while_a_shell_is_moved_is_started(tmp_path: Path) -> None:
    """The next shell is prepared while nothing happens; what arrives meanwhile waits for that and
    for nothing else."""
    with guest(tmp_path, asks_to_place=True) as rig:
        rig.link.answers_place = False
        answered, second = rig.link.places, 0
        first, has_new_shell = rig.start("true"), False
        while not second or not rig.channels[second].is_over:
            rig.link.read()
            is_over = rig.channels[first].is_over
            if rig.link.places > answered:
                answered = rig.link.places
                has_new_shell = not is_over
                if is_over and not second:
                    second = rig.start("echo two")
                rig.link.send(frames.encode(Kind.PLACED))
            elif is_over and has_new_shell:  # the one that waits is still there
                first, has_new_shell = rig.start("true"), False

        assert rig.channels[second].stdout == b"two\n"


def test_ended_execs_are_bounded(tmp_path: Path) -> None:
    """Kept execs that nobody releases are forgotten, oldest first, beyond 48 MiB of output."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        rig.acknowledge_nothing()
        for _ in range(73):  # each within a window, also in frames of a page
            rig.run("head -c 700000 /dev/zero", keep=True)
        rig.reconnect()

        assert set(rig.link.states) == set(range(3, 74))


def test_many_ended_execs_are_bounded(tmp_path: Path) -> None:
    """At most 1024 ended execs are kept."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        for _ in range(1030):
            rig.run(":", keep=True)
        rig.reconnect()

        assert set(rig.link.states) == set(range(7, 1031))


def test_a_background_process_does_not_hold_an_exec(tmp_path: Path) -> None:
    """Output that a daemonised process keeps open ends soon after the first process did, and what
    the command left running goes on."""
    with guest(tmp_path) as rig:
        done = rig.run("echo on; (setsid sh -c 'exec sleep 1000' &)")

        assert done.stdout == b"on\n"
        assert rig.run("pgrep -c sleep").stdout == b"1\n"


def test_what_is_kept_without_a_daemon_is_bounded(tmp_path: Path) -> None:
    """Many busy commands do not fill the guest's memory while nobody takes their output, and none
    loses any of it."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        rig.hide()
        line = "until [ -e go ]; do sleep 0.01; done; head -c 600000 /dev/zero; touch $N"
        numbers = [rig.start(line, env={"N": f"n{i}"}) for i in range(24)]
        rig.ping()
        rig.link.close()
        (rig.workspace / "go").touch()
        _wait_for_rest(rig)
        rig.show()
        rig.reconnect()
        kept = sum(state.stdout_bytes for state in rig.link.states.values())

        assert 3 << 20 < kept < 8 << 20
        assert all(rig.finish(number).stdout == bytes(600_000) for number in numbers)


def _wait_for_rest(rig: Rig) -> None:
    """Until the guest has nothing to do but to dial: a few looks in a row see the same memory."""
    children = Path(f"/proc/{rig.process.pid}/task/{rig.process.pid}/children").read_text()
    statm = Path(f"/proc/{children.split()[0]}/statm")
    seen: deque[str] = deque(maxlen=40)

    def is_at_rest() -> bool:
        seen.append(statm.read_text().split()[1])
        return len(seen) == 40 and len(set(seen)) == 1

    wait_until(is_at_rest)


def test_command_right_after_a_kill_is_not_killed_with_it(tmp_path: Path) -> None:
    """What waits for the next command goes with everything else, and is not given one any more."""
    with guest(tmp_path) as rig:
        for _ in range(40):
            number = rig.start("sleep 100 & sleep 100")
            rig.ping()
            rig.say(Kind.KILL, number)
            following = rig.start("echo ran")
            assert rig.finish(number).exited is not None
            assert rig.finish(following).stdout == b"ran\n"
