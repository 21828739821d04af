"""What the debugger does while the code is stopped: commands, and answers to them."""

from __future__ import annotations

from _ast import PyCF_ONLY_AST
from _signal import SIGINT  # type: ignore[import-not-found]
from _thread import get_ident
from posix import getpid, kill
from select import POLLIN, poll
from typing import Any

from . import records
from .channel import Channel
from .forking import loads
from .interrupts import Interrupts, Limit, TimeLimit
from .policy import Policy
from .protocol import MAX_COMMAND, SIZE
from .records import MAX_FRAMES, MAX_VARIABLES, Breakpoint, Forms
from .state import is_listed
from .summaries import has_parts, parts_of, type_name
from .tracebacks import Tracebacks
from .variables import local_names, shown

EVALUATE_SECONDS = 0.5
_DEFAULT_FRAMES = 50
_MAX_HANDLES = 10_000
_SLICE_MS = 50
_MODES = frozenset(("continue", "step_in", "step_over", "step_out"))


class Failure(Exception):
    """A command cannot be done; the text says why."""


class Stop:
    """A place where the code is stopped. Handles of values are valid until it goes on."""

    def __init__(
        self, tracer: Any, stack: list[tuple[Any, int]], thread: int, *, is_over: bool = False
    ) -> None:
        self.tracer = tracer
        self.stack = stack
        self.thread = thread
        self.is_over = is_over
        """The code has ended with an exception: it cannot go on."""
        self.is_left = False
        self._values: list[Any] = []

    def frame(self, number: Any) -> Any:
        if type(number) is not int or not 0 <= number < len(self.stack):
            raise Failure(f"there is no frame {number}; the stack has {len(self.stack)}")
        return self.stack[number][0]

    def handle(self, value: Any) -> int:
        if not has_parts(value) or len(self._values) >= _MAX_HANDLES:
            return 0
        self._values.append(value)
        return len(self._values)

    def value(self, handle: int) -> Any:
        if not 0 < handle <= len(self._values):
            raise Failure(f"the handle {handle} is not valid; handles end when the code goes on")
        return self._values[handle - 1]


