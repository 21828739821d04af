"""Starting a command: one pipe for both streams, how long it may be, and what is reported of it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from sandboxd.guest import frames
from sandboxd.guest.commands.shell import MAX_ARGUMENT
from sandboxd.guest.frames import Ending, StartFailure

from .guest_rig import Channel, Rig, guest

GRACE = 15.0
ALTERNATING = 'for i in 1 2 3 4 5 6 7 8 9; do echo "out $i"; echo "err $i" >&2; done'
IN_ORDER = b"".join(b"out %d\nerr %d\n" % (n, n) for n in range(1, 10))
KIB = 1024


def ended(done: Channel) -> tuple[Ending, int]:
    assert done.exited is not None, done.refused
    return done.exited.ending, done.exited.value


# --- one pipe for both streams ---


def in_a_waiting_shell(rig: Rig) -> Channel:
    return rig.run(ALTERNATING, merge_stderr=True)


def as_argv(rig: Rig) -> Channel:
    return rig.run(None, argv=["bash", "-c", ALTERNATING], merge_stderr=True)


def in_a_named_shell(rig: Rig) -> Channel:
    rig.run("cd /", shell_state={"name": "main"})
    return rig.run(ALTERNATING, shell_state={"name": "main"}, merge_stderr=True)


def with_input(rig: Rig) -> Channel:
    return rig.run(f"{ALTERNATING}", stdin=True, merge_stderr=True)


def long_line(rig: Rig) -> Channel:
    return rig.run(f"{ALTERNATING}; : {'x' * MAX_ARGUMENT}", merge_stderr=True)


@pytest.mark.parametrize(
    "how", [in_a_waiting_shell, as_argv, in_a_named_shell, with_input, long_line]
)
def test_merged_streams_keep_their_order(how: Any, tmp_path: Path) -> None:
    """Everything is standard output, in the order of writing, however the command is started."""
    with guest(tmp_path) as rig:
        done = how(rig)

        assert (done.stdout, done.stderr) == (IN_ORDER, b"")
        assert ended(done) == (Ending.CODE, 0)


def test_messages_of_the_shell_are_merged_too(tmp_path: Path) -> None:
    """What bash says about the command comes where it happened; the next command has two pipes."""
    with guest(tmp_path) as rig:
        done = rig.run("echo before; no-such-program; echo after", merge_stderr=True)
        assert done.stdout == b"before\nbash: line 1: no-such-program: command not found\nafter\n"
        assert done.stderr == b""

        apart = rig.run("echo out; echo err >&2")
        assert (apart.stdout, apart.stderr) == (b"out\n", b"err\n")


def test_message_of_the_guest_is_merged_too(tmp_path: Path) -> None:
    """Of a shell whose state is too large to be kept: the streams stay one."""
    line = 'export LARGE=$(head -c 120000 /dev/zero | tr "\\0" x); export B=$LARGE C=$LARGE'
    with guest(tmp_path) as rig:
        done = rig.run(line, shell_state={"name": "main"}, merge_stderr=True)

        assert (done.stdout, done.stderr) == (
            b"sandboxd: the state of shell main is too large to be kept\n",
            b"",
        )


# --- how long a command may be ---


@pytest.mark.parametrize("size", [MAX_ARGUMENT - 1, MAX_ARGUMENT, MAX_ARGUMENT + 1, 1950 * KIB])
def test_line_may_be_longer_than_an_argument(size: int, tmp_path: Path) -> None:
    """Up to the longest that the daemon sends, it runs as it is, quotes and newlines included."""
    head, tail = "echo \"it's $GIVEN\"\n: '", '\'\nprintf %s "${#BASH_EXECUTION_STRING}"; exit 7'
    line = head + "x" * (size - len(head) - len(tail)) + tail
    with guest(tmp_path) as rig:
        done = rig.run(line)

        assert done.stdout.decode() == f"it's by the daemon\n{size}"
        assert (done.stderr, ended(done)) == (b"", (Ending.CODE, 7))


def test_long_line_keeps_the_state_of_its_shell(tmp_path: Path) -> None:
    """A long line of a named shell leaves behind what a short one would."""
    with guest(tmp_path) as rig:
        rig.run(f"export X=kept; cd /; : {'x' * 300 * KIB}", shell_state={"name": "main"})

        assert rig.run("echo $X $PWD", shell_state={"name": "main"}).stdout == b"kept /\n"


def test_long_line_has_its_input(tmp_path: Path) -> None:
    """The line does not come through standard input."""
    with guest(tmp_path) as rig:
        number = rig.start(f"read x; echo got $x; : {'x' * 300 * KIB}", stdin=True)
        rig.input(number, 0, b"this\n")

        assert rig.finish(number).stdout == b"got this\n"


def test_long_line_without_bash_is_refused(tmp_path: Path) -> None:
    """There it can only be an argument; the caller is told how long that may be."""
    with guest(tmp_path, mode="no bash") as rig:
        done = rig.run("echo " + "x" * MAX_ARGUMENT)
        assert (done.failure, str(MAX_ARGUMENT) in str(done.refused)) == (
            StartFailure.TOO_LARGE,
            True,
        )

        fits = "echo " + "x" * (MAX_ARGUMENT - 5)
        assert len(rig.run(fits).stdout) == MAX_ARGUMENT - 4


def test_vector_may_be_as_large_as_the_kernel_takes(tmp_path: Path) -> None:
    """Nearly 2 MiB of arguments arrive as they are; more is refused, and the guest goes on."""
    words = ["x" * n for n in random.Random(1).choices(range(120 * KIB), k=30)]
    most: list[str] = []
    for word in words:
        if sum(map(len, most)) + len(word) < 1950 * KIB:
            most.append(word)
    count = ["bash", "-c", 'IFS=; all="$*"; printf "%s %s" "$#" "${#all}"', "name"]
    with guest(tmp_path) as rig:
        done = rig.run(None, argv=[*count, *most])
        assert done.stdout.decode() == f"{len(most)} {sum(map(len, most))}"

        many = rig.run(None, argv=[*count, *["x"] * 30_000])
        assert many.stdout == b"30000 30000"

        refused = rig.run(None, argv=["echo", *["x" * 120 * KIB] * 20])
        assert (refused.failure, refused.refused) == (
            StartFailure.TOO_LARGE,
            "Argument list too long",
        )
        assert rig.run("echo on").stdout == b"on\n"


# --- why it was not started ---


def test_failure_to_start_has_a_kind(tmp_path: Path) -> None:
    """Programs need not read the words to tell one failure from another."""
    with guest(tmp_path) as rig:
        (rig.workspace / "text").write_text("not a program")
        (rig.workspace / "directory").mkdir()
        kinds = {
            "missing program": rig.run(None, argv=["no-such-program"]),
            "missing path": rig.run(None, argv=["./no-such-program"]),
            "not executable": rig.run(None, argv=["./text"]),
            "directory": rig.run(None, argv=["./directory"]),
            "missing directory": rig.run("true", cwd="/no/such/directory"),
            "file as directory": rig.run("true", cwd="text"),
        }

    assert {name: done.failure for name, done in kinds.items()} == {
        "missing program": StartFailure.NO_PROGRAM,
        "missing path": StartFailure.NO_PROGRAM,
        "not executable": StartFailure.NOT_EXECUTABLE,
        "directory": StartFailure.NOT_EXECUTABLE,
        "missing directory": StartFailure.NO_DIRECTORY,
        "file as directory": StartFailure.NO_DIRECTORY,
    }


def test_named_shell_without_bash_has_a_kind(tmp_path: Path) -> None:
    """What the image lacks is told apart from what the caller did wrong."""
    with guest(tmp_path, mode="no bash") as rig:
        assert rig.run(":", shell_state={"name": "main"}).failure == StartFailure.NO_SHELL


# --- the report of a start ---


def test_start_is_reported_with_its_process(tmp_path: Path) -> None:
    """The number is that of the command's first process; who does not ask gets no report."""
    with guest(tmp_path) as rig:
        number = rig.start("echo $$; exec sleep 1000", report_start=True)
        rig.wait_for(number, b"\n")
        told = rig.channels[number]
        assert told.pids == [int(told.stdout)]

        assert rig.run("echo quiet").pids == []


