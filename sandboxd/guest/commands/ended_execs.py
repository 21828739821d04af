"""Execs that have ended and whose end the daemon may not have yet."""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from .context import Context
from .execution import Exec
from .processes import Beginning

MAX_ENDED = 1024
MAX_ENDED_BYTES = 48 << 20
"""A daemon releases what it has long before; otherwise the oldest goes. More than the
usual 32 commands at once can leave: without a daemon their output is not read, but what is in the
pipes of one that ends has to be kept, up to its window."""
MAX_FAILED = 64
"""The daemon asks for a sweep of one at once, when few others can have failed since."""


class Failed(NamedTuple):
    """What is needed to find the processes that an exec has left."""

    pid: int
    beginning: Beginning
    context: Context | None


class EndedExecs:
    """Bounded in number and in output."""

    def __init__(self) -> None:
        self._execs: dict[int, Exec] = {}
        """Oldest first."""
        self._counted: dict[int, int] = {}
        self.kept_bytes = 0
        self._leaving: deque[tuple[int, Exec]] = deque()
        """Execs that nobody asked to keep, with where in the flow their last word ends."""
        self._failed: dict[int, Failed] = {}
        """The last of those that did not succeed, oldest first, whether or not they are kept."""

    def get(self, channel: int) -> Exec | None:
        return self._execs.get(channel)

    def all(self) -> Iterable[Exec]:
        return self._execs.values()

    def add(self, execution: Exec) -> None:
        self._execs[execution.channel] = execution
        if execution.status or execution.done:
            failed = Failed(execution.pid, execution.beginning, execution.context)
            self._failed[execution.channel] = failed
            if len(self._failed) > MAX_FAILED:
                del self._failed[next(iter(self._failed))]
        self.count(execution)
        while len(self._execs) > MAX_ENDED or self.kept_bytes > MAX_ENDED_BYTES:
            self.forget(next(iter(self._execs)))

    def failed(self, channel: int) -> Failed | None:
        """Only an exec that failed can have run out of memory."""
        return self._failed.get(channel)

    def count(self, execution: Exec) -> None:
        """Count its output anew, which may be less by now."""
        if execution.channel in self._execs:
            before = self._counted.get(execution.channel, 0)
            self._counted[execution.channel] = execution.kept_bytes
            self.kept_bytes += execution.kept_bytes - before

    def forget(self, channel: int) -> None:
        if self._execs.pop(channel, None) is not None:
            self.kept_bytes -= self._counted.pop(channel)

    def forget_after(self, execution: Exec, position: int) -> None:
        """Its last word ends at `position` of the flow; once that has left it is not needed."""
        self._leaving.append((position, execution))

    def has_left(self, flushed: int) -> None:
        while self._leaving and self._leaving[0][0] <= flushed:
            self.forget(self._leaving.popleft()[1].channel)

    def flow_is_lost(self) -> None:
        """Keep what was leaving: it may not have arrived."""
        self._leaving.clear()
