"""One command of a session. It runs and ends whether or not anyone reads its output."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from signal import SIGINT, SIGKILL
from typing import NamedTuple

import structlog

from sandboxd.errors import (
    CommandNotStartable,
    ExecEnded,
    ExecNotFound,
    InvalidRequest,
    SandboxLost,
)
from sandboxd.execs.ending import (
    Circumstances,
    ExitStatus,
    Reason,
    hint,
    is_killed,
    passed_limits,
    reached_limit,
)
from sandboxd.execs.host_kill import HostKill
from sandboxd.execs.interruption import Interruption
from sandboxd.execs.output import (
    Chunk,
    Follower,
    Gap,
    KeptOutput,
    Output,
    UnkeptOutput,
)
from sandboxd.execs.spec import ExecSpec
from sandboxd.guest.frames import (
    MAX_INPUT,
    PIPES_COST,
    STREAMS,
    Ack,
    Cause,
    ContextRun,
    Ending,
    ExecState,
    Exited,
    Refused,
    Remark,
    RunEnd,
    StartFailure,
    Stream,
    Target,
)
from sandboxd.isolation.meter import Reading, Usage
from sandboxd.link import LinkClosed
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.spool import Piece, Preview, SearchQuery, SearchResult, Spool

log = structlog.get_logger()

FIRST_BATCH_SECONDS = 0.01
"""How long `started` waits for output or an exit to be sent with it."""
MAX_BATCH_BYTES = 512 * 1024
START_SECONDS = 6.0
"""How long the guest's report of a start is waited for: longer than it looks for a process."""
RETRY_SECONDS = 0.5
"""Delay after which a process may be free for a command that found none."""
REATTACH_SECONDS = 30.0
"""How long a command outlives a restart of the daemon without the caller that it depends on."""
BIRTH_SECONDS = 30.0
"""Seconds that a context may take to come to be, before the time of its first run begins: longer
than the guest tries."""
RUN_CODES = {RunEnd.OK: 0, RunEnd.RAISED: 1, RunEnd.INTERRUPTED: 128 + SIGINT, RunEnd.REFUSED: 126}
"""Exit codes of runs whose context lives on: as a program would have ended."""


class State(Enum):
    QUEUED = auto()
    RUNNING = auto()
    ENDED = auto()


@dataclass
class KillCounts:
    """Number of commands that each step had to end."""

    by_guest: int = 0
    by_host: int = 0
    by_engine: int = 0


