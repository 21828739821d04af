"""The debugger: a tracer that stops at lines of the user's code and reports what has changed.

Nothing of the user's code runs to show a stop. `continue` without breakpoints switches tracing off.
"""

from __future__ import annotations

import sys
from _signal import SIG_IGN, signal  # type: ignore[import-not-found]
from _thread import allocate_lock, get_ident
from collections.abc import Callable
from dis import opmap
from fcntl import F_GETFL, F_SETFL, F_SETOWN, fcntl
from posix import getpid, kill
from typing import Any

from . import records
from .breakpoints import Breakpoints
from .channel import Channel
from .interrupts import SIGCOMMAND, Interrupts
from .policy import Policy
from .protocol import Modes
from .records import Reasons
from .stops import Commands, Stop
from .tracebacks import Sources, Tracebacks, is_own, is_users, places
from .variables import Known

_O_ASYNC, _F_SETSIG = 0o20000, 10
_SUSPENDABLE = 0x20 | 0x80 | 0x200  # generator, coroutine, asynchronous generator
_YIELDS = frozenset(
    opmap[name] for name in ("YIELD_VALUE", "YIELD_FROM", "RESUME") if name in opmap
)
_YIELD_FROM = bytes([opmap["YIELD_FROM"]]) if "YIELD_FROM" in opmap else None
"""Before Python 3.11 a frame that awaits stands one instruction before it."""
CONTINUE, STEP_IN, STEP_OVER, STEP_OUT = "continue", "step_in", "step_over", "step_out"


def _is_suspended(frame: Any) -> bool:
    """Whether a `return` event of the tracer is a yield or an await."""
    code = frame.f_code
    if not code.co_flags & _SUSPENDABLE:
        return False
    at = frame.f_lasti
    if code.co_code[at] in _YIELDS:
        return True
    return bool(code.co_code[at + 2 : at + 3] == _YIELD_FROM)


class Debugger:
    """One for a context; it traces only runs that ask for it."""

    def __init__(
        self,
        channel: Channel,
        interrupts: Interrupts,
        tracebacks: Tracebacks,
        sources: Sources,
        policy: Policy,
    ) -> None:
        self._channel = channel
        self._interrupts = interrupts
        self._tracebacks = tracebacks
        self._sources = sources
        self._policy = policy
        self._tracer: Tracer | None = None

    def run(
        self, execute: Callable[[], Any], program: Any, mode: str, options: dict[str, Any]
    ) -> Any:
        tracer = self._tracer = Tracer(
            self._channel, self._interrupts, self._tracebacks, self._sources, self._policy
        )
        tracer.prepare(program, mode, options)
        try:
            tracer.start()
            return execute()
        finally:
            tracer.end()

    def examine(self, error: BaseException) -> None:
        """Stop at an exception that nothing caught."""
        if self._tracer is not None and not isinstance(error, (SystemExit, GeneratorExit)):
            self._tracer.examine(error)

    def finish(self) -> None:
        """The run is over."""
        if self._tracer is not None:
            self._tracer.release()
            self._tracer = None

    def hook(self, *given: Any, **named: Any) -> None:
        """breakpoint() in the user's code."""
        if self._tracer is not None and self._tracer.mode == Modes.DEBUG:
            self._tracer.stop_soon(sys._getframe(1), Reasons.CODE)


