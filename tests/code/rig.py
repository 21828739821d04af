"""A stand-in for PID 1: starts a zygote, makes contexts, and collects what runs report."""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandboxd.code.events import (
    Answer,
    Display,
    Error,
    Event,
    EventParser,
    Log,
    Note,
    Result,
    Step,
    Value,
    Violation,
)
from sandboxd.guest.code import protocol
from sandboxd.guest.code.protocol import Orders, Reports, Statuses

PROGRAM = Path(__file__).parents[2] / "sandboxd" / "guest" / "code"
PATIENCE = 60.0
SIGHARD = signal.SIGRTMAX - 2
PR_SET_CHILD_SUBREAPER = 36


class ContextLost(Exception):
    """The context's control socket was closed."""


@dataclass
class Outcome:
    status: int
    stdout: bytes
    stderr: bytes
    events: list[Event]
    order: list[object] = field(default_factory=list)
    """Pieces of standard output and events as they were read."""

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def value(self) -> str:
        """The text of the last expression; empty if there is none."""
        for event in self.of(Value):
            return next(d.data for d in event.display.data if d.media_type == "text/plain").decode()
        return ""

    @property
    def result(self) -> Any:
        found = self.of(Result)
        return json.loads(found[0].json) if found and found[0].json else None

    @property
    def conversions(self) -> dict[str, str]:
        return {one.path: one.what for found in self.of(Result) for one in found.conversions}

    @property
    def error(self) -> Error:
        return self.of(Error)[0]

    @property
    def steps(self) -> list[Step]:
        return self.of(Step)

    @property
    def notes(self) -> list[str]:
        return [note.text for note in self.of(Note)]

    @property
    def displays(self) -> list[Display]:
        return self.of(Display)

    @property
    def logs(self) -> list[Log]:
        return self.of(Log)

    @property
    def violations(self) -> list[Violation]:
        return self.of(Violation)


class Zygote:
    def __init__(self, python: str = sys.executable, preload: Sequence[str] = ()) -> None:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = subprocess.Popen(
            [
                *(
                    "bash",
                    "-c",
                    f'exec 3<&{theirs.fileno()} {theirs.fileno()}<&-; exec "$@"',
                    "zygote",
                ),
                *(python, str(PROGRAM / "zygote.py"), *preload),
            ],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": ""},
        )
        theirs.close()
        self.socket.settimeout(PATIENCE)
        self.facts = json.loads(self.socket.recv(1 << 16))
        self._contexts: list[ContextRig] = []

    def context(self, **settings: Any) -> ContextRig:
        settings.setdefault("cwd", "/tmp")
        found = ContextRig(self, settings)
        self._contexts.append(found)
        return found

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        self.socket.close()
        self.process.wait(PATIENCE)


class ContextRig:
    """One context, as PID 1 holds it."""

    def __init__(self, zygote: Zygote, settings: dict[str, Any]) -> None:
        self.control, control = socket.socketpair()
        self.input, given = socket.socketpair()
        self.control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._pipes = [os.pipe() for _ in range(3)]
        ends = [control.fileno(), given.fileno(), *(write for _, write in self._pipes)]
        socket.send_fds(zygote.socket, [protocol.encode_settings(**settings)], ends)
        for end in (control, given):
            end.close()
        for _, write in self._pipes:
            os.close(write)
        self.stdout, self.stderr, self.events = (read for read, _ in self._pipes)
        for read, _ in self._pipes:
            os.set_blocking(read, False)
        self.control.settimeout(PATIENCE)
        self.number = 0
        self.is_closed, self.is_reaped = False, True
        try:
            self.pid = self._hello()
        except ContextLost:
            self.close()
            raise
        self.is_reaped = False
        self.run_state = Run(self, 0)

    def _hello(self) -> int:
        data, extra, _, _ = self.control.recvmsg(protocol.REPORT.size, 1024)
        if not data:
            raise ContextLost
        kind, status, number = protocol.REPORT.unpack(data)
        *_, version = protocol.GREETING.unpack(number.to_bytes(4, "big"))
        assert (kind, status, version) == (Reports.HELLO, 0, protocol.VERSION)
        credentials = [d for _, kind, d in extra if kind == socket.SCM_CREDENTIALS]
        return int(struct.unpack("3i", credentials[0])[0])

    def start(self, code: str = "", **options: Any) -> Run:
        self.number += 1
        self.run_state = Run(self, self.number)
        body = protocol.encode_run(code, sync=True, **options)
        self.control.sendall(protocol.encode_order(Orders.RUN, self.number, body))
        return self.run_state

    def run(self, code: str = "", **options: Any) -> Outcome:
        return self.start(code, **options).wait()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def interrupt(self, run: Run, *signals: int) -> Outcome:
        """As the daemon does it: one signal after the other, until the run has ended."""
        for number in signals or (signal.SIGINT, signal.SIGINT, SIGHARD, SIGHARD):
            self.signal(number)
            with suppress(TimeoutError):
                return run.wait(0.2)
        return run.wait()

    def background(self) -> bytes:
        with suppress(BlockingIOError):
            return os.read(self.stdout, 1 << 20)
        return b""

    def end(self) -> int:
        """Wait for the end of its process; its wait status."""
        self.is_reaped = True
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if not self.is_reaped:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        for one in (self.control, self.input):
            one.close()
        for read, _ in self._pipes:
            with suppress(OSError):
                os.close(read)


