"""A debugger for a run of code."""

from __future__ import annotations

import asyncio
import inspect
from types import TracebackType

from sandboxd_client.arguments import checked
from sandboxd_client.code_results import CodeException, CodeFrame, CodeRun
from sandboxd_client.code_stream import ended_run
from sandboxd_client.debug_call import DebugCall
from sandboxd_client.debug_results import Breakpoint, DebugStep, DebugValue, ResumeName, Variables
from sandboxd_client.errors import DebuggerError
from sandboxd_client.results import OutputCallback
from sandboxd_client.session import SessionHold
from sandboxd_proto.v1 import code_pb2
from sandboxd_proto.v1 import code_service_pb2 as pb

_MODES: dict[str, pb.ResumeMode.ValueType] = {
    "continue": pb.RESUME_MODE_CONTINUE,
    "step_in": pb.RESUME_MODE_STEP_IN,
    "step_over": pb.RESUME_MODE_STEP_OVER,
    "step_out": pb.RESUME_MODE_STEP_OUT,
}


@checked
class AsyncDebugger:
    """A run of code that stops, and can be examined where it stops.

    Use it in a `with` block: leaving the block ends a run that has not ended. Iterating over it
    goes from stop to stop.

    Example:
        code = "total = 0\\nfor n in (1, 2):\\n    total += n\\n"
        async with sandbox.code.debug(code) as debugger:
            async for step in debugger:
                print(step.line, step.source, [(v.name, v.value) for v in step.changed])
        print(debugger.result.status)
    """

    def __init__(
        self,
        hold: SessionHold,
        opening: pb.DebugCodeRequest,
        *,
        each: ResumeName = "step_in",
        timeout: float | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
    ) -> None:
        self._hold = hold
        self._opening = opening
        is_start = opening.HasField("start")
        self._exec_id = opening.start.run.exec_id if is_start else opening.attach.exec_id
        self._each = each
        self._timeout = timeout
        self._callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        self._call: DebugCall | None = None
        self._breakpoints: dict[int, Breakpoint] = {}
        self._result: CodeRun | None = None
        self._is_iterated = False

    def __repr__(self) -> str:
        where = f"at line {self.step.line}" if self.step else "not stopped"
        state = f"ended as {self._result.status}" if self._result else where
        return f"<AsyncDebugger of {self._exec_id}, {state}>"

    @property
    def exec_id(self) -> str:
        """Id of the run in its session."""
        return self._exec_id

    @property
    def step(self) -> DebugStep | None:
        """Where the run stopped; None while it runs and after its end."""
        return self._call.step if self._call is not None else None

    @property
    def result(self) -> CodeRun | None:
        """How the run ended; None before its end."""
        return self._result

    @property
    def breakpoints(self) -> tuple[Breakpoint, ...]:
        """The breakpoints that `set_breakpoint` has set."""
        return tuple(self._breakpoints.values())

    async def __aenter__(self) -> AsyncDebugger:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncDebugger:
        return self

    async def __anext__(self) -> DebugStep:
        if not self._is_iterated:
            self._is_iterated = True
            step = await self.wait()
        else:
            step = await self._resume(self._each)
        if step is None:
            raise StopAsyncIteration
        return step

    async def start(self) -> DebugStep | None:
        """Start the run, or attach to it, and return where it is stopped; None if it runs.

        Example:
            debugger = sandbox.code.debug("x = 1")
            print((await debugger.start()).source)
            await debugger.aclose()
        """
        if self._call is None:
            self._call = DebugCall(self._hold, self._opening, timeout=self._timeout)
            if self._opening.HasField("attach"):
                await self._call.catch_up()
        if self._opening.HasField("start") and not self._opening.start.run_to_breakpoint:
            return await self._next_stop()
        return self._call.step

    async def wait(self) -> DebugStep | None:
        """Wait until the run is stopped, and return where; None at its end.

        Example:
            code = "a = 1\\nb = 2"
            async with sandbox.code.debug(code, breakpoints=[2], stop_at_entry=False) as debugger:
                print((await debugger.wait()).line)
        """
        await self.start()
        return await self._next_stop()

    async def step_in(self) -> DebugStep | None:
        """Continue to the next line, also of a called function; None at the end of the run.

        Example:
            async with sandbox.code.debug("def f():\\n    return 1\\nf()") as debugger:
                await debugger.step_over()
                print((await debugger.step_in()).function)
        """
        return await self._resume("step_in")

    async def step_over(self) -> DebugStep | None:
        """Continue to the next line of this function or of its caller; None at the end of the run.

        Example:
            async with sandbox.code.debug("x = 1\\nx = 2") as debugger:
                print((await debugger.step_over()).changed)
        """
        return await self._resume("step_over")

    async def step_out(self) -> DebugStep | None:
        """Continue to the return of this function; None at the end of the run.

        Example:
            code = "def f():\\n    a = 1\\n    return a\\nf()"
            async with sandbox.code.debug(code, breakpoints=[2]) as debugger:
                await debugger.continue_()
                print((await debugger.step_out()).return_value)
        """
        return await self._resume("step_out")

    async def continue_(self) -> DebugStep | None:
        """Continue to the next breakpoint; None at the end of the run.

        Example:
            async with sandbox.code.debug("a = 1\\nb = 2\\nc = 3", breakpoints=[3]) as debugger:
                print((await debugger.continue_()).line)
        """
        return await self._resume("continue")

    async def pause(self) -> DebugStep | None:
        """Stop at the next line; None if the run ends before.

        Example:
            code = "while True:\\n    pass"
            async with sandbox.code.debug(code, stop_at_entry=False) as debugger:
                print((await debugger.pause()).reason)
        """
        call = self._started()
        if call.step is None and not call.has_ended:
            await call.send(pb.DebugCodeRequest(pause=pb.PauseDebug()))
        return await self._next_stop()

    async def set_breakpoint(
        self, line: int = 0, *, condition: str = "", file: str = "", function: str = ""
    ) -> Breakpoint:
        """Stop at a line, or in a function; the answer has the line that it is on and its id.

        Example:
            async with sandbox.code.debug("for n in range(9):\\n    x = n") as debugger:
                await debugger.set_breakpoint(2, condition="n == 7")
                await debugger.continue_()
                print((await debugger.evaluate("n")).value)
        """
        wanted = Breakpoint(line, condition, file, function)
        request = pb.DebugCodeRequest(set_breakpoint=wanted.message())
        found = Breakpoint.of((await self._started().ask(request)).breakpoint)
        self._breakpoints[found.id] = found
        return found

    async def clear_breakpoint(self, breakpoint_id: int) -> None:
        """Remove a breakpoint.

        Example:
            async with sandbox.code.debug("a = 1\\nb = 2") as debugger:
                found = await debugger.set_breakpoint(2)
                await debugger.clear_breakpoint(found.id)
        """
        await self._started().ask(pb.DebugCodeRequest(clear_breakpoint=breakpoint_id))
        self._breakpoints.pop(breakpoint_id, None)

    async def stack(self, max_frames: int = 0) -> list[CodeFrame]:
        """The frames of the thread that stopped, innermost first.

        Example:
            async with sandbox.code.debug("x = 1") as debugger:
                print([(frame.function, frame.line) for frame in await debugger.stack()])
        """
        request = pb.DebugCodeRequest(stack=pb.GetDebugStack(max_frames=max_frames))
        return [CodeFrame.of(frame) for frame in (await self._ask(request)).stack.frames]

    async def variables(
        self, frame: int = 0, *, handle: int = 0, is_global: bool = False, offset: int = 0
    ) -> Variables:
        """Variables of a frame, or with `handle` the parts of a value. No code of the user runs.

        Example:
            async with sandbox.code.debug("x = [1, 2]\\ny = 3", breakpoints=[2]) as debugger:
                await debugger.continue_()
                x = (await debugger.variables())["x"]
                print(x.value, [part.value for part in await debugger.variables(handle=x.handle)])
        """
        wanted = pb.GetDebugVariables(frame=frame, handle=handle, globals=is_global, offset=offset)
        found = (await self._ask(pb.DebugCodeRequest(variables=wanted))).variables
        return Variables.of(found.variables, found.left_out)

    async def evaluate(self, expression: str, *, frame: int = 0) -> DebugValue:
        """Evaluate an expression, or execute a statement, in a frame; for half a second at most.

        Example:
            async with sandbox.code.debug("x = 20\\ny = 1", breakpoints=[2]) as debugger:
                await debugger.continue_()
                print((await debugger.evaluate("x * 2 + 2")).value)
        """
        wanted = pb.EvaluateDebug(expression=expression, frame=frame)
        found = await self._ask(pb.DebugCodeRequest(evaluate=wanted))
        error = CodeException.of(found.error) if found.HasField("error") else None
        return DebugValue(found.value.type, found.value.value, found.value.handle, error)

    async def quit(self) -> CodeRun:
        """End the run: the code is interrupted, and the context keeps its variables.

        Example:
            async with sandbox.code.debug("x = 1\\nwhile True: pass") as debugger:
                await debugger.step_over()
                print((await debugger.quit()).status)
        """
        call = self._started()
        if not call.has_ended:
            await call.send(pb.DebugCodeRequest(quit=pb.QuitDebug()))
        call.step = None
        while await self._next_stop() is not None:
            call.step = None  # it stopped once more on the way to its end
        assert self._result is not None
        return self._result

    async def aclose(self) -> None:
        """End the call. A run that has not ended is interrupted, unless it was started to be kept.

        Example:
            debugger = sandbox.code.debug("x = 1")
            await debugger.start()
            await debugger.aclose()
        """
        if self._call is not None:
            await self._call.aclose()

    def _started(self) -> DebugCall:
        if self._call is None:
            raise DebuggerError("The debugger has not started; use it in a `with` block.")
        return self._call

    async def _ask(self, request: pb.DebugCodeRequest) -> code_pb2.DebugAnswer:
        """Ask about a stopped run."""
        call = self._started()
        if call.step is None:
            raise DebuggerError(
                "The run has ended." if call.has_ended else "The code runs; pause it first."
            )
        return await call.ask(request)

    async def _resume(self, mode: ResumeName) -> DebugStep | None:
        call = self._started()
        if call.has_ended:
            return await self._next_stop()
        if call.step is None:
            raise DebuggerError("The code runs; pause it first.")
        call.step = None
        request = pb.DebugCodeRequest(resume=pb.ResumeDebug(mode=_MODES[mode]))
        return await self._next_stop(await call.send(request))

    async def _next_stop(
        self, command: asyncio.Future[code_pb2.DebugAnswer] | None = None
    ) -> DebugStep | None:
        """Wait for a stop or the end; output goes to the callbacks meanwhile."""
        call = self._started()
        while True:
            await self._deliver(call)
            if call.has_ended:
                self._result = self._result or await ended_run(self._hold, self._exec_id)
                return None
            if call.step is not None:
                return call.step
            if command is not None and command.done() and not command.cancelled():
                if command.result().HasField("failure"):
                    raise DebuggerError(command.result().failure)
                command = None
            await call.news()

    async def _deliver(self, call: DebugCall) -> None:
        while call.pieces:
            name, text = call.pieces.popleft()
            callback = self._callbacks[name]
            answer = callback(text) if callback is not None else None
            if inspect.isawaitable(answer):
                await answer
