"""The process that contexts of code are forked from.

It is the image's own Python, started like a command, with one socket: packets on it make contexts.
Commands can stop or kill it. So nothing here waits for it, and another one takes its place.
"""

import os
import select
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from ..code import protocol
from ..frames import StartFailure
from . import processes
from .refusal import Refusal
from .spawn import posix_spawn
from .spawner import Spawner

OWN_PYTHON = "/.sandboxd/bin/python3.11"
PROGRAM = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "code")
FIRST_VICTIM = "1000"
_FACTS_BYTES = 4096
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""Libraries start a thread for each processor of the host unless these say otherwise."""


class CodeParent:
    """A started process, until it is killed or replaced."""

    def __init__(
        self, python: str, environment: Mapping[str, str], cwd: str, preload: Sequence[str]
    ) -> None:
        self.is_ready = False
        """Whether it can make contexts."""
        self.is_placed = False
        """Whether the daemon has put it where contexts belong."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket = ours
        try:
            os.chdir(cwd)
            self.pid = posix_spawn(
                python,
                [python, *_OPTIONS.get(python, ()), f"{PROGRAM}/zygote.py", *preload],
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, theirs.fileno(), protocol.ZYGOTE_DESCRIPTOR),
                ],
                setsigdef=[signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGQUIT],
            )
        except BaseException:
            ours.close()
            raise
        finally:
            os.chdir("/")
            theirs.close()
        ours.setblocking(False)

    def make(self, settings: bytes, descriptors: Sequence[int]) -> bool:
        """Have a context made with these descriptors; False if it takes no packet now. OSError if
        it is gone."""
        try:
            socket.send_fds(self.socket, [settings], list(descriptors), socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        return True

    def read(self) -> bool:
        """Take what it reports; False if it is gone."""
        try:
            facts = self.socket.recv(_FACTS_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if facts and not self.is_ready:
            self.is_ready = True
        return bool(facts)

    def be_first_victim(self) -> None:
        """Have the kernel take it, and with it the contexts, before the guest."""
        with suppress(OSError), open(f"/proc/{self.pid}/oom_score_adj", "w") as file:
            file.write(FIRST_VICTIM)

    def discard(self) -> None:
        processes.kill(self.pid)
        self.socket.close()


class CodeParents:
    """Starts one when there is none."""

    def __init__(
        self,
        poll: select.epoll,
        spawner: Spawner,
        environment: Mapping[str, str],
        cwd: str,
        *,
        place: Callable[[], None],
        is_first_victim: bool,
    ) -> None:
        self._poll = poll
        self._spawner = spawner
        self.environment = environment
        self._cwd = cwd
        self._place = place
        self._is_first_victim = is_first_victim
        self.current: CodeParent | None = None
        self.discarded_pids: set[int] = set()
        """Those that are about to end."""

    @property
    def pids(self) -> set[int]:
        current = {self.current.pid} if self.current is not None else set()
        return current | self.discarded_pids

    def obtain(self, preload: Sequence[str] = ()) -> tuple[CodeParent, bool]:
        """The one there is, or a new one, which imports modules ahead, and True. Refusal if there
        is no interpreter, OSError if there is no process for it."""
        if self.current is not None:
            return self.current, False
        python = find_program("python3", self.environment) or OWN_PYTHON
        if not os.access(python, os.X_OK):
            raise Refusal(StartFailure.NO_INTERPRETER, "the sandbox has no python3")
        environment = {**dict.fromkeys(_THREADS, "1"), **self.environment}
        parent = self._spawner.run(
            lambda: CodeParent(python, environment, self._cwd, preload),
            undo=CodeParent.discard,
            purpose="contexts of code",
        )
        try:
            self._place()
        except OSError:
            parent.discard()
            raise
        if self._is_first_victim:
            parent.be_first_victim()
        self.current = parent
        self._poll.register(parent.socket, select.EPOLLIN)
        return parent, True

    def has(self, program: str) -> bool:
        """Whether contexts find this program."""
        return find_program(program, self.environment) is not None

    def discard(self) -> None:
        """End it; the next context gets another."""
        parent, self.current = self.current, None
        if parent is not None:
            self.discarded_pids.add(parent.pid)
            parent.discard()

    def forget(self, pid: int) -> bool:
        """A process has ended; whether it was the current one."""
        self.discarded_pids.discard(pid)
        if self.current is None or self.current.pid != pid:
            return False
        self.current.socket.close()
        self.current = None
        return True


_OPTIONS = {OWN_PYTHON: ("-I", "-S")}
"""The guest's own has no site."""


def find_program(name: str, environment: Mapping[str, str]) -> str | None:
    for directory in environment.get("PATH", os.defpath).split(":"):
        path = os.path.join(directory, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None
