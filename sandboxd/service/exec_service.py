"""ExecService."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from sandboxd.config import Config
from sandboxd.execs.exec import Exec as Execution  # Exec is a method here
from sandboxd.guest.frames import TEXT_STREAMS
from sandboxd.observability.journal import KeptJournal
from sandboxd.service import exec_wire, page_tokens, wire
from sandboxd.service.wire import Context
from sandboxd.sessions.sessions import Sessions
from sandboxd_proto.v1 import exec_service_pb2 as pb
from sandboxd_proto.v1 import exec_service_pb2_grpc as pb_grpc


class ExecServicer(pb_grpc.ExecServiceServicer):
    def __init__(self, sessions: Sessions, config: Config, journal: KeptJournal) -> None:
        self._sessions = sessions
        self._config = config
        self._journal = journal

    async def Exec(
        self, request: pb.ExecRequest, context: Context
    ) -> AsyncIterator[pb.ExecResponse]:
        execution, _ = await self._start(request)
        execution.hold()
        try:
            async for response in exec_wire.responses(execution):
                yield response
        finally:
            execution.abandon()

    async def Run(self, request: pb.ExecRequest, context: Context) -> pb.RunResponse:
        spec = exec_wire.exec_spec(request, self._config, is_run=True)
        execution, _ = await self._sessions.check_and_start_exec(
            request.session_id, spec, incarnation=request.incarnation
        )
        execution.hold()
        try:
            status = await execution.wait()
        finally:
            execution.abandon()
        return exec_wire.run_response(execution, status, spec.capture_bytes or 0)

    async def StartExec(self, request: pb.ExecRequest, context: Context) -> pb.StartExecResponse:
        execution, is_new = await self._start(request, is_detached=True)
        await execution.begun()
        return pb.StartExecResponse(exec=exec_wire.describe(execution), already_started=not is_new)

    async def AttachExec(
        self, request: pb.AttachExecRequest, context: Context
    ) -> AsyncIterator[pb.ExecResponse]:
        execution = await self._find(request)
        async for response in exec_wire.responses(execution, exec_wire.offsets(request)):
            yield response

    async def WaitExec(self, request: pb.WaitExecRequest, context: Context) -> pb.WaitExecResponse:
        execution = await self._find(request)
        seconds = wire.seconds(request, "timeout", low=0.0, high=self._config.max_exec_seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await execution.ended()
        return pb.WaitExecResponse(exec=exec_wire.describe(execution))

    async def ListExecs(
        self, request: pb.ListExecsRequest, context: Context
    ) -> pb.ListExecsResponse:
        if self._sessions.are_returning:
            await self._sessions.wait_until_back(request.session_id)
        session = self._sessions.get(request.session_id)
        page, following = session.execs.page(
            state=exec_wire.exec_state(request.state),
            size=wire.page_size(request.page_size),
            after=page_tokens.EXECS.decode(request.page_token),
        )
        return pb.ListExecsResponse(
            execs=[exec_wire.describe(execution) for execution in page],
            next_page_token=page_tokens.EXECS.encode(following),
        )

    async def ListExecutions(
        self, request: pb.ListExecutionsRequest, context: Context
    ) -> pb.ListExecutionsResponse:
        session = self._sessions.get(request.session_id)
        page, following = await self._journal.executions(
            session.id,
            size=wire.page_size(request.page_size),
            before=page_tokens.EXECUTIONS.decode(request.page_token),
        )
        return pb.ListExecutionsResponse(
            executions=[exec_wire.describe_record(record) for record in page],
            next_page_token=page_tokens.EXECUTIONS.encode(following),
        )

    async def SignalExec(
        self, request: pb.SignalExecRequest, context: Context
    ) -> pb.SignalExecResponse:
        execution = await self._find(request)
        execution.signal(exec_wire.signal_number(request), exec_wire.signal_target(request))
        return pb.SignalExecResponse()

    async def WriteStdin(
        self, request: pb.WriteStdinRequest, context: Context
    ) -> pb.WriteStdinResponse:
        execution = await self._find(request)
        data = exec_wire.input_data(request)
        offset = exec_wire.input_offset(request)
        next_offset = await execution.write(offset, data, is_end=request.eof)
        return pb.WriteStdinResponse(next_offset=next_offset)

    async def ResizeExec(
        self, request: pb.ResizeExecRequest, context: Context
    ) -> pb.ResizeExecResponse:
        size = exec_wire.terminal_size(request.terminal)
        execution = await self._find(request)
        execution.resize(size.rows, size.columns)
        return pb.ResizeExecResponse()

    async def ReadOutput(
        self, request: pb.ReadOutputRequest, context: Context
    ) -> pb.ReadOutputResponse:
        execution, stream = await self._find(request), exec_wire.output_stream(request.stream)
        max_bytes = exec_wire.output_bytes(request.max_bytes, default=exec_wire.DEFAULT_READ)
        piece = execution.read(stream, request.offset, max_bytes)
        return exec_wire.read_response(execution, stream, piece)

    async def SearchOutput(
        self, request: pb.SearchOutputRequest, context: Context
    ) -> pb.SearchOutputResponse:
        execution = await self._find(request)
        found = await execution.search(exec_wire.search_query(request))
        return exec_wire.search_response(found)

    async def PreviewOutput(
        self, request: pb.PreviewOutputRequest, context: Context
    ) -> pb.PreviewOutputResponse:
        execution = await self._find(request)
        max_bytes = exec_wire.output_bytes(request.max_bytes, default=exec_wire.DEFAULT_PREVIEW)
        stdout, stderr = (
            exec_wire.output_preview(
                execution.preview(stream, max_bytes=max_bytes, collapse=request.collapse),
                execution.length(stream),
            )
            for stream in TEXT_STREAMS
        )
        return pb.PreviewOutputResponse(stdout=stdout, stderr=stderr)

    async def _start(
        self, request: pb.ExecRequest, *, is_detached: bool = False
    ) -> tuple[Execution, bool]:
        spec = exec_wire.exec_spec(request, self._config, is_detached=is_detached)
        return await self._sessions.check_and_start_exec(
            request.session_id, spec, incarnation=request.incarnation
        )

    async def _find(self, request: exec_wire.NamesExec) -> Execution:
        if not request.exec_id:
            raise wire.missing("exec_id")
        if self._sessions.are_returning:
            await self._sessions.wait_until_back(request.session_id)
        return self._sessions.find_exec(request.session_id, request.exec_id)