def test_next_daemon_learns_which_process_it_is(tmp_path: Path) -> None:
    """Also of a command that ended meanwhile."""
    with guest(tmp_path, grace_seconds=GRACE) as rig:
        lines = ("echo $$; exec sleep 1000", "echo $$")
        numbers = [rig.start(line, report_start=True, keep=True) for line in lines]
        for number in numbers:
            rig.wait_for(number, b"\n")
        rig.reconnect()
        for number in numbers:
            told = rig.channels[number]
            rig.link.until(lambda told=told: len(told.pids) == 2)
            assert set(told.pids) == {int(told.stdout)}


def test_command_that_cannot_start_is_not_reported_as_started(tmp_path: Path) -> None:
    """It is refused, and that is all."""
    with guest(tmp_path) as rig:
        done = rig.run(None, argv=["no-such-program"], report_start=True)

        assert (done.pids, done.failure) == ([], StartFailure.NO_PROGRAM)


def test_largest_frame_is_taken(tmp_path: Path) -> None:
    """A request of the largest size, most of it escapes, costs the guest neither life nor link."""
    word = "\\" * 100 * KIB
    with guest(tmp_path) as rig:
        done = rig.run(None, argv=["bash", "-c", "echo ${#1}", "name", *[word] * 19])

        assert done.stdout == b"%d\n" % len(word)
        assert 2 * 19 * len(word) < frames.MAX_DAEMON_PAYLOAD
