"""Worker processes: each serves the daemon over a socket of its own, for one purpose.

They are forked from PID 1, so that they start at once and commands see as little of them as of it.
But a command has the same uid and can stop or kill them; then only that worker's request fails.

Their processor time is limited for all of them together. Beyond that requests wait.

Requests come in bunches, and forking a process and closing what it inherited takes longer than most
requests do. So a worker stays for the next request if the daemon asks for that, until it has used
so much processor time that its account has to be settled. For a while after a request that no
worker stays for, a process waits for the next.
"""

import array
import gc
import os
import resource
import signal
import socket
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from .commands import processes
from .commands.domain import Domains
from .files.worker import Stay, serve_anywhere, serve_workspace
from .frames import Purpose
from .idle_marks import IdleMarks
from .worker_budget import WorkerBudget

MAX_WORKERS = 24
"""Far more than a daemon uses at once; those that it gave up are killed."""
MEMORY_BYTES = 128 << 20
BUNCH_SECONDS = 2.0
"""How long after a request another is expected."""
_TAKEN = b"!"
_RIGHTS_SPACE = socket.CMSG_SPACE(array.array("i").itemsize)


def _serve_anywhere(connection: socket.socket, workspace: str, stay: Stay | None) -> None:
    """In a domain of its own: it reaches into commands under /proc as little as they do into each
    other."""
    Domains().enter_new()
    serve_anywhere(connection, workspace, stay)


_SERVE: dict[int, Callable[[socket.socket, str, Stay | None], None]] = {
    Purpose.FILES: serve_workspace,
    Purpose.FILES_ANYWHERE: _serve_anywhere,
}
"""What a worker does, by purpose, given its socket, the path of the workspace, and the terms on
which it stays; None if it must not."""


class _Job(NamedTuple):
    number: int
    """The worker's number, chosen by the daemon."""
    purpose: int
    descriptor: int
    """The worker's socket."""
    workspace: str


