"""Standard input and signals."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from sandboxd.guest import frames
from sandboxd.guest.frames import Ending, Kind, Target

from .guest_rig import PATIENCE, Channel, Rig, guest

GRACE = 15.0


def feed(rig: Rig, number: int, data: bytes, *, offset: int = 0) -> None:
    """Send all of `data` as the guest takes it, while reading what comes back."""
    channel = rig.channels[number]
    while offset < len(data):
        room = channel.taken + frames.MAX_INPUT - offset
        if room > 0:
            piece = data[offset : offset + room]
            rig.input(number, offset, piece)
            offset += len(piece)
        else:
            before = channel.taken
            rig.link.until(lambda: channel.taken > before)  # noqa: B023


def exit_code(channel: Channel) -> int:
    assert channel.exited is not None
    assert channel.exited.ending == Ending.CODE
    return channel.exited.value


def test_without_it_there_is_nothing_to_read(tmp_path: Path) -> None:
    """A command that was promised no input reads an empty one."""
    with guest(tmp_path) as rig:
        assert rig.run("readlink /proc/self/fd/0; cat").stdout == b"/dev/null\n"


@pytest.mark.parametrize("how", ["shell", "argv"])
def test_input_and_its_end(tmp_path: Path, how: str) -> None:
    """A command reads what was sent, then the end."""
    with guest(tmp_path) as rig:
        if how == "shell":
            number = rig.start("cat; echo done", stdin=True)
        else:
            number = rig.start(None, argv=["cat"], stdin=True)
        rig.input(number, 0, b"one\n")
        rig.wait_for(number, b"one\n")
        rig.input(number, 4, b"two")
        rig.say(Kind.INPUT_END, number)
        done = rig.finish(number)

        assert done.stdout == b"one\ntwo" + (b"done\n" if how == "shell" else b"")
        assert done.taken == 7
        assert exit_code(done) == 0


def test_large_input_with_back_pressure(tmp_path: Path) -> None:
    """16 MiB go through a pipeline byte for byte, 64 KiB at a time."""
    data = bytes(range(256)) * (16 << 12)
    with guest(tmp_path) as rig:
        number = rig.start("cat", stdin=True)
        feed(rig, number, data)
        rig.say(Kind.INPUT_END, number)
        done = rig.finish(number)

        assert done.stdout == data


def test_a_command_that_does_not_read(tmp_path: Path) -> None:
    """Input stays untaken when nobody reads it, and its end closes the pipe after it."""
    with guest(tmp_path) as rig:
        number = rig.start("until [ -e go ]; do sleep 0.02; done; wc -c", stdin=True)
        data = b"x" * (frames.MAX_INPUT * 2)
        rig.input(number, 0, data[: frames.MAX_INPUT])
        rig.link.until(lambda: rig.channels[number].taken == frames.MAX_INPUT)
        rig.input(number, frames.MAX_INPUT, data[frames.MAX_INPUT :])
        rig.say(Kind.INPUT_END, number)
        rig.ping()
        assert rig.channels[number].taken == frames.MAX_INPUT
        (rig.workspace / "go").touch()

        assert rig.finish(number).stdout == b"%d\n" % len(data)


def test_a_reader_that_closed_its_input(tmp_path: Path) -> None:
    """What nobody will read counts as taken, so that a sender is not stuck."""
    with guest(tmp_path) as rig:
        number = rig.start(
            "exec <&-; echo closed; until [ -e go ]; do sleep 0.02; done; exit 6", stdin=True
        )
        rig.wait_for(number, b"closed\n")
        feed(rig, number, b"x" * 300_000)
        rig.link.until(lambda: rig.channels[number].taken == 300_000)
        (rig.workspace / "go").touch()

        assert exit_code(rig.finish(number)) == 6


def test_tiny_inputs_are_answered_together(tmp_path: Path) -> None:
    """The guest does not answer every byte."""
    with guest(tmp_path) as rig:
        number = rig.start("cat >/dev/null", stdin=True)
        rig.ping()
        rig.link.send(b"".join(frames.encode_input(number, i, b"x") for i in range(1000)))
        rig.link.until(lambda: rig.channels[number].taken == 1000)

        assert rig.link.log.count((Kind.INPUT_TAKEN, number)) < 100


def test_input_across_a_broken_link(tmp_path: Path) -> None:
    """After a resume the guest tells what was taken; repeated bytes are not written twice."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        number = rig.start("cat", stdin=True)
        rig.input(number, 0, b"0123")
        rig.wait_for(number, b"0123")
        rig.channels[number].taken = 0
        rig.reconnect()
        rig.link.until(lambda: rig.channels[number].taken == 4)
        rig.input(number, 2, b"2345")
        rig.say(Kind.INPUT_END, number)
        rig.input(number, 0, b"012345")

        assert rig.finish(number).stdout == b"012345"


@pytest.mark.parametrize(
    ("offset", "size"), [(5, 1), (0, frames.MAX_INPUT * 3)], ids=["a gap", "too much"]
)
def test_input_out_of_order(tmp_path: Path, offset: int, size: int) -> None:
    """A daemon that breaks the rules of input has a broken guest."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        number = rig.start("sleep 1000", stdin=True)
        rig.input(number, offset, b"x" * size)

        assert rig.process.wait(PATIENCE) != 0
        assert "ProtocolError" in rig.error


def test_input_for_what_is_not_there(tmp_path: Path) -> None:
    """Input, signals and sizes for unknown and ended execs, and input nobody wants, are ignored."""
    with guest(tmp_path) as rig:
        ended = rig.start("true", stdin=True)
        rig.finish(ended)
        running = rig.start("echo on; exec sleep 1000")
        rig.wait_for(running, b"on\n")
        for number in (ended, 999):
            rig.input(number, 0, b"x")
            rig.say(Kind.INPUT_END, number)
            rig.signal(number, signal.SIGTERM)
            rig.link.send(frames.encode_resize(number, 5, 5))
        rig.input(running, 0, b"x")
        rig.link.send(frames.encode_resize(running, 5, 5))
        rig.ping()

        assert rig.process.poll() is None
        assert not rig.channels[running].is_over


def test_a_signal_for_the_group(tmp_path: Path) -> None:
    """GROUP reaches the first process and its children."""
    with guest(tmp_path) as rig:
        child = "trap 'echo child; exit' USR1; echo on; while :; do sleep 0.01; done"
        line = f"trap 'echo parent' USR1; ({child}) & wait; wait"
        number = rig.start(line)
        rig.wait_for(number, b"on\n")
        rig.signal(number, signal.SIGUSR1)
        done = rig.finish(number)

        assert sorted(done.stdout.split()) == [b"child", b"on", b"parent"]


def test_a_signal_for_the_first_process(tmp_path: Path) -> None:
    """LEADER reaches the first process alone, and a death by signal is told as such."""
    with guest(tmp_path) as rig:
        number = rig.start("sleep 0.3 & echo on; wait; echo never")
        rig.wait_for(number, b"on\n")
        rig.signal(number, signal.SIGTERM, Target.LEADER)
        done = rig.finish(number)

        assert done.exited is not None
        assert (done.exited.ending, done.exited.value) == (Ending.SIGNAL, signal.SIGTERM)
        assert rig.run("pgrep -c sleep").stdout == b"1\n"


def test_a_signal_that_does_not_exist(tmp_path: Path) -> None:
    """Only 1 to 64 are signals."""
    with guest(tmp_path) as rig:
        number = rig.start("sleep 1000")
        rig.link.send(frames.encode_signal(number, 65, Target.GROUP))

        assert rig.process.wait(PATIENCE) != 0
        assert "ProtocolError" in rig.error
