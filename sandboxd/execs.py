"""A command of a session, from its request to its truthful end."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import structlog

from sandboxd.errors import (
    CommandNotStartable,
    InvalidRequest,
    RequestTooLarge,
    SandboxLost,
    quoted,
)
from sandboxd.guest.frames import MAX_DAEMON_PAYLOAD, WINDOW, Cause, Ending, Exited, Stream
from sandboxd.isolation.meter import Reading, Usage
from sandboxd.link import LinkClosed
from sandboxd.output import Capture, Chunk, Discard, Queue, Sink
from sandboxd.sandbox import Sandbox

log = structlog.get_logger()

MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""The kernel's limit for one argument, and so for a command line."""
MAX_VECTOR_BYTES = 512 * 1024
"""Arguments and environment together."""
MAX_WORDS = 4096
HOST_KILL_SECONDS = 0.25
"""How long the guest gets to end a command before the host ends the sandbox."""
FIRST_BATCH_SECONDS = 0.01
"""How long `started` waits for company."""
MAX_BATCH_BYTES = 256 * 1024

_EXEC_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class Reason(Enum):
    """Why a command ended."""

    EXITED = auto()
    SIGNALLED = auto()
    TIMED_OUT = auto()
    CANCELLED = auto()
    SESSION_CLOSED = auto()
    SANDBOX_LOST = auto()
    SWEPT = auto()
    OUT_OF_MEMORY = auto()
    PROCESS_LIMIT = auto()
    DISK_FULL = auto()


@dataclass
class Ladder:
    """How often each step was needed to end a command."""

    by_guest: int = 0
    by_host: int = 0
    by_engine: int = 0


@dataclass(frozen=True, kw_only=True)
class ExecSpec:
    """A checked request to run something."""

    exec_id: str
    shell: str | None
    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    timeout_seconds: float
    survives_disconnect: bool = False
    """Whether it runs on when its caller goes away."""
    capture_bytes: int | None = None
    """Bytes of each stream to keep for one answer; absent means that a reader follows it."""

    def __post_init__(self) -> None:
        if not _EXEC_ID.fullmatch(self.exec_id):
            raise InvalidRequest("exec_id", "use 1 to 64 letters, digits, `_`, `-` or `.`")
        if self.shell is not None:
            self._check_line(self.shell)
        else:
            self._check_words()
        _no_nul("cwd", self.cwd)
        if len(self.cwd.encode()) > 4096:
            raise RequestTooLarge("cwd", "a path has at most 4096 bytes")
        self._check_env()
        if self._size() > MAX_VECTOR_BYTES:
            raise RequestTooLarge(
                "command",
                f"with its environment it has over {MAX_VECTOR_BYTES} bytes; use a file for data",
            )

    def _check_line(self, line: str) -> None:
        if not line.strip():
            raise InvalidRequest("command", "the command is empty; give a command line or argv")
        _no_nul("command", line)
        if len(line.encode()) > MAX_ARGUMENT_BYTES:
            raise RequestTooLarge(
                "command",
                f"a command line has at most {MAX_ARGUMENT_BYTES} bytes; put large data in a file",
            )

    def _check_words(self) -> None:
        if not self.argv or not self.argv[0]:
            raise InvalidRequest("command", "argv needs a program as its first word")
        if len(self.argv) > MAX_WORDS:
            raise RequestTooLarge("command", f"argv has at most {MAX_WORDS} words")
        for word in self.argv:
            _no_nul("command", word)
            if len(word.encode()) > MAX_ARGUMENT_BYTES:
                raise RequestTooLarge(
                    "command", f"a word of argv has at most {MAX_ARGUMENT_BYTES} bytes"
                )

    def _check_env(self) -> None:
        if len(self.env) > MAX_WORDS:
            raise RequestTooLarge("env", f"there may be at most {MAX_WORDS} variables")
        for name, value in self.env.items():
            if not name or "=" in name:
                raise InvalidRequest("env", f"{quoted(name)} is no name of a variable")
            _no_nul("env", name + value)
            if len(name.encode()) + len(value.encode()) >= MAX_ARGUMENT_BYTES:
                raise RequestTooLarge("env", f"variable {quoted(name)} is too large")

    def _size(self) -> int:
        words = [self.shell or "", *self.argv, *self.env, *self.env.values()]
        return sum(len(word.encode()) for word in words)

    def encode(self) -> bytes:
        request = {
            "shell": self.shell,
            "argv": list(self.argv),
            "cwd": self.cwd,
            "env": dict(self.env),
        }
        # Not escaped to ASCII: that could grow a request beyond the frame limit.
        data = json.dumps(request, ensure_ascii=False).encode()
        if len(data) > MAX_DAEMON_PAYLOAD:
            raise RequestTooLarge("command", "the request is too large once encoded")
        return data


def new_exec_id() -> str:
    return f"exe_{secrets.token_hex(8)}"


