"""The thread that starts processes.

A new process begins in the cgroup of the thread that made it. The daemon moves this thread, once,
to where commands belong, and never has to move a command: moving costs up to 20 ms. The thread has
PID 1's protection, so unlike a helper process no command can kill it.

Where commands have used up their limits, it may be held up like a command. The guest itself is not:
it waits for a bounded time only.
"""

import errno
import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

STACK_BYTES = 256 * 1024
PATIENCE_SECONDS = 0.1
"""Less than what the daemon waits for a guest to end a command."""
FIRST_SECONDS = 5.0
"""Before there is anything else to serve: on a host that is overloaded it may well take so long."""


class Late(BlockingIOError):
    """It has not ended yet. Whoever asks for the same again gets what comes of it."""

    def __init__(self) -> None:
        super().__init__(errno.EAGAIN, "processes cannot be started in time")


class _Call(Generic[T]):
    """A call on its way through the thread."""

    def __init__(
        self, function: Callable[[], T], undo: Callable[[T], object], purpose: object
    ) -> None:
        self._function = function
        self._undo = undo
        self.purpose = purpose
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._done = threading.Lock()
        self._done.acquire()

    def run(self) -> None:
        try:
            self._result.append(self._function())
        except BaseException as error:
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

    def undo(self) -> None:
        for result in self._result:
            self._undo(result)


class Spawner:
    """Runs functions in its thread, one at a time, while the caller waits for a while."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call[object]] = SimpleQueue()
        self.patience = FIRST_SECONDS
        self._late: _Call[object] | None = None
        """A call that nobody waits for any more."""
        before = threading.stack_size(STACK_BYTES)
        # Signals are the main thread's; a thread begins with its maker's mask.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            threading.Thread(target=self._serve, daemon=True).start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            threading.stack_size(before)

    def run(self, function: Callable[[], T], undo: Callable[[T], object], *, purpose: object) -> T:
        """What the function returns; Late if that takes too long. It goes on then: the next call
        of the same purpose gets its result, before any other it is undone."""
        if self._late is not None:
            if not self._late.has_ended(self.patience):
                raise Late
            late, self._late = self._late, None
            if late.purpose == purpose:
                return late.result(0.0)  # type: ignore[return-value]  # as its purpose says
            late.undo()
        call = _Call(function, undo, purpose)
        self._calls.put(call)  # type: ignore[arg-type]  # a queue of calls of any type
        try:
            return call.result(self.patience)
        except Late:
            self._late = call  # type: ignore[assignment]
            raise

    def disown(self) -> None:
        """Everything is about to be killed, and what a late call makes may be: nobody wants it."""
        if self._late is not None:
            self._late.purpose = object()

    def _serve(self) -> None:
        while True:
            self._calls.get().run()
