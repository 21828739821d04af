"""CodeService."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandboxd.code.context import MAIN, Phase
from sandboxd.code.contexts import CodeRun, Question, SessionContexts
from sandboxd.code.report import report_of
from sandboxd.config import Config
from sandboxd.errors import InvalidRequest
from sandboxd.execs.exec import Exec
from sandboxd.guest.code.protocol import Modes
from sandboxd.service import code_wire, exec_wire, wire
from sandboxd.service.wire import Context
from sandboxd.sessions.opening import EnvironmentConfig, OpenRequest
from sandboxd.sessions.session import Session
from sandboxd.sessions.sessions import Sessions
from sandboxd_proto.v1 import code_service_pb2 as pb
from sandboxd_proto.v1 import code_service_pb2_grpc as pb_grpc
from sandboxd_proto.v1 import exec_service_pb2 as exec_pb

MAX_WAIT_SECONDS = 3600.0
BUILD_WAIT_SECONDS = 300.0
"""How long a quick run waits for its packages."""


class CodeServicer(pb_grpc.CodeServiceServicer):
    def __init__(self, sessions: Sessions, config: Config) -> None:
        self._sessions = sessions
        self._config = config

    # --- runs ---

    async def RunCode(self, request: pb.RunCodeRequest, context: Context) -> pb.RunCodeResponse:
        return await self._run(request)

    async def _run(self, request: pb.RunCodeRequest) -> pb.RunCodeResponse:
        run = code_wire.code_run(request, self._config, is_run=True)
        async with self._held(request, run) as execution:
            status = await execution.ended()
        contexts = self._sessions.get(request.session_id).contexts
        contexts.raise_if_never_ran(execution, run.generation)
        report = await report_of(execution)
        code_wire.raise_if_refused(status, report, contexts.get(run.context).policy)
        await contexts.learn_version(run.context)
        return code_wire.run_response(execution, status, report, contexts, run.capture_bytes or 0)

    async def StreamCode(
        self, request: pb.RunCodeRequest, context: Context
    ) -> AsyncIterator[exec_pb.ExecResponse]:
        run = code_wire.code_run(request, self._config)
        async for response in self._followed(request, run):
            yield response

    async def StepThrough(
        self, request: pb.StepThroughRequest, context: Context
    ) -> AsyncIterator[exec_pb.ExecResponse]:
        run = code_wire.steps_run(request, self._config)
        async for response in self._followed(request.run, run):
            yield response

    async def StartCode(
        self, request: pb.RunCodeRequest, context: Context
    ) -> exec_pb.StartExecResponse:
        run = code_wire.code_run(request, self._config, is_detached=True)
        execution, is_new = await self._start(request, run)
        contexts = self._sessions.get(request.session_id).contexts
        await execution.reported_or_ended()
        contexts.raise_if_never_ran(execution, run.generation)
        described = exec_wire.describe(execution)
        return exec_pb.StartExecResponse(exec=described, already_started=not is_new)

    async def GetCodeRun(
        self, request: pb.GetCodeRunRequest, context: Context
    ) -> pb.RunCodeResponse:
        execution = await self._find(request)
        if not execution.is_code or execution.exit is None:
            problem = "has not ended; wait for it" if execution.is_code else "is not a run of code"
            raise InvalidRequest("exec_id", problem)
        contexts = self._sessions.get(request.session_id).contexts
        contexts.raise_if_never_ran(execution)
        max_bytes = code_wire.output_bytes(request.max_output_bytes, self._config)
        report = await report_of(execution)
        return code_wire.run_response(execution, execution.exit, report, contexts, max_bytes)

    async def _start(self, request: pb.RunCodeRequest, run: CodeRun) -> tuple[Exec, bool]:
        return await self._sessions.start_code(
            request.session_id, run, incarnation=request.incarnation
        )

    @asynccontextmanager
    async def _held(self, request: pb.RunCodeRequest, run: CodeRun) -> AsyncIterator[Exec]:
        """A run that ends with its caller, unless it may outlive it."""
        execution, _ = await self._start(request, run)
        execution.hold()
        try:
            yield execution
        finally:
            execution.abandon()

    async def _followed(
        self, request: pb.RunCodeRequest, run: CodeRun
    ) -> AsyncIterator[exec_pb.ExecResponse]:
        async with self._held(request, run) as execution:
            contexts = self._sessions.get(request.session_id).contexts
            async for response in self._responses(execution, contexts, run.generation):
                yield response

    async def _responses(
        self, execution: Exec, contexts: SessionContexts, generation: int = 0
    ) -> AsyncIterator[exec_pb.ExecResponse]:
        await execution.reported_or_ended(exec_wire.FIRST_LOOK_SECONDS)
        contexts.raise_if_never_ran(execution, generation)
        async for response in exec_wire.responses(execution):
            yield response

    async def _find(self, request: exec_wire.NamesExec) -> Exec:
        if not request.exec_id:
            raise wire.missing("exec_id")
        if self._sessions.are_returning:
            await self._sessions.wait_until_back(request.session_id)
        return self._sessions.find_exec(request.session_id, request.exec_id)

    # --- the debugger ---

    async def DebugCode(
        self, request: AsyncIterator[pb.DebugCodeRequest], context: Context
    ) -> AsyncIterator[exec_pb.ExecResponse]:
        first = await anext(aiter(request), None)
        if first is None:
            raise InvalidRequest("request", "the first one starts a run or attaches to one")
        if first.HasField("attach"):
            execution = await self._find(first.attach)
            offsets = exec_wire.offsets(first.attach)
            async for response in _debugged(
                execution, request, exec_wire.responses(execution, offsets)
            ):
                yield response
            return
        if not first.HasField("start"):
            raise InvalidRequest("request", "the first one starts a run or attaches to one")
        run = code_wire.debug_run(first.start, self._config)
        async with self._held(first.start.run, run) as execution:
            contexts = self._sessions.get(first.start.run.session_id).contexts
            responses = self._responses(execution, contexts, run.generation)
            async for response in _debugged(execution, request, responses):
                yield response

    # --- contexts ---

    async def CreateContext(
        self, request: pb.CreateContextRequest, context: Context
    ) -> pb.CreateContextResponse:
        plan = code_wire.context_plan(request)
        session = await self._session(request.session_id)
        made, is_new = await session.contexts.create(
            request.name, plan, session_env=session.variables
        )
        return pb.CreateContextResponse(
            context=code_wire.context_message(made), already_exists=not is_new
        )

    async def ListContexts(
        self, request: pb.ListContextsRequest, context: Context
    ) -> pb.ListContextsResponse:
        contexts = (await self._session(request.session_id)).contexts
        found = [await contexts.refresh(one.name) for one in contexts.list()]
        return pb.ListContextsResponse(contexts=map(code_wire.context_message, found))

    async def GetContextState(
        self, request: pb.GetContextStateRequest, context: Context
    ) -> pb.GetContextStateResponse:
        session = await self._session(request.session_id)
        name = request.context or MAIN
        wait = wire.seconds(request, "timeout", low=0.0, high=MAX_WAIT_SECONDS) or 0.0
        found = await session.contexts.refresh(name)
        has_process = found.generation and found.phase is not Phase.LOST
        if not has_process and found.phase is not Phase.BUSY:
            return code_wire.state_response(found, None)
        execution = await session.contexts.ask(
            name, Question(Modes.STATE), wait_seconds=wait, session_env=session.variables
        )
        report = await report_of(execution)
        session.contexts.discard(execution)
        return code_wire.state_response(await session.contexts.refresh(name), report)

    async def InterruptContext(
        self, request: pb.InterruptContextRequest, context: Context
    ) -> pb.InterruptContextResponse:
        contexts = (await self._session(request.session_id)).contexts
        is_interrupted = contexts.interrupt(request.context or MAIN)
        return pb.InterruptContextResponse(interrupted=is_interrupted)

    async def RestartContext(
        self, request: pb.RestartContextRequest, context: Context
    ) -> pb.RestartContextResponse:
        contexts = (await self._session(request.session_id)).contexts
        restarted = await contexts.restart(request.context or MAIN)
        return pb.RestartContextResponse(context=code_wire.context_message(restarted))

    async def DeleteContext(
        self, request: pb.DeleteContextRequest, context: Context
    ) -> pb.DeleteContextResponse:
        if not request.context:
            raise wire.missing("context")
        await (await self._session(request.session_id)).contexts.delete(request.context)
        return pb.DeleteContextResponse()

    async def CheckCode(
        self, request: pb.CheckCodeRequest, context: Context
    ) -> pb.CheckCodeResponse:
        session = await self._session(request.session_id)
        name = request.context or MAIN
        session.contexts.get(name)
        execution = await session.contexts.ask(
            name,
            Question(Modes.CHECK, request.code),
            wait_seconds=self._config.max_exec_seconds,
            session_env=session.variables,
        )
        report = await report_of(execution)
        session.contexts.discard(execution)
        return code_wire.check_response(report)

    async def ListFunctions(
        self, request: pb.ListFunctionsRequest, context: Context
    ) -> pb.ListFunctionsResponse:
        session = await self._session(request.session_id)
        return code_wire.functions_response(
            session.contexts.get(request.context or MAIN),
            session.contexts.settings,
            has_data=bool(session.record.data_sources),
        )

    async def _session(self, session_id: str) -> Session:
        if not session_id:
            raise wire.missing("session_id")
        return await self._sessions.with_contexts(session_id)

    # --- quick runs ---

    async def QuickExecute(
        self, request: pb.QuickExecuteRequest, context: Context
    ) -> pb.QuickExecuteResponse:
        run = code_wire.quick_run(request, self._config)
        opening = asyncio.ensure_future(self._open_quick(request))
        try:
            run.session_id = await asyncio.shield(opening)
            return pb.QuickExecuteResponse(run=await self._run(run))
        finally:
            opening.add_done_callback(self._close_quick)

    async def _open_quick(self, request: pb.QuickExecuteRequest) -> str:
        wanted = OpenRequest(
            environment=request.environment,
            environment_config=EnvironmentConfig(packages=tuple(request.packages)),
            build_wait_seconds=BUILD_WAIT_SECONDS,
        )
        thread_id = f"quick-{os.urandom(8).hex()}"
        session, _ = await self._sessions.open(request.user_id, thread_id, wanted)
        return session.id

    def _close_quick(self, opening: asyncio.Future[str]) -> None:
        """Also if the caller has gone while the session was being opened."""
        if not opening.cancelled() and opening.exception() is None:
            self._sessions.close(opening.result())


async def _debugged(
    execution: Exec,
    requests: AsyncIterator[pb.DebugCodeRequest],
    responses: AsyncIterator[exec_pb.ExecResponse],
) -> AsyncIterator[exec_pb.ExecResponse]:
    """The responses, while commands are passed on; a command that cannot be ends the call."""
    commands: asyncio.Task[None] = asyncio.ensure_future(_pass_on(execution, requests))
    following: asyncio.Task[exec_pb.ExecResponse] | None = None
    try:
        while True:
            following = asyncio.ensure_future(_next(responses))
            waiting = {following} if commands.done() else {following, commands}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if commands.done():
                commands.result()
            try:
                yield await following
            except StopAsyncIteration:
                return
    finally:
        commands.cancel()
        if following is not None:
            following.cancel()


async def _next(responses: AsyncIterator[exec_pb.ExecResponse]) -> exec_pb.ExecResponse:
    return await anext(responses)


async def _pass_on(execution: Exec, requests: AsyncIterator[pb.DebugCodeRequest]) -> None:
    # It may have to wait for an earlier run of its context.
    await execution.until(lambda: bool(execution.number))
    async for request in requests:
        if execution.exit is not None:
            return
        await execution.write(None, code_wire.debug_command(request), is_end=False)
