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
import fcntl
import os
import re
import shlex
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from .spawn import posix_spawn
from .spawner import Spawner

OWN_BASH = "/.sandboxd/bin/bash"
GATE = 9
"""Descriptor of the pipe in the waiting shell."""
BLANKS = 16 * 1024
"""Longest command that a waiting shell takes; a longer one gets a shell of its own."""
STDOUT_PIPE = 256 * 1024
"""More than the usual 64 KiB, so that a command with much output is switched to less often."""
GATE_BYTES = 60 * 1024
"""Set-up lines that surely fit into the empty pipe."""
_NAME = re.compile("[A-Za-z_][A-Za-z0-9_]*")
_TITLE = b"bash -c "

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


class Refusal(Exception):
    """The command cannot be started; the text says why, for the caller."""


class Command(NamedTuple):
    """What to run: a command line or an argument vector."""

    shell: str | None
    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]


class Waiting:
    """A started shell, its output pipes and its gate."""

    def __init__(
        self, bash: str, arguments: Sequence[str], environment: Mapping[str, str], cwd: str
    ) -> None:
        self._memory = -1
        self._arguments = self._arguments_end = 0
        self._is_ready = False
        gate, self._gate = os.pipe()
        self.stdout, stdout = os.pipe()
        self.stderr, stderr = os.pipe()
        try:
            os.chdir(cwd)
            self.pid = posix_spawn(
                bash,
                ["bash", *arguments],
                {**environment, "BASH_ENV": f"/proc/self/fd/{GATE}"},
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_DUP2, stdout, 1),
                    (os.POSIX_SPAWN_DUP2, stderr, 2),
                    (os.POSIX_SPAWN_DUP2, gate, GATE),
                ],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # Python ignores them
            )
        except BaseException:
            self.close()
            raise
        finally:
            os.chdir("/")
            for descriptor in (gate, stdout, stderr):
                os.close(descriptor)
        for descriptor in (self._gate, self.stdout, self.stderr):
            os.set_blocking(descriptor, False)
        with suppress(PermissionError):  # beyond the quota of the uid the usual size has to do
            fcntl.fcntl(self.stdout, fcntl.F_SETPIPE_SZ, STDOUT_PIPE)
        self._gate_inode = os.fstat(self._gate).st_ino

    def open_for_any_command(self) -> None:
        """Make a shell that was started with blanks ready to be given a command.

        Ahead of time: the hot path should not pay for it.
        """
        self._memory, self._arguments, self._arguments_end = _open_arguments(self.pid)

    def release(self, set_up: str, command: str | None) -> None:
        """Let the shell go: run `set_up`, then `command` in place of what it was started with."""
        if command is not None:
            # With the title in front, which from now on is what the kernel shows of the process.
            os.pwrite(self._memory, _TITLE + os.fsencode(command) + b"\0", self._arguments)
        lines = os.fsencode(set_up)
        try:
            # It fits the pipe, unless a command has put something there.
            is_whole = os.write(self._gate, lines) == len(lines)
        except BlockingIOError:
            is_whole = False
        if not is_whole:
            raise OSError(errno.EPIPE, "somebody has written to the waiting shell")
        gate, self._gate = self._gate, -1
        os.close(gate)
        # A command may have stopped it while it waited.
        os.kill(self.pid, signal.SIGCONT)

    def discard(self) -> None:
        """End a shell that cannot be used, before it sees the end of its lines."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.close()

    def make_ready(self) -> bool:
        """Hide the blanks as soon as bash is done with its arguments; False until then, or if it
        is gone.

        Not before: it measures the blanks and then copies them, and overruns its copy when what
        ended them is gone in between.
        """
        if not self._is_ready and self._has_opened_the_gate():
            with suppress(OSError):  # it was killed just now
                os.pwrite(self._memory, _TITLE + b"\0", self._arguments)
                # A non-zero last byte makes the kernel show the process as one title up to the
                # first NUL, instead of the arguments with all the blanks.
                os.pwrite(self._memory, b" ", self._arguments_end - 1)
                self._is_ready = True
        return self._is_ready

    def _has_opened_the_gate(self) -> bool:
        """Bash opens it again, as descriptor 3, once it is done with its arguments."""
        try:
            return os.readlink(f"/proc/{self.pid}/fd/3") == f"pipe:[{self._gate_inode}]"
        except OSError:
            return False

    def close_memory(self) -> None:
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def close(self) -> None:
        """Give up the descriptors; a shell whose gate closes unused runs blanks and ends."""
        for descriptor in (self._gate, self.stdout, self.stderr):
            if descriptor >= 0:
                os.close(descriptor)
        self.close_memory()


def _open_arguments(pid: int) -> tuple[int, int, int]:
    """The memory of a process, and where its arguments begin and end."""
    give_up_at = time.monotonic() + 1.0
    while True:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read()
        fields = text[text.rindex(b")") + 2 :].split()
        begin, end = int(fields[45]), int(fields[46])
        if end > begin:
            return os.open(f"/proc/{pid}/mem", os.O_WRONLY | os.O_CLOEXEC), begin, end
        # posix_spawn returns while the kernel is still loading the program.
        if fields[0] in (b"Z", b"X") or time.monotonic() > give_up_at:
            raise ChildProcessError(errno.ECHILD, "the shell did not start")
        os.sched_yield()


class Shells:
    """Keeps one shell waiting and starts commands from it.

    `place` is called for every new shell before it is let go: it has it moved to where commands
    belong. `set_up` are lines that every shell runs first.
    """

    def __init__(
        self,
        *,
        workspace: str,
        environment: Mapping[str, str],
        spawner: Spawner,
        place: Callable[[], None],
        set_up: str = "",
    ) -> None:
        self._workspace = workspace
        self._environment = environment
        self._spawner = spawner
        self._place = place
        self._first_lines = set_up
        self._image_bash = next((p for p in ("/bin/bash", "/usr/bin/bash") if _is_program(p)), None)
        self._waiting: Waiting | None = None

    @property
    def waiting_pid(self) -> int | None:
        return self._waiting.pid if self._waiting else None

    def prepare(self) -> None:
        """Have a shell waiting; costs a process start, so not while someone waits for an answer."""
        if self._waiting is None:
            shell = self._start(["-c", " " * BLANKS], self._environment, self._workspace)
            try:
                shell.open_for_any_command()
            except OSError:
                shell.discard()
                raise
            self._waiting = shell

    def settle(self) -> None:
        """See whether the waiting shell is ready, so that the next command need not."""
        if self._waiting:
            self._waiting.make_ready()

    def forget(self, pid: int) -> None:
        """The waiting shell ended without being used."""
        if self._waiting and self._waiting.pid == pid:
            self._waiting.close()
            self._waiting = None

    def start(self, command: Command) -> Waiting:
        """Start a command; Refusal if its directory, program or shell is not there."""
        if command.cwd != self._workspace and not os.path.isdir(command.cwd):
            raise Refusal(f"there is no directory {command.cwd!r}")
        if command.shell is None:
            return self._run_program(self._find_program(command), command.argv, command)
        if self._image_bash is None:
            if not _is_program("/bin/sh"):
                raise Refusal("the image has neither bash nor /bin/sh; give the command as argv")
            return self._run_program("/bin/sh", ["sh", "-c", command.shell], command)
        return self._run_line(command.shell, command)

    def _run_line(self, line: str, command: Command) -> Waiting:
        # BASH_EXECUTION_STRING was bound to the blanks; $_ is what bash was called as.
        rest = f"BASH_EXECUTION_STRING={shlex.quote(line)}\n: bash\n"
        if len(os.fsencode(line)) < BLANKS:
            shell = self._release_waiting(rest, line, command)
            if shell:
                return shell
        own_file = shlex.quote(command.env.get("BASH_ENV", ""))
        rest = f"[ ! -r {own_file} ] || . {own_file}\n: bash\n"
        return self._release_new(["-c", line], rest, command)

    def _run_program(self, program: str, argv: Sequence[str], command: Command) -> Waiting:
        words = " ".join(map(shlex.quote, ["-a", argv[0], "--", program, *argv[1:]]))
        shell = self._release_waiting(f"unset SHLVL\nexec {words}\n", None, command)
        if shell:
            return shell
        line = 'unset SHLVL; exec -a "$1" -- "$0" "${@:2}"'
        return self._release_new(["-c", line, program, *argv], "", command)

    def _release_waiting(self, rest: str, line: str | None, command: Command) -> Waiting | None:
        """Run it in the waiting shell, unless it can only be had from a new one."""
        if self._waiting is None or not self._waiting.make_ready():
            return None
        if any(_needs_new_shell(name) for name in command.env):
            return None
        same_cwd = command.cwd == self._workspace
        lines = _set_up(None if same_cwd else command.cwd, command.env)
        set_up = self._first_lines + lines + rest
        if len(os.fsencode(set_up)) > GATE_BYTES:
            return None
        shell, self._waiting = self._waiting, None
        try:
            shell.release(set_up, line)
        except OSError:
            # Someone killed the waiting shell, or wrote to it; nothing of the command has run.
            shell.discard()
            return None
        return shell

    def _release_new(self, arguments: Sequence[str], rest: str, command: Command) -> Waiting:
        try:
            shell = self._start(arguments, {**self._environment, **command.env}, command.cwd)
        except BlockingIOError:
            raise  # no process is left; the caller may make room
        except OSError as error:
            raise Refusal(error.strerror or "it cannot be started") from None
        restored = {name: value for name, value in command.env.items() if name == "BASH_ENV"}
        try:
            shell.release(self._first_lines + _set_up(None, restored) + rest, None)
        except OSError:
            shell.discard()
            raise
        return shell

    def _find_program(self, command: Command) -> str:
        name = command.argv[0]
        if "/" in name:
            path = os.path.join(command.cwd, name)
            if not os.path.exists(path):
                raise Refusal(f"there is no program {name!r}")
            if not _is_program(path):
                raise Refusal(f"{name!r} is not an executable file")
            return path
        search = command.env.get("PATH", self._environment.get("PATH", os.defpath))
        for directory in search.split(":"):
            path = os.path.join(command.cwd, directory, name)
            if _is_program(path):
                return path
        raise Refusal(f"there is no program {name!r} in PATH")

    def _start(self, arguments: Sequence[str], environment: Mapping[str, str], cwd: str) -> Waiting:
        bash = self._image_bash or OWN_BASH
        shell = self._spawner.run(
            lambda: Waiting(bash, arguments, environment, cwd), undo=Waiting.discard
        )
        self._place()
        return shell


def _set_up(cwd: str | None, env: Mapping[str, str]) -> str:
    """Lines that bring a waiting shell to where one started for the command would be."""
    lines = [f"exec {GATE}<&-", "unset BASH_ENV"]
    if cwd is not None:
        lines += [f"cd -- {shlex.quote(cwd)} || exit 126", "unset OLDPWD"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    return "\n".join(lines) + "\n"


def _needs_new_shell(name: str) -> bool:
    return name in _START_UP_NAMES or name.startswith("BASH") or not _NAME.fullmatch(name)


def _is_program(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)
