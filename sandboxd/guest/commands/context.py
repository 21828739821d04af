"""One context: a process that runs one piece of code after another and keeps its variables.

Its pipes and its channel stay for its whole life; each run borrows them. The code that it runs can
do anything to them. So what comes on the channel has a fixed form, and a context that breaks it is
killed.
"""

import fcntl
import os
import socket
import struct
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

from .. import frames
from ..code import protocol
from ..code.protocol import Orders, Reports
from ..frames import ContextPhase, ContextRun, ContextState, Ending
from . import processes
from .execution import Exec
from .standard_input import Feed, StandardInput

CLOSED_SECONDS = 0.25
"""Time for a process whose channel is closed to end by itself: it may be dying."""
PAUSE_SECONDS = 0.05
"""Between two reads of what is written between runs: nobody waits for it."""
_CHUNK = 1 << 16
MAX_UNREAD_INPUT = 1 << 20
"""Input of ended runs that a context has left unread, beyond what its socket holds."""
_CREDENTIALS = struct.Struct("3i")


class BrokenChannel(Exception):
    """The code that the context runs has written to its channel."""


class ClosedChannel(Exception):
    """The channel was closed: by the code, or because the process is ending."""


class Context:
    """One generation of it. `pid` is 0 until the kernel has said it."""

    def __init__(self, name: str, label: bytes, generation: int) -> None:
        self.name = name
        self.label = label
        self.generation = generation
        self.runs = 0
        self.version = ""
        self._orders_given = 0
        """Runs and questions of the daemon."""
        self.pid = 0
        self.execution: Exec | None = None
        """The run that is under way."""
        self.status: int | None = None
        """How its process ended."""
        self.is_broken = False
        self.is_closed = False
        """Whether its channel is closed: it gets no more runs, whether or not it ends by itself."""
        self.born_by = float("inf")
        """When it has to be there."""
        self.break_off_at = float("inf")
        """When it is killed, because its channel is closed and its process has not ended."""
        self.read_background_at = float("inf")
        """When to look at what was written between runs."""
        self._background = b""
        self._received = b""
        self._sync: tuple[int, tuple[int, ...]] | None = None
        """Number of a SYNC that is not answered, and up to where each stream has to be read."""
        self.control, control = socket.socketpair()
        self.input, given = socket.socketpair()
        self.stdout, stdout = os.pipe()
        self.stderr, stderr = os.pipe()
        self.events, events = os.pipe()
        self.theirs = [control.detach(), given.detach(), stdout, stderr, events]
        """In the order of protocol.Descriptors, until its parent has them."""
        self.control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.control.setblocking(False)
        for descriptor in self.pipes:
            os.set_blocking(descriptor, False)
        self._orders = Feed(self.control.fileno())
        self.input_feed = Feed(self.input.fileno())

    @property
    def pipes(self) -> tuple[int, int, int]:
        return self.stdout, self.stderr, self.events

    @property
    def phase(self) -> ContextPhase:
        if self.status is not None or self.is_broken:
            return ContextPhase.LOST
        if self.is_closed and self.execution is None:
            return ContextPhase.LOST
        return ContextPhase.BUSY if self.execution is not None else ContextPhase.IDLE

    def describe(self) -> ContextState:
        ending, value = Ending.CODE, 0
        if self.status is not None:
            code = os.waitstatus_to_exitcode(self.status)
            ending, value = (Ending.CODE, code) if code >= 0 else (Ending.SIGNAL, -code)
        return ContextState(
            self.name,
            self.generation,
            self.runs,
            self.phase,
            ending,
            value,
            self._background,
            self.label,
            self.version,
        )

    # --- runs ---

    def begin(
        self, execution: Exec, body: bytes, *, has_input: bool, is_question: bool
    ) -> ContextRun:
        """Give it the next run. It gets the order before it is there, if it is not there yet."""
        self.read_background()
        self.read_background_at = float("inf")
        self.runs += not is_question
        self._orders_given += 1
        self.execution = execution
        execution.context = self
        execution.context_run = ContextRun(self.generation, self.runs)
        if has_input:
            execution.input = RunInput(self.input_feed, self._orders_given)
        self._orders.add(protocol.encode_order(Orders.RUN, self._orders_given, body))
        self.write_orders()
        return execution.context_run

    def finish(self) -> None:
        """The run has ended, and its output is read."""
        self.execution = None
        self._sync = None
        self.read_background_at = time.monotonic() + PAUSE_SECONDS
        if self.input_feed.pending_bytes > MAX_UNREAD_INPUT:
            self.break_off()

    def write_orders(self) -> bool:
        """Write what fits; whether there is more."""
        self._orders.write()
        return self._orders.pending_bytes > 0

    def read_reports(self, on_born: Callable[[Exec], None]) -> Iterator[int]:
        """Take what the context reports; yields the end of the run, and calls `on_born` when its
        process is known. BrokenChannel if it is not of the form, ClosedChannel at the end."""
        try:
            data, ancillary, _, _ = self.control.recvmsg(_CHUNK, socket.CMSG_SPACE(1024))
        except BlockingIOError:
            return
        except OSError:
            data, ancillary = b"", []
        if not data:
            raise ClosedChannel
        if not self.pid:
            self._meet(data, ancillary)
            if self.execution is not None:
                self.execution.pid = self.pid
                on_born(self.execution)
        self._received += data
        while len(self._received) >= protocol.REPORT.size:
            report = protocol.REPORT.unpack_from(self._received)
            self._received = self._received[protocol.REPORT.size :]
            yield from self._take(*report)

    def _meet(self, data: bytes, ancillary: list[tuple[int, int, bytes]]) -> None:
        """The first words of a context: who sent them is what the kernel says."""
        for level, kind, value in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
                self.pid = _CREDENTIALS.unpack_from(value)[0]
        if self.pid < 2 or len(data) < protocol.REPORT.size or data[0] != Reports.HELLO:
            self.pid = max(0, self.pid)
            raise BrokenChannel
        number = protocol.REPORT.unpack_from(data)[2]
        self.version = "{}.{}.{}".format(*protocol.GREETING.unpack(number.to_bytes(4, "big")))

    def _take(self, kind: int, status: int, number: int) -> Iterator[int]:
        if kind == Reports.HELLO:
            return
        if self.execution is None or self.execution.status is not None:
            raise BrokenChannel
        if kind == Reports.SYNC:  # in place of one that an interrupt made it give up
            self._sync = (number, self._targets())
        elif kind == Reports.DONE and number == self._orders_given and status in (0, 1, 2, 3):
            yield status
        else:
            raise BrokenChannel

    def _targets(self) -> tuple[int, ...]:
        """Where each stream is when everything has been read that is in the pipes now."""
        assert self.execution is not None
        outputs = self.execution.outputs
        return tuple(output.read + waiting_bytes(output.descriptor) for output in outputs)

    @property
    def is_syncing(self) -> bool:
        return self._sync is not None

    def answer_sync(self) -> None:
        """Answer a SYNC once everything that was in the pipes has been read."""
        if self._sync is None or self.execution is None:
            return
        number, targets = self._sync
        outputs = self.execution.outputs
        if any(o.descriptor >= 0 and o.read < t for o, t in zip(outputs, targets, strict=True)):
            return
        self._sync = None
        body = protocol.OFFSETS.pack(outputs[0].read, outputs[1].read)
        self._orders.add(protocol.encode_order(Orders.SYNCED, number, body))
        self.write_orders()

    # --- between runs ---

    def read_background(self) -> None:
        """Keep the end of what was written while no run was under way. Events are dropped."""
        for descriptor in self.pipes:
            # No more than was there: what writes without pause would keep us.
            count = min(waiting_bytes(descriptor), _CHUNK)
            with suppress(OSError):
                data = os.read(descriptor, count) if count else b""
                if descriptor != self.events:
                    self._background = (self._background + data)[-frames.MAX_BACKGROUND :]
        self.read_background_at = time.monotonic() + PAUSE_SECONDS

    # --- its end ---

    def break_off(self) -> None:
        """Kill it: it can no longer be spoken with."""
        self.is_broken = True
        if self.pid:
            processes.kill(self.pid)

    def close_theirs(self) -> None:
        for descriptor in self.theirs:
            os.close(descriptor)
        self.theirs = []

    def close(self) -> None:
        """Close everything but the pipes of a run that is under way, which closes them."""
        self.close_theirs()
        self.control.close()
        self.input.close()
        if self.execution is None:
            self.close_pipes()

    def close_pipes(self) -> None:
        for descriptor in self.pipes:
            with suppress(OSError):
                os.close(descriptor)
        self.stdout = self.stderr = self.events = -1


