"""The threads that start processes.

A new process begins in the cgroup of the thread that made it, and a thread in that of its maker.
The daemon moves the first thread, once, to where commands belong, and never has to move a command:
moving costs up to 20 ms. Threads have PID 1's protection, so unlike a helper process no command can
kill them.

Where commands have used up their limits, they may be held up like a command. The guest itself is
not: it waits for a bounded time only.
"""

import _thread
import errno
import os
import signal
from _queue import SimpleQueue
from collections.abc import Callable
from typing import Generic, TypeVar

from .domain import Domains

T = TypeVar("T")

STACK_BYTES = 256 * 1024
PATIENCE_SECONDS = 0.1
"""Seconds that the guest waits for a process and serves nothing else: less than the daemon waits
for a guest that was asked to end a command."""
FIRST_SECONDS = 5.0
"""Before there is anything else to serve: on a host that is overloaded it may well take so long."""


class Late(BlockingIOError):
    """It has not ended yet. The next call for the same purpose gets its result."""

    def __init__(self) -> None:
        super().__init__(errno.EAGAIN, "processes cannot be started in time")


class _Call(Generic[T]):
    """A call that the thread makes."""

    def __init__(
        self, function: Callable[[], T], undo: Callable[[T], object], purpose: object
    ) -> None:
        self._function = function
        self._undo = undo
        self.purpose = purpose
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._done = _thread.allocate_lock()
        self._done.acquire()

    def run(self) -> None:
        try:
            self._result.append(self._function())
        except BaseException as error:
            self._error = error
        self._done.release()

    def fail(self, error: OSError) -> None:
        self._error = error
        self._done.release()

    def result(self, seconds: float) -> T:
        if not self.has_ended(seconds):
            raise Late
        if self._error is not None:
            raise self._error
        return self._result[0]

    def has_ended(self, seconds: float) -> bool:
        """Wait for its end, for so long."""
        if not self._done.acquire(timeout=seconds):
            return False
        self._done.release()
        return True

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def undo(self) -> None:
        for result in self._result:
            self._undo(result)


_Calls = SimpleQueue[_Call[object] | None]
"""Calls for one thread; None ends it."""


class Spawner:
    """Runs functions in another thread, one at a time, while the caller waits for a while.

    The first thread only starts others. Each of those has a domain, which the processes that it
    starts inherit.
    """

    def __init__(self) -> None:
        self._domains = Domains()
        self._new_threads: SimpleQueue[_Calls] = SimpleQueue()
        self._calls: _Calls | None = None
        """Calls for the latest thread."""
        self.patience = FIRST_SECONDS
        self._late: _Call[object] | None = None
        """A call that has not ended, and that no caller waits for."""
        # Signals are the main thread's; a thread begins with its maker's mask.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            _start_thread(self._start_threads)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def run(
        self,
        function: Callable[[], T],
        undo: Callable[[T], object],
        *,
        purpose: object,
        needs_new_domain: bool = True,
    ) -> T:
        """What the function returns; Late if that takes too long. It goes on then: the next call
        of the same purpose gets its result, before any other it is undone."""
        if self._late is not None:
            if not self._late.has_ended(self.patience):
                raise Late
            late, self._late = self._late, None
            if late.purpose == purpose:
                return self._result(late)  # type: ignore[return-value]  # as its purpose says
            late.undo()
            if late.has_failed:
                self._end_thread()  # it may not even have begun, and would serve no further call
        call = _Call(function, undo, purpose)
        self._thread(needs_new_domain).put(call)  # type: ignore[arg-type]  # calls of any type
        return self._result(call)

    def disown(self) -> None:
        """Undo a late call when it ends: what it has made is about to be killed."""
        if self._late is not None:
            self._late.purpose = object()

    def _result(self, call: _Call[T]) -> T:
        try:
            return call.result(self.patience)
        except Late:
            self._late = call  # type: ignore[assignment]
            raise
        except BlockingIOError:
            self._end_thread()  # it may not even have begun
            raise

    def _thread(self, needs_new_domain: bool) -> _Calls:
        """The calls for a thread that may start the next process."""
        if needs_new_domain and self._domains.are_available:
            self._end_thread()
        if self._calls is None:
            self._calls = SimpleQueue()
            self._new_threads.put(self._calls)
        return self._calls

    def _end_thread(self) -> None:
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None

    def _start_threads(self) -> None:
        while True:
            calls = self._new_threads.get()
            try:
                _start_thread(self._serve, calls)
            except RuntimeError:
                _fail_first(calls)

    def _serve(self, calls: _Calls) -> None:
        try:
            self._domains.enter_new()
        except OSError:
            _fail_first(calls)
            return
        while (call := calls.get()) is not None:
            call.run()


def _start_thread(target: Callable[..., None], *arguments: object) -> None:
    """RuntimeError if there is no room for it."""
    before = _thread.stack_size(STACK_BYTES)
    try:
        # Not threading.Thread: its start waits for the thread to run, its end is entered in lists,
        # and commands that run beside others take a new thread each.
        _thread.start_new_thread(target, arguments)
    finally:
        _thread.stack_size(before)


def _fail_first(calls: _Calls) -> None:
    """The thread for these calls cannot serve them."""
    call = calls.get()
    if call is not None:
        call.fail(BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