class Commands:
    """Reads commands from the run's input and answers them."""

    def __init__(
        self, channel: Channel, interrupts: Interrupts, tracebacks: Tracebacks, policy: Policy
    ) -> None:
        self._channel = channel
        self._interrupts = interrupts
        self._tracebacks = tracebacks
        self._policy = policy
        self._received = b""

    def _next(self) -> dict[str, Any] | None:
        """The next command that is there; None if there is none yet."""
        self._received += self._channel.read_input()
        if len(self._received) < SIZE.size:
            return None
        size = SIZE.unpack_from(self._received)[0]
        if size > MAX_COMMAND:
            raise KeyboardInterrupt  # no command is that long: what follows cannot be read
        if len(self._received) < SIZE.size + size:
            return None
        body = self._received[SIZE.size : SIZE.size + size]
        self._received = self._received[SIZE.size + size :]
        command: dict[str, Any] = loads(body)
        return command

    def are_waiting(self) -> bool:
        """Whether there are commands, or parts of one, that nobody has done."""
        readable = poll()
        readable.register(self._channel.input, POLLIN)
        return bool(self._received or readable.poll(0))

    def obey(self, stop: Stop) -> None:
        """Until a command lets the code go on. An interrupt ends the wait."""
        readable = poll()
        readable.register(self._channel.input, POLLIN)
        while not stop.is_left:
            command = self._next()
            if command is not None:
                self._do(command, stop)
                continue
            self._wait(readable)
            if stop.tracer._is_over:
                return

    def _wait(self, readable: Any) -> None:
        self._interrupts.begin()
        try:
            readable.poll(_SLICE_MS)
        finally:
            self._interrupts.end()
        self._interrupts.check()

    def while_running(self, tracer: Any, frame: Any) -> None:
        """In a signal handler: what can be done while the code runs."""
        while True:
            command = self._next()
            if command is None:
                return
            number, do = int(command.get("command") or 0), command.get("do")
            if do == "pause":
                self._accept(number)
                tracer.pause(frame)
            elif do == "set_breakpoint":
                self.set_breakpoint(tracer, number, command)
                tracer.retrace(frame)
            elif do == "clear_breakpoint":
                self._clear(tracer, number, command)
                tracer.retrace(frame)
            elif do == "quit":
                self._accept(number)
                self._quit()
            else:
                self._fail(number, "the code is running; stop it with pause first")

    def _quit(self) -> None:
        self._interrupts.count += 1
        raise KeyboardInterrupt

    def _accept(self, number: int) -> None:
        self._channel.send(records.answer(number, Forms.ACCEPTED))

    def _fail(self, number: int, reason: str) -> None:
        self._channel.send(records.answer(number, Forms.FAILURE, records.text(reason)))

    def _do(self, command: dict[str, Any], stop: Stop) -> None:
        number, do = int(command.get("command") or 0), str(command.get("do"))
        act = getattr(self, "_do_" + do, None)
        try:
            if act is None:
                raise Failure(f"unknown command {do[:40]}")
            act(number, command, stop)
        except Failure as failure:
            self._fail(number, str(failure))

    def _do_resume(self, number: int, command: dict[str, Any], stop: Stop) -> None:
        mode = command.get("mode") or "continue"
        if mode not in _MODES:
            raise Failure(f"unknown mode {str(mode)[:40]}")
        self._accept(number)
        stop.is_left = True
        if not stop.is_over:
            stop.tracer.resume(mode, stop.stack[0][0])

    def _do_pause(self, number: int, command: dict[str, Any], stop: Stop) -> None:
        self._accept(number)  # it is stopped already

    def _do_quit(self, number: int, command: dict[str, Any], stop: Stop) -> None:
        self._accept(number)
        stop.is_left = True
        if not stop.is_over:
            stop.tracer._is_over = True
            if get_ident() == self._interrupts.main:
                self._quit()
            self._interrupt_main()

    def _interrupt_main(self) -> None:
        """Quit at a stop in another thread: the run is the main thread's."""
        kill(getpid(), SIGINT)

    def _do_set_breakpoint(self, number: int, command: dict[str, Any], stop: Stop) -> None:
        self.set_breakpoint(stop.tracer, number, command)

    def _do_clear_breakpoint(self, number: int, command: dict[str, Any], stop: Stop) -> None:
        self._clear(stop.tracer, number, command)

    def set_breakpoint(self, tracer: Any, number: int, given: dict[str, Any]) -> None:
        try:
            self._check_policy(str(given.get("condition") or "True"))
            point = tracer.breakpoints.add(given)
        except (ValueError, TypeError, Failure) as error:
            self._fail(number, str(error))
        else:
            self._channel.send(records.breakpoint_set(number, point))

    def _clear(self, tracer: Any, number: int, command: dict[str, Any]) -> None:
        if tracer.breakpoints.remove(command.get("id")):
            self._accept(number)
        else:
            self._fail(number, "there is no breakpoint {}".format(command.get("id")))

    def _do_stack(self, number: int, command: dict[str, Any], stop: Stop) -> None:
        most = min(int(command.get("max_frames") or _DEFAULT_FRAMES), MAX_FRAMES)
        frames = [
            self._tracebacks.frame(frame.f_code, line, index)
            for index, (frame, line) in enumerate(stop.stack[:most])
        ]
        left_out = records.u32(len(stop.stack) - len(frames))
        body = records.frames(frames) + left_out + records.u64(stop.thread)
        self._channel.send(records.answer(number, Forms.STACK, body))

    def _do_variables(self, number: int, command: dict[str, Any], stop: Stop) -> None:
        handle, offset = int(command.get("handle") or 0), int(command.get("offset") or 0)
        if handle:
            pairs = parts_of(stop.value(handle)) or []
        else:
            frame = stop.frame(command.get("frame") or 0)
            pairs = list(_globals(frame) if command.get("globals") else local_names(frame).items())
        some = pairs[offset : offset + MAX_VARIABLES]
        variables = [shown(name, value, None, stop.handle(value)) for name, value in some]
        left_out = records.u64(max(0, len(pairs) - offset - len(some)))
        body = records.variables(variables) + left_out
        self._channel.send(records.answer(number, Forms.VARIABLES, body))

    def _do_evaluate(self, number: int, command: dict[str, Any], stop: Stop) -> None:
        expression = str(command.get("expression") or "")
        frame = stop.frame(command.get("frame") or 0)
        if get_ident() != self._interrupts.main:
            raise Failure("expressions are evaluated in the main thread only")
        self._check_policy(expression)
        try:
            with Limit(self._interrupts, EVALUATE_SECONDS):
                value = _evaluate(expression, frame)
        except TimeLimit:
            raise Failure(f"it took longer than {EVALUATE_SECONDS} s") from None
        except (Exception, SystemExit) as error:
            text = records.text(f"it raised {type_name(error)}")
            chain = self._tracebacks.chain(error)
            self._channel.send(records.answer(number, Forms.FAILURE, text, raised=chain))
            return
        found = shown(expression, value, None, stop.handle(value))
        self._channel.send(records.answer(number, Forms.VALUE, records.variable(found)))

    def _check_policy(self, expression: str) -> None:
        try:
            found = self._policy.check(compile(expression, "<debugger>", "exec", PyCF_ONLY_AST))
        except (SyntaxError, ValueError) as error:
            raise Failure("it is not Python: {}".format(getattr(error, "msg", error))) from None
        if found:
            raise Failure(found[0].message)

    def is_true(self, point: Breakpoint, frame: Any) -> bool:
        """Whether the code stops at a breakpoint; one whose condition fails stops, and says so."""
        if not point.condition:
            return True
        try:
            with Limit(self._interrupts, EVALUATE_SECONDS):
                return bool(_expression(point.condition, frame))
        except (Exception, TimeLimit) as error:
            sentence = f"The condition of breakpoint {point.id} failed: {type_name(error)}."
            self._channel.send(records.note(sentence))
            return True


def _globals(frame: Any) -> list[tuple[str, Any]]:
    return [pair for pair in list(frame.f_globals.items()) if is_listed(pair[0])]


def _evaluate(expression: str, frame: Any) -> Any:
    """An expression, or a statement whose assignments stay."""
    try:
        compile(expression, "<debugger>", "eval")
    except SyntaxError:
        names = frame.f_locals
        exec(compile(expression, "<debugger>", "exec"), frame.f_globals, names)
        _write_back(frame)
        return None
    return _expression(expression, frame)


def _expression(expression: str, frame: Any) -> Any:
    """With local variables among the global ones, so that comprehensions see them."""
    names = frame.f_globals
    if frame.f_locals is not names:
        names = {**names, **frame.f_locals}
    return eval(compile(expression, "<debugger>", "eval"), names)


def _write_back(frame: Any) -> None:
    """Python before 3.13 keeps assignments to local variables only if it is asked to."""
    try:
        from ctypes import c_int, py_object, pythonapi

        pythonapi.PyFrame_LocalsToFast(py_object(frame), c_int(0))
    except (ImportError, AttributeError):
        pass  # 3.13 writes through; without ctypes the assignment lasts for the expression
