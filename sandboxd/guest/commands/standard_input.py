"""Bytes for the standard input of a command, written as it takes them."""

import os
from collections import deque
from collections.abc import Callable

from .. import frames


class Feed:
    """Writes to a descriptor without ever waiting; its owner says when to try again."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.pending: deque[bytes] = deque()
        self.pending_bytes = 0

    def add(self, data: bytes) -> None:
        if data:
            self.pending.append(data)
            self.pending_bytes += len(data)

    def write(self) -> bytes:
        """Write what fits; returns the last byte written. A reader that is gone takes all."""
        last = b""
        try:
            while self.pending:
                data = self.pending[0]
                count = os.write(self.descriptor, data)
                last = data[count - 1 : count]
                self.pending_bytes -= count
                if count < len(data):
                    self.pending[0] = data[count:]
                else:
                    self.pending.popleft()
        except BlockingIOError:
            pass
        except OSError:  # closed by its reader, or a terminal that nobody has open
            self.pending.clear()
            self.pending_bytes = 0
        return last

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        self.pending.clear()
        self.pending_bytes = 0


class StandardInput:
    """The standard input of one command: a pipe, or the terminal."""

    def __init__(
        self, descriptor: int, end_of_input: Callable[[int, bytes], bytes] | None = None
    ) -> None:
        self._feed = Feed(descriptor)
        self._end_of_input = end_of_input
        """What to write at the end where closing would be too much: on a terminal."""
        self._received = 0
        """Bytes that came from the daemon in all; the offset of the next one."""
        self._last_byte = b""
        self._is_ending = False
        self._has_ended = False
        self.reported = 0
        """Bytes that the daemon knows to be taken."""

    @property
    def taken(self) -> int:
        return self._received - self._feed.pending_bytes

    @property
    def descriptor(self) -> int:
        return self._feed.descriptor

    @property
    def is_waiting(self) -> bool:
        """Whether there is something to write once the command has taken what is there."""
        return self._feed.pending_bytes > 0 or (self._is_ending and not self._has_ended)

    def accept(self, offset: int, data: bytes) -> None:
        """Take what is new of `data`; a daemon that resumes repeats some of it."""
        if offset > self._received:
            raise frames.ProtocolError("input with a gap")
        fresh = data[self._received - offset :]
        if self._is_ending and fresh:
            raise frames.ProtocolError("input after its end")
        if self._feed.pending_bytes + len(fresh) > frames.MAX_INPUT:
            raise frames.ProtocolError("more input than was asked for")
        self._received += len(fresh)
        self._feed.add(fresh)
        self.write()

    def end(self) -> None:
        """No more will come; what is pending is still written."""
        self._is_ending = True
        self.write()

    def write(self) -> None:
        self._last_byte = self._feed.write() or self._last_byte
        if self._is_ending and not self._has_ended and not self._feed.pending_bytes:
            self._has_ended = self._write_end()

    def _write_end(self) -> bool:
        if self._end_of_input is None:
            self._feed.close()
            return True
        try:
            os.write(self.descriptor, self._end_of_input(self.descriptor, self._last_byte))
        except BlockingIOError:
            return False
        except OSError:
            pass  # no process has the terminal open
        return True

    def close(self) -> None:
        self._has_ended = True
        self._feed.close()
