"""The guest's end of the link: what is to be sent to the daemon, and what came from it."""

import array
import os
import select
import socket
import time
from collections import deque
from itertools import islice

from . import frames

MAX_PIECES = 256
"""Pieces given to one send; the kernel takes up to 1024."""
SEND_BUFFER = 1 << 20
"""The kernel gives what it allows, twice its default as a rule: fewer switches for much output."""
LINGER_SECONDS = 0.001
"""How long a little output of a young command waits for the exit, to leave in one piece with it."""


_RIGHTS_SPACE = socket.CMSG_SPACE(4 * array.array("i").itemsize)


class DaemonLink:
    """One connection after the other. Without one, what is sent is dropped."""

    def __init__(self, poll: select.epoll) -> None:
        self._poll = poll
        self._connection: socket.socket | None = None
        self._decoder = frames.Decoder(frames.MAX_DAEMON_PAYLOAD)
        self.inbox: deque[tuple[int, int, bytes]] = deque()
        self._descriptors: deque[int] = deque()
        """Those that came along, in the order of the frames that they belong to."""
        self.outgoing: deque[bytes | memoryview] = deque()
        self.outgoing_bytes = 0
        self.queued = 0
        """Bytes ever given to this connection to send."""
        self.linger_until = 0.0
        self.is_writable_watched = False
        self.descriptor = -1

    def open(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        self._connection = connection
        self.descriptor = connection.fileno()
        self._poll.register(self.descriptor, select.EPOLLIN)

    def close(self) -> None:
        """Forget the connection and what it carried, half a frame included."""
        if self._connection is not None:
            self._connection.close()  # which also ends its watch
        self._connection = None
        self.descriptor = -1
        self._decoder = frames.Decoder(frames.MAX_DAEMON_PAYLOAD)
        self.inbox.clear()
        while self._descriptors:
            os.close(self._descriptors.popleft())
        self.outgoing.clear()
        self.outgoing_bytes = self.queued = 0
        self.linger_until = 0.0
        self.is_writable_watched = False

    @property
    def is_open(self) -> bool:
        return self._connection is not None

    @property
    def flushed(self) -> int:
        """Bytes that have left, in all."""
        return self.queued - self.outgoing_bytes

    def send(self, data: bytes | memoryview, *, linger: bool = False) -> None:
        if self._connection is None:
            return
        if not linger:
            self.linger_until = 0.0
        elif not self.outgoing:
            self.linger_until = time.monotonic() + LINGER_SECONDS
        self.outgoing.append(data)
        self.outgoing_bytes += len(data)
        self.queued += len(data)

    def flush_if_due(self) -> bool:
        """Send what the kernel takes; False if it is not time to."""
        if not self.outgoing or self._connection is None:
            return False
        if self.linger_until and time.monotonic() < self.linger_until:
            return False
        try:
            self._drop(self._connection.sendmsg(list(islice(self.outgoing, MAX_PIECES))))
        except BlockingIOError:
            pass  # the writable event brings us back
        except (BrokenPipeError, ConnectionResetError):
            # The read side will see the end. It did not leave, so it does not count as flushed.
            self.queued -= self.outgoing_bytes
            self._drop(self.outgoing_bytes)
        self._watch(writable=bool(self.outgoing))
        return True

    def _drop(self, count: int) -> None:
        """Forget the first `count` bytes of what is to be sent."""
        self.outgoing_bytes -= count
        while count:
            piece = self.outgoing.popleft()
            if len(piece) > count:
                self.outgoing.appendleft(memoryview(piece)[count:])
                return
            count -= len(piece)

    def _watch(self, *, writable: bool) -> None:
        if writable != self.is_writable_watched:
            self.is_writable_watched = writable
            mask = select.EPOLLIN | (select.EPOLLOUT if writable else 0)
            self._poll.modify(self.descriptor, mask)

    def read_frames(self) -> bool:
        """Fill the inbox; False once the daemon is gone."""
        if self._connection is None:
            return False
        try:
            data, rights, _, _ = self._connection.recvmsg(1 << 16, _RIGHTS_SPACE)
        except BlockingIOError:
            return True
        except ConnectionResetError:
            return False
        if rights:
            self._take_descriptors(rights)
        for frame in self._decoder.feed(data):
            self.inbox.append((frame.kind, frame.channel, bytes(frame.payload)))
        return bool(data)

    def _take_descriptors(self, rights: list[tuple[int, int, bytes]]) -> None:
        for level, kind, data in rights:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
                self._descriptors.extend(numbers)
                for number in numbers:
                    os.set_inheritable(number, False)

    def take_descriptor(self) -> int:
        """The one that belongs to the frame just taken from the inbox."""
        if not self._descriptors:
            raise frames.ProtocolError("no descriptor came along")
        return self._descriptors.popleft()
