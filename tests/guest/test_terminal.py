"""Commands on a terminal."""

from __future__ import annotations

import signal
from pathlib import Path

from sandboxd.guest import frames
from sandboxd.guest.commands.execution import STRAGGLER_SECONDS
from sandboxd.guest.frames import Cause, Ending, Kind

from .guest_rig import Rig, guest, wait_until

SIZE = {"rows": 24, "columns": 80}
CONTROL_C, CONTROL_D, CONTROL_Z = b"\x03", b"\x04", b"\x1a"


class Typist:
    """Types into the terminal of an exec."""

    def __init__(self, rig: Rig, number: int) -> None:
        self._rig = rig
        self._number = number
        self._offset = 0

    def type(self, text: bytes) -> None:
        self._rig.input(self._number, self._offset, text)
        self._offset += len(text)

    def see(self, text: bytes) -> None:
        """Wait for new text after what was seen before."""
        output = self._rig.channels[self._number].output[frames.Stream.STDOUT]
        self._rig.link.until(lambda: text in output[self._seen :])
        self._seen = output.index(text, self._seen) + len(text)

    _seen = 0


def interactive_bash(rig: Rig) -> tuple[int, Typist]:
    argv = ["bash", "--norc", "--noprofile", "-i"]
    number = rig.start(None, argv=argv, terminal=SIZE, env={"PS1": "ready> "})
    typist = Typist(rig, number)
    typist.see(b"ready> ")
    return number, typist


def test_a_command_on_a_terminal(tmp_path: Path) -> None:
    """All three streams are the terminal, it has its size, and all output is standard output."""
    with guest(tmp_path) as rig:
        line = "test -t 0 && test -t 1 && test -t 2 && stty size; echo $TERM; echo err >&2; exit 5"
        done = rig.run(line, terminal=SIZE)

        assert done.stdout == b"24 80\r\nxterm-256color\r\nerr\r\n"
        assert done.stderr == b""
        assert done.exited is not None
        assert done.exited.value == 5


def test_a_terminal_type_of_the_caller(tmp_path: Path) -> None:
    """TERM of the request wins."""
    with guest(tmp_path) as rig:
        done = rig.run("echo $TERM", terminal=SIZE, env={"TERM": "dumb"})

        assert done.stdout == b"dumb\r\n"


def test_the_terminal_is_its_own(tmp_path: Path) -> None:
    """The command's session has it as its controlling terminal, in the foreground."""
    with guest(tmp_path) as rig:
        done = rig.run("echo hi >/dev/tty; ps -o tpgid= -o pid= -p $$", terminal=SIZE)
        hi, ids = done.stdout.split(b"\r\n")[:2]
        foreground, pid = ids.split()

        assert hi == b"hi"
        assert foreground == pid


def test_resize(tmp_path: Path) -> None:
    """A new size is in force, and the command is told by SIGWINCH."""
    with guest(tmp_path) as rig:
        line = "trap 'stty size; exit' WINCH; echo on; while :; do sleep 0.01; done"
        number = rig.start(line, terminal=SIZE)
        rig.wait_for(number, b"on\r\n")
        rig.link.send(frames.encode_resize(number, 50, 132))

        assert rig.finish(number).stdout == b"on\r\n50 132\r\n"


def test_an_interrupt_typed(tmp_path: Path) -> None:
    """Ctrl-C ends what runs in the foreground."""
    with guest(tmp_path) as rig:
        number = rig.start("echo on; exec sleep 1000", terminal=SIZE)
        rig.wait_for(number, b"on\r\n")
        rig.input(number, 0, CONTROL_C)
        done = rig.finish(number)

        assert done.exited is not None
        assert (done.exited.ending, done.exited.value) == (Ending.SIGNAL, signal.SIGINT)


def test_job_control(tmp_path: Path) -> None:
    """In an interactive bash Ctrl-Z stops a job, fg brings it back, Ctrl-C ends it, and the shell
    goes on."""
    with guest(tmp_path) as rig:
        number, typist = interactive_bash(rig)
        typist.type(b"sleep 1000\n")
        typist.see(b"sleep 1000\r\n")
        wait_until(lambda: _foreground(rig) == "sleep")
        typist.type(CONTROL_Z)
        typist.see(b"Stopped")
        typist.see(b"ready> ")
        typist.type(b"fg\n")
        typist.see(b"sleep 1000\r\n")
        wait_until(lambda: _foreground(rig) == "sleep")
        typist.type(CONTROL_C)
        typist.see(b"ready> ")
        typist.type(b"echo code $?\n")
        typist.see(b"code 130\r\n")
        typist.type(b"exit 9\n")
        done = rig.finish(number)

        assert done.exited is not None
        assert (done.exited.ending, done.exited.value) == (Ending.CODE, 9)


def _foreground(rig: Rig) -> str:
    """The name of the process in the foreground of the newest terminal."""
    rows = rig.run("ps -e -o stat=,comm=").stdout.decode().splitlines()
    names = [row.split()[1] for row in rows if "+" in row.split()[0]]
    return names[-1] if names else ""


def test_a_signal_for_the_foreground(tmp_path: Path) -> None:
    """SIGNAL for the group goes to the job in the foreground, not to the shell behind it."""
    with guest(tmp_path) as rig:
        number, typist = interactive_bash(rig)
        typist.type(b"sleep 1000\n")
        wait_until(lambda: _foreground(rig) == "sleep")
        rig.signal(number, signal.SIGTERM)
        typist.see(b"Terminated")
        typist.see(b"ready> ")
        typist.type(b"exit\n")

        assert rig.finish(number).exited is not None


