"""What `sandbox.code` sends, and what it makes of the answers, on a daemon that is played."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sandboxd_client import (
    AsyncSandboxClient,
    CodeFailedError,
    CodeNote,
    ConnectionLostError,
    ContextLostError,
    InvalidRequestError,
    OutputChunk,
    OutputGap,
    SandboxLostError,
)
from sandboxd_client.code_results import CodeRun
from sandboxd_client.connection import Connection
from sandboxd_client.methods.code import (
    DELETE_CONTEXT,
    GET_CONTEXT_STATE,
    QUICK_EXECUTE,
    RUN_CODE,
    START_CODE,
)
from sandboxd_client.methods.execs import ATTACH_EXEC, SIGNAL_EXEC
from sandboxd_client.methods.sessions import OPEN_SESSION
from sandboxd_proto.v1 import code_pb2, exec_pb2
from sandboxd_proto.v1 import code_service_pb2 as pb
from tests.sdk.scripted import (
    TIMEOUTS,
    Answer,
    Scripted,
    batch,
    exited,
    started,
    stdout,
)
from tests.sdk.scripted_code import display, event, ran, sandbox_on
from tests.sdk.test_auto_retry import opened


async def test_run_is_repeated_under_its_id() -> None:
    """A lost answer does not run the code twice: both calls name the same exec."""
    sandbox, transport = sandbox_on(RunCode=[ConnectionLostError("cut"), ran()])

    assert (await sandbox.code.run("x = 1", context="a", timeout=2.5, generation=4)).ok

    first, again = transport.requests(RUN_CODE)
    assert first == again
    assert first.exec_id.startswith("exe_")
    assert (first.session_id, first.incarnation) == ("ses_1", 3)
    assert (first.code, first.context, first.generation) == ("x = 1", "a", 4)
    assert (first.timeout.seconds, first.timeout.nanos) == (2, 500_000_000)


async def test_outcome_has_everything_as_keys_and_attributes() -> None:
    """Result, value, displays, error, logs, output and the truth about the context."""
    cause = code_pb2.CodeError(type="KeyError", message="'k'")
    error = code_pb2.CodeError(type="ValueError", message="bad", traceback="Tb", cause=cause)
    error.frames.add(file="<run 1>", line=3, function="f", source="raise")
    log = code_pb2.CodeLog(level="INFO", message="m")
    answer = ran(
        status=pb.CODE_STATUS_RAISED,
        outcome=pb.CONTEXT_OUTCOME_RECREATED,
        result=code_pb2.CodeResult(
            json='{"a": [1, null]}',
            conversions=[code_pb2.Conversion(path="$.a[1]", what="NaN to null")],
        ),
        value=display(text=b"v", html=b"<b>v</b>"),
        displays=[display(png=b"\x89PNG")],
        error=error,
        logs=[log],
        notes=["n"],
        stdout=exec_pb2.CapturedOutput(data=b"out"),
    )
    sandbox, _ = sandbox_on(RunCode=[answer])

    run = await sandbox.code.run("x")

    assert (run.status, run["status"], run.outcome) == ("raised", "raised", "recreated")
    assert run["result"] == run.result == {"a": [1, None]}
    assert run.conversions[0].path == "$.a[1]"
    assert run.value is not None
    assert (run.text, run.value.html, run.value.png) == ("v", "<b>v</b>", None)
    assert run.displays[0].png == b"\x89PNG"
    assert run.error is not None
    assert (run.error.type, run.error.frames[0].line) == ("ValueError", 3)
    assert run.error.cause is not None
    assert run.error.cause.type == "KeyError"
    assert (run.logs[0].level, run["notes"], run.stdout) == ("INFO", ["n"], "out")
    assert (run.context, run.generation, run.is_state_kept) == ("main", 1, True)
    with pytest.raises(CodeFailedError, match="ValueError: bad") as caught:
        run.check()
    assert caught.value.run is run


def test_run_that_did_not_simply_end_says_so_where_it_is_printed() -> None:
    """Agents pass the dict on; why the run ended and what to do next go with it."""
    late = exec_pb2.ExitStatus(code=124, reason=exec_pb2.EXIT_REASON_TIMED_OUT, hint="Split it.")
    run = CodeRun.of(ran(exit=late))

    assert (run["reason"], run["hint"]) == ("timed_out", "Split it.")
    assert "Split it." in repr(run)
    assert not {"reason", "hint"} & set(CodeRun.of(ran()))


@pytest.mark.parametrize("text", ["[" * 200_000, "{", "nul", "9" * 5000 + "]"])
def test_result_that_is_not_json_is_told(text: str) -> None:
    """A sandbox may write anything; the caller gets a note, not an exception."""
    run = CodeRun.of(ran(result=code_pb2.CodeResult(json=text)))

    assert run.result is None
    assert run.is_result_truncated
    assert len(run.notes) == 1


def test_log_line_with_an_impossible_time() -> None:
    """The clock is the sandbox's."""
    log = code_pb2.CodeLog(message="m")
    log.time.seconds = 1 << 60
    assert CodeRun.of(ran(logs=[log])).logs[0].time == ""


