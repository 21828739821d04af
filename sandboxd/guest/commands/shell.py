"""A shell that waits for its command.

Starting bash costs more than running a short command in it, so one is started ahead of time, as
`bash -c <blanks>` with BASH_ENV naming a pipe: bash initialises itself and then blocks reading that
pipe, before it looks at the text after -c. Handing a command over is two writes: the command over
the blanks, in the memory of the process, and a few lines of set-up into the pipe. From there it is
`bash -c <command>`: same $0, same messages, same exit codes, same last-command exec.

An argument vector runs from the same waiting shell, which replaces itself by the program. Where the
image has no bash, the guest's own waits, and replaces itself by /bin/sh.
"""

import errno
import os
import re
import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from ..frames import StartFailure
from . import named_shell, processes, terminal
from .named_shell import NamedShells, Saving
from .refusal import Refusal
from .spawn import posix_spawn
from .spawner import Spawner
from .standard_input import Feed
from .terminal import Size

IMAGE_BASHES = ("/usr/libexec/sandboxd/bash", "/bin/bash", "/usr/bin/bash")
"""The first is where an image has a quicker one for us, such as a static one."""
OWN_BASH = "/.sandboxd/bin/bash"
GATE = 9
"""Descriptor of the pipe in the waiting shell."""
BLANKS = 16 * 1024
"""Longest command that a waiting shell takes; a longer one gets a shell of its own."""
MAX_ARGUMENT = 128 * 1024 - 1
"""The kernel's limit for one argument."""
GATE_BYTES = 60 * 1024
"""Set-up lines that surely fit into the empty pipe."""
START_UP_SECONDS = 0.005
"""How long a new shell is waited for; one or two thousandths of a second do as a rule."""
FIRST_START_UP_SECONDS = 1.0
"""Seconds that the first one is waited for."""
LOOK_SECONDS = 0.0001
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_TITLE = b"bash -c "
_TERM = "xterm-256color"
_PROMPTS = ("PS1", "PS2")
"""A bash that is not interactive removes them from its environment."""

# Names that bash reads only at its start, refuses to assign, or gives a meaning of their own. They
# cannot be set from inside, so a command that sets one gets a bash started with them.
_START_UP_NAMES = frozenset(
    [
        "BASHOPTS",
        "BASHPID",
        "BASH_ENV",
        "BASH_VERSINFO",
        "COMP_WORDBREAKS",
        "DIRSTACK",
        "ENV",
        "EUID",
        "FUNCNAME",
        "GROUPS",
        "IFS",
        "LINENO",
        "OPTARG",
        "OPTIND",
        "POSIXLY_CORRECT",
        "PPID",
        "RANDOM",
        "SECONDS",
        "SHELLOPTS",
        "SRANDOM",
        "UID",
        "_",
    ]
)


class Command(NamedTuple):
    """What to run: a command line or an argument vector."""

    shell: str | None
    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    has_cwd: bool = True
    """Whether the request named the directory."""
    has_stdin: bool = False
    terminal: Size | None = None
    shell_name: str | None = None
    merges_stderr: bool = False
    """Whether standard error goes into the pipe of standard output."""


