"""One command as the guest has it: its output until the daemon has it too, and its end."""

from __future__ import annotations

import fcntl
import os
import struct
import termios
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import frames
from ..frames import Cause, ContextRun, Ending, ExecState, Exited, Remark, Stream
from .named_shell import Saving
from .processes import Beginning
from .shell import WaitingShell
from .standard_input import Feed, StandardInput

if TYPE_CHECKING:
    from .context import Context

STRAGGLER_SECONDS = 0.1
"""How long output may stay open after the first process of a command has ended."""
LARGE_OUTPUT = 256 * 1024
"""From there on a pipe is as large as can be, so that the command is switched to less often."""
TERMINAL_BUFFER = 72 * 1024
"""More than the kernel holds of a terminal's output; how much that is it does not say."""


_NO_REMARKS = Remark(0)


class Output:
    """One stream: what was read of it, and what of that is kept."""

    __slots__ = ("descriptor", "is_large", "kept", "kept_bytes", "owed", "read", "sent", "stream")

    def __init__(self, stream: Stream, descriptor: int) -> None:
        self.stream = stream
        self.descriptor = descriptor
        """-1 once it is closed."""
        self.read = 0
        """Bytes read in all."""
        self.is_large = False
        """Whether there was so much that a larger pipe was asked for."""
        self.sent = 0
        """Bytes sent in all, or that the daemon has from an earlier link."""
        self.owed = 0
        """Bytes that were there when the first process ended: they must be read."""
        self.kept: deque[bytes] = deque()
        """The last of what was read; the daemon may ask for it again."""
        self.kept_bytes = 0

    def keep(self, data: bytes) -> None:
        self.kept.append(data)
        self.kept_bytes += len(data)
        self.read += len(data)
        if self.read > LARGE_OUTPUT and not self.is_large:
            self.is_large = True
            # A terminal has none, and beyond the quota of the uid the usual size has to do.
            with suppress(OSError):
                fcntl.fcntl(self.descriptor, fcntl.F_SETPIPE_SZ, frames.MAX_PIPE)

    def forget(self, offset: int) -> None:
        """The daemon has it up to `offset`. A piece is forgotten as a whole."""
        begin = self.read - self.kept_bytes
        while self.kept and begin + len(self.kept[0]) <= offset:
            size = len(self.kept.popleft())
            begin += size
            self.kept_bytes -= size

    def unsent(self) -> Iterator[bytes]:
        begin = self.read - self.kept_bytes
        for data in self.kept:
            if begin + len(data) > self.sent:
                yield data[max(0, self.sent - begin) :]
            begin += len(data)

    def rewind(self, offset: int) -> bool:
        """Go on from `offset`; False, from the first byte that is kept, if that is a later one."""
        if offset > self.read:
            raise frames.ProtocolError("it has output that there never was")
        self.sent = max(offset, self.read - self.kept_bytes)
        self.forget(self.sent)
        return self.sent == offset