class Run:
    def __init__(self, context: ContextRig, number: int) -> None:
        self._context = context
        self.number = number
        self.stdout, self.stderr = bytearray(), bytearray()
        self.order: list[object] = []
        self.events: list[Event] = []
        self.raw = bytearray()
        self._parser = EventParser()
        self._control = b""
        self.commands = 0
        self.status: int | None = None

    def wait(self, seconds: float = PATIENCE) -> Outcome:
        """Until the run has ended."""
        self._until(lambda: self.status is not None, seconds)
        assert self.status is not None
        return Outcome(self.status, bytes(self.stdout), bytes(self.stderr), self.events, self.order)

    def until_output(self, text: bytes) -> None:
        self._until(lambda: text in self.stdout, PATIENCE)

    def next(self, kind: type, seconds: float = PATIENCE) -> Any:
        """The next event of a kind that has not been taken yet."""
        found: list[Any] = []

        def has_come() -> bool:
            for index, event in enumerate(self.events):
                if isinstance(event, kind):
                    found.append(self.events.pop(index))
                    return True
            return self.status is not None

        self._until(has_come, seconds)
        if not found:
            raise AssertionError(f"the run ended with {self.status} without a {kind.__name__}")
        return found[0]

    def command(self, do: str, **arguments: Any) -> Answer:
        """Give a command to the debugger; its answer."""
        number = self.send(do, **arguments)
        while True:
            answer: Answer = self.next(Answer)
            if answer.command == number:
                return answer

    def send(self, do: str, **arguments: Any) -> int:
        self.commands += 1
        command = protocol.encode_command(self.commands, do, **arguments)
        self._context.input.sendall(protocol.encode_piece(self.number, command))
        return self.commands

    def step(self, mode: str) -> Step:
        """Go on to the next stop."""
        self.command("resume", mode=mode)
        step: Step = self.next(Step)
        return step

    def go_on(self) -> Outcome:
        self.command("resume", mode="continue")
        return self.wait()

    def _until(self, is_true: Any, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not is_true():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.stdout!r} {self.stderr!r} {self.events!r}")
            self._read(0.05)

    def _read(self, seconds: float) -> None:
        context = self._context
        descriptors = [context.stdout, context.stderr, context.events, context.control]
        ready, _, _ = select.select(descriptors, [], [], seconds)
        if ready:
            self._drain()
        if context.control in ready:
            self._read_control()

    def _drain(self) -> None:
        """Both streams, then the events: what was printed before a record comes before it."""
        self._drain_one(self._context.stdout, self.stdout)
        self._drain_one(self._context.stderr, self.stderr)
        before = len(self.raw)
        self._drain_one(self._context.events, self.raw)
        for placed in self._parser.feed(bytes(self.raw[before:])):
            self.events.append(placed.event)
            self.order.append(placed.event)

    def _drain_one(self, descriptor: int, into: bytearray) -> None:
        while True:
            try:
                data = os.read(descriptor, 1 << 20)
            except BlockingIOError:
                return
            if not data:
                return
            into += data
            if descriptor == self._context.stdout:
                self.order.append(data)

    def _read_control(self) -> None:
        data = self._context.control.recv(1 << 16)
        if not data:
            raise ContextLost
        self._control += data
        while len(self._control) >= protocol.REPORT.size:
            kind, status, number = protocol.REPORT.unpack_from(self._control)
            self._control = self._control[protocol.REPORT.size :]
            self._drain()
            if kind == Reports.SYNC:
                body = protocol.OFFSETS.pack(len(self.stdout), len(self.stderr))
                order = protocol.encode_order(Orders.SYNCED, number, body)
                self._context.control.sendall(order)
            elif kind == Reports.DONE and number == self.number and status <= Statuses.REFUSED:
                self.status = status
            else:
                raise ContextLost
