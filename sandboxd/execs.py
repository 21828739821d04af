"""A command of a session: it runs and ends whether or not someone looks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from signal import SIGXFSZ
from typing import NamedTuple

import structlog

from sandboxd.errors import CommandNotStartable, ExecEnded, InvalidRequest, SandboxLost
from sandboxd.exec_spec import ExecSpec
from sandboxd.guest.frames import (
    MAX_INPUT,
    NO_PROCESS,
    PIPES_COST,
    Ack,
    Cause,
    Ending,
    ExecState,
    Exited,
    Stream,
    Target,
)
from sandboxd.isolation.meter import Reading, Usage
from sandboxd.link import LinkClosed
from sandboxd.output import Capture, CapturedStream, Chunk, Follower, Gap, Output, Sink
from sandboxd.sandbox import Sandbox
from sandboxd.spool import Spool

log = structlog.get_logger()

HOST_KILL_SECONDS = 0.25
"""How long the guest gets to end a command before the host ends the sandbox."""
FIRST_BATCH_SECONDS = 0.01
"""How long `started` waits for company."""
MAX_BATCH_BYTES = 512 * 1024
RETRY_SECONDS = 0.5
"""When there may be a process for a command again."""
REATTACH_SECONDS = 30.0
"""After a restart of the daemon, how long a command waits for the caller it should not outlive."""


class Reason(Enum):
    """Why a command ended."""

    EXITED = auto()
    SIGNALLED = auto()
    TIMED_OUT = auto()
    NO_OUTPUT = auto()
    CANCELLED = auto()
    SESSION_CLOSED = auto()
    SANDBOX_LOST = auto()
    SWEPT = auto()
    OUT_OF_MEMORY = auto()
    PROCESS_LIMIT = auto()
    DISK_FULL = auto()


class State(Enum):
    QUEUED = auto()
    RUNNING = auto()
    ENDED = auto()


@dataclass
class Ladder:
    """How often each step was needed to end a command."""

    by_guest: int = 0
    by_host: int = 0
    by_engine: int = 0


class ExitStatus(NamedTuple):
    """How a command ended. Neither code nor signal when its end was not seen."""

    reason: Reason
    duration_seconds: float
    stdout_bytes: int
    stderr_bytes: int
    hint: str
    code: int | None = None
    signal: int | None = None
    usage: Usage | None = None
    """What the host counted; absent where it could not look."""
    stdout_dropped: int = 0
    stderr_dropped: int = 0


class Facts(NamedTuple):
    """What has to be known of a command while it runs, in a form that outlives the daemon."""

    exec_id: str
    digest: str
    """Of its content; empty if nobody can repeat it."""
    command: str
    timeout_seconds: float
    no_output_seconds: float | None
    survives_disconnect: bool
    has_stdin: bool
    has_terminal: bool
    shell_name: str
    started_at: float
    """Seconds since the epoch."""
    is_chosen: bool = True
    """Whether its id is the caller's."""
    began: float | None = None
    """When it started by the clock that nobody sets, which all processes of one boot share."""

    @classmethod
    def of(cls, spec: ExecSpec) -> Facts:
        return cls(
            exec_id=spec.exec_id,
            digest=spec.digest if spec.is_chosen else "",
            command=spec.command,
            timeout_seconds=spec.timeout_seconds,
            no_output_seconds=spec.no_output_seconds,
            survives_disconnect=spec.survives_disconnect,
            has_stdin=spec.has_stdin,
            has_terminal=spec.terminal is not None,
            shell_name=spec.shell_name,
            started_at=time.time(),
            is_chosen=spec.is_chosen,
            began=time.monotonic(),
        )

    @property
    def elapsed_seconds(self) -> float:
        """Since its start, at most until its deadline."""
        if self.began is not None:
            elapsed = time.monotonic() - self.began
        else:  # of a release that did not write it down
            elapsed = time.time() - self.started_at
        return min(max(0.0, elapsed), self.timeout_seconds)


class Batch(NamedTuple):
    """What happened since the last batch."""

    is_first: bool
    chunks: Sequence[Chunk | Gap]
    exit: ExitStatus | None


