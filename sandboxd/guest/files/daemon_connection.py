"""A worker's connection to the daemon: blocking, and over as soon as the daemon gives up."""

import json
import select
import socket
from typing import cast

from ..worker_frames import HEADER, frame, header
from . import codec
from .codec import Entry, Failed, Failure, Found, Kind, LeftOut

_LOOK_EVERY = 256


class Gone(Exception):
    """The daemon gave the operation up."""


class Refused(Exception):
    """The operation cannot be done, for a reason that is reported to the daemon."""

    def __init__(
        self, failure: Failure, *, first: int = 0, second: int = 0, field: bytes = b""
    ) -> None:
        super().__init__(failure.name)
        self.failed = Failed(failure, first, second, field)


class DaemonConnection:
    """Receives a request and its data, and sends the answers."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._left = 0
        """Bytes of the current DATA that were not read yet."""
        self._expects_data = False
        self._has_ended = False
        self._steps = 0

    @property
    def is_at_the_end(self) -> bool:
        """Whether nothing that belongs to the last request can still come."""
        return self._has_ended or not self._expects_data

    # --- from the daemon ---

    def request(self) -> dict[str, object]:
        """The next request; the one before is over."""
        self._expects_data = self._has_ended = False
        kind, size = self._header()
        if kind != Kind.REQUEST or size > codec.MAX_REQUEST:
            raise Gone
        return cast(dict[str, object], json.loads(self._exactly(size)))

    def receive_into(self, buffer: memoryview) -> int:
        """Read some of the daemon's data and return how much; 0 at its end."""
        while not self._left:
            if self._has_ended:
                return 0
            kind, size = self._header()
            if kind == Kind.END and not size:
                self._has_ended = True
                return 0
            if kind != Kind.DATA or size > codec.MAX_DATA:
                raise Gone
            self._left = size
        count = self._receive(buffer[: self._left])
        self._left -= count
        return count

    def receive_all(self, limit: int) -> bytes:
        """All of the daemon's data, up to the END."""
        received, buffer = bytearray(), memoryview(bytearray(1 << 16))
        while count := self.receive_into(buffer):
            received += buffer[:count]
            if len(received) > limit:
                raise Gone
        return bytes(received)

    def check(self) -> None:
        """Raise Gone if the daemon gave up; looks only now and then, so it may be called often."""
        self._steps += 1
        if self._steps % _LOOK_EVERY == 0:
            self.look()

    def look(self) -> None:
        """Raise Gone if the daemon gave up."""
        poll = select.poll()
        poll.register(self._socket, 0)  # hang-ups are always reported
        if poll.poll(0):
            raise Gone

    def fileno(self) -> int:
        return self._socket.fileno()

    def _header(self) -> tuple[int, int]:
        kind, size = HEADER.unpack(self._exactly(HEADER.size))
        return kind, size

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        view = memoryview(data)
        position = 0
        while position < size:
            position += self._receive(view[position:])
        return bytes(data)

    def _receive(self, buffer: memoryview) -> int:
        try:
            count = self._socket.recv_into(buffer)
        except ConnectionResetError:
            count = 0
        if not count:
            raise Gone
        return count

    # --- to the daemon ---

    def ready(self) -> None:
        """Ask for the data of the request."""
        self._expects_data = True
        self.send(frame(Kind.READY))

    def announce(self) -> None:
        """Say that the work begins, or still goes on."""
        self.send(frame(Kind.READY))

    def entry(self, entry: Entry) -> None:
        self.entries([entry])

    def entries(self, entries: list[Entry]) -> None:
        batch = bytearray()
        for entry in entries:
            batch += codec.encode_entry(entry)
            if len(batch) >= codec.BATCH_BYTES:
                self.send(frame(Kind.ENTRIES, bytes(batch)))
                batch.clear()
        if batch:
            self.send(frame(Kind.ENTRIES, bytes(batch)))

    def found(self, found: Found) -> None:
        self.send(codec.encode_found(found))

    def left_out(self, members: list[LeftOut]) -> None:
        batch = bytearray()
        for member in members:
            batch += codec.encode_left_out(member)
            if len(batch) >= codec.BATCH_BYTES:
                self.send(frame(Kind.LEFT_OUT, bytes(batch)))
                batch.clear()
        if batch:
            self.send(frame(Kind.LEFT_OUT, bytes(batch)))

    def data(self, data: memoryview) -> None:
        self.send(header(Kind.DATA, len(data)))
        self.send(data)

    def changes(self, changes: bytes, *, overflow: bool) -> None:
        self.send(codec.encode_changes(overflow=overflow, changes=changes))

    def done(self, *figures: int) -> None:
        self.send(codec.encode_done(*figures))

    def failed(self, failed: Failed) -> None:
        self.send(codec.encode_failed(failed))

    def send(self, data: bytes | memoryview) -> None:
        try:
            self._socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise Gone from None
