"""A context: a process that keeps the variables of its runs."""

from __future__ import annotations

import builtins
import json
import re
import sys
from datetime import datetime
from posix import _exit, chdir, getpid, register_at_fork
from resource import RLIMIT_NOFILE, getrlimit, setrlimit
from types import ModuleType
from typing import Any

from . import records
from .channel import Channel, Reporter
from .debugger import Debugger
from .displays import Displays
from .encoder import Encoder, TooLarge
from .execution import Executor, Program
from .figures import FINDER
from .forking import loads
from .guards import Guards
from .helpers import Log, database_functions, functions
from .interrupts import Interrupts, Limit, TimeLimit
from .policy import Policy
from .protocol import SIZE, Descriptors, Modes, Orders, Statuses
from .state import listing
from .streams import Streams
from .tracebacks import Sources, Tracebacks

_OWN_DESCRIPTORS = 11
"""Standard streams, five of the runner, three of its event loop."""
_RESULT_SECONDS = 1.0
_GIVEN = {"datetime": datetime, "json": json, "re": re}
"""There without an import. They are builtins: listings do not show them, assignments hide them."""


class Context:
    def __init__(
        self, settings: dict[str, Any], descriptors: tuple[int, ...], held: int, loop: Any
    ) -> None:
        self._pid = getpid()
        self._held = held
        files = int(settings["limits"].get("open_files") or 0)
        first = _limit_files(files) if files else 200
        self._interrupts = Interrupts()
        self._interrupts.install()
        self._channel = Channel(
            descriptors[Descriptors.CONTROL],
            descriptors[Descriptors.EVENTS],
            descriptors[Descriptors.INPUT],
            self._interrupts,
            first,
        )
        self._streams = Streams(
            descriptors[Descriptors.STDOUT], descriptors[Descriptors.STDERR], first
        )
        self._displays = Displays(self._interrupts)
        self._log = Log()
        self._sources = Sources()
        self._tracebacks = Tracebacks(self._sources, self._interrupts)
        self._executor = Executor(loop)
        self._policy = Policy(settings["policy"])
        self._guards = Guards(self._policy)
        self._debugger = Debugger(
            self._channel, self._interrupts, self._tracebacks, self._sources, self._policy
        )
        self._runs = 0
        """Questions of the daemon are no runs."""
        self._file = ""
        self._set_up(settings)

    def _set_up(self, settings: dict[str, Any]) -> None:
        _apply_environment(settings["env"])
        FINDER.displays = self._displays
        self._change_directory(settings["cwd"])
        register_at_fork(after_in_child=self._channel.disconnect)
        _reseed()
        self._main = ModuleType("__main__")
        sys.modules["__main__"] = self._main
        sys.argv = [""]
        sys.path.insert(0, "")
        self._modules = dict(sys.modules)
        self._names = self._main.__dict__
        self._builtins = self._guards.builtins(self._names)
        self._builtins.update(_given(self._policy))
        self._builtins.update(functions(self._log, self._displays))
        self._has_database = False
        self._log.follow_logging()
        sys.breakpointhook = self._debugger.hook
        self._preloaded = [name for name in settings["preload"] if _preload(name)]
        self._guards.install()

    def _change_directory(self, cwd: str) -> None:
        try:
            chdir(cwd)
        except OSError as error:
            self._first_note = f"The directory {cwd} cannot be entered: {error.strerror}."
        else:
            self._first_note = ""

    def serve(self) -> None:
        from posix import close, write

        write(self._held, b"t" + " ".join(self._preloaded).encode())
        close(self._held)
        self._channel.hello()
        while True:
            order = self._channel.receive()
            if order is None:
                _exit(0)
            kind, number, body = order
            if kind == Orders.RUN:
                self._run(number, body)

    def _run(self, number: int, body: bytes) -> None:
        size = SIZE.unpack_from(body)[0]
        options = loads(body[4 : 4 + size])
        code = body[4 + size :].decode("utf-8", "replace")
        self._channel.number = number
        self._channel.is_syncing = bool(options.get("sync"))
        reporter = self._log.reporter = self._displays.reporter = Reporter(self._channel)
        try:
            self._interrupts.install()
            self._put_back(reporter)
            status = self._perform(options, code)
        except BaseException as error:
            self._interrupts.deactivate()
            status = self._failed(error)
        self._end(reporter, status)

    def _put_back(self, reporter: Reporter) -> None:
        for note in self._streams.restore():
            reporter.note(note)
        if self._first_note:
            reporter.note(self._first_note)
            self._first_note = ""
        self._put_back_modules()
        if not self._has_database:
            found = database_functions()
            self._has_database = bool(found)
            self._builtins.update(found)
        self._guards.restore(self._names)

    def _put_back_modules(self) -> None:
        modules = sys.modules
        if modules.get("sys") is not sys:
            modules.update(self._modules)
        if modules.get("__main__") is not self._main:
            modules["__main__"] = self._main

    def _end(self, reporter: Reporter, status: int) -> None:
        self._debugger.finish()
        self._streams.flush()
        if getpid() != self._pid:
            _exit(0 if status == Statuses.OK else 1)
        reporter.finish()
        self._log.reporter = self._displays.reporter = None
        self._channel.done(status)

    def _failed(self, error: BaseException) -> int:
        """The end of a run for an exception that came between the user's code and the runner."""
        if isinstance(error, KeyboardInterrupt) and self._interrupts.count:
            return Statuses.INTERRUPTED
        try:
            self._channel.send(records.error(self._tracebacks.chain(error)))
        except BaseException:
            pass  # the run is reported as raised, without the exception
        return Statuses.RAISED

    def _perform(self, options: dict[str, Any], code: str) -> int:
        mode = options.get("mode", Modes.RUN)
        if mode == Modes.STATE:
            self._channel.send(listing(dict(self._names)))
            return Statuses.OK
        if mode != Modes.CHECK:
            self._runs += 1
        self._file = file = f"<run {self._runs}>"
        self._sources.add(file, code)
        self._log.begin(self._runs)
        self._names.pop("__result__", None)
        self._interrupts.activate()
        try:
            program = Program(code, file)
            found = self._policy.check(program.tree)
            if mode == Modes.CHECK or found:
                return self._refuse(found, mode)
            program.compile()
            self._guards.is_active = True
            value = self._execute(program, mode, options)
            self._report_value(program, value)
            self._displays.figures()
        except BaseException as error:
            status = self._raised(error, mode)
        else:
            status = Statuses.OK
        finally:
            self._guards.is_active = False
            self._interrupts.deactivate()
        return status

    def _execute(self, program: Program, mode: str, options: dict[str, Any]) -> Any:
        if mode in (Modes.DEBUG, Modes.STEPS):
            return self._debugger.run(
                lambda: self._executor.execute(program, self._names), program, mode, options
            )
        return self._executor.execute(program, self._names)

    def _refuse(self, found: list[Any], mode: str) -> int:
        self._interrupts.deactivate()
        for violation in found:
            self._channel.send(records.violation(*violation))
        if mode == Modes.CHECK:
            return Statuses.OK
        first = found[0]
        file = self._file
        frame = records.Frame(file, first.line, "<module>", self._sources.line(file, first.line))
        text = "\n".join(f"line {one.line}: {one.message}" for one in found[:10])
        error = records.Error("CodeNotAllowed", text, [frame], "CodeNotAllowed: " + text)
        self._channel.send(records.error([error]))
        return Statuses.REFUSED

    def _raised(self, error: BaseException, mode: str) -> int:
        is_interrupt = isinstance(error, KeyboardInterrupt) and self._interrupts.count > 0
        if getpid() != self._pid:
            return Statuses.RAISED
        if mode == Modes.DEBUG and not is_interrupt:
            self._debugger.examine(error)
        self._interrupts.deactivate()
        self._show_figures()
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return Statuses.OK
        stack = self._executor.stack if is_interrupt else None
        self._channel.send(records.error(self._tracebacks.chain(error, stack)))
        return Statuses.INTERRUPTED if is_interrupt else Statuses.RAISED

    def _show_figures(self) -> None:
        """Those that were made before the code failed."""
        try:
            self._displays.figures()
        except BaseException:
            pass  # the code failed already, and that is what is reported

    def _report_value(self, program: Program, value: Any) -> None:
        if getpid() != self._pid:
            return
        if program.has_value and value is not None:
            media, left_out = self._displays.represent(value)
            self._channel.send(records.display(records.Kinds.VALUE, media, left_out))
            self._names["_"] = value
        if "__result__" in self._names:
            self._report_result(self._names["__result__"])
        elif program.has_value and value is not None:
            self._report_result(value)

    def _report_result(self, value: Any) -> None:
        encoder = Encoder(records.MAX_RESULT, _RESULT_SECONDS)
        try:
            with Limit(self._interrupts, 2 * _RESULT_SECONDS):
                text, is_cut = encoder.encode(value), encoder.is_cut
        except (TooLarge, TimeLimit, RecursionError, MemoryError) as error:
            why = str(error) if isinstance(error, TooLarge) else "it took too long to encode"
            encoder.conversions.append(("$", f"left out: {why}"))
            text, is_cut = "", True
        self._channel.send(records.result(text, encoder.conversions, is_cut))


def _limit_files(files: int) -> int:
    """Limit open descriptors to `files` of the user's; the number at which the runner's begin."""
    _, hard = getrlimit(RLIMIT_NOFILE)
    limit = files + _OWN_DESCRIPTORS
    if hard != -1:
        limit = min(limit, hard)
    setrlimit(RLIMIT_NOFILE, (limit, limit))
    return max(3, limit - _OWN_DESCRIPTORS)


def _given(policy: Policy) -> dict[str, Any]:
    return {name: value for name, value in _GIVEN.items() if policy.allows_module(name)}


def _apply_environment(given: dict[str, str]) -> None:
    from os import environ as variables

    for name, value in given.items():
        variables[name] = value
    if "TZ" in given:
        from time import tzset

        tzset()


def _reseed() -> None:
    """Contexts are forked from one process: numpy would give all of them the same numbers."""
    random = sys.modules.get("numpy.random")
    if random is not None:
        random.seed()


def _preload(name: str) -> bool:
    """The code that wants a module that cannot be imported gets to see why."""
    try:
        builtins.__import__(name)
    except BaseException:
        return False
    return True