async def test_callbacks_get_what_comes_and_the_outcome_is_fetched() -> None:
    """Output, displays and logs in their order; positions continue after a cut stream."""
    value = code_pb2.CodeEvent(offset=10, next_offset=20, value=display(text=b"v"))
    first = batch(stdout(0, b"one\n"), event(0, display=display(text=b"d")))
    again = batch(
        stdout(0, b"one\n"),
        stdout(4, b"two\n"),
        event(0, display=display(text=b"d")),
        exec_pb2.ExecEvent(code=value),
        exited(),
    )
    sandbox, transport = sandbox_on(
        StartCode=[started()],
        AttachExec=[[first, ConnectionLostError("cut")], [again]],
        GetCodeRun=[ran(stdout=exec_pb2.CapturedOutput(data=b"one\ntwo\n"))],
    )
    texts: list[str] = []
    shown: list[tuple[str | None, bool]] = []

    run = await sandbox.code.run(
        "x",
        on_stdout=texts.append,
        on_display=lambda one: shown.append((one.text, one.is_value)),
    )

    assert texts == ["one\n", "two\n"]
    assert shown == [("d", False), ("v", True)]
    assert run.stdout == "one\ntwo\n"
    positions = [(one.stdout_offset, one.events_offset) for one in transport.requests(ATTACH_EXEC)]
    assert positions == [(0, 0), (4, 10)]


async def test_missing_events_and_output_are_told() -> None:
    """A gap is an event of its own."""
    gap = exec_pb2.OutputGap(stream=exec_pb2.OUTPUT_STREAM_STDOUT, offset=0, bytes=5)
    events = batch(
        exec_pb2.ExecEvent(dropped=gap), stdout(5, b"x"), event(30, note="later"), exited()
    )
    sandbox, _ = sandbox_on(StartCode=[started()], AttachExec=[[events]], GetCodeRun=[ran()])
    async with await sandbox.code.stream("x") as stream:
        seen = [one async for one in stream]

    assert seen[:2] == [OutputGap("stdout", 0, 5), OutputChunk("stdout", 5, b"x", "x")]
    assert [one.text for one in seen[2:] if isinstance(one, CodeNote)] == [
        "Events of this run are no longer kept and were left out.",
        "later",
    ]
    assert stream.result is not None


async def test_queued_run_is_started_again_after_a_restart() -> None:
    """It had not begun, so the next daemon does not know it."""
    from sandboxd_client import ExecNotFoundError

    sandbox, transport = sandbox_on(
        StartCode=[started(queued=True), started()],
        AttachExec=[[ExecNotFoundError("gone")], [batch(exited())]],
        GetCodeRun=[ran()],
    )
    handle = await sandbox.code.start("x", exec_id="mine")
    await handle.wait()

    assert [one.exec_id for one in transport.requests(START_CODE)] == ["mine", "mine"]


async def test_callback_that_fails_interrupts_the_run() -> None:
    """Nobody waits for it any longer."""
    sandbox, transport = sandbox_on(
        StartCode=[started()],
        AttachExec=[[batch(stdout(0, b"x"))]],
        SignalExec=[exec_pb2.ExitStatus()],
    )

    def fail(text: str) -> None:
        raise RuntimeError(text)

    with pytest.raises(RuntimeError, match="x"):
        await sandbox.code.run("x", on_stdout=fail)
    assert [one.signal for one in transport.requests(SIGNAL_EXEC)] == [2]


async def test_run_that_ended_with_the_connection_is_an_error() -> None:
    """It was interrupted halfway, which is no result."""
    exit_ = exec_pb2.ExitStatus(reason=exec_pb2.EXIT_REASON_CANCELLED)
    sandbox, _ = sandbox_on(RunCode=[ran(exit=exit_, status=pb.CODE_STATUS_INTERRUPTED)])

    with pytest.raises(ConnectionLostError, match="`start`"):
        await sandbox.code.run("x")


async def test_shape_of_other_sdks() -> None:
    """Results with base64 images, logs as lists, error with name, value and traceback."""
    error = code_pb2.CodeError(type="E", message="m", traceback="t")
    answer = ran(
        value=display(text=b"42"),
        displays=[display(png=b"\x00\x01", text=b"fig")],
        error=error,
        stdout=exec_pb2.CapturedOutput(data=b"hi\n"),
    )
    sandbox, _ = sandbox_on(RunCode=[answer])

    execution = await sandbox.run_code("x")

    assert execution.text == "42"
    picture, main = execution.results
    assert (picture.png, picture.is_main_result, main.is_main_result) == ("AAE=", False, True)
    assert (list(picture.formats()), main["text"]) == (["text", "png"], "42")
    assert (execution.logs.stdout, execution.logs.stderr) == (["hi\n"], [])
    assert execution.error is not None
    assert (execution.error.name, execution.error.value) == ("E", "m")