class Exec:
    """A queued, running or finished command. Belongs to its session; callers only look at it."""

    def __init__(
        self,
        facts: Facts,
        sandbox: Sandbox,
        *,
        on_ended: Callable[[Exec], None],
        ladder: Ladder,
        spool: Spool | None,
        capture_bytes: int | None = None,
    ) -> None:
        self.facts = facts
        self._sandbox = sandbox
        self._on_ended = on_ended
        self._ladder = ladder
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        self._reading: Reading | None = None
        self.output = Output(spool, self._acknowledge) if spool is not None else None
        self._captured: Capture | None = None
        if self.output is None:
            self._captured = Capture(self._acknowledge, max_bytes=capture_bytes or 0)
        self._sink: Sink = self.output or self._captured  # type: ignore[assignment]  # one is there
        self._counts = {Stream.STDOUT: 0, Stream.STDERR: 0}
        self._announced = _NOTHING
        """What the guest had after a restart of the daemon; a caller may have seen it before."""
        self._intent: Reason | None = None
        """Why we asked for the end, if we did."""
        self._refusal: str | None = None
        self._lost: str | None = None
        self.number = 0
        """Of its channel; 0 until it is handed to the guest."""
        self._deadline: asyncio.TimerHandle | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._last_output = 0.0
        self._waiters: list[asyncio.Future[None]] = []
        self._holders = 0
        """Callers of Exec and Run: unless it may outlive them, it ends when the last one leaves."""
        self._is_left = False
        """To the next daemon."""
        self._is_released = False
        self.exit: ExitStatus | None = None

    def __repr__(self) -> str:
        return f"<Exec {self.id} {self.exit.reason.name if self.exit else self.state.name}>"

    @property
    def id(self) -> str:
        return self.facts.exec_id

    @property
    def state(self) -> State:
        if self.exit is not None:
            return State.ENDED
        return State.RUNNING if self.number else State.QUEUED

    @property
    def sandbox(self) -> Sandbox:
        return self._sandbox

    @property
    def is_kept(self) -> bool:
        return self.output is not None

    def length(self, stream: Stream) -> int:
        return self._counts[stream]

    @cached_property
    def _input(self) -> _Input:
        return _Input()

    @property
    def input_bytes(self) -> int:
        return self._input.sent

    # --- its life ---

    def start(self, request: bytes) -> None:
        """Hand the command to the guest; from here on exactly one exit follows."""
        self._began = time.monotonic()
        if self._sandbox.meter is not None:
            self._reading = self._sandbox.meter.begin()
        self._watch_time(self.facts.timeout_seconds)
        try:
            # Last of all: the guest may get to run only once we wait.
            self.number = self._sandbox.link.start(request, self)
        except LinkClosed as error:
            self._cancel_timers()
            if self.exit is None:
                self._used()  # or what it began to count is never ended
            raise SandboxLost(str(error)) from None

    def adopt(self, number: int, state: ExecState, have: Mapping[Stream, int]) -> None:
        """Take over a command that an earlier daemon started; `have` is what its spool holds."""
        self.number = number
        self._counts = dict(have)
        self._announced = {Stream.STDOUT: state.stdout_bytes, Stream.STDERR: state.stderr_bytes}
        self._input.is_known = not (self.facts.has_stdin or self.facts.has_terminal)
        elapsed = self.facts.elapsed_seconds
        self._began = time.monotonic() - elapsed
        if self._sandbox.meter is not None:
            self._reading = self._sandbox.meter.begin()
        if state.exited is None:
            self._watch_time(self.facts.timeout_seconds - elapsed)
            if not self.facts.survives_disconnect:
                self._loop.call_later(REATTACH_SECONDS, self._end_if_alone)
        try:
            self._sandbox.link.resume(number, self, have)
        except LinkClosed as error:  # while the daemon was still starting
            if self.exit is None:
                self.on_lost(str(error))

    def _watch_time(self, seconds: float) -> None:
        self._deadline = self._loop.call_later(seconds, self.end, Reason.TIMED_OUT)
        if self.facts.no_output_seconds is not None:
            self._last_output = self._loop.time()
            self._watch_silence()

    def _watch_silence(self) -> None:
        assert self.facts.no_output_seconds is not None
        due = self._last_output + self.facts.no_output_seconds
        if self._loop.time() >= due:
            self.end(Reason.NO_OUTPUT)
        else:
            self._silence = self._loop.call_at(due, self._watch_silence)

    def _end_if_alone(self) -> None:
        is_followed = self.output is not None and self.output.is_followed
        if not is_followed and not self._holders:
            self.end(Reason.CANCELLED)

    def end(self, reason: Reason) -> None:
        """End the command with all its processes; the first reason given is the one that counts.

        Guest first; after HOST_KILL_SECONDS the host kills the sandbox's first process.
        """
        if self.exit is not None or self._intent is not None or self._is_left:
            return
        self._intent = reason
        if not self.number:
            self._finish(reason)  # it waited for its shell and never ran
            return
        if self._sandbox.meter is not None:
            self._sandbox.meter.hurry()
        try:
            self._sandbox.link.kill(self.number)
            # Room for what is still in the pipes, so that a slow reader cannot delay the end.
            self._sandbox.link.widen(self.number, PIPES_COST)
        except LinkClosed:
            return  # on_lost has been or will be called
        self._cancel_timers()
        self._deadline = self._loop.call_later(HOST_KILL_SECONDS, self._end_from_host)

    def _end_from_host(self) -> None:
        log.warning("exec.guest_overdue", exec_id=self.id, sandbox_id=self._sandbox.id)
        if self._sandbox.cut_off("its guest did not end a command in time"):
            self._ladder.by_host += 1
        else:
            self._ladder.by_engine += 1

    def let_go(self) -> None:
        """Leave it to the next daemon: from here on nothing ends it, whoever goes away."""
        self._is_left = True
        self._cancel_timers()

    def release(self) -> None:
        """Let the guest forget it: it has ended, and what is kept of it is kept here."""
        if self.exit is not None and self.number and not self._is_released:
            self._is_released = True
            self._sandbox.link.release(self.number)

    # --- reading ---

    @property
    def captured(self) -> Capture:
        """The excerpt of the output, for an exec that is not kept."""
        assert self._captured is not None
        return self._captured

    def excerpt(self, stream: Stream, max_bytes: int) -> CapturedStream:
        """The first and last bytes of a stream of a kept exec."""
        assert self.output is not None
        spool, captured = self.output.spool, CapturedStream(max_bytes)
        captured.take_from(spool, stream)
        return captured

    async def ended(self) -> ExitStatus:
        """Return how it ended."""
        while self.exit is None:
            await self._change()
        return self.exit

    async def wait(self) -> ExitStatus:
        """Return how it ended; CommandNotStartable if it never began."""
        status = await self.ended()
        self.raise_if_never_ran()
        return status

    async def follow(self, offsets: Mapping[Stream, int] | None = None) -> AsyncIterator[Batch]:
        """What happens, in batches, from these offsets on; the last one carries the exit.

        CommandNotStartable if it never began.
        """
        assert self.output is not None
        self._check_offsets(offsets or {})
        follower = self.output.follow(offsets or {})
        try:
            if self.exit is None and not follower.is_behind:
                # A moment for a short command to answer in one piece; others are watched.
                await self._change(FIRST_BATCH_SECONDS)
            async for batch in self._batches(follower):
                yield batch
        finally:
            self.output.leave(follower)

    async def _batches(self, follower: Follower) -> AsyncIterator[Batch]:
        is_first = True
        while True:
            self.raise_if_never_ran()
            chunks = follower.take(MAX_BATCH_BYTES)
            exit_status = self.exit if not follower.is_behind else None
            if is_first or chunks or exit_status:
                yield Batch(is_first=is_first, chunks=chunks, exit=exit_status)
                is_first = False
            if exit_status:
                return
            if not follower.is_behind and self.exit is None:
                await self._change()

    def _check_offsets(self, offsets: Mapping[Stream, int]) -> None:
        for stream, offset in offsets.items():
            if offset > max(self._counts[stream], self._announced[stream]):
                raise InvalidRequest(
                    f"{stream.name.lower()}_offset",
                    f"only {self._counts[stream]} bytes were written so far",
                )

    async def _change(self, seconds: float | None = None) -> None:
        """Wait for news, for as long as that."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append(waiter)
        try:
            if seconds is None:
                await waiter
            else:
                # Quicker than a timeout around it.
                timer = self._loop.call_later(seconds, _give_up, waiter)
                await waiter
                timer.cancel()
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def hold(self) -> None:
        """A caller that it should not outlive is there; a repeated call counts as much as the
        first, whose end may be noticed late."""
        self._holders += 1

    def abandon(self) -> None:
        """Such a caller is gone: after the last one end it, unless it may outlive them."""
        self._holders -= 1
        if self._holders <= 0 and self.exit is None and not self.facts.survives_disconnect:
            self.end(Reason.CANCELLED)

    def raise_if_never_ran(self) -> None:
        if self._refusal is not None:
            is_for_now = self._refusal.startswith(NO_PROCESS)
            raise CommandNotStartable(
                self._refusal, retry_after_seconds=RETRY_SECONDS if is_for_now else None
            )

    def _acknowledge(self, ack: Ack) -> None:
        self._sandbox.link.acknowledge(self.number, ack)

    # --- acting on it ---

    def signal(self, number: int, target: Target) -> None:
        self._check_running("it cannot be signalled")
        with _loss_told():
            self._sandbox.link.signal(self.number, number, target)

    def resize(self, rows: int, columns: int) -> None:
        self._check_running("its terminal is gone")
        if not self.facts.has_terminal:
            raise InvalidRequest("exec_id", "this exec has no terminal")
        with _loss_told():
            self._sandbox.link.resize(self.number, rows, columns)

    async def write(self, offset: int, data: bytes, *, is_end: bool) -> int:
        """Pass input on as the command takes it; returns where the next byte goes."""
        if not (self.facts.has_stdin or self.facts.has_terminal):
            raise InvalidRequest("exec_id", "this exec was started without `stdin`")
        async with self._input.lock:
            while not self._input.is_known:
                self._check_running("its input is closed")
                await self._change()
            data = self._input.new_part(offset, data)
            while data:
                self._check_running("its input is closed")
                room = self._input.taken + MAX_INPUT - self._input.sent
                if room <= 0:
                    await self._change()
                    continue
                piece, data = data[:room], data[room:]
                with _loss_told():
                    self._sandbox.link.input(self.number, self._input.sent, piece)
                self._input.sent += len(piece)
            if is_end and not self._input.is_closed:
                self._check_running("its input is closed")
                with _loss_told():
                    self._sandbox.link.end_input(self.number)
                self._input.is_closed = True
            return self._input.sent

    def _check_running(self, effect: str) -> None:
        if self.exit is not None:
            raise ExecEnded(self.id, f"has ended, {effect}")
        if not self.number:
            raise ExecEnded(self.id, "waits for its shell and cannot be acted on yet")

    # --- what the link tells ---

    def on_output(self, stream: Stream, offset: int, data: bytes, frame_count: int) -> None:
        self._counts[stream] += len(data)
        self._last_output = self._loop.time()
        self._sink.put(Chunk(stream, offset, data, frame_count))
        self._wake()

    def on_input_taken(self, count: int) -> None:
        self._input.taken = count
        self._input.sent = max(self._input.sent, count)
        self._input.is_known = True
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
        self._cancel_timers()
        self.exit = ExitStatus(
            reason=reason,
            code=code,
            signal=signal,
            duration_seconds=time.monotonic() - self._began,
            stdout_bytes=self._counts[Stream.STDOUT],
            stderr_bytes=self._counts[Stream.STDERR],
            hint=self._hints(reason, code, signal, usage),
            usage=usage,
            stdout_dropped=self._dropped(Stream.STDOUT),
            stderr_dropped=self._dropped(Stream.STDERR),
        )
        self._wake()
        self._on_ended(self)

    def recall(self, status: ExitStatus) -> None:
        """It ended under an earlier daemon, which wrote down how."""
        self.exit = status
        self._counts = {Stream.STDOUT: status.stdout_bytes, Stream.STDERR: status.stderr_bytes}

    def _dropped(self, stream: Stream) -> int:
        return self.output.spool.dropped(stream).size if self.output is not None else 0

    def _cancel_timers(self) -> None:
        for timer in (self._deadline, self._silence):
            if timer is not None:
                timer.cancel()
        self._deadline = self._silence = None

    def _hints(
        self, reason: Reason, code: int | None, signal: int | None, usage: Usage | None
    ) -> str:
        if code == 0 and reason is Reason.EXITED:
            return _aside(reason, usage)
        said = (self._hint(reason, signal), _file_limit(code, signal), _aside(reason, usage))
        return " ".join(filter(None, said)) if any(said) else ""

    def _hint(self, reason: Reason, signal: int | None) -> str:
        """One line that tells a model what happened and what to do."""
        if self._refusal is not None:
            return f"The command was not started: {self._refusal}."
        template = _HINTS.get(reason, "")
        if signal == SIGXFSZ:
            template = ""  # said better by itself
        if reason == Reason.OUT_OF_MEMORY and self._lost:
            template += " The sandbox was lost; open the session again."
        if not template:
            return ""
        return template.format(
            timeout=f"{self.facts.timeout_seconds:g}",
            silence=f"{self.facts.no_output_seconds or 0:g}",
            signal=signal,
            lost=self._lost or "it had not begun",
        )


_NOTHING: Mapping[Stream, int] = {Stream.STDOUT: 0, Stream.STDERR: 0}


@contextmanager
def _loss_told() -> Iterator[None]:
    try:
        yield
    except LinkClosed as error:
        raise SandboxLost(str(error)) from None


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Input:
    """How far the input of a command is."""

    def __init__(self) -> None:
        self.sent = 0
        self.taken = 0
        self.is_closed = False
        self.is_known = True
        """False after a restart of the daemon, until the guest has told how much it took."""

    @cached_property
    def lock(self) -> asyncio.Lock:
        return asyncio.Lock()

    def new_part(self, offset: int, data: bytes) -> bytes:
        """What of these bytes has not been sent yet."""
        if offset > self.sent:
            raise InvalidRequest("offset", f"the next byte to write is number {self.sent}")
        fresh = data[self.sent - offset :]
        if fresh and self.is_closed:
            raise InvalidRequest("data", "the input was closed by an earlier `eof`")
        return fresh


_HINTS = {
    Reason.TIMED_OUT: (
        "The command was ended after {timeout} s; output up to then is kept. Give it a longer "
        "timeout or less to do."
    ),
    Reason.NO_OUTPUT: (
        "The command was ended because it wrote nothing for {silence} s; it may have waited for "
        "input."
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


def _file_limit(code: int | None, signal: int | None) -> str:
    if signal == SIGXFSZ:
        return (
            "The kernel ended the command when it wrote more to a file than a single file may have "
            "(SIGXFSZ); write several smaller files."
        )
    if code == 128 + SIGXFSZ:
        return (
            f"Exit code {code} is how a shell tells that a program wrote more to a file than a "
            "single file may have (SIGXFSZ); write several smaller files."
        )
    return ""


def _aside(reason: Reason, usage: Usage | None) -> str:
    """A limit that was reached although it is not why the command ended."""
    if usage is None or not (usage.oom_kills or usage.refused_forks):
        return ""
    if reason not in (Reason.EXITED, Reason.TIMED_OUT, Reason.NO_OUTPUT, Reason.CANCELLED):
        return ""
    limits = []
    if usage.oom_kills:
        limits.append("its memory limit (the kernel killed processes)")
    if usage.refused_forks:
        limits.append("its process limit")
    return f"It had reached {' and '.join(limits)}."