class Streams:
    """Standard streams of a new process: our ends, and how it gets its own."""

    def __init__(self, *, has_stdin: bool = False, terminal_size: Size | None = None) -> None:
        self.stdin = self.stdout = self.stderr = -1
        self._theirs: list[int] = []
        try:
            if terminal_size is not None:
                self._open_terminal(terminal_size)
            else:
                self._open_pipes(has_stdin)
        except BaseException:
            self.close()
            self.close_theirs()
            raise

    def _open_pipes(self, has_stdin: bool) -> None:
        self.stdout, stdout = os.pipe()
        self._theirs.append(stdout)
        self.stderr, stderr = os.pipe()
        self._theirs.append(stderr)
        self.actions: list[tuple[object, ...]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ]
        if has_stdin:
            stdin, self.stdin = os.pipe()
            self._theirs.append(stdin)
            self.actions[0] = (os.POSIX_SPAWN_DUP2, stdin, 0)

    def _open_terminal(self, size: Size) -> None:
        self.stdout, slave, path = terminal.open_terminal(size)
        # Ours is closed only when the process has it open: until then a reader would see the end.
        self._theirs.append(slave)
        self.stdin = os.dup(self.stdout)
        # Opened by the process itself, a session leader by then, which makes it its own terminal.
        self.actions = [
            (os.POSIX_SPAWN_OPEN, 0, path, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]

    def close_theirs(self) -> None:
        for descriptor in self._theirs:
            os.close(descriptor)
        self._theirs.clear()

    def close(self) -> None:
        for descriptor in (self.stdin, self.stdout, self.stderr):
            if descriptor >= 0:
                os.close(descriptor)


class WaitingShell:
    """A started shell, its streams and its gate."""

    def __init__(
        self,
        bash: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        streams: Streams,
    ) -> None:
        self.streams = streams
        self._memory = self._gate = self._state = -1
        self._arguments = self._arguments_end = 0
        self._is_ready = False
        theirs: list[int] = []
        try:
            gate, self._gate = os.pipe()
            theirs.append(gate)
            self._state, state = os.pipe()
            theirs.append(state)
            os.chdir(cwd)
            self.pid = posix_spawn(
                bash,
                ["bash", *arguments],
                {**environment, "BASH_ENV": f"/proc/self/fd/{GATE}"},
                file_actions=[
                    *streams.actions,
                    (os.POSIX_SPAWN_DUP2, gate, GATE),
                    (os.POSIX_SPAWN_DUP2, state, named_shell.STATE),
                ],
                setsigdef=[
                    *(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them
                    *(signal.SIGINT, signal.SIGQUIT),  # and who started us may ignore these
                ],
            )
        except BaseException:
            self.close()
            raise
        finally:
            os.chdir("/")
            streams.close_theirs()
            for descriptor in theirs:
                os.close(descriptor)
        for descriptor in (self._gate, streams.stdout, streams.stderr):
            if descriptor >= 0:
                os.set_blocking(descriptor, False)
        self._gate_inode = os.fstat(self._gate).st_ino
        self._ready_by = time.monotonic() + START_UP_SECONDS

    def start_command(self, set_up: str, command: str | None) -> Feed | None:
        """Run `set_up`, then `command` in place of what the shell was started with.

        Returns what is left to write of a set-up that the pipe cannot hold.
        """
        if command is not None:
            # With the title in front, which from now on is what the kernel shows of the process.
            os.pwrite(self._memory, _TITLE + os.fsencode(command) + b"\0", self._arguments)
        lines = os.fsencode(set_up)
        first = lines[:GATE_BYTES]
        self.wake()
        try:
            # It fits the pipe, unless a command has put something there.
            is_whole = os.write(self._gate, first) == len(first)
        except BlockingIOError:
            is_whole = False
        if not is_whole:
            raise OSError(errno.EPIPE, "a command has written to the waiting shell")
        gate, self._gate = self._gate, -1
        feed = None
        if len(lines) > GATE_BYTES:
            feed = Feed(gate)
            feed.add(lines[GATE_BYTES:])
        else:
            # At once: bash reads up to the end, and should find it there when it wakes up.
            os.close(gate)
        return feed

    def discard(self) -> None:
        """End a shell that cannot be used, before it sees the end of its lines."""
        processes.kill(self.pid)
        self.close()

    def take_state(self) -> int:
        """The descriptor to read the state of a named shell from; the caller's from now on."""
        state, self._state = self._state, -1
        return state

    def make_ready(self) -> bool:
        """Hide the blanks as soon as bash is done with its arguments; False until then, or if it
        is gone.

        Not before: it measures the blanks and then copies them, and overruns its copy when what
        ended them is gone in between.
        """
        if not self._is_ready and self._has_opened_the_gate():
            with suppress(OSError):  # it was killed just now
                if self._memory < 0:
                    self._memory, self._arguments, self._arguments_end = _open_arguments(self.pid)
                os.pwrite(self._memory, _TITLE + b"\0", self._arguments)
                # A non-zero last byte makes the kernel show the process as one title up to the
                # first NUL, instead of the arguments with all the blanks.
                os.pwrite(self._memory, b" ", self._arguments_end - 1)
                self._is_ready = True
        return self._is_ready

    def wait_until_ready(self, ready_by: float | None = None) -> bool:
        """While it is being started: it will be there sooner than another one would be. False if it
        is gone, or takes too long."""
        while not self.make_ready():
            if time.monotonic() > (ready_by or self._ready_by):
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def _has_opened_the_gate(self) -> bool:
        """Bash opens it again, as descriptor 3, once it is done with its arguments."""
        try:
            return os.readlink(f"/proc/{self.pid}/fd/3") == f"pipe:[{self._gate_inode}]"
        except OSError:
            return False

    def has_taken_command(self) -> bool:
        """Whether it has read its set-up, the first line of which closes the gate."""
        try:
            return os.readlink(f"/proc/{self.pid}/fd/{GATE}") != f"pipe:[{self._gate_inode}]"
        except OSError:
            return True

    def wake(self) -> None:
        """Let it run: another command may have stopped it."""
        os.kill(self.pid, signal.SIGCONT)

    def close_spare(self) -> None:
        """Close what only a shell that waits needs."""
        for descriptor in (self._memory, self._state):
            if descriptor >= 0:
                os.close(descriptor)
        self._memory = self._state = -1

    def close(self) -> None:
        """Close all descriptors; a shell whose gate is closed unused runs blanks and ends."""
        if self._gate >= 0:
            os.close(self._gate)
            self._gate = -1
        self.streams.close()
        self.close_spare()


class Started(NamedTuple):
    """A command that runs."""

    shell: WaitingShell
    gate: Feed | None
    """The rest of its set-up."""
    saving: Saving | None
    """Where its named shell comes back."""


def _open_arguments(pid: int) -> tuple[int, int, int]:
    """The memory of a process, and where its arguments begin and end."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        text = file.read()
    fields = text[text.rindex(b")") + 2 :].split()
    begin, end = int(fields[45]), int(fields[46])
    if end <= begin:
        raise ChildProcessError(errno.ECHILD, "it has ended")
    return os.open(f"/proc/{pid}/mem", os.O_WRONLY | os.O_CLOEXEC), begin, end


class Shells:
    """Keeps one shell waiting and starts commands from it.

    `place` is called for every new shell before it is given a command, and returns when the shell
    was moved to where commands belong. `has_company` says whether processes of other commands may
    be alive, which must not reach into a new shell. `set_up` are lines that every shell runs first.
    """

    def __init__(
        self,
        *,
        workspace: str,
        environment: Mapping[str, str],
        spawner: Spawner,
        place: Callable[[], None],
        has_company: Callable[[], bool],
        set_up: str = "",
    ) -> None:
        self._workspace = workspace
        self._environment = environment
        self._spawner = spawner
        self._place = place
        self._has_company = has_company
        self._first_lines = set_up
        self._image_bash = next((path for path in IMAGE_BASHES if _is_program(path)), None)
        self._waiting: WaitingShell | None = None
        self._spent: list[WaitingShell] = []
        """Those that run commands and have something left to close."""
        self._named = NamedShells()
        self.unused_pids: set[int] = set()
        """Shells without a command, also those that are about to end."""

    @property
    def waiting_pid(self) -> int | None:
        return self._waiting.pid if self._waiting else None

    def prepare(self) -> None:
        """Have a shell waiting; costs a process start, so not while someone waits for an answer."""
        if self._waiting is None:
            blanks = ["-c", " " * BLANKS]
            self._waiting = self._start(blanks, self._environment, self._workspace)

    def prepare_first(self) -> None:
        """Have one waiting that is ready, if that does not take too long: there is nothing else to
        serve yet."""
        self.prepare()
        if self._waiting is not None:
            self._waiting.wait_until_ready(time.monotonic() + FIRST_START_UP_SECONDS)

    def change(self, *, workspace: str, environment: Mapping[str, str]) -> None:
        """Start further shells with these; one that waits has the old ones."""
        if (workspace, environment) == (self._workspace, self._environment):
            return
        self._workspace, self._environment = workspace, environment
        if self._waiting:
            self._waiting.close()
            self._waiting = None

    def replace(self) -> None:
        """Let go of the directory of a shell that waits: another one is mounted there."""
        if self._waiting:
            self._waiting.discard()
            self._waiting = None
        self._spawner.disown()

    def keep_state(self, saving: Saving) -> bool:
        """Keep what a command left in its named shell; False if that is too large."""
        return self._named.keep(saving)

    def settle_states(self) -> None:
        """Look at what was kept, so that the next command need not wait for it."""
        self._named.settle(self._environment)

    def settle(self) -> bool:
        """See whether the waiting shell is ready, so that the next command need not."""
        return self._waiting is not None and self._waiting.make_ready()

    def clear_up(self) -> None:
        """Close what shells with a command do not need."""
        while self._spent:
            self._spent.pop().close_spare()

    def forget(self, pid: int) -> None:
        """A process has ended: perhaps the waiting shell, without being used."""
        self.unused_pids.discard(pid)
        if self._waiting and self._waiting.pid == pid:
            self.give_up()

    def give_up(self) -> None:
        """The waiting shell is about to be killed with everything else. It may take a while to be
        gone, and a command that it was given meanwhile would go with it."""
        if self._waiting:
            self._waiting.close()
            self._waiting = None
        self._spawner.disown()

    def start(self, command: Command) -> Started:
        """Start a command; Refusal if its directory, program or shell is not there."""
        if command.cwd != self._workspace and not os.path.isdir(command.cwd):
            raise Refusal(StartFailure.NO_DIRECTORY, f"there is no directory {command.cwd!r}")
        if command.shell_name is not None:
            self._check_named(command, command.shell_name)
        if command.shell is None:
            return self._run_program(self._find_program(command), command.argv, command)
        if self._image_bash is None:
            if not _is_program("/bin/sh"):
                raise Refusal(
                    StartFailure.NO_SHELL,
                    "the image has neither bash nor /bin/sh; give the command as argv",
                )
            if _is_too_long(command.shell):
                raise Refusal(
                    StartFailure.TOO_LARGE,
                    f"the shell of this image takes lines of up to {MAX_ARGUMENT} bytes",
                )
            return self._run_program("/bin/sh", ["sh", "-c", command.shell], command)
        return self._run_line(command.shell, command)

    def _check_named(self, command: Command, name: str) -> None:
        if self._image_bash is None:
            raise Refusal(StartFailure.NO_SHELL, "named shells need bash")
        if command.shell is None:
            raise Refusal(
                StartFailure.OTHER, "a named shell runs a command line, not an argument vector"
            )
        self.settle_states()
        if not self._named.has_room_for(name):
            raise Refusal(
                StartFailure.TOO_MANY_SHELLS,
                f"there are {named_shell.MAX_SHELLS} named shells already",
            )

    def _run_line(self, line: str, command: Command) -> Started:
        # BASH_EXECUTION_STRING was bound to the blanks; $_ is what bash was called as.
        rest = f"BASH_EXECUTION_STRING={shlex.quote(line)}\n"
        if len(os.fsencode(line)) < BLANKS:
            started = self._start_in_waiting_shell(rest + self._last_lines(command), line, command)
            if started:
                return started
        own_file = shlex.quote(command.env.get("BASH_ENV", ""))
        rest = f"[ ! -r {own_file} ] || . {own_file}\n"
        argument = line
        if _is_too_long(line):
            rest += f"BASH_EXECUTION_STRING={shlex.quote(line)}\n"
            argument = 'eval "$BASH_EXECUTION_STRING"'
        return self._start_in_new_shell(["-c", argument], rest + self._last_lines(command), command)

    def _last_lines(self, command: Command) -> str:
        if command.shell_name is None:
            return ": bash\n"
        state = self._named.get(command.shell_name, self._environment)
        return os.fsdecode(named_shell.last_lines(state, "bash"))

    def _run_program(self, program: str, argv: Sequence[str], command: Command) -> Started:
        words = " ".join(map(shlex.quote, ["-a", argv[0], "--", program, *argv[1:]]))
        started = self._start_in_waiting_shell(f"unset SHLVL\nexec {words}\n", None, command)
        if started:
            return started
        line = 'unset SHLVL; exec -a "$1" -- "$0" "${@:2}"'
        return self._start_in_new_shell(["-c", line, program, *argv], "", command)

    def _start_in_waiting_shell(
        self, rest: str, line: str | None, command: Command
    ) -> Started | None:
        """Run it in the waiting shell, unless it can only be had from a new one."""
        if command.has_stdin or command.terminal is not None:
            return None  # the waiting one has its streams already
        if self._waiting is None or not self._waiting.wait_until_ready():
            return None
        if any(_needs_new_shell(name) for name in command.env):
            return None
        is_named = command.shell_name is not None
        cwd = None if is_named or command.cwd == self._workspace else command.cwd
        set_up = self._first_lines + _set_up(command, cwd, command.env)
        set_up += self._named_lines(command) + rest
        if not is_named and len(os.fsencode(set_up)) > GATE_BYTES:
            return None
        shell, self._waiting = self._waiting, None
        try:
            gate = shell.start_command(set_up, line)
        except OSError:
            # A command killed the waiting shell or wrote to it; nothing of this one has run.
            shell.discard()
            return None
        return self._started(shell, gate, command)

    def _start_in_new_shell(self, arguments: Sequence[str], rest: str, command: Command) -> Started:
        environment = {**self._environment, **command.env}
        if command.terminal is not None:
            environment.setdefault("TERM", _TERM)
        cwd = self._workspace if command.shell_name is not None else command.cwd
        try:
            shell = self._start(
                arguments,
                environment,
                cwd,
                has_stdin=command.has_stdin,
                terminal_size=command.terminal,
            )
        except BlockingIOError:
            raise  # no process is left; the caller may make room, or wait
        except OSError as error:
            is_too_large = error.errno == errno.E2BIG
            failure = StartFailure.TOO_LARGE if is_too_large else StartFailure.OTHER
            raise Refusal(failure, error.strerror or "it cannot be started") from None
        restored = {name: environment[name] for name in _PROMPTS if name in environment}
        if "BASH_ENV" in command.env:
            restored["BASH_ENV"] = command.env["BASH_ENV"]
        set_up = self._first_lines + _set_up(command, None, restored)
        try:
            gate = shell.start_command(set_up + self._named_lines(command) + rest, None)
        except OSError:
            shell.discard()
            raise
        return self._started(shell, gate, command)

    def _started(self, shell: WaitingShell, gate: Feed | None, command: Command) -> Started:
        saving = None
        if command.shell_name is not None:
            saving = Saving(command.shell_name, shell.take_state(), command.env)
        self.clear_up()
        self.unused_pids.discard(shell.pid)
        self._spent.append(shell)
        return Started(shell, gate, saving)

    def _named_lines(self, command: Command) -> str:
        if command.shell_name is None:
            return ""
        lines = named_shell.set_up(
            self._named.get(command.shell_name, self._environment),
            given=command.env,
            cwd=command.cwd if command.has_cwd else None,
        )
        return os.fsdecode(lines)

    def _find_program(self, command: Command) -> str:
        name = command.argv[0]
        if "/" in name:
            path = os.path.join(command.cwd, name)
            if not os.path.exists(path):
                raise Refusal(StartFailure.NO_PROGRAM, f"there is no program {name!r}")
            if not _is_program(path):
                raise Refusal(StartFailure.NOT_EXECUTABLE, f"{name!r} is not an executable file")
            return path
        search = command.env.get("PATH", self._environment.get("PATH", os.defpath))
        for directory in search.split(":"):
            path = os.path.join(command.cwd, directory, name)
            if _is_program(path):
                return path
        raise Refusal(StartFailure.NO_PROGRAM, f"there is no program {name!r} in PATH")

    def _start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        cwd: str,
        *,
        has_stdin: bool = False,
        terminal_size: Size | None = None,
    ) -> WaitingShell:
        bash = self._image_bash or OWN_BASH

        def start() -> WaitingShell:
            streams = Streams(has_stdin=has_stdin, terminal_size=terminal_size)
            shell = WaitingShell(bash, arguments, environment, cwd, streams)
            self.unused_pids.add(shell.pid)
            return shell

        purpose = (tuple(arguments), environment, cwd, has_stdin, terminal_size)
        shell = self._spawner.run(
            start,
            undo=WaitingShell.discard,
            purpose=purpose,
            needs_new_domain=self._waiting is not None or self._has_company(),
        )
        try:
            self._place()
        except OSError:
            shell.discard()  # it must not run its command where it does not belong
            raise
        return shell


def _set_up(command: Command, cwd: str | None, env: Mapping[str, str]) -> str:
    """Lines that bring a waiting shell to where one started for the command would be."""
    close_state = "" if command.shell_name is not None else f" {named_shell.STATE}>&-"
    merge = " 2>&1" if command.merges_stderr else ""
    lines = [f"exec {GATE}<&-{close_state}{merge}", "unset BASH_ENV"]
    if cwd is not None:
        lines += [f"cd -- {shlex.quote(cwd)} || exit 126", "unset OLDPWD"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    return "\n".join(lines) + "\n"


def _needs_new_shell(name: str) -> bool:
    return name in _START_UP_NAMES or name.startswith("BASH") or not _NAME.fullmatch(name)


def _is_too_long(line: str) -> bool:
    return len(os.fsencode(line)) > MAX_ARGUMENT


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