# --- sessions that ended ---


async def client_on(*runs: Answer) -> tuple[AsyncSandboxClient, Scripted]:
    answers = {
        "OpenSession": [opened(1, "CREATED"), opened(2, "RECREATED")],
        "RunCode": list(runs),
    }
    transport = Scripted(answers)
    client = AsyncSandboxClient()
    client._connection = Connection(transport, TIMEOUTS)
    await client.get_or_create_session("ada", "42")
    return client, transport


async def test_first_run_of_a_context_is_repeated_in_the_reopened_session() -> None:
    """It needs no variables, and never began."""
    client, transport = await client_on(SandboxLostError("gone"), ran())

    run = await client.execute_code("x = 1")

    assert run.session is not None
    assert [one.incarnation for one in transport.requests(RUN_CODE)] == [1, 2]


async def test_later_run_is_not_repeated_without_its_variables() -> None:
    """The caller has to know that they are gone."""
    client, transport = await client_on(ran(), SandboxLostError("gone"))
    await client.execute_code("x = 1")

    with pytest.raises(SandboxLostError):
        await client.execute_code("x")
    assert len(transport.requests(OPEN_SESSION)) == 1


async def test_lost_context_is_an_error_where_the_caller_insists() -> None:
    """With `generation` no run starts without its variables."""
    sandbox, _ = sandbox_on(RunCode=[ContextLostError("lost")])
    with pytest.raises(ContextLostError):
        await sandbox.code.run("x", generation=1)


async def test_quick_execute() -> None:
    """One call, which is never repeated: it has no id."""
    client, transport = await client_on(ran())
    transport.answers["QuickExecute"] = [
        pb.QuickExecuteResponse(run=ran(result=code_pb2.CodeResult(json="3"))),
        ConnectionLostError("cut"),
    ]
    run = await client.quick_execute("1 + 2", packages=["x"], timeout=3)
    assert run["result"] == 3
    (asked,) = transport.requests(QUICK_EXECUTE)
    assert (asked.user_id, list(asked.packages), asked.timeout.seconds) == ("sandbox", ["x"], 3)

    with pytest.raises(ConnectionLostError):
        await client.quick_execute("1 + 2")
    assert len(transport.requests(QUICK_EXECUTE)) == 2


# --- contexts ---


async def test_contexts_are_named_or_given() -> None:
    """A context from `create_context` can be passed where a name can."""
    context = pb.Context(name="a", state=pb.CONTEXT_STATE_BUSY, generation=2, exec_id="e9")
    variable = code_pb2.Variable(name="x", type="list", value="[1]", handle=3, length=1)
    sandbox, transport = sandbox_on(
        CreateContext=[pb.CreateContextResponse(context=context)],
        GetContextState=[pb.GetContextStateResponse(variables=[variable], left_out=2)],
        InterruptContext=[pb.InterruptContextResponse(interrupted=True)],
        RestartContext=[pb.RestartContextResponse(context=context)],
        DeleteContext=[pb.DeleteContextResponse()],
        ListContexts=[pb.ListContextsResponse(contexts=[context])],
    )
    made = await sandbox.code.create_context("a", env={"K": "v"})
    assert (made.name, made.state, made.exec_id) == ("a", "busy", "e9")
    state = await sandbox.code.state(made, timeout=1)
    assert (state["x"].length, state[0].handle, state.left_out) == (1, 3, 2)
    with pytest.raises(KeyError):
        state["y"]
    assert await sandbox.code.interrupt(made)
    assert (await sandbox.code.restart("a")).generation == 2
    await sandbox.code.delete_context(made)
    assert [one.name for one in await sandbox.code.contexts()] == ["a"]
    assert transport.requests(GET_CONTEXT_STATE)[0].context == "a"
    assert transport.requests(DELETE_CONTEXT)[0].context == "a"


async def test_arguments_are_checked() -> None:
    """Before anything is sent."""
    sandbox, transport = sandbox_on()
    code: Any = sandbox.code
    wrong: list[tuple[Any, ...]] = [
        (code.run, 1),
        (code.run, b"x"),
    ]
    for method, argument in wrong:
        with pytest.raises(InvalidRequestError):
            await method(argument)
    with pytest.raises(InvalidRequestError):
        await code.run("x", max_output_bytes=0)
    with pytest.raises(InvalidRequestError):
        await code.run("x", language="cobol")
    with pytest.raises(InvalidRequestError):
        code.debug("x", breakpoints=["2"])
    with pytest.raises(InvalidRequestError):
        code.debug("x", each="jump")
    assert transport.asked == []


def test_result_is_a_document() -> None:
    """What the dict has, JSON has, except images."""
    document = json.loads(json.dumps(CodeRun.of(ran(value=display(text=b"v")))))
    assert document["value"] == {"text/plain": "v"}
