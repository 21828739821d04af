"""What a daemon passes on from a run of code, as the SDK reads it."""

from __future__ import annotations

from collections.abc import Hashable

from google.protobuf.message import DecodeError

from sandboxd_client.code_results import CodeRun
from sandboxd_client.code_stream import reported
from sandboxd_client.execution import Execution
from sandboxd_client.step_output import StepOutput
from sandboxd_proto.v1 import code_pb2, exec_pb2, exec_service_pb2
from sandboxd_proto.v1 import code_service_pb2 as pb
from tests.fuzz.target import Target, stateless

DISPLAY = code_pb2.Display(
    data=[
        code_pb2.DisplayData(media_type="text/plain", data=b"1"),
        code_pb2.DisplayData(media_type="image/png", data=b"\x89PNG"),
        code_pb2.DisplayData(media_type="application/json", data=b"[1]"),
    ]
)
RUN = pb.RunCodeResponse(
    exec_id="e1",
    status=pb.CODE_STATUS_RAISED,
    context=pb.Context(name="main", generation=1),
    result=code_pb2.CodeResult(json='{"a": [1, 2]}'),
    value=DISPLAY,
    displays=[DISPLAY],
    error=code_pb2.CodeError(type="E", message="m", cause=code_pb2.CodeError(type="F")),
    logs=[code_pb2.CodeLog(level="INFO", message="m")],
)
STEPS = exec_service_pb2.ExecResponse(
    events=[
        exec_pb2.ExecEvent(stdout=exec_pb2.OutputChunk(offset=0, data=b"one\n")),
        exec_pb2.ExecEvent(
            code=code_pb2.CodeEvent(step=code_pb2.DebugStep(line=1, stdout_offset=4))
        ),
    ]
)


async def read(data: bytes) -> Hashable:
    """The first byte says as what."""
    kind, body = data[:1], data[1:]
    try:
        if kind == b"R":
            return _run(pb.RunCodeResponse.FromString(body))
        return _steps(exec_service_pb2.ExecResponse.FromString(body))
    except DecodeError:
        return "not a message"


def _run(message: pb.RunCodeResponse) -> Hashable:
    run = CodeRun.of(message)
    execution = Execution.of(run)
    return run.status, type(run.result).__name__, len(execution.results), run.error is None


def _steps(message: exec_service_pb2.ExecResponse) -> Hashable:
    output, kinds = StepOutput(), []
    for event in message.events:
        output.add(event)
        if event.code.HasField("step"):
            output.step(event.code.step)
        kinds.append(type(reported(event.code)).__name__)
    assert all(isinstance(text, str) for text in output.rest())
    return tuple(kinds[:4])


CODE_ANSWERS = Target(
    name="code-answers",
    open=stateless(read),
    seeds=[b"R" + RUN.SerializeToString(), b"S" + STEPS.SerializeToString()],
    words=[b"application/json", b"text/html", b"[[[[", b"null", b"NaN", b"1e999"],
)