def _no_nul(field: str, text: str) -> None:
    if "\0" in text:
        raise InvalidRequest(field, "it holds a NUL byte, which no argument can")


@dataclass(frozen=True, kw_only=True)
class ExitStatus:
    """How a command ended. Neither code nor signal when its end was not seen."""

    reason: Reason
    code: int | None = None
    signal: int | None = None
    duration_seconds: float
    stdout_bytes: int
    stderr_bytes: int
    hint: str
    usage: Usage | None = None
    """What the host counted; absent where it could not look."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What happened since the last batch."""

    is_first: bool
    chunks: Sequence[Chunk]
    exit: ExitStatus | None


class Exec:
    """A running or finished command. Belongs to its session; callers only look at it."""

    def __init__(
        self,
        spec: ExecSpec,
        sandbox: Sandbox,
        *,
        on_ended: Callable[[Exec], None],
        ladder: Ladder,
    ) -> None:
        self.spec = spec
        self._sandbox = sandbox
        self._on_ended = on_ended
        self._ladder = ladder
        self._reading: Reading | None = None
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        self._queue = Queue(self._give_credit)
        self._sink: Sink = self._queue
        self._captured: Capture | None = None
        if spec.capture_bytes is not None:
            self._sink = self._captured = Capture(self._give_credit, max_bytes=spec.capture_bytes)
        self._counts = {Stream.STDOUT: 0, Stream.STDERR: 0}
        self._intent: Reason | None = None
        """Why we asked for the end, if we did."""
        self._refusal: str | None = None
        self._lost: str | None = None
        self._number = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._changed: asyncio.Future[None] | None = None
        self.exit: ExitStatus | None = None

    def __repr__(self) -> str:
        state = self.exit.reason.name if self.exit else "running"
        return f"<Exec {self.spec.exec_id} {state}>"

    @property
    def id(self) -> str:
        return self.spec.exec_id

    def start(self) -> None:
        """Hand the command to the guest; from here on exactly one exit follows."""
        request = self.spec.encode()
        if self._sandbox.meter is not None:
            self._reading = self._sandbox.meter.begin()
        try:
            self._number = self._sandbox.link.start(request, self)
        except LinkClosed as error:
            raise SandboxLost(str(error)) from None
        self._deadline = self._loop.call_later(
            self.spec.timeout_seconds, self.end, Reason.TIMED_OUT
        )

    def end(self, reason: Reason) -> None:
        """End the command with all its processes; the first reason given is the one that counts.

        Guest first; after HOST_KILL_SECONDS the host kills the sandbox's first process.
        """
        if self.exit is not None or self._intent is not None:
            return
        self._intent = reason
        if self._sandbox.meter is not None:
            self._sandbox.meter.hurry()
        try:
            self._sandbox.link.kill(self._number)
            # Room for what is still in the pipes, so that a slow reader cannot delay the end.
            self._give_credit(WINDOW)
        except LinkClosed:
            return  # on_lost has been or will be called
        self._cancel_deadline()
        self._deadline = self._loop.call_later(HOST_KILL_SECONDS, self._end_from_host)

    def _end_from_host(self) -> None:
        log.warning("exec.guest_overdue", exec_id=self.id, sandbox_id=self._sandbox.id)
        if self._sandbox.cut_off("its guest did not end a command in time"):
            self._ladder.by_host += 1
        else:
            self._ladder.by_engine += 1

    # --- reading ---

    @property
    def captured(self) -> Capture:
        """The excerpt of the output, for an exec that was asked to keep one."""
        assert self._captured is not None
        return self._captured

    async def ended(self) -> ExitStatus:
        """Return how it ended."""
        while self.exit is None:
            # Shielded: one who gives up waiting must not take the news from the others.
            await asyncio.shield(self._change())
        return self.exit

    async def wait(self) -> ExitStatus:
        """Return how it ended; CommandNotStartable if it never began."""
        status = await self.ended()
        self._raise_if_never_ran()
        return status

    async def follow(self) -> AsyncIterator[Batch]:
        """What happens, in batches; the last one carries the exit. For one reader.

        CommandNotStartable if it never began.
        """
        if self.exit is None and not self._queue:
            # A moment for a short command to answer in one piece, no longer: others are watched.
            await asyncio.wait([self._change()], timeout=FIRST_BATCH_SECONDS)
        is_first = True
        while True:
            self._raise_if_never_ran()
            chunks = self._queue.take(MAX_BATCH_BYTES)
            exit_status = self.exit if not self._queue else None
            if is_first or chunks or exit_status:
                yield Batch(is_first=is_first, chunks=chunks, exit=exit_status)
                is_first = False
            if exit_status:
                return
            if not self._queue and self.exit is None:
                await self._change()

    def abandon(self) -> None:
        """Its caller is gone: end it, or let it run on with its output dropped."""
        if self.exit is not None:
            return
        self._sink = Discard(self._give_credit)
        self._queue.clear()
        if not self.spec.survives_disconnect:
            self.end(Reason.CANCELLED)

    def _change(self) -> asyncio.Future[None]:
        if self._changed is None or self._changed.done():
            self._changed = self._loop.create_future()
        return self._changed

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def _raise_if_never_ran(self) -> None:
        if self._refusal is not None:
            raise CommandNotStartable(self._refusal)

    def _give_credit(self, count: int) -> None:
        self._sandbox.link.add_credit(self._number, count)

    # --- what the link tells ---

    def on_output(self, stream: Stream, offset: int, data: bytes) -> None:
        self._counts[stream] += len(data)
        self._sink.put(Chunk(stream, offset, data))
        self._wake()

    def on_exited(self, exited: Exited) -> None:
        is_code = exited.ending == Ending.CODE
        usage = self._used()
        if exited.cause == Cause.SWEPT:
            reason = Reason.SWEPT
        elif exited.cause == Cause.KILLED and self._intent is not None:
            reason = self._intent
            self._ladder.by_guest += 1
        elif is_code and exited.value == 0:
            reason = Reason.EXITED
        else:
            own = Reason.EXITED if is_code else Reason.SIGNALLED
            reason = self._limit_reached(usage) or own
        self._finish(
            reason,
            code=exited.value if is_code else None,
            signal=None if is_code else exited.value,
            usage=usage,
        )

    def _used(self) -> Usage | None:
        meter = self._sandbox.meter
        return meter.end(self._reading) if meter is not None else None

    def _limit_reached(self, usage: Usage | None) -> Reason | None:
        """The limit that a failed command ran into, as the host saw it."""
        if usage is not None and usage.oom_kills:
            return Reason.OUT_OF_MEMORY
        if usage is not None and usage.refused_forks:
            return Reason.PROCESS_LIMIT
        if self._sandbox.meter is not None and self._sandbox.meter.is_workspace_full:
            return Reason.DISK_FULL
        return None

    def on_refused(self, why: str) -> None:
        self._used()
        self._refusal = why
        self._finish(Reason.EXITED)

    def on_lost(self, why: str) -> None:
        self._lost = why
        usage = self._used()
        # Where commands share the guest's limit, the kernel may have taken the guest.
        is_oom = self._intent is None and usage is not None and usage.oom_kills > 0
        lost = Reason.OUT_OF_MEMORY if is_oom else Reason.SANDBOX_LOST
        self._finish(self._intent or lost, usage=usage)

    def _finish(
        self,
        reason: Reason,
        *,
        code: int | None = None,
        signal: int | None = None,
        usage: Usage | None = None,
    ) -> None:
        self._cancel_deadline()
        self.exit = ExitStatus(
            reason=reason,
            code=code,
            signal=signal,
            duration_seconds=time.monotonic() - self._began,
            stdout_bytes=self._counts[Stream.STDOUT],
            stderr_bytes=self._counts[Stream.STDERR],
            hint=" ".join(filter(None, (self._hint(reason, signal), _aside(reason, usage)))),
            usage=usage,
        )
        self._wake()
        self._on_ended(self)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _hint(self, reason: Reason, signal: int | None) -> str:
        """One line that tells a model what happened and what to do."""
        template = _HINTS.get(reason, "")
        if reason == Reason.OUT_OF_MEMORY and self._lost:
            template += " The sandbox was lost; open the session again."
        return template.format(
            timeout=f"{self.spec.timeout_seconds:g}", signal=signal, lost=self._lost
        )


