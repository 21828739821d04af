"""What some commands have besides output: input, a terminal, signals, a named shell."""

import os
import select
import time
from collections import deque
from collections.abc import Callable

from .. import frames
from ..daemon_link import DaemonLink
from ..frames import Kind, Target
from . import terminal
from .execution import Exec
from .named_shell import Saving
from .shell import Started
from .standard_input import StandardInput
from .terminal import Size

STATE_SECONDS = 0.005
"""Seconds between two looks at a state that a shell is writing: bash does so line by line."""


class Interaction:
    """Watches the descriptors of these."""

    def __init__(self, poll: select.epoll) -> None:
        self._poll = poll
        self._watched: dict[int, Callable[[], None]] = {}
        self._unreported: dict[int, Exec] = {}
        """Execs that took input which was not reported to the daemon."""
        self._saving: deque[tuple[float, Exec]] = deque()
        """Named shells that write their state, and when to read of it."""

    def connect(self, execution: Exec, started: Started) -> None:
        streams = started.shell.streams
        execution.is_terminal = streams.stderr < 0
        if streams.stdin >= 0:
            at_end = terminal.end_of_input if execution.is_terminal else None
            execution.input = StandardInput(streams.stdin, at_end)
        execution.saving = started.saving
        if started.saving is not None:
            self._watch_state(execution, started.saving)
        execution.gate = started.gate
        if started.gate is not None:
            descriptor = started.gate.descriptor
            self._watch(descriptor, select.EPOLLOUT, lambda: self._feed_gate(execution))

    def disconnect(self, execution: Exec) -> None:
        self._close_gate(execution)
        if execution.input is not None:
            self._unwatch(execution.input.descriptor)
            execution.input.close()
            execution.input = None

    def on_event(self, descriptor: int) -> None:
        if descriptor in self._watched:
            self._watched[descriptor]()

    def _watch(self, descriptor: int, mask: int, react: Callable[[], None]) -> None:
        self._watched[descriptor] = react
        self._poll.register(descriptor, mask)

    def _unwatch(self, descriptor: int) -> None:
        if self._watched.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    # --- from the daemon ---

    def handle(self, kind: int, execution: Exec | None, payload: bytes) -> None:
        """A frame for a running exec; one that has ended has no more use for it."""
        if kind == Kind.INPUT:
            self._accept(execution, *frames.decode_input(payload))
        elif kind == Kind.INPUT_END:
            self._end_input(execution)
        elif kind == Kind.SIGNAL:
            self._signal(execution, *frames.decode_signal(payload))
        elif kind == Kind.RESIZE:
            size = Size(*frames.decode_resize(payload))
            if execution is not None and execution.is_terminal and execution.input is not None:
                terminal.resize(execution.input.descriptor, size)
        else:
            raise frames.ProtocolError(f"unexpected frame of kind {kind}")

    def _signal(self, execution: Exec | None, number: int, target: Target) -> None:
        if not 1 <= number <= 64:
            raise frames.ProtocolError(f"there is no signal {number}")
        if execution is None or execution.status is not None:
            return
        group = execution.pid
        if execution.is_terminal and execution.input is not None:
            group = terminal.foreground_group(execution.input.descriptor) or execution.pid
        try:
            if target == Target.LEADER:
                os.kill(execution.pid, number)
            else:
                os.killpg(group, number)
        except OSError:
            pass  # ended by itself, or a number that the kernel keeps to itself

    # --- standard input ---

    def _accept(self, execution: Exec | None, offset: int, data: bytes) -> None:
        if execution is not None and execution.input is not None:
            execution.input.accept(offset, data)
            self._follow(execution, execution.input)

    def _end_input(self, execution: Exec | None) -> None:
        if execution is not None and execution.input is not None:
            # Before the end, at which the descriptor is closed.
            self._unwatch(execution.input.descriptor)
            execution.input.end()
            self._follow(execution, execution.input)

    def _write(self, execution: Exec, given: StandardInput) -> None:
        self._unwatch(given.descriptor)
        given.write()
        self._follow(execution, given)

    def _follow(self, execution: Exec, given: StandardInput) -> None:
        """Watch for when the command can take more; have what it took reported."""
        if given.taken > given.reported:
            self._unreported[execution.channel] = execution
        if given.is_waiting and given.descriptor not in self._watched:
            self._watch(given.descriptor, select.EPOLLOUT, lambda: self._write(execution, given))

    def resume(self, execution: Exec) -> None:
        """Report to a new daemon what was taken, whatever the last one knew."""
        if execution.input is not None:
            self._unreported[execution.channel] = execution

    def report_taken(self, link: DaemonLink) -> None:
        """Once in a turn, so that single bytes are not answered one by one."""
        for execution in self._unreported.values():
            if execution.input is not None and execution.is_attached:
                execution.input.reported = execution.input.taken
                link.send(frames.encode_input_taken(execution.channel, execution.input.taken))
        self._unreported.clear()

    # --- named shells ---

    def _feed_gate(self, execution: Exec) -> None:
        if execution.gate is not None:
            execution.gate.write()
            if not execution.gate.pending_bytes:
                self._close_gate(execution)

    def _close_gate(self, execution: Exec) -> None:
        if execution.gate is not None:
            self._unwatch(execution.gate.descriptor)
            execution.gate.close()
            execution.gate = None

    @property
    def next_look_at(self) -> float:
        """When there is a state to be read, or infinity."""
        return self._saving[0][0] if self._saving else float("inf")

    def _watch_state(self, execution: Exec, saving: Saving) -> None:
        self._watch(
            saving.descriptor, select.EPOLLIN, lambda: self._put_off_state(execution, saving)
        )

    def _put_off_state(self, execution: Exec, saving: Saving) -> None:
        """Most states fit the pipe and are read once, when their shell has ended."""
        self._unwatch(saving.descriptor)
        self._saving.append((time.monotonic() + STATE_SECONDS, execution))

    def read_states(self) -> None:
        while self._saving and self._saving[0][0] <= time.monotonic():
            execution = self._saving.popleft()[1]
            if execution.saving is not None and execution.saving.read():
                self._watch_state(execution, execution.saving)

    def take_state(self, execution: Exec) -> Saving | None:
        """The state of a shell that has ended."""
        saving, execution.saving = execution.saving, None
        if saving is not None:
            self._unwatch(saving.descriptor)
            self._saving = deque(entry for entry in self._saving if entry[1] is not execution)
        return saving
