"""A debug adapter: requests of an editor on one side, the debugger of the SDK on the other."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

from sandboxd.cli.dap_messages import Message
from sandboxd.cli.target import Target
from sandboxd_client import AsyncDebugger, DebuggerError, DebugStep, SandboxError, Variable

Arguments = Mapping[str, Any]
Body = dict[str, Any] | None
Send = Callable[[Message], None]

UNCAUGHT = "uncaught"
REASONS = {"return": "step", "code": "breakpoint"}
"""What the protocol calls our reasons to stop; others have the same name."""
CAPABILITIES = {
    "supportsConfigurationDoneRequest": True,
    "supportsConditionalBreakpoints": True,
    "supportsEvaluateForHovers": True,
    "supportsExceptionInfoRequest": True,
    "supportsTerminateRequest": True,
    "exceptionBreakpointFilters": [
        {"filter": UNCAUGHT, "label": "Uncaught exceptions", "default": True}
    ],
}


class RequestFailed(Exception):
    """A request cannot be carried out; the message is shown to the user."""


class Adapter:
    """One debugging session of an editor."""

    def __init__(self, target: Target, session: str | None, send: Send) -> None:
        self._target = target
        self._session = session
        self._send = send
        self._stack = AsyncExitStack()
        self._launch: Arguments | None = None
        self._is_configured = False
        self._stops_at_exceptions = True
        self._wanted: list[Arguments] = []
        """Breakpoints in the program, as the editor last set them."""
        self._debugger: AsyncDebugger | None = None
        self._has_started = False
        self._pauses_at_start = False
        self._file = ""
        self._references: list[tuple[str, int]] = []
        self._work: set[asyncio.Task[None]] = set()
        self._has_ended = False
        self.is_over = False

    async def answer(self, request: Message) -> Message:
        """Carry out a request; the answer to send."""
        command = request.get("command")
        handler = self._handlers().get(command) if isinstance(command, str) else None
        arguments = request.get("arguments") or {}
        try:
            if handler is None:
                raise RequestFailed(f"the request {command!r} is not supported")
            if not isinstance(arguments, dict):
                raise RequestFailed("the arguments are not an object")
            body = await handler(arguments)
        except (RequestFailed, SandboxError, OSError) as error:
            return _response(request, None, str(error) or type(error).__name__)
        except (KeyError, TypeError, ValueError) as error:
            return _response(request, None, f"an argument is missing or invalid: {error}")
        return _response(request, body, None)

    async def after(self, request: Message) -> None:
        """What follows an answer: events that must not come before it."""
        match request.get("command"):
            case "initialize":
                self._event("initialized")
            case "launch" | "configurationDone" if self._is_ready():
                self._begin(self._start())

    async def aclose(self) -> None:
        self.is_over = True
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        await self._stack.aclose()

    def _handlers(self) -> dict[str, Callable[[Arguments], Awaitable[Body]]]:
        return {
            "initialize": self._initialize,
            "launch": self._on_launch,
            "setBreakpoints": self._set_breakpoints,
            "setExceptionBreakpoints": self._set_exception_breakpoints,
            "configurationDone": self._configuration_done,
            "threads": self._threads,
            "stackTrace": self._stack_trace,
            "scopes": self._scopes,
            "variables": self._variables,
            "evaluate": self._evaluate,
            "exceptionInfo": self._exception_info,
            "source": self._source,
            "next": self._mover("step_over"),
            "stepIn": self._mover("step_in"),
            "stepOut": self._mover("step_out"),
            "continue": self._mover("continue_"),
            "pause": self._pause,
            "terminate": self._end,
            "disconnect": self._end,
        }

    # --- before the run ---

    async def _initialize(self, _: Arguments) -> Body:
        return dict(CAPABILITIES)

    async def _on_launch(self, arguments: Arguments) -> Body:
        if self._launch is not None:
            raise RequestFailed("a program is already being debugged")
        if "code" not in arguments:
            program = Path(str(arguments["program"]))
            text = await asyncio.to_thread(program.read_text)
            arguments = {**arguments, "code": text}
        self._launch = arguments
        return None

    async def _configuration_done(self, _: Arguments) -> Body:
        self._is_configured = True
        return None

    async def _set_exception_breakpoints(self, arguments: Arguments) -> Body:
        self._stops_at_exceptions = UNCAUGHT in arguments.get("filters", ())
        return {"breakpoints": []}

    def _is_ready(self) -> bool:
        return self._launch is not None and self._is_configured and self._debugger is None

    async def _start(self) -> None:
        assert self._launch is not None
        launch = self._launch
        session = launch.get("session") or self._session
        sandbox = await self._stack.enter_async_context(self._target.sandbox_or_new(session))
        self._debugger = debugger = sandbox.code.debug(
            str(launch["code"]),
            context=str(launch.get("context", "main")),
            stop_at_exceptions=self._stops_at_exceptions,
            timeout=launch.get("timeout"),
            on_stdout=lambda text: self._output("stdout", text),
            on_stderr=lambda text: self._output("stderr", text),
        )
        await self._stack.enter_async_context(debugger)
        step = debugger.step
        self._file = step.file if step is not None else ""
        if step is not None:
            for number, found in enumerate(await self._placed(), 1):
                changed = {"id": number, **found}
                self._event("breakpoint", reason="changed", breakpoint=changed)
        self._has_started = True
        if step is not None and self._pauses_at_start:
            await self._report(step, "pause")
            return
        if step is not None and not launch.get("stopOnEntry"):
            step = await debugger.continue_()
        await self._report(step)

    async def _set_breakpoints(self, arguments: Arguments) -> Body:
        wanted = list(arguments.get("breakpoints", ()))
        if not self._is_program(arguments["source"]):
            message = "breakpoints are possible in the program itself"
            return {"breakpoints": [{"verified": False, "message": message} for _ in wanted]}
        self._wanted = wanted
        if self._debugger is None:
            numbers = range(1, len(wanted) + 1)
            return {"breakpoints": [{"id": number, "verified": False} for number in numbers]}
        return {"breakpoints": await self._placed()}

    async def _placed(self) -> list[dict[str, Any]]:
        """Replace the breakpoints of the run by those that the editor wants."""
        debugger = self._running()
        for one in debugger.breakpoints:
            await debugger.clear_breakpoint(one.id)
        placed: list[dict[str, Any]] = []
        for wanted in self._wanted:
            try:
                found = await debugger.set_breakpoint(
                    int(wanted["line"]), condition=str(wanted.get("condition") or "")
                )
                placed.append({"verified": True, "line": found.line})
            except DebuggerError as error:
                placed.append({"verified": False, "message": str(error)})
        return placed

    def _is_program(self, source: Arguments) -> bool:
        path, program = source.get("path"), (self._launch or {}).get("program")
        if program is None or path is None:
            return True
        return os.path.realpath(str(path)) == os.path.realpath(str(program))

    # --- while it is stopped ---

    async def _threads(self, _: Arguments) -> Body:
        threads = [{"id": 1, "name": "main"}]
        step = self._debugger.step if self._debugger is not None else None
        if step is not None and step.thread:
            threads.append({"id": step.thread + 1, "name": f"thread {step.thread}"})
        return {"threads": threads}

    async def _stack_trace(self, arguments: Arguments) -> Body:
        frames = await self._running().stack(200)
        first = int(arguments.get("startFrame") or 0)
        count = int(arguments.get("levels") or 0) or len(frames)
        shown = [
            {
                "id": frame.number + 1,
                "name": frame.function,
                "line": frame.line,
                "column": 1,
                "source": self._source_of(frame.file),
            }
            for frame in frames[first : first + count]
        ]
        return {"stackFrames": shown, "totalFrames": len(frames)}

    def _source_of(self, file: str) -> dict[str, Any]:
        program = (self._launch or {}).get("program")
        if file != self._file:
            return {"name": os.path.basename(file), "path": file}
        if program is None:
            return {"name": file, "sourceReference": 1}
        return {"name": os.path.basename(str(program)), "path": str(program)}

    async def _source(self, _: Arguments) -> Body:
        return {"content": str((self._launch or {})["code"])}

    async def _scopes(self, arguments: Arguments) -> Body:
        frame = int(arguments["frameId"]) - 1
        scopes = [("Locals", "locals", False), ("Globals", "globals", True)]
        return {
            "scopes": [
                {"name": name, "variablesReference": self._refer(kind, frame), "expensive": is_slow}
                for name, kind, is_slow in scopes
            ]
        }

    async def _variables(self, arguments: Arguments) -> Body:
        number = int(arguments["variablesReference"])
        if not 0 < number <= len(self._references):
            raise RequestFailed("this value is no longer known; the code has moved on")
        kind, what = self._references[number - 1]
        debugger, offset = self._running(), int(arguments.get("start") or 0)
        if kind == "handle":
            found = await debugger.variables(handle=what, offset=offset)
        else:
            found = await debugger.variables(what, is_global=kind == "globals", offset=offset)
        return {"variables": [self._variable(one) for one in found]}

    def _variable(self, variable: Variable) -> dict[str, Any]:
        reference = self._refer("handle", variable.handle) if variable.handle else 0
        return {
            "name": variable.name,
            "value": variable.value,
            "type": variable.type,
            "variablesReference": reference,
        }

    async def _evaluate(self, arguments: Arguments) -> Body:
        frame = max(0, int(arguments.get("frameId") or 1) - 1)
        found = await self._running().evaluate(str(arguments["expression"]), frame=frame)
        if found.error is not None:
            raise RequestFailed(f"{found.error.type}: {found.error.message}")
        reference = self._refer("handle", found.handle) if found.handle else 0
        return {"result": found.value, "type": found.type, "variablesReference": reference}

    async def _exception_info(self, _: Arguments) -> Body:
        step = self._running().step
        if step is None or step.error is None:
            raise RequestFailed("there is no exception here")
        return {
            "exceptionId": step.error.type,
            "description": step.error.message,
            "breakMode": "unhandled",
            "details": {"stackTrace": step.error.traceback},
        }

    def _refer(self, kind: str, what: int) -> int:
        self._references.append((kind, what))
        return len(self._references)

    # --- moving on ---

    def _mover(self, method: str) -> Callable[[Arguments], Awaitable[Body]]:
        async def move(_: Arguments) -> Body:
            debugger = self._running()
            if debugger.step is None:
                raise RequestFailed("the code is not stopped")
            self._references.clear()
            self._begin(self._moved(getattr(debugger, method)))
            return {"allThreadsContinued": True}

        return move

    async def _moved(self, move: Callable[[], Awaitable[DebugStep | None]]) -> None:
        await self._report(await move())

    async def _pause(self, _: Arguments) -> Body:
        if self._has_started:
            self._begin(self._paused())
        elif self._launch is not None:
            self._pauses_at_start = True  # instead of the first continue
        else:
            raise RequestFailed("the program has not started")
        return None

    async def _paused(self) -> None:
        await self._running().pause()  # the move that it stops reports it

    async def _report(self, step: DebugStep | None, reason: str = "") -> None:
        """Tell the editor where the code stopped, or that it has ended."""
        if step is None:
            self._report_end()
            return
        body: dict[str, Any] = {
            "reason": reason or REASONS.get(step.reason, step.reason),
            "threadId": step.thread + 1,
            "allThreadsStopped": True,
        }
        if step.error is not None:
            body["text"] = f"{step.error.type}: {step.error.message}"
        self._event("stopped", **body)

    def _report_end(self) -> None:
        result = self._debugger.result if self._debugger is not None else None
        if self._has_ended or result is None:
            return
        self._has_ended = True
        if result.text is not None:
            self._output("console", f"{result.text}\n")
        if result.error is not None:
            self._output("stderr", result.error.traceback)
        self._event("exited", exitCode=0 if result.ok else result.exit_code or 1)
        self._event("terminated")

    async def _end(self, _: Arguments) -> Body:
        if self._debugger is not None and self._debugger.result is None:
            with suppress(SandboxError):
                await self._debugger.quit()
            self._report_end()
        self.is_over = True
        return None

    # --- parts ---

    def _running(self) -> AsyncDebugger:
        if self._debugger is None:
            raise RequestFailed("the program has not started")
        return self._debugger

    def _begin(self, work: Any) -> None:
        task = asyncio.create_task(self._reported(work))
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _reported(self, work: Awaitable[None]) -> None:
        try:
            await work
        except SandboxError as error:
            self._output("important", f"sandboxd: {error}\n")
            self._event("terminated")

    def _output(self, category: str, text: str) -> None:
        self._event("output", category=category, output=text)

    def _event(self, name: str, **body: Any) -> None:
        self._send({"type": "event", "event": name, "body": body})


def _response(request: Message, body: Body, failure: str | None) -> Message:
    answer: Message = {
        "type": "response",
        "request_seq": request.get("seq", 0),
        "command": request.get("command", ""),
        "success": failure is None,
    }
    if failure is not None:
        answer["message"] = failure
        answer["body"] = {"error": {"id": 1, "format": failure}}
    elif body is not None:
        answer["body"] = body
    return answer
