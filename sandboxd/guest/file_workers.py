"""Processes that work on files, one for each operation.

Forked from PID 1, so that they start at once and are as closed to commands as it is; but a command
has their uid, and can stop or kill them. Then only that operation fails.

Operations come in bunches. So for a while after one, the process for the next waits already: to
fork it and to let go of what is not its own takes longer than most of them do.
"""

import array
import gc
import os
import resource
import signal
import socket
import time
from typing import NamedTuple

from . import processes
from .files.area import Area
from .files.worker import serve

MAX_WORKERS = 24
"""Far more than a daemon has at work; those that it gave up are ended."""
MEMORY_BYTES = 128 << 20
BUNCH_SECONDS = 2.0
"""How long after an operation another is expected."""
_GIVEN, _TAKEN = b"?", b"!"
_RIGHTS_SPACE = socket.CMSG_SPACE(array.array("i").itemsize)


class _Waiting(NamedTuple):
    """A worker that has no operation yet."""

    pid: int
    ours: socket.socket
    workspace: str

    def give(self, descriptor: int) -> bool:
        """Hand it the socket of its operation; False if it is not there any more."""
        rights = array.array("i", [descriptor])
        try:
            # A command may have stopped it while it waited.
            os.kill(self.pid, signal.SIGCONT)
            self.ours.sendmsg([_GIVEN], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError:
            return False
        return True

    def has_taken(self) -> bool:
        """Whether it has what it was given; one that was being killed meanwhile has not."""
        try:
            return self.ours.recv(1) == _TAKEN
        except OSError:
            return False


class FileWorkers:
    """Those that live now, by the numbers that the daemon gave them."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        """By pid."""
        self._waiting: _Waiting | None = None
        self._given: dict[int, tuple[_Waiting, int]] = {}
        """By pid: those that had waited, with the socket that each was given, which is for another
        one if they turn out not to have taken it."""
        self._bunch_ends_at = 0.0

    @property
    def pids(self) -> set[int]:
        waiting = {self._waiting.pid} if self._waiting else set()
        return waiting | self._numbers.keys()

    @property
    def is_one_wanted(self) -> bool:
        """Whether one should wait that does not: not while others work, who need the processor."""
        is_idle = self._waiting is None and not self._numbers
        return is_idle and time.monotonic() < self._bunch_ends_at

    @property
    def give_up_at(self) -> float:
        """When the one that waits has waited in vain."""
        return self._bunch_ends_at if self._waiting else float("inf")

    def start(self, number: int, descriptor: int, workspace: str) -> None:
        """Have one work. Where that cannot be, the daemon sees its socket closed without a word."""
        self._bunch_ends_at = time.monotonic() + BUNCH_SECONDS
        if not self._give(number, descriptor, workspace):
            self._fork(number, descriptor, workspace)

    def _fork(self, number: int, descriptor: int, workspace: str) -> None:
        try:
            if len(self._numbers) < MAX_WORKERS:
                pid = os.fork()
                if pid == 0:
                    _work(descriptor, workspace)
                self._numbers[pid] = number
        except OSError:
            pass  # no process is left for it
        finally:
            os.close(descriptor)

    def _give(self, number: int, descriptor: int, workspace: str) -> bool:
        """Whether there was one that waited and has been given it."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return False
        if waiting.workspace != workspace or not waiting.give(descriptor):
            waiting.ours.close()
            processes.kill(waiting.pid)
            return False
        self._numbers[waiting.pid] = number
        self._given[waiting.pid] = (waiting, descriptor)
        return True

    def prepare(self, workspace: str) -> None:
        """Have one wait."""
        ours, its = socket.socketpair()
        ours.setblocking(False)
        try:
            pid = os.fork()
            if pid == 0:
                _wait(its.fileno(), workspace)
        except OSError:
            ours.close()
            self._bunch_ends_at = 0.0  # no process is left for it
            return
        finally:
            its.close()
        self._waiting = _Waiting(pid, ours, workspace)

    def give_up(self) -> None:
        """End the one that waits."""
        if self._waiting is not None:
            self._waiting.ours.close()
            processes.kill(self._waiting.pid)
            self._waiting = None

    def end(self, number: int) -> None:
        """It is not needed any more; one that does not end by itself has to."""
        for pid, its_number in self._numbers.items():
            if its_number == number:
                self._end(pid)

    def end_all(self) -> None:
        """Nobody is there any more whom they could work for."""
        self._bunch_ends_at = 0.0
        self.give_up()
        for pid in self._numbers:
            self._end(pid)

    def _end(self, pid: int) -> None:
        if pid in self._given:
            waited, descriptor = self._given.pop(pid)
            waited.ours.close()
            os.close(descriptor)
        processes.kill(pid)

    def forget(self, pid: int) -> None:
        """It has ended."""
        number = self._numbers.pop(pid, None)
        if number is not None and pid in self._given:
            waited, descriptor = self._given.pop(pid)
            if waited.has_taken():
                os.close(descriptor)
            else:
                self._fork(number, descriptor, waited.workspace)
            waited.ours.close()
        elif self._waiting is not None and self._waiting.pid == pid:
            self._waiting.ours.close()
            self._waiting = None


def _work(descriptor: int, workspace: str) -> None:
    """In the new process; never returns."""
    try:
        gc.disable()
        _let_go_of_everything_but(descriptor)
        _confine()
        _serve(descriptor, workspace)
    finally:
        os._exit(0)


def _wait(descriptor: int, workspace: str) -> None:
    """In a process for an operation that will come; never returns."""
    try:
        gc.disable()
        _let_go_of_everything_but(descriptor)
        _confine()
        with socket.socket(fileno=descriptor) as its:
            its.setblocking(True)
            _, rights, _, _ = its.recvmsg(1, _RIGHTS_SPACE)
            if rights:
                its.send(_TAKEN)
        for _, _, data in rights:
            _serve(array.array("i", data)[0], workspace)
    finally:
        os._exit(0)


def _serve(descriptor: int, workspace: str) -> None:
    os.set_inheritable(descriptor, False)
    root = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    with socket.socket(fileno=descriptor) as connection:
        connection.setblocking(True)
        serve(Area(root, os.fsencode(workspace)), connection)


def _let_go_of_everything_but(descriptor: int) -> None:
    """Above all of the link, and of the pipes of commands, which would not end."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, limit)


def _confine() -> None:
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