class Tracer:
    """Traces one run."""

    def __init__(
        self,
        channel: Channel,
        interrupts: Interrupts,
        tracebacks: Tracebacks,
        sources: Sources,
        policy: Policy,
    ) -> None:
        self._channel = channel
        self._interrupts = interrupts
        self._tracebacks = tracebacks
        self._sources = sources
        self._commands = Commands(channel, interrupts, tracebacks, policy)
        self._known = Known()
        self._lock = allocate_lock()
        self._threads = {interrupts.main: 0}
        self._steps = 0
        self._step_bytes = 0
        self._is_over = False
        self._is_handling = False
        self._targets: list[Any] = []
        self._origin: tuple[Any, int] = (None, 0)
        """Where the step under way began, or the last reported line."""
        self._reason = Reasons.ENTRY
        self._how = STEP_IN
        self._thread = interrupts.main
        self._entered: dict[int, int] = {}
        """Frames to stop in at their first line, by the id of their breakpoint."""

    def prepare(self, program: Any, mode: str, options: dict[str, Any]) -> None:
        self.mode = mode
        self._file = program.file
        self.breakpoints = Breakpoints(program.file, self._sources)
        self.breakpoints.learn(program.parts)
        self._max_steps = min(int(options.get("max_steps") or records.MAX_STEPS), records.MAX_STEPS)
        self._into_functions = bool(options.get("step_into_functions"))
        self._ignores_exceptions = bool(options.get("ignore_exceptions"))
        for given in options.get("breakpoints") or ():
            self._commands.set_breakpoint(self, 0, given)
        if options.get("run_to_breakpoint"):
            self._how = CONTINUE

    def start(self) -> None:
        if self.mode == Modes.DEBUG:
            self._listen()
        threading = sys.modules.get("threading")
        if threading is not None and self.mode == Modes.DEBUG:
            threading.settrace(self._call)
        if self._is_tracing():
            sys.settrace(self._call)

    def _listen(self) -> None:
        """A signal for commands that come while the code runs."""
        signal(SIGCOMMAND, self._on_command)
        descriptor = self._channel.input
        fcntl(descriptor, F_SETOWN, getpid())
        fcntl(descriptor, _F_SETSIG, int(SIGCOMMAND))
        fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | _O_ASYNC)
        self._on_command(int(SIGCOMMAND), None)  # those that have come before

    def _on_command(self, number: int, frame: Any) -> None:
        """Not in the middle of a record, nor of another command: then it is done afterwards."""
        if self._interrupts.is_critical or self._is_handling:
            self._interrupts.later = self._catch_up
        elif not self._is_over and not self._lock.locked():  # else the stopped thread reads it
            self._handle_commands(frame)

    def _catch_up(self) -> None:
        if not self._is_over and not self._lock.locked() and not self._is_handling:
            self._handle_commands(sys._getframe(1))

    def _handle_commands(self, frame: Any) -> None:
        self._is_handling = True
        try:
            self._commands.while_running(self, frame)
        finally:
            self._is_handling = False
        self._interrupts.check()

    def end(self) -> None:
        """The code has ended; post-mortem may follow."""
        sys.settrace(None)
        threading = sys.modules.get("threading")
        if threading is not None:
            threading.settrace(None)

    def release(self) -> None:
        self._is_over = True
        descriptor = self._channel.input
        try:
            fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~_O_ASYNC)
        except OSError:
            pass  # the code has closed it
        signal(SIGCOMMAND, SIG_IGN)

    def _is_tracing(self) -> bool:
        return self._how != CONTINUE or bool(self.breakpoints)

    def retrace(self, frame: Any) -> None:
        """Trace what can stop from here on, in this thread."""
        tracing = self._call if self._is_tracing() and not self._is_over else None
        sys.settrace(tracing)
        while frame is not None:
            if is_users(frame.f_code.co_filename) and not is_own(frame):
                frame.f_trace = self._line if tracing and self._concerns(frame) else None
            frame = frame.f_back

    def _concerns(self, frame: Any) -> bool:
        """Whether lines of a frame have to be looked at."""
        if self._how != CONTINUE and (self._how == STEP_IN or frame in self._targets):
            return True
        return self.breakpoints.are_in(frame.f_code)

    def _call(self, frame: Any, event: str, argument: Any) -> Any:
        """Trace function of calls, which are also resumptions of generators."""
        code = frame.f_code
        if self._is_over or not is_users(code.co_filename) or is_own(frame):
            return None
        if self.mode == Modes.STEPS:
            return self._line if self._into_functions or self._is_top(frame) else None
        point = self.breakpoints.of_function(code)
        if point is not None and frame.f_lasti <= _first_instruction(code):
            self._entered[id(frame)] = point.id
            return self._line
        if self._how == STEP_IN and get_ident() != self._thread:
            return self._line if self.breakpoints.are_in(code) else None
        return self._line if self._concerns(frame) else None

    def _is_top(self, frame: Any) -> bool:
        code = frame.f_code
        return bool(code.co_filename == self._file and code.co_name == "<module>")

    def _line(self, frame: Any, event: str, argument: Any) -> Any:
        """Trace function of lines in a frame that concerns us."""
        if self._is_over:
            return None
        if event == "line":
            self._at_line(frame)
        elif event == "return":
            self._at_return(frame, argument)
        return frame.f_trace if event == "line" else self._line

    def _at_line(self, frame: Any) -> None:
        if self.mode == Modes.STEPS:
            if (frame, frame.f_lineno) != self._origin:
                self._origin = (frame, frame.f_lineno)
                self._report_step(frame, Reasons.STEP if self._steps else Reasons.ENTRY)
            return
        entered = self._entered.pop(id(frame), 0) if self._entered else 0
        if entered:
            self._stop(frame, Reasons.BREAKPOINT, entered)
            return
        found = self.breakpoints.at_line(frame.f_code.co_filename, frame.f_lineno)
        for point in found:
            if self._commands.is_true(point, frame):
                self._stop(frame, Reasons.BREAKPOINT, point.id)
                return
        if self._stops_here(frame):
            self._stop(frame, self._reason, 0)

    def _stops_here(self, frame: Any) -> bool:
        if get_ident() != self._thread or self._how in (CONTINUE, STEP_OUT):
            return False
        if frame is self._origin[0] and frame.f_lineno == self._origin[1]:
            return False  # a comprehension, or the way back from an await: still the same line
        return self._how == STEP_IN or frame in self._targets

    def _at_return(self, frame: Any, value: Any) -> None:
        suspended = _is_suspended(frame)
        if self.mode == Modes.STEPS:
            if self._is_top(frame) and not suspended:
                self._report_step(frame, Reasons.RETURN)
            return
        if not suspended and not self._is_top(frame):
            self._known.forget(frame)
        if get_ident() != self._thread or frame not in self._targets:
            return
        if self._how == STEP_OUT:
            if not suspended:
                self._stop(frame, Reasons.RETURN, 0, value)
        elif self._how == STEP_OVER:
            self._follow(frame, suspended)

    def _follow(self, frame: Any, suspended: bool) -> None:
        """A step over the end of a function ends in its caller."""
        caller = frame.f_back
        while caller is not None and (is_own(caller) or not is_users(caller.f_code.co_filename)):
            caller = caller.f_back
        if caller is not None:
            caller.f_trace = self._line
            self._targets.append(caller)
        elif not suspended:
            self._how = STEP_IN

    def stop_soon(self, frame: Any, reason: int) -> None:
        """Stop at the next line of this frame or of its caller, in this thread."""
        if self._is_over:
            return
        self._reason, self._thread = reason, get_ident()
        self._how, self._targets, self._origin = STEP_OVER, [frame], (None, 0)
        self.retrace(frame)

    def pause(self, frame: Any) -> None:
        """Stop at the next line of the user's code in the main thread."""
        self._reason, self._thread = Reasons.PAUSE, get_ident()
        self._how, self._targets, self._origin = STEP_IN, [], (None, 0)
        self.retrace(frame)

    def resume(self, how: str, frame: Any) -> None:
        self._reason, self._thread = Reasons.STEP, get_ident()
        self._how, self._targets = how, [frame]
        self._origin = (frame, frame.f_lineno)

    def _stop(self, frame: Any, reason: int, point: int, value: Any = None) -> None:
        """Report where the code is and do what commands say until one lets it go on."""
        while not self._lock.acquire(True, 0.05):
            self._interrupts.check()
            if self._is_over:
                return
        try:
            self._steps += 1
            step = self._step(frame, reason, point)
            if reason == Reasons.RETURN:
                step = step._replace(returned=records_summary(value))
            stop = Stop(self, _stack(frame), self._threads[get_ident()])
            self._channel.send(records.step(step))
            self._commands.obey(stop)
        finally:
            self._lock.release()
        if self._commands.are_waiting():  # their signal may have come before the lock was free
            kill(getpid(), SIGCOMMAND)
        if reason == Reasons.RETURN and self._how in (STEP_OVER, STEP_OUT):
            self._targets = []
            self._follow(frame, False)
        self.retrace(frame)

    def _step(self, frame: Any, reason: int, point: int = 0) -> records.Step:
        stdout, stderr = self._flushed()
        changed, removed, left_out = self._known.changes(frame, self._is_top(frame))
        code = frame.f_code
        return records.Step(
            number=self._steps,
            reason=reason,
            file=code.co_filename,
            line=frame.f_lineno or 0,
            source=self._sources.line(code.co_filename, frame.f_lineno or 0),
            function=code.co_name,
            depth=len(_stack(frame)),
            changed=changed,
            removed=removed,
            errors=[],
            thread=self._threads.setdefault(get_ident(), len(self._threads)),
            breakpoint=point,
            stdout=stdout,
            stderr=stderr,
            left_out=left_out,
        )

    def _flushed(self) -> tuple[int, int]:
        """What the code has written is with PID 1 before the step is."""
        for file in (sys.stdout, sys.stderr):
            try:
                file.flush()
            except Exception:
                continue  # replaced or closed
        return self._channel.sync()

    def _report_step(self, frame: Any, reason: int) -> None:
        """StepThrough: report a line and go on."""
        if self._steps >= self._max_steps or self._step_bytes > records.MAX_STEP_BYTES:
            self._is_over = True
            sentence = "Steps after the %sth are not reported: the limit is reached."
            self._channel.send(records.note(sentence % self._steps))
            return
        self._steps += 1
        record = records.step(self._step(frame, reason))
        self._step_bytes += len(record)
        self._channel.send(record)
        self._channel.sync()

    def examine(self, error: BaseException) -> None:
        found = places(error)
        if self.mode != Modes.DEBUG or self._ignores_exceptions or not found:
            return
        self._steps += 1
        frame, line = found[-1]
        users = [one for one in found if is_users(one[0].f_code.co_filename)]
        if users:
            frame, line = users[-1]
        step = self._step(frame, Reasons.EXCEPTION)._replace(
            line=line,
            source=self._sources.line(frame.f_code.co_filename, line),
            errors=self._tracebacks.chain(error),
            depth=len(users),
        )
        stack = list(reversed(users or found))
        with self._lock:
            stop = Stop(self, stack, 0, is_over=True)
            self._channel.send(records.step(step))
            self._commands.obey(stop)


def records_summary(value: Any) -> str:
    from .summaries import summary

    return summary(value)


def _first_instruction(code: Any) -> int:
    """Where a frame is when it is called, not resumed."""
    return 2 * 8 if code.co_flags & _SUSPENDABLE else 1 << 30


def _stack(frame: Any) -> list[tuple[Any, int]]:
    """The user's frames and their lines, innermost first."""
    found = []
    while frame is not None:
        if is_users(frame.f_code.co_filename) and not is_own(frame):
            found.append((frame, frame.f_lineno or 0))
        frame = frame.f_back
    return found
