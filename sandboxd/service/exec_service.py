"""ExecService."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from sandboxd.config import Config
from sandboxd.errors import CommandNotAllowed
from sandboxd.exec_spec import ExecSpec
from sandboxd.execs import Exec as Execution  # Exec is a method here
from sandboxd.history import History
from sandboxd.policy import CommandChecker
from sandboxd.service import wire
from sandboxd.service.wire import Context
from sandboxd.sessions import Sessions
from sandboxd_proto.v1 import exec_service_pb2 as pb
from sandboxd_proto.v1 import exec_service_pb2_grpc as pb_grpc


class ExecServicer(pb_grpc.ExecServiceServicer):
    def __init__(
        self, sessions: Sessions, config: Config, checker: CommandChecker, history: History
    ) -> None:
        self._sessions = sessions
        self._config = config
        self._checker = checker
        self._decision = f"allowed by policy {checker.policy.name}"
        self._history = history

    async def Exec(
        self, request: pb.ExecRequest, context: Context
    ) -> AsyncIterator[pb.ExecResponse]:
        execution, _ = self._start(request)
        execution.hold()
        try:
            async for batch in execution.follow():
                yield wire.exec_response(batch, execution.id)
        finally:
            execution.abandon()

    async def Run(self, request: pb.ExecRequest, context: Context) -> pb.RunResponse:
        spec = wire.exec_spec(request, self._config, is_run=True)
        self._check(spec)
        execution, _ = self._sessions.start_exec(
            request.session_id,
            spec,
            incarnation=request.incarnation,
            decision=self._decision,
        )
        execution.hold()
        try:
            status = await execution.wait()
        finally:
            execution.abandon()
        return wire.run_response(execution, status, spec.capture_bytes or 0)

    async def StartExec(self, request: pb.ExecRequest, context: Context) -> pb.StartExecResponse:
        execution, is_new = self._start(request, is_detached=True)
        return pb.StartExecResponse(exec=wire.execution(execution), already_started=not is_new)

    async def AttachExec(
        self, request: pb.AttachExecRequest, context: Context
    ) -> AsyncIterator[pb.ExecResponse]:
        execution = self._find(request)
        async for batch in execution.follow(wire.offsets(request)):
            yield wire.exec_response(batch, execution.id)

    async def WaitExec(self, request: pb.WaitExecRequest, context: Context) -> pb.WaitExecResponse:
        execution = self._find(request)
        seconds = wire.seconds(request, "timeout", low=0.0, high=self._config.max_exec_seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await execution.ended()
        return pb.WaitExecResponse(exec=wire.execution(execution))

    async def ListExecs(
        self, request: pb.ListExecsRequest, context: Context
    ) -> pb.ListExecsResponse:
        session = self._sessions.get(request.session_id)
        wanted = wire.exec_state(request.state)
        found = [one for one in session.execs if wanted is None or one.state == wanted]
        page, token = wire.page(found, request.page_size, request.page_token)
        return pb.ListExecsResponse(
            execs=[wire.execution(one) for one in page], next_page_token=token
        )

    async def ListExecutions(
        self, request: pb.ListExecutionsRequest, context: Context
    ) -> pb.ListExecutionsResponse:
        session = self._sessions.get(request.session_id)
        size, before = wire.execution_page(request)
        found = await self._history.page(session.id, size=size + 1, before=before)
        return wire.executions(found, size)

    async def SignalExec(
        self, request: pb.SignalExecRequest, context: Context
    ) -> pb.SignalExecResponse:
        self._find(request).signal(wire.signal_number(request), wire.signal_target(request))
        return pb.SignalExecResponse()

    async def WriteStdin(
        self, request: pb.WriteStdinRequest, context: Context
    ) -> pb.WriteStdinResponse:
        execution = self._find(request)
        data = wire.input_data(request)
        next_offset = await execution.write(request.offset, data, is_end=request.eof)
        return pb.WriteStdinResponse(next_offset=next_offset)

    async def ResizeExec(
        self, request: pb.ResizeExecRequest, context: Context
    ) -> pb.ResizeExecResponse:
        size = wire.terminal_size(request.terminal)
        self._find(request).resize(size.rows, size.columns)
        return pb.ResizeExecResponse()

    async def ReadOutput(
        self, request: pb.ReadOutputRequest, context: Context
    ) -> pb.ReadOutputResponse:
        return wire.read_output(self._find(request), request)

    async def SearchOutput(
        self, request: pb.SearchOutputRequest, context: Context
    ) -> pb.SearchOutputResponse:
        spool, query = wire.spool_of(self._find(request)), wire.search(request)
        # In a thread: much output takes long to search, and others are served meanwhile.
        found = await asyncio.to_thread(spool.search, query)
        return wire.search_response(found)

    async def PreviewOutput(
        self, request: pb.PreviewOutputRequest, context: Context
    ) -> pb.PreviewOutputResponse:
        return wire.preview(self._find(request), request)

    def _start(
        self, request: pb.ExecRequest, *, is_detached: bool = False
    ) -> tuple[Execution, bool]:
        spec = wire.exec_spec(request, self._config, is_detached=is_detached)
        self._check(spec)
        return self._sessions.start_exec(
            request.session_id, spec, incarnation=request.incarnation, decision=self._decision
        )

    def _check(self, spec: ExecSpec) -> None:
        """CommandNotAllowed unless the policy lets it run."""
        words = spec.argv if spec.shell is None else spec.shell
        decision = self._checker.check(words, spec.env)
        if decision.allowed:
            return
        first = decision.findings[0]
        raise CommandNotAllowed(
            self._checker.policy.name,
            rule=first.rule,
            command=first.command,
            why=decision.explanation,
        )

    def _find(self, request: wire.NamesExec) -> Execution:
        if not request.exec_id:
            raise wire.missing("exec_id")
        return self._sessions.find_exec(request.session_id, request.exec_id)
