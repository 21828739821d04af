"""The debugger over the API, in real sandboxes: steps, breakpoints, callers that leave."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandboxd_proto.v1 import code_pb2, exec_pb2, exec_service_pb2
from sandboxd_proto.v1 import code_service_pb2 as pb
from tests.code.seed_programs import SEED_PROGRAMS
from tests.docker.code import INTERRUPTED, OK, code_request, ended_code, value_of
from tests.docker.commands import list_execs
from tests.docker.daemon_process import Api
from tests.docker.test_lifecycle import eventually

PATIENCE = 60.0
FUNCTION = (
    "def double(n):\n    m = n * 2\n    return m\n\na = double(1)\nb = double(a)\nprint(a, b)\n"
)
IN, OVER = pb.RESUME_MODE_STEP_IN, pb.RESUME_MODE_STEP_OVER
OUT, CONTINUE = pb.RESUME_MODE_STEP_OUT, pb.RESUME_MODE_CONTINUE


class Debugging:
    """One call of DebugCode."""

    def __init__(self, api: Api) -> None:
        self._call = api.code.DebugCode(timeout=300)
        self._events: list[exec_pb2.ExecEvent] = []
        self._commands = 0
        self.stdout = b""
        self.exec_id = ""
        self.events_offset = 0
        self.is_over = False

    async def start(self, session_id: str, code: str, **more: Any) -> Debugging:
        run_more = {key: more.pop(key) for key in ("exec_id", "on_disconnect") if key in more}
        run = code_request(session_id, code, **run_more)
        return await self._open(pb.DebugCodeRequest(start=pb.StartDebug(run=run, **more)))

    async def attach(self, session_id: str, exec_id: str, **offsets: int) -> Debugging:
        attach = pb.AttachDebug(session_id=session_id, exec_id=exec_id, **offsets)
        return await self._open(pb.DebugCodeRequest(attach=attach))

    async def _open(self, request: pb.DebugCodeRequest) -> Debugging:
        await self._call.write(request)
        return self

    async def send(self, **request: Any) -> int:
        self._commands += 1
        await self._call.write(pb.DebugCodeRequest(command=self._commands, **request))
        return self._commands

    async def ask(self, **request: Any) -> code_pb2.DebugAnswer:
        number = await self.send(**request)
        while True:
            answer = await self._next("answer")
            if answer.command == number:
                return answer

    async def step(self, mode: Any) -> code_pb2.DebugStep:
        await self.ask(resume=pb.ResumeDebug(mode=mode))
        return await self.stopped()

    async def stopped(self) -> code_pb2.DebugStep:
        step: code_pb2.DebugStep = await self._next("step")
        return step

    async def value(self, expression: str, frame: int = 0) -> str:
        answer = await self.ask(evaluate=pb.EvaluateDebug(expression=expression, frame=frame))
        assert answer.HasField("value"), answer
        return answer.value.value

    async def _next(self, kind: str) -> Any:
        async with asyncio.timeout(PATIENCE):
            while True:
                for index, event in enumerate(self._events):
                    if event.code.WhichOneof("event") == kind:
                        del self._events[index]
                        return getattr(event.code, kind)
                assert not self.is_over, f"the run ended without a {kind}"
                await self._read()

    async def _read(self) -> None:
        response = await self._call.read()
        if not isinstance(response, exec_service_pb2.ExecResponse):
            self.is_over = True
            return
        for event in response.events:
            self._take(event)

    def _take(self, event: exec_pb2.ExecEvent) -> None:
        which = event.WhichOneof("event")
        if which == "code":
            self.events_offset = event.code.next_offset
            self._events.append(event)
        elif which == "stdout":
            self.stdout += event.stdout.data
        elif which == "started":
            self.exec_id = event.started.exec_id

    async def until_output(self, text: bytes) -> None:
        async with asyncio.timeout(PATIENCE):
            while text not in self.stdout:
                await self._read()

    async def finish(self) -> None:
        """Until the call ends."""
        async with asyncio.timeout(PATIENCE):
            while not self.is_over:
                await self._read()

    def leave(self) -> None:
        self._call.cancel()


def changes(step: code_pb2.DebugStep) -> dict[str, str]:
    return {one.name: one.value for one in step.changed}


async def test_steps_into_over_and_out(api: Api, session_id: str) -> None:
    """Steps have line, source, function, depth and what changed; a return has its value."""
    debugging = await Debugging(api).start(session_id, FUNCTION)
    step = await debugging.stopped()
    assert (step.reason, step.line) == (code_pb2.STOP_REASON_ENTRY, 1)
    assert (await debugging.step(OVER)).source == "a = double(1)"
    step = await debugging.step(IN)
    assert (step.function, step.line, step.depth, changes(step)) == ("double", 2, 2, {"n": "1"})
    step = await debugging.step(OUT)
    assert (step.reason, step.return_value) == (code_pb2.STOP_REASON_RETURN, "2")
    step = await debugging.step(OVER)
    assert (step.line, changes(step)["a"]) == (6, "2")
    await debugging.ask(resume=pb.ResumeDebug())
    await debugging.finish()
    assert debugging.stdout == b"2 4\n"


async def test_breakpoints_stack_variables_and_evaluate(api: Api, session_id: str) -> None:
    """A conditional breakpoint stops; its frames, variables, parts and expressions are there."""
    point = code_pb2.Breakpoint(line=2, condition="n == 2")
    debugging = await Debugging(api).start(
        session_id, FUNCTION, breakpoints=[point], run_to_breakpoint=True
    )
    step = await debugging.stopped()
    assert (step.reason, step.breakpoint_id) == (code_pb2.STOP_REASON_BREAKPOINT, 1)
    stack = (await debugging.ask(stack=pb.GetDebugStack())).stack
    assert [(one.function, one.line) for one in stack.frames] == [("double", 2), ("<module>", 6)]
    shown = (await debugging.ask(variables=pb.GetDebugVariables(frame=1))).variables
    assert {"a": "2"}.items() <= {one.name: one.value for one in shown.variables}.items()
    assert await debugging.value("n * 10") == "20"
    await debugging.value("n = 50")
    answer = await debugging.ask(evaluate=pb.EvaluateDebug(expression="1 / 0"))
    assert answer.error.type == "ZeroDivisionError"
    answer = await debugging.ask(evaluate=pb.EvaluateDebug(expression="while True: pass"))
    assert "longer than" in answer.failure
    await debugging.ask(clear_breakpoint=1)
    await debugging.ask(resume=pb.ResumeDebug(mode=CONTINUE))
    await debugging.finish()
    assert debugging.stdout == b"2 100\n"


async def test_pause_and_quit(api: Api, session_id: str) -> None:
    """A loop at full speed is stopped, looked at and ended; variables stay."""
    code = "n = 0\nprint('go', flush=True)\nwhile True:\n    n += 1"
    debugging = await Debugging(api).start(session_id, code, run_to_breakpoint=True)
    await debugging.until_output(b"go")
    await debugging.ask(pause=pb.PauseDebug())
    step = await debugging.stopped()
    assert step.reason == code_pb2.STOP_REASON_PAUSE
    assert int(await debugging.value("n")) >= 0
    await debugging.send(quit=pb.QuitDebug())
    await debugging.finish()
    run = await ended_code(api, session_id, debugging.exec_id)
    assert run.status == INTERRUPTED
    assert await value_of(api, session_id, "n >= 0") is True


async def test_post_mortem(api: Api, session_id: str) -> None:
    """An exception that nothing catches stops in its frame, which can be looked at."""
    code = "def f(n):\n    m = n + 1\n    return 1 / 0\nf(5)"
    debugging = await Debugging(api).start(session_id, code, run_to_breakpoint=True)
    step = await debugging.stopped()
    assert (step.reason, step.line) == (code_pb2.STOP_REASON_EXCEPTION, 3)
    assert step.error.type == "ZeroDivisionError"
    assert await debugging.value("m") == "6"
    await debugging.ask(resume=pb.ResumeDebug())
    await debugging.finish()


async def test_output_of_each_step(api: Api, session_id: str) -> None:
    """Positions of the streams are exact: children and raw writes included."""
    code = "import os, subprocess\nos.write(1, b'raw\\n')\nsubprocess.run(['echo', 'child'])\npass"
    debugging = await Debugging(api).start(session_id, code)
    offsets = [(await debugging.stopped()).stdout_offset]
    for _ in range(3):
        offsets.append((await debugging.step(OVER)).stdout_offset)
    assert offsets == [0, 0, 4, 10]
    await debugging.ask(resume=pb.ResumeDebug())
    await debugging.finish()


async def test_a_caller_that_leaves_ends_the_run(api: Api, session_id: str) -> None:
    """A client that goes away leaves nothing running, and the context keeps its variables."""
    debugging = await Debugging(api).start(session_id, "x = 1\ny = 2", exec_id="left")
    await debugging.stopped()
    await debugging.step(OVER)
    debugging.leave()
    await eventually(lambda: _has_ended(api, session_id, "left"))
    assert await value_of(api, session_id, "[x, 'y' in globals()]") == [1, False]


async def _has_ended(api: Api, session_id: str, exec_id: str) -> bool:
    found = (await list_execs(api, session_id)).get(exec_id)
    return found is None or found.state != exec_pb2.EXEC_STATE_RUNNING


async def test_attach_again(api: Api, session_id: str) -> None:
    """A run that keeps running stays where it is; another call goes on from its position."""
    first = await Debugging(api).start(
        session_id,
        "x = 1\ny = 2\nprint(x + y)",
        exec_id="again",
        on_disconnect=exec_service_pb2.ON_DISCONNECT_KEEP_RUNNING,
    )
    await first.stopped()
    await first.step(OVER)
    first.leave()
    second = await Debugging(api).attach(session_id, "again", events_offset=first.events_offset)
    assert await second.value("x") == "1"
    assert (await second.step(OVER)).line == 3
    await second.ask(resume=pb.ResumeDebug())
    await second.finish()
    assert (await ended_code(api, session_id, "again")).status == OK


@pytest.mark.parametrize("into", [False, True])
async def test_step_through(api: Api, session_id: str, into: bool) -> None:
    """Every line as it is executed, in functions too if asked, with the output in between."""
    request = pb.StepThroughRequest(
        run=code_request(session_id, FUNCTION), step_into_functions=into
    )
    steps = [
        event.code.step
        async for response in api.code.StepThrough(request, timeout=120)
        for event in response.events
        if event.code.HasField("step")
    ]
    assert {step.function for step in steps} == ({"<module>", "double"} if into else {"<module>"})
    assert steps[-1].stdout_offset == 4


async def test_step_through_the_example_of_the_documentation(api: Api, session_id: str) -> None:
    """Line numbers, sources and variables of each step, to the letter."""
    code = SEED_PROGRAMS["debug"]
    request = pb.StepThroughRequest(run=code_request(session_id, code))
    steps, state = [], {}
    async for response in api.code.StepThrough(request, timeout=120):
        for event in response.events:
            if event.code.HasField("step"):
                steps.append(event.code.step)
                state.update(changes(event.code.step))
    lines = [step.line for step in steps if step.reason != code_pb2.STOP_REASON_RETURN]
    assert lines == [2, 3, 5, *([6, 7, 8, 9] * 5), 6, 11, 12]
    assert all(step.source == code.splitlines()[step.line - 1].strip() for step in steps)
    assert state["__result__"] == "[2, 4, 6, 8, 10]"
