"""Every step of a run of code."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType

from sandboxd_client.code_results import CodeRun
from sandboxd_client.code_stream import ended_run
from sandboxd_client.debug_results import DebugStep
from sandboxd_client.errors import ConnectionLostError
from sandboxd_client.methods.code import STEP_THROUGH
from sandboxd_client.session import SessionHold
from sandboxd_client.step_output import StepOutput
from sandboxd_proto.v1 import code_service_pb2 as pb


class AsyncStepStream:
    """Every line that a run executes; see `step_through` of a sandbox's code.

    Example:
        async with sandbox.code.step_through("x = 1\\nx += 1") as steps:
            async for step in steps:
                print(step.line, step.source, step.changed)
    """

    def __init__(
        self, hold: SessionHold, request: pb.StepThroughRequest, *, timeout: float | None
    ) -> None:
        self._hold = hold
        self._exec_id = request.run.exec_id
        self._result: CodeRun | None = None
        self._steps = self._read(request, timeout)

    @property
    def exec_id(self) -> str:
        """Id of the run in its session."""
        return self._exec_id

    @property
    def result(self) -> CodeRun | None:
        """How the run ended; None before its end."""
        return self._result

    async def __aenter__(self) -> AsyncStepStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncStepStream:
        return self

    async def __anext__(self) -> DebugStep:
        return await anext(self._steps)

    async def aclose(self) -> None:
        """End the call. A run that has not ended is interrupted.

        Example:
            steps = sandbox.code.step_through("x = 1\\ny = 2")
            print((await anext(steps)).source)
            await steps.aclose()
        """
        await self._steps.aclose()

    async def _read(
        self, request: pb.StepThroughRequest, timeout: float | None
    ) -> AsyncGenerator[DebugStep, None]:
        output = StepOutput()
        has_ended = False
        responses = self._hold.connection.stream(STEP_THROUGH, request, timeout=timeout)
        async with aclosing(responses):
            async for response in responses:
                for event in response.events:
                    output.add(event)
                    if event.HasField("exited"):
                        has_ended = True
                    elif event.code.HasField("step"):
                        yield output.step(event.code.step)
        if not has_ended:
            raise ConnectionLostError(
                "The stream of steps was interrupted before the end of the run, and the run with "
                "it."
            )
        self._result = await ended_run(self._hold, self._exec_id)
