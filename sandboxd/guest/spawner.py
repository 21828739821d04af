"""The thread that starts processes.

A new process begins in the cgroup of the thread that made it. The daemon moves this thread, once,
to where commands belong, and never has to move a command: moving costs up to 20 ms. The thread has
PID 1's protection, so unlike a helper process no command can kill it.
"""

import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")

STACK_BYTES = 256 * 1024


class _Call(Generic[T]):
    """A call on its way through the thread."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
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

    def result(self) -> T:
        self._done.acquire()
        if self._error is not None:
            raise self._error
        return self._result[0]


class Spawner:
    """Runs functions in its thread, one at a time, while the caller waits."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[_Call[object]] = SimpleQueue()
        before = threading.stack_size(STACK_BYTES)
        # Signals are the main thread's; a thread begins with its maker's mask.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            threading.Thread(target=self._serve, daemon=True).start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            threading.stack_size(before)

    def run(self, function: Callable[[], T]) -> T:
        call = _Call(function)
        self._calls.put(call)  # type: ignore[arg-type]  # a queue of calls of any type
        return call.result()

    def _serve(self) -> None:
        while True:
            self._calls.get().run()