class Exec:
    """One command or run of code, running or ended."""

    def __init__(
        self,
        channel: int,
        *,
        pid: int,
        beginning: Beginning,
        stdout: int,
        stderr: int,
        events: int | None = None,
    ) -> None:
        """With a pipe of events for a run of code."""
        self.channel = channel
        self.pid = pid
        self.beginning = beginning
        self.started_at = time.monotonic()
        self.stdout = Output(Stream.STDOUT, stdout)
        self.stderr = Output(Stream.STDERR, stderr)
        self.outputs: tuple[Output, ...] = (self.stdout, self.stderr)
        if events is not None:
            self.outputs += (Output(Stream.EVENTS, events),)
        self.context: Context | None = None
        """The context that lends its process and its pipes."""
        self.context_run: ContextRun | None = None
        self.done: int | None = None
        """How a run of code ended whose context lives on."""
        self.request: Mapping[str, object] | None = None
        """What a run of code was asked for with, until its context is there."""
        self.tries = 0
        self.is_interrupted = False
        """Whether the guest itself has interrupted it, at its deadline."""
        self.window = frames.WINDOW
        self.is_watched = False
        """Its pipes are not watched while it is very young or its window is used up."""
        self.is_attached = True
        """Whether the daemon at the other end of this connection has asked for its output."""
        self.is_end_sent = False
        """Whether its end was sent on this connection."""
        self.is_kept = False
        """Whether it stays after its end, until it is released."""
        self.reports_start = False
        """Whether the daemon wants to be told which process it is."""
        self.merges_stderr = False
        self.label = b""
        self.input: StandardInput | None = None
        self.gate: Feed | None = None
        """The rest of a set-up that did not fit the pipe."""
        self.saving: Saving | None = None
        """What it leaves behind in its named shell."""
        self.is_terminal = False
        self.status: int | None = None
        self.cause = Cause.ITSELF
        self.remarks = _NO_REMARKS
        self.shell: WaitingShell | None = None
        """The shell that it was handed to, until that is known to have taken it."""
        self.deadline_at = float("inf")
        """When it is ended even if no daemon asks for that."""
        self.give_up_at = float("inf")

    def has_ended(self, status: int) -> None:
        self.status = status
        self.give_up_at = time.monotonic() + STRAGGLER_SECONDS

    def has_done(self, done: int) -> None:
        """A run of code has ended, and its context has not: what it wrote is in the pipes."""
        self.status, self.done = 0, done
        self.give_up_at = time.monotonic()
        self.note_debt()

    def note_debt(self) -> None:
        """What is in the pipes now was written before the end, or close to it."""
        for output in self.outputs:
            if output.descriptor < 0:
                continue
            if self.is_terminal:
                # Read to the end just now, unless the window was used up.
                output.owed = output.read + (TERMINAL_BUFFER if self.window <= 0 else 0)
                continue
            count = fcntl.ioctl(output.descriptor, termios.FIONREAD, b"\0" * 4)
            output.owed = output.read + struct.unpack("i", count)[0]

    def has_begun(self) -> bool:
        """Whether its shell has taken it. One that has not is woken up: it may be stopped."""
        if self.shell is not None and self.shell.has_taken_command():
            self.shell = None
        if self.shell is not None:
            self.shell.wake()
        return self.shell is None

    @property
    def is_open(self) -> bool:
        return any(output.descriptor >= 0 for output in self.outputs)

    @property
    def is_finished(self) -> bool:
        if self.status is None:
            return False
        return not self.is_open or time.monotonic() >= self.due_at

    @property
    def due_at(self) -> float:
        """When it is over even if its output stays open; never while output is owed, for then
        credit or the pipe itself brings us back."""
        for output in self.outputs:
            if output.descriptor >= 0 and output.read < output.owed:
                return float("inf")
        return self.give_up_at

    @property
    def is_behind(self) -> bool:
        """Whether there is output that was read and not sent."""
        return any(output.sent < output.read for output in self.outputs)

    @property
    def kept_bytes(self) -> int:
        return sum(output.kept_bytes for output in self.outputs)

    def output(self, stream: Stream) -> Output:
        """ProtocolError if it has no such stream."""
        if stream > len(self.outputs):
            raise frames.ProtocolError("only a run of code has events")
        return self.outputs[stream - 1]

    def ending(self) -> Exited:
        assert self.status is not None
        code = os.waitstatus_to_exitcode(self.status)
        kind, value = (Ending.CODE, code) if code >= 0 else (Ending.SIGNAL, -code)
        if self.done is not None:
            kind, value = Ending.DONE, self.done
        return Exited(kind, self.cause, value, *(output.read for output in self.outputs))

    def state(self, *, has_ended: bool) -> ExecState:
        ending = self.ending() if has_ended else None
        stdout, stderr, *events = (output.read for output in self.outputs)
        return ExecState(ending, stdout, stderr, self.label, *events)