class _Waiting(NamedTuple):
    """A worker that has no job yet."""

    pid: int
    ours: socket.socket
    workspace: str

    def give(self, job: _Job) -> bool:
        """Hand it a job; False if it is gone."""
        rights = array.array("i", [job.descriptor])
        try:
            # A command may have stopped it while it waited.
            os.kill(self.pid, signal.SIGCONT)
            data = [bytes([job.purpose])]
            self.ours.sendmsg(data, [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        except OSError:
            return False
        return True

    def has_taken(self) -> bool:
        """Whether it received its job; one that was being killed meanwhile did not."""
        try:
            return self.ours.recv(1) == _TAKEN
        except OSError:
            return False


class Workers:
    """Those that live now, the one that waits, and jobs that wait for processor time."""

    def __init__(self) -> None:
        self.budget = WorkerBudget()
        self._jobs: deque[_Job] = deque()
        """Jobs that wait until the budget allows another worker."""
        self._numbers: dict[int, int] = {}
        """The daemon's number for each pid."""
        self._marks = IdleMarks()
        self._places: dict[int, int | None] = {}
        """The place of its mark for each pid."""
        self._given_up: set[int] = set()
        """Pids of workers that were killed while they waited for a request."""
        self._waiting: _Waiting | None = None
        self._given: dict[int, tuple[_Waiting, _Job]] = {}
        """Workers that had waited, by pid, each with its job: if one ends without having taken the
        job, another gets it."""
        self._bunch_ends_at = 0.0

    @property
    def pids(self) -> set[int]:
        waiting = {self._waiting.pid} if self._waiting else set()
        return waiting | (self._numbers.keys() - self._given_up)

    @property
    def is_one_wanted(self) -> bool:
        """Whether a worker should be prepared: not while others work, who need the processor, nor
        while the next job has to wait."""
        is_idle = self._waiting is None and not self._numbers and not self._jobs
        return is_idle and self.budget.free_at <= time.monotonic() < self._bunch_ends_at

    @property
    def give_up_at(self) -> float:
        """When the waiting worker is no longer expected to get a job."""
        return self._bunch_ends_at if self._waiting else float("inf")

    @property
    def next_start_at(self) -> float:
        """When a job that waits gets its worker."""
        return self.budget.free_at if self._jobs else float("inf")

    def start(self, number: int, purpose: int, descriptor: int, workspace: str) -> None:
        """Start a worker, as soon as the budget allows. If that is impossible, or the purpose is
        unknown, the daemon sees its socket closed."""
        if purpose not in _SERVE or len(self._jobs) >= MAX_WORKERS:
            os.close(descriptor)
            return
        self._jobs.append(_Job(number, purpose, descriptor, workspace))
        self.start_due()

    def start_due(self) -> None:
        """Start the workers that the budget allows."""
        while self._jobs and self.budget.free_at <= time.monotonic():
            self._bunch_ends_at = time.monotonic() + BUNCH_SECONDS
            job = self._jobs.popleft()
            if not self._give(job):
                self._fork(job)

    def _fork(self, job: _Job) -> None:
        try:
            if len(self._numbers) < MAX_WORKERS:
                pid = self._fork_for(lambda stay: _work(job, stay))
                self._numbers[pid] = job.number
        except OSError:
            pass  # no process is left for it
        finally:
            os.close(job.descriptor)

    def _fork_for(self, work: Callable[[Stay | None], None]) -> int:
        """The pid of a process that does this work and never returns; OSError if there is none."""
        place = self._marks.take()
        try:
            pid = os.fork()
        except OSError:
            if place is not None:
                self._marks.give_back(place)
            raise
        if pid == 0:
            mark = None if place is None else partial(self._marks.set, place)
            work(None if mark is None else Stay(self.budget.stay_seconds, mark))
        self._places[pid] = place
        return pid

    def _give(self, job: _Job) -> bool:
        """Whether a worker waited and was given the job."""
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            return False
        if waiting.workspace != job.workspace or not waiting.give(job):
            waiting.ours.close()
            processes.kill(waiting.pid)
            return False
        self._numbers[waiting.pid] = job.number
        self._given[waiting.pid] = (waiting, job)
        return True

    def prepare(self, workspace: str) -> None:
        """Fork a worker that waits for a job."""
        ours, its = socket.socketpair()
        ours.setblocking(False)
        try:
            pid = self._fork_for(lambda stay: _wait(its.fileno(), workspace, stay))
        except OSError:
            ours.close()
            self._bunch_ends_at = 0.0  # no process is left for it
            return
        finally:
            its.close()
        self._waiting = _Waiting(pid, ours, workspace)

    def give_up(self) -> None:
        """Kill the waiting worker, and those that stay without work: should one get a request this
        moment, the daemon sees that it has not begun with it, and asks another."""
        self.stop_waiting()
        for pid in self._numbers:
            place = self._places[pid]
            if place is not None and self._marks.is_set(place):
                self._given_up.add(pid)
                processes.kill(pid)

    def stop_waiting(self) -> None:
        """Kill the waiting worker."""
        if self._waiting is not None:
            self._waiting.ours.close()
            processes.kill(self._waiting.pid)
            self._waiting = None

    def wake(self, number: int) -> None:
        """Continue a worker that a command may have stopped."""
        for pid, its_number in self._numbers.items():
            if its_number == number:
                os.kill(pid, signal.SIGCONT)

    def end(self, number: int) -> None:
        """Kill a worker that the daemon no longer needs, unless it has ended."""
        for job in tuple(self._jobs):
            if job.number == number:
                self._jobs.remove(job)
                os.close(job.descriptor)
        for pid, its_number in self._numbers.items():
            if its_number == number:
                self._end(pid)

    def end_all(self) -> None:
        """Kill all workers: the daemon that they worked for is gone."""
        self._bunch_ends_at = 0.0
        self.give_up()
        while self._jobs:
            os.close(self._jobs.popleft().descriptor)
        for pid in self._numbers:
            self._end(pid)

    def _end(self, pid: int) -> None:
        if pid in self._given:
            waited, job = self._given.pop(pid)
            waited.ours.close()
            os.close(job.descriptor)
        processes.kill(pid)

    def forget(self, pid: int, used: float) -> None:
        """Note that this process has ended, whether or not it was a worker, and what processor time
        it has used."""
        number = self._numbers.pop(pid, None)
        self._given_up.discard(pid)
        place = self._places.pop(pid, None)
        if place is not None:
            self._marks.give_back(place)
        if number is not None:
            self.budget.charge(used)
        if number is not None and pid in self._given:
            waited, job = self._given.pop(pid)
            if waited.has_taken():
                os.close(job.descriptor)
            else:
                self._fork(job)
            waited.ours.close()
        elif self._waiting is not None and self._waiting.pid == pid:
            self._waiting.ours.close()
            self._waiting = None


def _work(job: _Job, stay: Stay | None) -> None:
    """Do a job in the new process; never returns."""
    try:
        gc.disable()
        _close_all_but(job.descriptor)
        _confine()
        _serve(job.purpose, job.descriptor, job.workspace, stay)
    finally:
        os._exit(0)


def _wait(descriptor: int, workspace: str, stay: Stay | None) -> None:
    """Wait for a job in the new process and do it; never returns."""
    try:
        gc.disable()
        _close_all_but(descriptor)
        _confine()
        with socket.socket(fileno=descriptor) as its:
            its.setblocking(True)
            purpose, rights, _, _ = its.recvmsg(1, _RIGHTS_SPACE)
            if rights:
                its.send(_TAKEN)
        for _, _, data in rights:
            _serve(purpose[0], array.array("i", data)[0], workspace, stay)
    finally:
        os._exit(0)


def _serve(purpose: int, descriptor: int, workspace: str, stay: Stay | None) -> None:
    os.set_inheritable(descriptor, False)
    with socket.socket(fileno=descriptor) as connection:
        connection.setblocking(True)
        _SERVE[purpose](connection, workspace, stay)


def _close_all_but(descriptor: int) -> None:
    """Above all the link, and the pipes of commands, which would otherwise never end."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, limit)


def _confine() -> None:
    os.setsid()
    for number in (signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