class ExecDetails(NamedTuple):
    """A command as its exec describes it, in a form that outlives the daemon."""

    exec_id: str
    digest: str
    """Digest of the content; empty if no caller can repeat the command."""
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
    """Whether the caller chose the id."""
    began: float | None = None
    """Start by the monotonic clock, which all processes of one boot share."""
    context: str = ""
    """Context of a run of code."""
    generation: int = 0
    """Generation of the context, once it is known, and number of the run in it."""
    run: int = 0
    is_internal: bool = False
    """Whether the daemon itself asks the context something; callers do not see it."""

    @classmethod
    def from_spec(cls, spec: ExecSpec) -> ExecDetails:
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
            context=spec.code.context if spec.code is not None else "",
            is_internal=spec.code is not None and spec.code.is_internal,
        )

    @property
    def queue(self) -> str:
        """What the exec waits its turn for: a named shell or a context; empty for neither."""
        if self.context:
            return f"context {self.context}"
        return f"shell {self.shell_name}" if self.shell_name else ""

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the start, at most until the deadline."""
        if self.began is not None:
            elapsed = time.monotonic() - self.began
        else:  # sealed by a release that did not record it
            elapsed = time.time() - self.started_at
        return min(max(0.0, elapsed), self.timeout_seconds)


class _End(NamedTuple):
    """What the guest and the counters say of an end."""

    code: int | None = None
    signal: int | None = None
    usage: Usage | None = None


class Batch(NamedTuple):
    """Output and exit since the previous batch."""

    is_first: bool
    chunks: Sequence[Chunk | Gap]
    exit: ExitStatus | None


class Exec:
    """A queued, running or ended command. Belongs to its session; callers only observe it."""

    def __init__(
        self,
        details: ExecDetails,
        sandbox: Sandbox,
        *,
        on_ended: Callable[[Exec], None],
        kill_counts: KillCounts,
        spool: Spool | None,
        excerpt_bytes: int = 0,
        before_kill: Callable[[Exec, Reason], None] | None = None,
    ) -> None:
        self.details = details
        self._sandbox = sandbox
        self._on_ended = on_ended
        self._before_kill = before_kill
        self._kill_counts = kill_counts
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        self._reading: Reading | None = None
        self.output: Output
        if spool is not None:
            self.output = KeptOutput(spool, self._acknowledge)
        else:
            self.output = UnkeptOutput(self._acknowledge, max_bytes=excerpt_bytes)
        self._counts = dict.fromkeys(STREAMS, 0)
        self._announced = _NOTHING
        """Lengths that the guest had at a restart of the daemon; a caller may have read so far."""
        self._intent: Reason | None = None
        """Why the daemon asked for the end, if it did."""
        self._remarks = _NO_REMARKS
        self._full = ""
        """What had no room left when it failed."""
        self._refusal: Refused | None = None
        self._lost: str | None = None
        self.reports_start = False
        """Whether the guest was asked to report that it runs."""
        self.pid = 0
        """Its first process in the sandbox, as the guest says; 0 if that is not known."""
        self.number = 0
        """Number of its channel; 0 until it is handed to the guest."""
        self._deadline: asyncio.TimerHandle | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._host_kill: HostKill | None = None
        self._interruption: Interruption | None = None
        self._done: RunEnd | None = None
        self._unswept: _End | None = None
        """The end, while the guest still ends what the command has left."""
        self._was_swept = False
        self._last_output = 0.0
        self._waiters: list[asyncio.Future[None]] = []
        self._holders = 0
        """Callers of Exec and Run that wait. Unless it may outlive them, it ends with the last."""
        self._is_left = False
        """Whether it is left to the next daemon."""
        self._is_adopted = False
        """Whether an earlier daemon started it."""
        self._is_released = False
        self.exit: ExitStatus | None = None

    def __repr__(self) -> str:
        return f"<Exec {self.id} {self.exit.reason.name if self.exit else self.state.name}>"

    @property
    def id(self) -> str:
        return self.details.exec_id

    @property
    def state(self) -> State:
        if self.exit is not None:
            return State.ENDED
        return State.RUNNING if self.number else State.QUEUED

    @property
    def is_code(self) -> bool:
        """Whether it is a run of code."""
        return bool(self.details.context)

    @property
    def is_kept(self) -> bool:
        """Whether output and end stay readable after the end."""
        return isinstance(self.output, KeptOutput)

    @property
    def kept_output(self) -> KeptOutput:
        """The output for readers; ExecNotFound if it is not kept."""
        if not isinstance(self.output, KeptOutput):
            raise ExecNotFound(self.id)
        return self.output

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
        """Hand the command to the guest; exactly one exit follows."""
        self._began = time.monotonic()
        if self._sandbox.meter is not None:
            self._reading = self._sandbox.meter.begin()
        self._watch_time(self.details.timeout_seconds + (BIRTH_SECONDS if self.is_code else 0.0))
        try:
            # Last of all: the guest may get to run only once we wait.
            self.number = self._sandbox.link.start(
                request, self, self.details.timeout_seconds, is_code=self.is_code
            )
        except LinkClosed as error:
            self._cancel_timers()
            if self.exit is None:
                self._used()  # or its reading would stay open
            raise SandboxLost(str(error)) from None

    def adopt(
        self,
        number: int,
        state: ExecState,
        have: Mapping[Stream, int],
        *,
        intent: Reason | None = None,
        is_unknown: bool = False,
    ) -> None:
        """Take over a command that an earlier daemon started; `have` is what the spool holds,
        `intent` why that daemon was ending it. What is unknown may be a run of code."""
        self.number = number
        self._is_adopted = True
        self._counts = dict(have)
        self._announced = state.counts
        self._input.is_known = not (self.details.has_stdin or self.details.has_terminal)
        elapsed = self.details.elapsed_seconds
        self._began = time.monotonic() - elapsed
        if self._sandbox.meter is not None:
            self._reading = self._sandbox.meter.begin()
        if state.exited is not None:
            self._intent = intent
        else:
            self._watch_time(self.details.timeout_seconds - elapsed)
            if not self.details.survives_disconnect:
                self._loop.call_later(REATTACH_SECONDS, self._end_if_alone)
        try:
            self._sandbox.link.resume(number, self, have, is_code=self.is_code or is_unknown)
        except LinkClosed as error:  # while the daemon was still starting
            if self.exit is None:
                self.on_lost(str(error))
        if intent is not None:
            self.end(intent)  # that daemon may not have come to it

    def _watch_time(self, seconds: float) -> None:
        self._deadline = self._loop.call_later(seconds, self.end, Reason.TIMED_OUT)
        if self.details.no_output_seconds is not None:
            self._last_output = self._loop.time()
            self._watch_silence()

    def _watch_silence(self) -> None:
        assert self.details.no_output_seconds is not None
        due = self._last_output + self.details.no_output_seconds
        if self._loop.time() >= due:
            self.end(Reason.NO_OUTPUT)
        else:
            self._silence = self._loop.call_at(due, self._watch_silence)

    def _end_if_alone(self) -> None:
        if not self.output.is_followed and not self._holders:
            self.end(Reason.CANCELLED)

    def end(self, reason: Reason) -> None:
        """End the command with all its processes; the first reason given is the one that counts.

        A run of code is interrupted first, so that its context keeps its variables.
        """
        if self.exit is not None or self._intent is not None or self._is_left:
            return
        self._intent = reason
        if not self.number:
            self._finish(reason)  # it waited for its shell and never ran
            return
        if self._before_kill is not None:
            self._before_kill(self, reason)
        if self.is_code and reason is not Reason.SESSION_CLOSED:
            self._cancel_timers()
            self._begin_interruption(self._kill)
        else:
            self._kill()

    def interrupt(self) -> bool:
        """Interrupt a run of code as Ctrl-C would; False if it does not run. It decides itself how
        it ends."""
        if self.exit is not None or not self.number or self._intent is not None:
            return False
        if self._interruption is None:
            self._begin_interruption()
        return True

    def _begin_interruption(self, kill: Callable[[], None] | None = None) -> None:
        self._cancel_interruption()
        with suppress(LinkClosed):  # on_lost has been or will be called
            # Room for what it is writing, so that a slow reader cannot hold the interrupt back.
            self._sandbox.link.widen(self.number, PIPES_COST)
        self._interruption = Interruption(self._sandbox.link, self.number, kill)

    def _cancel_interruption(self) -> None:
        if self._interruption is not None:
            self._interruption.cancel()
            self._interruption = None

    def kill(self, reason: Reason) -> None:
        """End a run of code with the process of its context, without interrupting it first."""
        if self.exit is not None or self._is_left or self._unswept is not None:
            return
        if not self.number:
            self.end(reason)
            return
        self._intent = self._intent or reason
        self._kill()

    def _kill(self) -> None:
        """Guest first; if that takes too long the host kills the sandbox's first process."""
        if self.exit is not None:
            return
        self._lift_quota()
        try:
            self._sandbox.link.kill(self.number)
            # Room for what is still in the pipes, so that a slow reader cannot delay the end.
            self._sandbox.link.widen(self.number, PIPES_COST)
        except LinkClosed:
            return  # on_lost has been or will be called
        self._begin_host_kill()

    def _lift_quota(self) -> None:
        if self._sandbox.meter is not None:
            self._sandbox.meter.lift_quota()

    def _begin_host_kill(self) -> None:
        self._cancel_timers()
        self._host_kill = HostKill(
            self._sandbox.link, self._end_from_host, lambda: self._sandbox.is_frozen
        )

    def _end_from_host(self) -> None:
        log.warning("exec.guest_overdue", exec_id=self.id, sandbox_id=self._sandbox.id)
        if self._sandbox.cut_off("its guest did not end a command in time"):
            self._kill_counts.by_host += 1
        else:
            self._kill_counts.by_engine += 1

    def hand_over(self) -> None:
        """Leave it to the next daemon: from now on nothing here ends it."""
        self._is_left = True
        self._cancel_timers()

    def forget_in_guest(self) -> None:
        """Let the guest drop it once it has ended: everything that is kept of it is kept here."""
        if self.exit is not None and self.number and not self._is_released:
            self._is_released = True
            self._sandbox.link.release(self.number)

    # --- reading ---

    def read(self, stream: Stream, offset: int, max_bytes: int) -> Piece:
        """Bytes from an offset on; none beyond the end, where more may come."""
        return self.kept_output.spool.read(stream, min(offset, self.length(stream)), max_bytes)

    def preview(self, stream: Stream, *, max_bytes: int, collapse: bool) -> Preview:
        """Beginning and end of a stream by whole lines; `collapse` shows them as a terminal."""
        return self.kept_output.spool.preview(stream, max_bytes=max_bytes, collapse=collapse)

    async def search(self, query: SearchQuery) -> SearchResult:
        # In a thread: much output takes long to search, and others are served meanwhile.
        return await asyncio.to_thread(self.kept_output.spool.search, query)

    async def begun(self) -> None:
        """Wait, for a bounded time, until the guest reports that it runs; one that waits for its
        shell is not waited for. CommandNotStartable if it cannot run."""
        await self.reported_or_ended()
        self.raise_if_never_ran()

    async def reported_or_ended(self, seconds: float = START_SECONDS) -> None:
        """Wait, for a bounded time, until it is known whether it runs."""
        give_up_at = self._loop.time() + seconds
        while self._is_starting and (left := give_up_at - self._loop.time()) > 0:
            await self._change(left)

    @property
    def _is_starting(self) -> bool:
        is_reported = self.pid or self.details.generation or self.exit is not None
        return self.reports_start and bool(self.number) and not is_reported

    async def ended(self) -> ExitStatus:
        """Return how it ended."""
        while self.exit is None:
            await self._change()
        return self.exit

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Return once its output makes it so, or it has ended."""
        while self.exit is None and not is_so():
            await self._change()

    async def wait(self) -> ExitStatus:
        """Return how it ended; CommandNotStartable if it never began."""
        status = await self.ended()
        self.raise_if_never_ran()
        return status

    async def follow(self, offsets: Mapping[Stream, int] | None = None) -> AsyncIterator[Batch]:
        """Yield batches of output from these offsets on; the last one carries the exit.

        CommandNotStartable if it never began, ExecNotFound if its output is not kept.
        """
        output = self.kept_output
        self._check_offsets(offsets or {})
        follower = output.follow(offsets or {})
        try:
            if self.exit is None and not follower.is_behind:
                # A short command is answered in one message.
                await self._change(FIRST_BATCH_SECONDS)
            async for batch in self._batches(follower):
                yield batch
        finally:
            output.leave(follower)

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
                    f"must be at most {self._counts[stream]}, the number of bytes written so far",
                )

    async def _change(self, seconds: float | None = None) -> None:
        """Wait until output, input credit or the exit arrives, or the time is up."""
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
        """Count a caller that it should not outlive. A repeated call counts as much as the first,
        whose end may be noticed late."""
        self._holders += 1

    def abandon(self) -> None:
        """Discount such a caller; after the last one end it, unless it may outlive them."""
        self._holders -= 1
        if self._holders <= 0 and self.exit is None and not self.details.survives_disconnect:
            self.end(Reason.CANCELLED)

    def raise_if_never_ran(self) -> None:
        if self._refusal is not None:
            failure, why = self._refusal
            is_for_now = failure is StartFailure.NO_PROCESS
            raise CommandNotStartable(
                why,
                kind=failure.name.lower(),
                retry_after_seconds=RETRY_SECONDS if is_for_now else None,
            )

    def _acknowledge(self, ack: Ack) -> None:
        self._sandbox.link.acknowledge(self.number, ack)

    # --- acting on it ---

    def signal(self, number: int, target: Target) -> None:
        if number == SIGKILL and self.state is State.QUEUED:
            self.end(Reason.CANCELLED)
            return
        self._check_running("so it cannot be signalled")
        if self.is_code and number == SIGINT:
            self.interrupt()
            return
        if self.is_code:
            target = Target.LEADER  # a context has no group of its own
        with _closed_link_as_loss():
            self._sandbox.link.signal(self.number, number, target)

    def resize(self, rows: int, columns: int) -> None:
        self._check_running("and its terminal with it")
        if not self.details.has_terminal:
            raise InvalidRequest("exec_id", "this exec has no terminal")
        with _closed_link_as_loss():
            self._sandbox.link.resize(self.number, rows, columns)

    async def write(self, offset: int | None, data: bytes, *, is_end: bool) -> int:
        """Pass input on as the command takes it, after what others wrote if `offset` is None;
        return the offset of the next byte."""
        if not (self.details.has_stdin or self.details.has_terminal):
            raise InvalidRequest(
                "exec_id",
                "this exec was started without `stdin` or `terminal`; start it with one of them",
            )
        async with self._input.lock:
            while not self._input.is_known:
                self._check_running("so its input is closed")
                await self._change()
            data = self._input.new_part(self._input.sent if offset is None else offset, data)
            while data:
                self._check_running("so its input is closed")
                room = self._input.taken + MAX_INPUT - self._input.sent
                if room <= 0:
                    await self._change()
                    continue
                piece, data = data[:room], data[room:]
                with _closed_link_as_loss():
                    self._sandbox.link.input(self.number, self._input.sent, piece)
                self._input.sent += len(piece)
            if is_end and not self._input.is_closed:
                self._check_running("so its input is closed")
                with _closed_link_as_loss():
                    self._sandbox.link.end_input(self.number)
                self._input.is_closed = True
            return self._input.sent

    def _check_running(self, effect: str) -> None:
        if self.exit is not None:
            raise ExecEnded(self.id, f"has ended, {effect}")
        if not self.number:
            raise ExecEnded(self.id, "is waiting for its turn; try again once it runs")

    # --- reports from the link ---

    def on_output(self, stream: Stream, offset: int, data: bytes, frame_count: int) -> None:
        self._counts[stream] += len(data)
        self._last_output = self._loop.time()
        self.output.put(Chunk(stream, offset, data, frame_count))
        self._wake()

    def on_skipped(self, stream: Stream, count: int) -> None:
        log.error("exec.output_lost", exec_id=self.id, stream=stream.name.lower(), bytes=count)
        self._counts[stream] += count
        self.kept_output.spool.skip(stream, count)
        self._wake()

    def on_input_taken(self, count: int) -> None:
        self._input.taken = count
        self._input.sent = max(self._input.sent, count)
        self._input.is_known = True
        self._wake()

    def on_sweeping(self) -> None:
        if self._host_kill is not None:
            self._host_kill.extend()
        self._lift_quota()

    def on_remarks(self, remarks: Remark) -> None:
        self._remarks = remarks

    def on_exited(self, exited: Exited) -> None:
        is_code = exited.ending != Ending.SIGNAL
        code, signal = (exited.value, None) if is_code else (None, exited.value)
        if exited.ending == Ending.DONE:
            self._done = RunEnd(exited.value)
            code = RUN_CODES[self._done]
        usage = self._used()
        if usage is not None and Remark.COMPANY in self._remarks:
            usage = usage._replace(is_shared=True)  # as the guest knows it, which looks closer
        reason: Reason
        if self._intent is Reason.OUT_OF_MEMORY:
            reason = self._intent  # as an earlier daemon found, which did not see the sweep through
        elif self._done is not None:
            reason = self._reason_of_done(exited.cause, usage)
        elif exited.cause == Cause.SWEPT:
            reason = Reason.SWEPT
        elif exited.cause == Cause.KILLED and self._intent is not None:
            reason = self._intent
            self._kill_counts.by_guest += 1
        elif exited.cause == Cause.DEADLINE and self._is_overdue:
            reason = Reason.TIMED_OUT
            self._kill_counts.by_guest += 1
        elif is_code and exited.value == 0:
            reason = Reason.EXITED
        else:
            own = Reason.EXITED if is_code else Reason.SIGNALLED
            was_killed = is_killed(code, signal)
            limit = reached_limit(usage, self._is_a_disk_full, was_killed=was_killed)
            reason = limit or own
        end = _End(code, signal, usage)
        if reason is not Reason.OUT_OF_MEMORY or not self._begin_sweep(end):
            self._finish(reason, end)

    def _begin_sweep(self, end: _End) -> bool:
        """What the command has started keeps memory that the next one needs: have the guest end it
        before the end is reported. False if it cannot be asked."""
        self._intent = Reason.OUT_OF_MEMORY
        if self._before_kill is not None:
            self._before_kill(self, self._intent)
        if self._is_left:
            return False
        self._unswept = end
        self._lift_quota()
        try:
            if not self._sandbox.link.sweep(self.number, self):
                return False
        except LinkClosed:
            return self.exit is not None  # on_lost may have been called
        self._begin_host_kill()
        return True

    def on_swept(self, *, was_known: bool) -> None:
        assert self._unswept is not None
        self._was_swept = was_known
        self._finish(Reason.OUT_OF_MEMORY, self._unswept)

    def _reason_of_done(self, cause: Cause, usage: Usage | None) -> Reason:
        """Why a run ended whose context lives on. What was interrupted ended as asked; what ended
        by itself at that moment did not."""
        if self._done is RunEnd.INTERRUPTED:
            overdue = cause == Cause.DEADLINE and self._is_overdue
            return self._intent or (Reason.TIMED_OUT if overdue else Reason.EXITED)
        if self._done is RunEnd.RAISED:
            limit = reached_limit(usage, self._is_a_disk_full, was_killed=False)
            return limit or Reason.EXITED
        return Reason.EXITED

    @property
    def _is_overdue(self) -> bool:
        return time.monotonic() >= self._began + self.details.timeout_seconds

    def _used(self) -> Usage | None:
        meter = self._sandbox.meter
        return meter.end(self._reading) if meter is not None else None

    def _is_a_disk_full(self) -> bool:
        meter = self._sandbox.meter
        self._full = meter.full if meter is not None else ""
        return bool(self._full)

    def on_started(self, pid: int) -> None:
        self.pid = pid
        self._wake()

    def on_context(self, run: ContextRun) -> None:
        is_new = not self.details.generation
        self.details = self.details._replace(generation=run.generation, run=run.run)
        if is_new and not self._is_adopted and self._intent is None and self._deadline is not None:
            # What its interpreter took to start is not its own time.
            self._deadline.cancel()
            self._began = time.monotonic()
            seconds = self.details.timeout_seconds
            self._deadline = self._loop.call_later(seconds, self.end, Reason.TIMED_OUT)
        self._wake()

    def on_refused(self, failure: StartFailure, why: str) -> None:
        self._used()
        self._refusal = Refused(failure, why)
        self._finish(Reason.EXITED)

    def on_lost(self, why: str) -> None:
        self._lost = why
        if self._unswept is not None:
            self._finish(Reason.OUT_OF_MEMORY, self._unswept)
            return
        usage = self._used()
        # Where commands share the guest's limit, the kernel may have taken the guest.
        is_oom = self._intent is None and usage is not None and usage.oom_kills > 0
        lost = Reason.OUT_OF_MEMORY if is_oom else Reason.SANDBOX_LOST
        self._finish(self._intent or lost, _End(usage=usage))

    def _finish(self, reason: Reason, end: _End | None = None) -> None:
        end = end or _End()
        self._cancel_timers()
        self.exit = ExitStatus(
            reason=reason,
            code=end.code,
            signal=end.signal,
            duration_seconds=time.monotonic() - self._began,
            stdout_bytes=self._counts[Stream.STDOUT],
            stderr_bytes=self._counts[Stream.STDERR],
            hint=self._hint(reason, end),
            usage=end.usage,
            stdout_dropped=self.output.dropped(Stream.STDOUT),
            stderr_dropped=self.output.dropped(Stream.STDERR),
            events_bytes=self._counts[Stream.EVENTS],
            events_dropped=self.output.dropped(Stream.EVENTS),
            done=None if self._done is None else int(self._done),
        )
        self._wake()
        self._on_ended(self)

    def restore(self, status: ExitStatus) -> None:
        """Take over the exit that an earlier daemon recorded. Output that its spool has lost counts
        as dropped."""
        for stream, count in status.counts.items():
            found = self.kept_output.spool.length(stream)
            self._counts[stream] = found
            if found < count:
                self.on_skipped(stream, count - found)
        self.exit = status._replace(
            stdout_dropped=self.output.dropped(Stream.STDOUT),
            stderr_dropped=self.output.dropped(Stream.STDERR),
            events_dropped=self.output.dropped(Stream.EVENTS),
        )

    def _cancel_timers(self) -> None:
        for timer in (self._deadline, self._silence, self._host_kill):
            if timer is not None:
                timer.cancel()
        self._deadline = self._silence = self._host_kill = None
        self._cancel_interruption()

    def _hint(self, reason: Reason, end: _End) -> str:
        if end.code == 0 and reason is Reason.EXITED and not self._remarks:
            return passed_limits(reason, end.usage)
        found = Circumstances(
            timeout_seconds=self.details.timeout_seconds,
            no_output_seconds=self.details.no_output_seconds,
            code=end.code,
            signal=end.signal,
            usage=end.usage,
            refusal=self._refusal.text if self._refusal else None,
            loss=self._lost,
            remarks=self._remarks,
            full=self._full,
            is_run=self.is_code,
            done=self._done,
            was_swept=self._was_swept,
        )
        return hint(reason, found)


_NO_REMARKS = Remark(0)
_NOTHING: Mapping[Stream, int] = dict.fromkeys(STREAMS, 0)


@contextmanager
def _closed_link_as_loss() -> Iterator[None]:
    try:
        yield
    except LinkClosed as error:
        raise SandboxLost(str(error)) from None


def _give_up(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Input:
    """Progress of a command's input."""

    def __init__(self) -> None:
        self.sent = 0
        self.taken = 0
        self.is_closed = False
        self.is_known = True
        """Whether the guest has reported `taken` since a restart of the daemon."""

    @cached_property
    def lock(self) -> asyncio.Lock:
        return asyncio.Lock()

    def new_part(self, offset: int, data: bytes) -> bytes:
        """The part of these bytes that has not been sent yet."""
        if offset > self.sent:
            raise InvalidRequest(
                "offset", f"must be at most {self.sent}, the offset of the next byte"
            )
        fresh = data[self.sent - offset :]
        if fresh and self.is_closed:
            raise InvalidRequest(
                "data", "the input was closed by an earlier `eof`; start another exec"
            )
        return fresh