def test_a_python_prompt(tmp_path: Path) -> None:
    """A REPL answers, and the end of input ends it."""
    with guest(tmp_path) as rig:
        number = rig.start("python3 -q", terminal=SIZE)
        typist = Typist(rig, number)
        typist.see(b">>> ")
        typist.type(b"print(6 * 7)\n")
        typist.see(b"42\r\n")
        typist.see(b">>> ")
        rig.say(Kind.INPUT_END, number)
        done = rig.finish(number)

        assert done.exited is not None
        assert done.exited.value == 0


def test_the_end_of_input_in_line_mode(tmp_path: Path) -> None:
    """INPUT_END ends a reader, also after an unfinished line."""
    with guest(tmp_path) as rig:
        for text in (b"", b"line\n", b"half"):
            number = rig.start("stty -echo; echo on; cat; echo end", terminal=SIZE)
            rig.wait_for(number, b"on\r\n")
            if text:
                rig.input(number, 0, text)
            rig.say(Kind.INPUT_END, number)
            expected = b"on\r\n" + text.replace(b"\n", b"\r\n") + b"end\r\n"

            assert rig.finish(number).stdout == expected


def open_window(rig: Rig, number: int) -> None:
    """Acknowledge all that came, and from now on what comes."""
    rig.link.acks = True
    used = frames.WINDOW - rig.channels[number].window
    rig.link.acknowledge(number, frames.Stream.STDOUT, used)


def test_much_output_of_a_terminal(tmp_path: Path) -> None:
    """Output that outruns its reader arrives whole."""
    with guest(tmp_path) as rig:
        rig.acknowledge_nothing()
        # More than a window by its bytes alone: how many frames they take is a matter of timing.
        number = rig.start("seq 1 200000", terminal=SIZE)
        channel = rig.channels[number]
        rig.link.until(lambda: channel.window <= 0)
        open_window(rig, number)
        done = rig.finish(number)

        assert done.stdout == b"".join(b"%d\r\n" % i for i in range(1, 200001))


def test_a_terminal_is_read_after_its_command(tmp_path: Path) -> None:
    """What stood in the terminal arrives whole, though the command has ended long before."""
    line = "stty -echo; echo on; while read -r l && [ $l ]; do echo $l; done; seq 100; echo $$ >pid"
    with guest(tmp_path) as rig:
        rig.acknowledge_nothing()
        number = rig.start(line, terminal=SIZE)
        channel, typist = rig.channels[number], Typist(rig, number)
        typist.see(b"on\r\n")
        while channel.window > 0:
            typist.type(b"x\n")
            typist.see(b"x\r\n")
        before = channel.stdout
        typist.type(b"\n")
        # Until the guest has reaped it, and for longer than output may stay open after that.
        gone = "until pid=$(cat pid) && ! kill -0 $pid; do sleep 0.01; done"
        rig.run(f"{gone}; sleep {3 * STRAGGLER_SECONDS}")
        assert channel.stdout == before
        open_window(rig, number)
        done = rig.finish(number)

        assert done.stdout == before + b"".join(b"%d\r\n" % i for i in range(1, 101))


def test_a_background_process_does_not_hold_a_terminal(tmp_path: Path) -> None:
    """A terminal that is still open when the first process has ended is over soon after."""
    with guest(tmp_path) as rig:
        done = rig.run("trap '' HUP; sleep 1000 & echo on", terminal=SIZE)

        assert done.stdout == b"on\r\n"


def test_a_program_that_closes_its_terminal(tmp_path: Path) -> None:
    """A command that gives its terminal up and goes on costs no time and is waited for."""
    with guest(tmp_path) as rig:
        line = "echo on; exec <&- >&- 2>&-; until [ -e go ]; do sleep 0.02; done; exit 3"
        number = rig.start(line, terminal=SIZE)
        rig.wait_for(number, b"on\r\n")
        cpu = rig.run("sleep 0.3; cut -d' ' -f14,15 /proc/1/stat").stdout.split()
        rig.link.send(frames.encode_resize(number, 5, 5))
        rig.input(number, 0, b"nobody reads this\n")
        rig.say(Kind.INPUT_END, number)
        rig.signal(number, signal.SIGWINCH)
        after = rig.run("sleep 0.5; cut -d' ' -f14,15 /proc/1/stat").stdout.split()
        (rig.workspace / "go").touch()
        done = rig.finish(number)

        assert done.exited is not None
        assert done.exited.value == 3
        assert sum(map(int, after)) - sum(map(int, cpu)) < 25  # of 50 ticks


def test_a_terminal_across_a_broken_link(tmp_path: Path) -> None:
    """An interactive shell goes on where it was."""
    with guest(tmp_path, grace_seconds=15.0) as rig:
        number, typist = interactive_bash(rig)
        typist.type(b"x=kept\n")
        typist.see(b"ready> ")
        rig.reconnect()
        typist.type(b"echo $x\n")
        typist.see(b"kept\r\n")
        rig.say(Kind.KILL, number)
        done = rig.finish(number)

        assert done.exited is not None
        assert done.exited.cause == Cause.KILLED