_HINTS = {
    Reason.TIMED_OUT: (
        "The command was ended after {timeout} s; output up to then is kept. Give it a longer "
        "timeout or less to do."
    ),
    Reason.SIGNALLED: "The command was ended by signal {signal}, which sandboxd did not send.",
    Reason.CANCELLED: "The command was ended because its caller went away.",
    Reason.SESSION_CLOSED: "The command was ended with its session ({lost}).",
    Reason.SANDBOX_LOST: "The sandbox was lost ({lost}); open the session again.",
    Reason.SWEPT: "Ended along with a runaway command of this session; run it again.",
    Reason.OUT_OF_MEMORY: (
        "Out of memory: the kernel killed a process of the sandbox at its memory limit. Use less "
        "memory, or work on the data in pieces."
    ),
    Reason.PROCESS_LIMIT: (
        "Process limit reached: no further process or thread could be started. Run less at the "
        "same time."
    ),
    Reason.DISK_FULL: (
        "Disk full: the workspace has no room left for bytes or for files. Delete what is not "
        "needed any more."
    ),
}


def _aside(reason: Reason, usage: Usage | None) -> str:
    """A limit that was reached although it is not why the command ended."""
    if usage is None or reason not in (Reason.EXITED, Reason.TIMED_OUT, Reason.CANCELLED):
        return ""
    limits = []
    if usage.oom_kills:
        limits.append("its memory limit (the kernel killed processes)")
    if usage.refused_forks:
        limits.append("its process limit")
    return f"It had reached {' and '.join(limits)}." if limits else ""
