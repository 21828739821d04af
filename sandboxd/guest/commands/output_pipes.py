"""Reading what commands write."""

import errno
import os
import select
import time
from collections import deque
from collections.abc import Callable, Iterator

from .. import frames
from ..daemon_link import LINGER_SECONDS
from ..frames import Stream
from .context import waiting_bytes
from .execution import Exec, Output

CHUNKS_PER_TURN = 8
"""Each turn costs as much as reading a chunk does; with many more, others would wait."""


class OutputPipes:
    """The pipes and terminals of running commands, watched by a poll of their own within `poll`, so
    that all of them can be left unread while the daemon is behind.

    `send` is called with what was read and can be sent now."""

    def __init__(self, poll: select.epoll, send: Callable[[Exec, Output, bytes], None]) -> None:
        self._poll = poll
        self._send = send
        self._pipes = select.epoll()
        self.descriptor = self._pipes.fileno()
        self._is_watched = True
        self._by_descriptor: dict[int, tuple[Exec, Output]] = {}
        self._young: deque[Exec] = deque()
        """Commands whose pipes are not watched yet, oldest first."""
        poll.register(self.descriptor, select.EPOLLIN)

    def watch(self, is_watched: bool) -> None:
        """Whether any is to be read."""
        if is_watched != self._is_watched:
            self._is_watched = is_watched
            self._poll.modify(self.descriptor, select.EPOLLIN if is_watched else 0)

    def add(self, execution: Exec) -> None:
        for output in execution.outputs:
            if output.descriptor >= 0:
                self._by_descriptor[output.descriptor] = (execution, output)
        self._young.append(execution)

    def remove(self, execution: Exec) -> None:
        for output in execution.outputs:
            if output.descriptor >= 0:
                self._close(execution, output)
        if execution in self._young:
            self._young.remove(execution)

    @property
    def grown_up_at(self) -> float:
        """When the next command has pipes to be watched."""
        return self._young[0].started_at + LINGER_SECONDS if self._young else float("inf")

    def watch_grown_up(self) -> None:
        """Most commands are over in a moment. Their pipes are read once, when they have ended, and
        the two hang-ups just before that do not wake us."""
        while self._young and self._young[0].started_at + LINGER_SECONDS <= time.monotonic():
            execution = self._young.popleft()
            if execution.window > 0:
                self._watch_one(execution)

    def watch_if_allowed(self, execution: Exec) -> None:
        if execution.window > 0 and execution.is_open and execution not in self._young:
            self._watch_one(execution)

    def _watch_one(self, execution: Exec) -> None:
        if execution.context is not None and not execution.context.pid:
            return  # what it writes before it is there is no output: it may yet be made again
        if not execution.is_watched:
            execution.is_watched = True
            for output in execution.outputs:
                if output.descriptor >= 0:
                    self._pipes.register(output.descriptor, select.EPOLLIN)

    def _pause(self, execution: Exec) -> None:
        # Unregistered, not masked: a masked pipe still reports its hang-up, over and over.
        if execution.is_watched:
            execution.is_watched = False
            for output in execution.outputs:
                if output.descriptor >= 0:
                    self._pipes.unregister(output.descriptor)

    def ready(self) -> Iterator[int]:
        """Descriptors that have something to read."""
        for descriptor, _ in self._pipes.poll(0):
            yield descriptor

    def read_some(self, descriptor: int) -> None:
        """A few chunks, so that no pipe starves another."""
        for _ in range(CHUNKS_PER_TURN):
            if descriptor not in self._by_descriptor or not self._read(descriptor):
                break

    def read_all(self, execution: Exec) -> None:
        """All that is there. A context goes on writing, so of its pipes what is there now."""
        for output in execution.outputs:
            if execution.context is not None:
                self._read_up_to(output, output.read + waiting_bytes(output.descriptor))
                continue
            while output.descriptor >= 0 and self._read(output.descriptor):
                pass

    def _read_up_to(self, output: Output, end: int) -> None:
        while output.descriptor >= 0 and output.read < end and self._read(output.descriptor):
            pass

    def _read_text_first(self, execution: Exec) -> None:
        """Nothing that was written before an event is passed on after it."""
        for output in execution.outputs:
            if output.stream is not Stream.EVENTS:
                self._read_up_to(output, output.read + waiting_bytes(output.descriptor))

    def _read(self, descriptor: int) -> bool:
        """Pass one chunk on; False when the pipe is empty or closed, or the window is used up."""
        execution, output = self._by_descriptor[descriptor]
        most = frames.MAX_CHUNK
        if output.stream is Stream.EVENTS:
            # Before the text is read: later events may follow later text. At least one byte, to see
            # the end; if one has come since, it is passed on early.
            most = min(most, max(1, waiting_bytes(descriptor)))
            self._read_text_first(execution)
        if execution.window <= 0:
            self._pause(execution)
            return False
        try:
            data = os.read(descriptor, min(most, execution.window))
        except BlockingIOError:
            output.owed = 0  # a terminal owes less than was assumed
            return False
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""  # how a terminal says that no process has it open
        if not data:
            self._close(execution, output)
            return False
        execution.window -= len(data) + frames.FRAME_COST
        is_next = execution.is_attached and output.sent == output.read
        output.keep(data)
        if is_next:
            self._send(execution, output, data)
        return True

    def _close(self, execution: Exec, output: Output) -> None:
        if execution.is_watched:
            # Closing does not end the watch while a copy of the descriptor is open: that of a
            # terminal's input, and those of a process between its fork and its program. Until that
            # one goes on, which takes long on a busy host, the hang-up would wake us over and over.
            self._pipes.unregister(output.descriptor)
        del self._by_descriptor[output.descriptor]
        if execution.context is None:  # otherwise its context uses it again
            os.close(output.descriptor)
        output.descriptor = -1
