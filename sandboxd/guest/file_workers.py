"""Processes that work on files, one for each operation.

Forked from PID 1, so that they start at once and are as closed to commands as it is; but a command
has their uid, and can stop or kill them. Then only that operation fails.
"""

import gc
import os
import resource
import signal
import socket

from . import processes
from .files.area import Area
from .files.worker import serve

MAX_WORKERS = 24
"""Far more than a daemon has at work; those that it gave up are ended."""
MEMORY_BYTES = 128 << 20


class FileWorkers:
    """Those that live now, by the numbers that the daemon gave them."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        """By pid."""

    @property
    def pids(self) -> set[int]:
        return set(self._numbers)

    def start(self, number: int, descriptor: int, workspace: str) -> None:
        """Fork one. Where that cannot be, the daemon sees its socket closed without a word."""
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

    def end(self, number: int) -> None:
        """It is not needed any more; one that does not end by itself has to."""
        for pid, its_number in self._numbers.items():
            if its_number == number:
                processes.kill(pid)

    def end_all(self) -> None:
        for pid in self._numbers:
            processes.kill(pid)

    def forget(self, pid: int) -> None:
        self._numbers.pop(pid, None)


def _work(descriptor: int, workspace: str) -> None:
    """In the new process; never returns."""
    try:
        gc.disable()
        _let_go_of_everything_but(descriptor)
        _confine()
        root = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        with socket.socket(fileno=descriptor) as connection:
            connection.setblocking(True)
            serve(Area(root, os.fsencode(workspace)), connection)
    finally:
        os._exit(0)


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
