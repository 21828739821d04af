"""Code in contexts that keep their variables."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from functools import partial

from sandboxd_client.arguments import checked
from sandboxd_client.capture import MAX_BYTES
from sandboxd_client.code_handle import AsyncCodeHandle
from sandboxd_client.code_help import CodeCheck, CodeHelp, CodeLimits
from sandboxd_client.code_results import (
    MAIN,
    CodeRun,
    ContextInfo,
    DisplayCallback,
    LanguageName,
    LogCallback,
)
from sandboxd_client.code_stream import AsyncCodeStream, ended_run, output_at_once, whole_run
from sandboxd_client.command_handle import send_signal
from sandboxd_client.commands import new_exec_id
from sandboxd_client.connection import Connection
from sandboxd_client.debug_results import Breakpoint, ResumeName, Variables
from sandboxd_client.debugger import AsyncDebugger
from sandboxd_client.errors import (
    CodeNotAllowedError,
    ConnectionLostError,
    InvalidRequestError,
    SandboxError,
)
from sandboxd_client.methods.code import (
    CHECK_CODE,
    CREATE_CONTEXT,
    DELETE_CONTEXT,
    GET_CONTEXT_STATE,
    INTERRUPT_CONTEXT,
    LIST_CONTEXTS,
    LIST_FUNCTIONS,
    QUICK_EXECUTE,
    RESTART_CONTEXT,
    RUN_CODE,
    START_CODE,
)
from sandboxd_client.methods.execs import WAIT_EXEC
from sandboxd_client.results import OutputCallback
from sandboxd_client.session import SessionHold, duration
from sandboxd_client.step_stream import AsyncStepStream
from sandboxd_proto.v1 import code_service_pb2 as pb
from sandboxd_proto.v1 import exec_pb2, exec_service_pb2

RUN_SECONDS = 30.0
DEBUG_SECONDS = 600.0
"""Time limits of runs that set none."""


@checked
class AsyncCode:
    """Code of a sandbox: runs in contexts, which keep variables and imports, and the debugger.

    Example:
        await sandbox.code.run("x = 20")
        run = await sandbox.code.run("x * 2 + 2")
        print(run.result, run.status)
    """

    def __init__(self, hold: SessionHold) -> None:
        self._hold = hold

    async def run(
        self,
        code: str,
        *,
        context: str | ContextInfo = MAIN,
        language: LanguageName | None = None,
        timeout: float | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        on_display: DisplayCallback | None = None,
        on_log: LogCallback | None = None,
        generation: int = 0,
        max_output_bytes: int | None = None,
        check: bool = False,
        exec_id: str | None = None,
    ) -> CodeRun:
        """Run code in a context and wait for its end; the context is created if it is missing.

        An exception of the code, a time-out and a refusal by the policy are results, unless `check`
        is set. `timeout` is how many seconds the run may take (30 by default, 0 for as long as the
        session allows); then it is interrupted and the context keeps its variables, and only if it
        does not stop, its context is killed: `is_state_kept` says which. The callbacks receive
        output, displays and log lines as they come. With `generation`, the run fails with a
        ContextLostError unless the context is still on that generation. Calls with the same
        `exec_id` run the code once.

        Example:
            run = await sandbox.code.run("import math\\nprint('hi')\\nmath.sqrt(16)")
            print(run.stdout, run.result, run.text)
            print((await sandbox.code.run("1 / 0")).error.type)
        """
        if max_output_bytes is not None and max_output_bytes < 1:
            raise InvalidRequestError("max_output_bytes must be at least 1.")
        request = run_request(
            self._hold,
            code,
            context=context,
            language=language,
            timeout=timeout,
            generation=generation,
            exec_id=exec_id,
        )
        callbacks = (on_stdout, on_stderr, on_display, on_log)
        if all(callback is None for callback in callbacks):
            run = await self._run(request, max_output_bytes)
        else:
            handle = await self._start(
                request,
                on_stdout=on_stdout,
                on_stderr=on_stderr,
                on_display=on_display,
                on_log=on_log,
                max_output_bytes=max_output_bytes or MAX_BYTES,
            )
            run = await self._finished(handle)
        return run.check() if check else run

    async def start(
        self,
        code: str,
        *,
        context: str | ContextInfo = MAIN,
        language: LanguageName | None = None,
        timeout: float | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        on_display: DisplayCallback | None = None,
        on_log: LogCallback | None = None,
        generation: int = 0,
        exec_id: str | None = None,
    ) -> AsyncCodeHandle:
        """Start a run and return at once; it continues when this client disconnects.

        The callbacks are called only while `wait` is called. The rest is as in `run`.

        Example:
            started = await sandbox.code.start("import time\\ntime.sleep(0.1)\\n'done'")
            print(started.exec_id, (await started.wait()).result)
        """
        request = run_request(
            self._hold,
            code,
            context=context,
            language=language,
            timeout=timeout,
            generation=generation,
            exec_id=exec_id,
        )
        return await self._start(
            request,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_display=on_display,
            on_log=on_log,
        )

    async def stream(
        self,
        code: str,
        *,
        context: str | ContextInfo = MAIN,
        language: LanguageName | None = None,
        timeout: float | None = None,
        generation: int = 0,
        exec_id: str | None = None,
    ) -> AsyncCodeStream:
        """Start a run and return what it writes and reports as it comes.

        Example:
            async with await sandbox.code.stream("print('hello')\\n{'a': 1}") as events:
                async for event in events:
                    print(event)
            print(events.result.result)
        """
        handle = await self.start(
            code,
            context=context,
            language=language,
            timeout=timeout,
            generation=generation,
            exec_id=exec_id,
        )
        return handle.stream()

    async def attach(
        self,
        exec_id: str,
        *,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        on_display: DisplayCallback | None = None,
        on_log: LogCallback | None = None,
    ) -> AsyncCodeHandle:
        """A run that was already started, by any client; running or recently ended.

        Example:
            started = await sandbox.code.start("6 * 7")
            again = await sandbox.code.attach(started.exec_id)
            print((await again.wait()).result)
        """
        request = exec_service_pb2.WaitExecRequest(session_id=self._hold.id, exec_id=exec_id)
        request.timeout.CopyFrom(duration(0))
        found = (await self._hold.connection.call(WAIT_EXEC, request)).exec
        return AsyncCodeHandle(
            self._hold,
            found,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_display=on_display,
            on_log=on_log,
        )

    def debug(
        self,
        code: str,
        *,
        context: str | ContextInfo = MAIN,
        breakpoints: Sequence[int | Breakpoint] = (),
        stop_at_entry: bool = True,
        stop_at_exceptions: bool = True,
        each: ResumeName = "step_in",
        timeout: float | None = None,
        keep: bool = False,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        exec_id: str | None = None,
    ) -> AsyncDebugger:
        """A debugger for a run of this code; use it in a `with` block.

        It stops before the first line, at `breakpoints` (numbers of lines, or Breakpoint), and at
        an exception that nothing catches. Iterating over it goes from stop to stop; `each` says how
        far. `timeout` (600 seconds by default) includes the time in which the code is stopped. The
        run ends with the block, unless `keep` is set: then another call can attach to it.

        Example:
            code = "def double(n):\\n    return 2 * n\\nx = double(21)\\nprint(x)"
            async with sandbox.code.debug(code, breakpoints=[2]) as debugger:
                await debugger.continue_()
                print((await debugger.evaluate("n")).value, await debugger.stack())
                await debugger.continue_()
            print(debugger.result.stdout)
        """
        run = run_request(self._hold, code, context=context, timeout=timeout, exec_id=exec_id)
        if keep:
            run.on_disconnect = exec_service_pb2.ON_DISCONNECT_KEEP_RUNNING
        opening = pb.StartDebug(
            run=run,
            breakpoints=[_breakpoint(one).message() for one in breakpoints],
            run_to_breakpoint=not stop_at_entry,
            ignore_exceptions=not stop_at_exceptions,
        )
        return AsyncDebugger(
            self._hold,
            pb.DebugCodeRequest(start=opening),
            each=each,
            timeout=self._patience(DEBUG_SECONDS if timeout is None else timeout),
            on_stdout=on_stdout,
            on_stderr=on_stderr,
        )

    def attach_debugger(
        self,
        exec_id: str,
        *,
        each: ResumeName = "step_in",
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
    ) -> AsyncDebugger:
        """A debugger for a debugged run that was left running; see `keep` of `debug`.

        Example:
            first = sandbox.code.debug("x = 1\\nx = 2", keep=True)
            await first.start()
            await first.aclose()
            async with sandbox.code.attach_debugger(first.exec_id) as again:
                print(again.step.line, await again.continue_())
        """
        opening = pb.AttachDebug(session_id=self._hold.id, exec_id=exec_id)
        return AsyncDebugger(
            self._hold,
            pb.DebugCodeRequest(attach=opening),
            each=each,
            timeout=self._patience(0.0),
            on_stdout=on_stdout,
            on_stderr=on_stderr,
        )

    def step_through(
        self,
        code: str,
        *,
        context: str | ContextInfo = MAIN,
        into_functions: bool = False,
        max_steps: int = 0,
        timeout: float | None = None,
        exec_id: str | None = None,
    ) -> AsyncStepStream:
        """Run code and return each line that it executes, with what changed and what it wrote.

        Example:
            async with sandbox.code.step_through("x = 1\\nprint(x)\\nx = 2") as steps:
                async for step in steps:
                    print(step.line, step.source, step.stdout)
            print(steps.result.status)
        """
        request = pb.StepThroughRequest(
            run=run_request(self._hold, code, context=context, timeout=timeout, exec_id=exec_id),
            max_steps=max_steps,
            step_into_functions=into_functions,
        )
        return AsyncStepStream(
            self._hold,
            request,
            timeout=self._patience(DEBUG_SECONDS if timeout is None else timeout),
        )

    async def create_context(
        self,
        name: str,
        *,
        language: LanguageName = "python",
        cwd: str | os.PathLike[str] = "",
        env: Mapping[str, str] | None = None,
        policy: str = "",
        limits: CodeLimits | None = None,
    ) -> ContextInfo:
        """Create a context, or return the one that exists with the same settings.

        Example:
            context = await sandbox.code.create_context("analysis", env={"LANG": "C.UTF-8"})
            run = await sandbox.code.run("import os\\nos.environ['LANG']", context=context)
            print(run.result, run.status)
        """
        request = pb.CreateContextRequest(
            session_id=self._hold.id,
            name=name,
            language=language,
            cwd=os.fspath(cwd),
            env=env or {},
            policy=policy,
            limits=limits.message() if limits is not None else None,
        )
        created = await self._hold.connection.call(CREATE_CONTEXT, request)
        return ContextInfo.of(created.context)

    async def contexts(self) -> Sequence[ContextInfo]:
        """The contexts of the session, in the order of their creation.

        Example:
            await sandbox.code.run("x = 1")
            for context in await sandbox.code.contexts():
                print(context.name, context.state, context.runs)
        """
        request = pb.ListContextsRequest(session_id=self._hold.id)
        found = await self._hold.connection.call(LIST_CONTEXTS, request)
        return [ContextInfo.of(context) for context in found.contexts]

    async def state(
        self, context: str | ContextInfo = MAIN, *, timeout: float | None = None
    ) -> Variables:
        """The variables of a context, with type, size and summary. No code of the user runs.

        While a run is under way this is a ContextBusyError; `timeout` seconds wait for its end.

        Example:
            await sandbox.code.run("numbers = [1, 2, 3]")
            print((await sandbox.code.state())["numbers"].value)
        """
        request = pb.GetContextStateRequest(session_id=self._hold.id, context=_name(context))
        if timeout is not None:
            request.timeout.CopyFrom(duration(timeout))
        seconds = (timeout or 0.0) + self._hold.connection.timeouts.call
        found = await self._hold.connection.call(GET_CONTEXT_STATE, request, timeout=seconds)
        return Variables.of(found.variables, found.left_out)

    async def interrupt(self, context: str | ContextInfo = MAIN) -> bool:
        """Interrupt the run of a context as Ctrl-C would; False if it is idle.

        Example:
            started = await sandbox.code.start("while True: pass")
            await sandbox.code.interrupt()
            print((await started.wait()).status)
        """
        request = pb.InterruptContextRequest(session_id=self._hold.id, context=_name(context))
        done = await self._hold.connection.call(INTERRUPT_CONTEXT, request)
        return done.interrupted

    async def restart(self, context: str | ContextInfo = MAIN) -> ContextInfo:
        """End the process of a context; the next run gets a fresh one.

        Example:
            await sandbox.code.run("x = 1")
            await sandbox.code.restart()
            print((await sandbox.code.run("x")).error.type)
        """
        request = pb.RestartContextRequest(session_id=self._hold.id, context=_name(context))
        done = await self._hold.connection.call(RESTART_CONTEXT, request)
        return ContextInfo.of(done.context)

    async def delete_context(self, context: str | ContextInfo) -> None:
        """End the process of a context and forget the context.

        Example:
            await sandbox.code.run("x = 1", context="scratch")
            await sandbox.code.delete_context("scratch")
        """
        request = pb.DeleteContextRequest(session_id=self._hold.id, context=_name(context))
        await self._hold.connection.call(DELETE_CONTEXT, request)

    async def check(self, code: str, *, context: str | ContextInfo = MAIN) -> CodeCheck:
        """Check code against the policy of a context without running it.

        Example:
            found = await sandbox.code.check("import math")
            print(found.allowed, [violation.message for violation in found.violations])
        """
        request = pb.CheckCodeRequest(session_id=self._hold.id, code=code, context=_name(context))
        return CodeCheck.of(await self._hold.connection.call(CHECK_CODE, request))

    async def functions(self, context: str | ContextInfo = MAIN) -> CodeHelp:
        """Functions that code can call besides the language's own, modules, limits and examples.

        Example:
            for function in (await sandbox.code.functions()).functions:
                print(function.signature, function.description)
        """
        request = pb.ListFunctionsRequest(session_id=self._hold.id, context=_name(context))
        return CodeHelp.of(await self._hold.connection.call(LIST_FUNCTIONS, request))

    def _patience(self, seconds: float) -> float:
        """How long a call may take for a run of so many seconds that may have to wait its turn."""
        limits = self._hold.info.limits
        timeouts = self._hold.connection.timeouts
        return (seconds or limits.max_exec_timeout.seconds or DEBUG_SECONDS) + timeouts.transfer

    async def _run(self, request: pb.RunCodeRequest, max_output_bytes: int | None) -> CodeRun:
        request.max_output_bytes = output_at_once(self._hold, max_output_bytes)
        asked = request.timeout
        limited = asked.seconds + asked.nanos / 1e9 if request.HasField("timeout") else RUN_SECONDS
        try:
            done = await self._hold.connection.call(
                RUN_CODE, request, timeout=self._patience(limited)
            )
        except CodeNotAllowedError:
            # As with callbacks, and like an exception of the code, it is a result.
            return await ended_run(self._hold, request.exec_id)
        if done.exit.reason == exec_pb2.EXIT_REASON_CANCELLED:
            raise ConnectionLostError(
                "The connection was lost, and the run was interrupted with it. Check what it did "
                "so far, or use `start`, whose runs survive a lost connection."
            )
        return await whole_run(self._hold, done, max_output_bytes)

    async def _start(
        self,
        request: pb.RunCodeRequest,
        *,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        on_display: DisplayCallback | None = None,
        on_log: LogCallback | None = None,
        max_output_bytes: int = MAX_BYTES,
    ) -> AsyncCodeHandle:
        call = self._hold.connection.call
        starting = asyncio.ensure_future(call(START_CODE, request))
        try:
            await asyncio.wait([starting])
        except asyncio.CancelledError:
            # It may have been started, and nobody gets its handle.
            await self._hold.connection.clean_up(_interrupt_once_started(self._hold, starting))
            raise
        started = starting.result()
        is_queued = started.exec.state == exec_pb2.EXEC_STATE_QUEUED
        return AsyncCodeHandle(
            self._hold,
            started.exec,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_display=on_display,
            on_log=on_log,
            restart=partial(call, START_CODE, request, earlier_tries=1) if is_queued else None,
            max_output_bytes=max_output_bytes,
        )

    async def _finished(self, handle: AsyncCodeHandle) -> CodeRun:
        """Wait for the end; cancelling this, or a failure of a callback, interrupts the run."""
        try:
            return await handle.wait()
        except SandboxError:
            raise  # the daemon reports the failure: nothing to interrupt, or no daemon to call
        except BaseException:
            await self._hold.connection.clean_up(handle.interrupt())
            raise


def run_request(
    hold: SessionHold,
    code: str,
    *,
    context: str | ContextInfo = MAIN,
    language: LanguageName | None = None,
    timeout: float | None = None,
    generation: int = 0,
    exec_id: str | None = None,
) -> pb.RunCodeRequest:
    request = pb.RunCodeRequest(
        session_id=hold.id,
        incarnation=hold.incarnation,
        # Always set an id: it makes a repeated call run the code once.
        exec_id=exec_id or new_exec_id(),
        code=code,
        context=_name(context),
        generation=generation,
        language=language or "",
    )
    if timeout is not None:
        request.timeout.CopyFrom(duration(timeout))
    return request


async def quick_execute(
    connection: Connection,
    code: str,
    *,
    user_id: str,
    environment: str = "",
    packages: Sequence[str] | None = None,
    language: LanguageName | None = None,
    timeout: float | None = None,
) -> CodeRun:
    """Run code in a session for this call only."""
    request = pb.QuickExecuteRequest(
        user_id=user_id,
        code=code,
        environment=environment,
        packages=packages or (),
        language=language or "",
    )
    if timeout is not None:
        request.timeout.CopyFrom(duration(timeout))
    limit = (timeout or RUN_SECONDS) + connection.timeouts.open
    done = await connection.call(QUICK_EXECUTE, request, timeout=limit)
    return CodeRun.of(done.run)


async def _interrupt_once_started(
    hold: SessionHold, starting: asyncio.Future[exec_service_pb2.StartExecResponse]
) -> None:
    started = await starting
    if not started.already_started:  # otherwise another call has its handle
        await send_signal(hold, started.exec.exec_id, 2)


def _name(context: str | ContextInfo) -> str:
    return context if isinstance(context, str) else context.name


def _breakpoint(given: int | Breakpoint) -> Breakpoint:
    return given if isinstance(given, Breakpoint) else Breakpoint(given)
