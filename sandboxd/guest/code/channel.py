"""The descriptors that connect a context with PID 1, and what passes on them."""

from __future__ import annotations

from _thread import allocate_lock
from fcntl import F_DUPFD_CLOEXEC, F_GETFL, F_SETFL, fcntl
from posix import O_NONBLOCK, _exit, close, dup2, fstat, getpid, open, read, set_blocking, write
from select import POLLIN, POLLOUT, poll
from sys import version_info
from typing import Any

from . import records
from .interrupts import Interrupts
from .protocol import (
    GREETING,
    MAX_OPTIONS,
    OFFSETS,
    ORDER,
    PIECE,
    REPORT,
    VERSION,
    Orders,
    Reports,
)

_SLICE_MS = 50
"""How long a wait goes on before it looks whether an interrupt was held back."""


class Channel:
    """Reports to PID 1, orders from it, records of the run, and the run's input."""

    def __init__(
        self, control: int, events: int, input: int, interrupts: Interrupts, first: int
    ) -> None:
        self._interrupts = interrupts
        self._control, self._events, self.input = (
            _moved(descriptor, first) for descriptor in (control, events, input)
        )
        set_blocking(self._events, False)
        set_blocking(self._control, True)
        set_blocking(self.input, False)
        self._pid = getpid()
        self._lock = allocate_lock()
        self._unsent = bytearray()
        self._received = b""
        self._syncs = 0
        self.is_syncing = False
        self.number = 0

    def hello(self) -> None:
        greeting = GREETING.pack(*version_info[:3], VERSION)
        self._report(Reports.HELLO, 0, int.from_bytes(greeting, "big"))

    def done(self, status: int) -> None:
        """All records are out before the end is."""
        self.send(b"")
        self._report(Reports.DONE, status, self.number)

    def _report(self, kind: int, status: int, number: int) -> None:
        if getpid() == self._pid:
            write(self._control, REPORT.pack(kind, status, number))

    def receive(self) -> tuple[int, int, bytes] | None:
        """The next order; None if PID 1 is gone."""
        head = self._read(ORDER.size)
        if head is None:
            return None
        kind, number, size = ORDER.unpack(head)
        body = self._read(size)
        return None if body is None else (kind, number, body)

    def _read(self, size: int) -> bytes | None:
        parts = []
        while size:
            part = read(self._control, min(size, 1 << 20))
            if not part:
                return None
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def send(self, record: bytes) -> None:
        """Write a record behind what is not out yet. An interrupt leaves the rest for later."""
        if getpid() != self._pid:
            return
        self._interrupts.begin()
        try:
            if self._acquire():
                try:
                    self._unsent += record
                    self._flush()
                finally:
                    self._lock.release()
        finally:
            self._interrupts.end()
        self._interrupts.check()

    def _acquire(self) -> bool:
        while not self._lock.acquire(True, _SLICE_MS / 1000):
            if self._interrupts.is_pending:
                return False
        return True

    def _flush(self) -> None:
        writable = poll()
        writable.register(self._events, POLLOUT)
        while self._unsent:
            if not writable.poll(_SLICE_MS):
                if self._interrupts.is_pending:
                    return
                continue
            try:
                del self._unsent[: write(self._events, self._unsent[: 1 << 16])]
            except BlockingIOError:
                continue

    def sync(self) -> tuple[int, int]:
        """Wait until PID 1 has read what was written; the bytes of both streams in this run."""
        if not self.is_syncing or getpid() != self._pid:
            return 0, 0
        self._interrupts.begin()
        try:
            offsets = self._sync() if self._acquire() else (0, 0)
        finally:
            self._interrupts.end()
        self._interrupts.check()
        return offsets

    def _sync(self) -> tuple[int, int]:
        try:
            self._flush()
            self._syncs += 1
            self._report(Reports.SYNC, 0, self._syncs)
            return self._await_sync(self._syncs)
        finally:
            self._lock.release()

    def _await_sync(self, wanted: int) -> tuple[int, int]:
        """An answer that an interrupt left behind is passed over."""
        readable = poll()
        readable.register(self._control, POLLIN)
        while True:
            if not readable.poll(_SLICE_MS):
                if self._interrupts.is_pending:
                    return 0, 0
                continue
            order = self.receive()
            if order is None:
                _exit(0)
            kind, number, body = order
            if kind == Orders.SYNCED and number == wanted:
                return OFFSETS.unpack(body)

    def read_input(self) -> bytes:
        """What has come for this run so far, without waiting."""
        parts = []
        try:
            self._received += read(self.input, 1 << 16)
        except (BlockingIOError, InterruptedError):
            pass
        while len(self._received) >= PIECE.size:
            number, size = PIECE.unpack_from(self._received)
            if size > MAX_OPTIONS:
                _exit(72)  # PID 1 sends no such piece: the stream is no longer in step
            if len(self._received) < PIECE.size + size:
                break
            if number == self.number:
                parts.append(self._received[PIECE.size : PIECE.size + size])
            self._received = self._received[PIECE.size + size :]
        return b"".join(parts)

    def disconnect(self) -> None:
        """In a child of the user's code: it has nothing to say."""
        null = open("/dev/null", 2)
        for descriptor in (self._control, self._events, self.input):
            dup2(null, descriptor, False)
        close(null)


def _moved(descriptor: int, first: int) -> int:
    """The same at a number from `first` on, where code that counts descriptors does not look."""
    try:
        moved = fcntl(descriptor, F_DUPFD_CLOEXEC, first)
    except OSError:
        return descriptor
    close(descriptor)
    return moved


def clear_nonblocking(descriptor: int) -> None:
    flags = fcntl(descriptor, F_GETFL)
    if flags & O_NONBLOCK:
        fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK)


def identity(descriptor: int) -> Any:
    """What a descriptor refers to; None if it is closed."""
    try:
        found = fstat(descriptor)
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Reporter:
    """Records of one run, within the limits on their number and size."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._notes = 0
        self._logs = 0
        self._displays = 0
        self._display_bytes = 0
        self.left_out_displays = 0
        self.left_out_logs = 0

    def note(self, sentence: str) -> None:
        self._notes += 1
        if self._notes <= records.MAX_NOTES:
            self._channel.send(records.note(sentence[:2000]))

    def log(self, record: bytes) -> None:
        self._logs += 1
        if self._logs > records.MAX_LOGS:
            self.left_out_logs += 1
            return
        self._channel.send(record)

    def display(self, media: list[tuple[str, bytes]], left_out: list[str]) -> None:
        """A display keeps its place among the output: nothing later is read before it."""
        size = sum(len(body) for _, body in media)
        is_over = self._display_bytes + size > records.MAX_DISPLAY_BYTES
        if self._displays >= records.MAX_DISPLAYS or is_over:
            self.left_out_displays += 1
            return
        self._displays += 1
        self._display_bytes += size
        self._channel.sync()
        self._channel.send(records.display(records.Kinds.DISPLAY, media, left_out))
        self._channel.sync()

    def finish(self) -> None:
        """Say how much was left out."""
        if self.left_out_displays or self.left_out_logs:
            self._channel.send(records.left_out(self.left_out_displays, self.left_out_logs))