class RunInput(StandardInput):
    """The input of one run: pieces that name the run, on the socket of its context."""

    def __init__(self, feed: Feed, number: int) -> None:
        super().__init__(feed.descriptor)
        self._feed = feed
        self._number = number
        self._earlier = feed.pending_bytes
        self._most_taken = 0

    @property
    def taken(self) -> int:
        # Headers are pending too, so this may lag behind; it must not go back.
        taken = self._received - max(0, self._feed.pending_bytes - self._earlier)
        self._most_taken = max(self._most_taken, taken)
        return self._most_taken

    def accept(self, offset: int, data: bytes) -> None:
        if offset > self._received:
            raise frames.ProtocolError("input with a gap")
        fresh = data[self._received - offset :]
        if self._received + len(fresh) - self.taken > frames.MAX_INPUT:
            raise frames.ProtocolError("more input than was asked for")
        self._received += len(fresh)
        if fresh:
            self._feed.add(protocol.encode_piece(self._number, fresh))
        self.write()

    def write(self) -> None:
        before = self._feed.pending_bytes
        self._feed.write()
        self._earlier = max(0, self._earlier - (before - self._feed.pending_bytes))

    def end(self) -> None:
        """The socket stays open for later runs."""

    def close(self) -> None:
        self._has_ended = True


def waiting_bytes(descriptor: int) -> int:
    """Bytes that are there to be read."""
    if descriptor < 0:
        return 0
    return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))[0])
