"""CodeService with fake guests: requests, refusals, ends, and a restart of the daemon."""

from __future__ import annotations

import asyncio
import signal
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from sandboxd.daemon.composition import Daemon
from sandboxd.execs.interruption import INSISTENT_SIGNAL
from sandboxd.guest import frames
from sandboxd.guest.code import records
from sandboxd.guest.frames import Kind
from sandboxd_proto.v1 import code_service_pb2 as pb
from sandboxd_proto.v1 import exec_pb2
from tests.fakes.guest import FakeGuests
from tests.service.client import Api, refused

WRONG_STATE = grpc.StatusCode.FAILED_PRECONDITION
INVALID = grpc.StatusCode.INVALID_ARGUMENT
NOT_FOUND = grpc.StatusCode.NOT_FOUND
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
DENIED = grpc.StatusCode.PERMISSION_DENIED
LOST = grpc.StatusCode.ABORTED

StartDaemon = Callable[..., Awaitable[Daemon]]


@pytest.fixture
async def session_id(api: Api) -> str:
    return await api.open_id()


async def run_code(api: Api, session_id: str, code: str, **fields: Any) -> pb.RunCodeResponse:
    return await api.code.RunCode(pb.RunCodeRequest(session_id=session_id, code=code, **fields))


def event(record: bytes) -> str:
    """A step of a fake guest that reports this record."""
    return f"event {record.hex()}"


async def test_events_become_the_answer(api: Api, session_id: str) -> None:
    """Result, displays, error and log lines are in the answer, in order."""
    shown = [("text/plain", b"42"), ("text/html", b"<b>42</b>")]
    steps = [
        "echo out",
        event(records.display(records.Kinds.DISPLAY, shown, ["image/png"])),
        event(records.log(1_000_001, "INFO", "hello")),
        event(records.result("42", [("$.x", "NaN to null")], False)),
        event(records.error([records.Error("ValueError", "bad", [], "Traceback")])),
        event(records.note("a fact")),
        "exit 1",
    ]
    answer = await run_code(api, session_id, "; ".join(steps))

    assert answer.status == pb.CODE_STATUS_RAISED
    assert answer.stdout.data == b"out\n"
    assert [data.media_type for data in answer.displays[0].data] == ["text/plain", "text/html"]
    assert list(answer.displays[0].left_out) == ["image/png"]
    assert (answer.logs[0].message, answer.logs[0].time.nanos) == ("hello", 1000)
    assert (answer.result.json, answer.result.conversions[0].path) == ("42", "$.x")
    assert (answer.error.type, list(answer.notes)) == ("ValueError", ["a fact"])


async def test_malformed_events_spoil_that_run_only(api: Api, session_id: str) -> None:
    """Code can write the stream of events; what it breaks is said, and the sandbox is kept."""
    answer = await run_code(api, session_id, f"event {'ff' * 40}; echo fine")
    assert answer.status == pb.CODE_STATUS_OK
    assert "cannot be read" in answer.notes[0]
    assert (await run_code(api, session_id, "echo next")).stdout.data == b"next\n"


async def test_outcomes_and_generations(api: Api, session_id: str) -> None:
    """The first run creates, later ones keep; after a loss the next one says so."""
    outcomes = []
    for code in ("echo 1", "echo 2", "signal 9", "echo 3"):
        answer = await run_code(api, session_id, code)
        outcomes.append((answer.status, answer.outcome, answer.context.generation))
    assert outcomes == [
        (pb.CODE_STATUS_OK, pb.CONTEXT_OUTCOME_CREATED, 1),
        (pb.CODE_STATUS_OK, pb.CONTEXT_OUTCOME_KEPT, 1),
        (pb.CODE_STATUS_CONTEXT_LOST, pb.CONTEXT_OUTCOME_KEPT, 1),
        (pb.CODE_STATUS_OK, pb.CONTEXT_OUTCOME_RECREATED, 2),
    ]
    with refused(LOST, "CONTEXT_LOST"):
        await run_code(api, session_id, "echo 4", generation=1)


async def test_deadline_interrupts_and_keeps_the_context(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """SIGINT first; the context that stops is kept, and the answer says so."""
    answer = await run_code(api, session_id, "sleep", timeout=Duration(nanos=50_000_000))
    assert answer.status == pb.CODE_STATUS_TIMED_OUT
    assert answer.context.state == pb.CONTEXT_STATE_IDLE
    assert [number for number, _ in guests.commands[-1].signals] == [signal.SIGINT]
    assert guests.commands[-1].kills == 0


async def test_what_ignores_interrupts_is_killed(
    api: Api, session_id: str, guests: FakeGuests
) -> None:
    """Two interrupts, two that code does not know, then the kill; the host comes last."""
    call = api.code.RunCode(
        pb.RunCodeRequest(
            session_id=session_id, code="stubborn", timeout=Duration(nanos=50_000_000)
        )
    )
    while not guests.commands or not guests.commands[-1].kills:
        await asyncio.sleep(0.01)
    signals = [number for number, _ in guests.commands[-1].signals]
    assert signals == [signal.SIGINT] * 2 + [INSISTENT_SIGNAL] * 2
    answer = await call
    assert answer.status == pb.CODE_STATUS_TIMED_OUT


async def test_interrupt_ends_a_run_and_nothing_else(api: Api, session_id: str) -> None:
    """An idle context is left alone; a run ends as interrupted."""
    request = pb.InterruptContextRequest(session_id=session_id)
    assert not (await api.code.InterruptContext(request)).interrupted
    run = pb.RunCodeRequest(session_id=session_id, code="sleep", exec_id="e1")
    started = await api.code.StartCode(run)
    assert started.exec.context == "main"
    assert (await api.code.InterruptContext(request)).interrupted
    found = pb.GetCodeRunRequest(session_id=session_id, exec_id="e1")
    while True:
        try:
            ended = await api.code.GetCodeRun(found)
            break
        except grpc.RpcError:
            await asyncio.sleep(0.01)
    assert ended.status == pb.CODE_STATUS_INTERRUPTED


async def test_contexts_are_listed_restarted_and_deleted(api: Api, session_id: str) -> None:
    """A context is there until it is deleted; a restart leaves it without a process."""
    made = await api.code.CreateContext(
        pb.CreateContextRequest(session_id=session_id, name="work", env={"A": "b"})
    )
    assert (made.context.version, made.already_exists) == ("3.11.0", False)
    named = {"session_id": session_id, "context": "work"}
    restarted = await api.code.RestartContext(pb.RestartContextRequest(**named))
    assert restarted.context.state == pb.CONTEXT_STATE_LOST
    listed = await api.code.ListContexts(pb.ListContextsRequest(session_id=session_id))
    assert [context.name for context in listed.contexts] == ["work"]
    await api.code.DeleteContext(pb.DeleteContextRequest(**named))
    with refused(NOT_FOUND, "CONTEXT_NOT_FOUND"):
        await api.code.DeleteContext(pb.DeleteContextRequest(**named))


@pytest.mark.parametrize(
    ("fields", "code", "why"),
    [
        ({"code": ""}, INVALID, "INVALID_REQUEST"),
        ({"code": "x" * (513 << 10)}, INVALID, "REQUEST_TOO_LARGE"),
        ({"context": "a b"}, INVALID, "INVALID_REQUEST"),
        ({"language": "cobol"}, INVALID, "INVALID_REQUEST"),
        ({"timeout": Duration(seconds=10**9)}, INVALID, "INVALID_REQUEST"),
        ({"max_output_bytes": 1 << 40}, INVALID, "INVALID_REQUEST"),
        ({"exec_id": "../x"}, INVALID, "INVALID_REQUEST"),
    ],
)
async def test_bad_requests_are_refused(
    fields: dict[str, Any], code: grpc.StatusCode, why: str, api: Api, session_id: str
) -> None:
    """What cannot be run is refused with the field, and leaves no context behind."""
    with refused(code, why):
        await run_code(api, session_id, **{"code": "echo 1", **fields})
    listed = await api.code.ListContexts(pb.ListContextsRequest(session_id=session_id))
    assert not listed.contexts


async def test_policy_that_forbids_the_interpreter_forbids_code(start_daemon: StartDaemon) -> None:
    """Code is no way around a command policy."""
    policy = {"allow": ["ls"]}
    daemon = await start_daemon(policies={"narrow": policy}, command_policy="narrow")
    async with Api(daemon.config.api_socket) as api:
        session_id = await api.open_id()
        with refused(DENIED, "COMMAND_NOT_ALLOWED"):
            await run_code(api, session_id, "echo 1")


async def test_sandbox_of_an_earlier_release_runs_no_code(
    start_daemon: StartDaemon, guests: FakeGuests
) -> None:
    """Its guest knows no contexts; the refusal says what to do."""
    version = frames.CODE_VERSION - 1
    hello = struct.pack("!HIB", version, 1, 0)
    guests.version = version
    guests.greet = lambda guest: guest.say(frames.encode(Kind.HELLO, payload=hello))
    daemon = await start_daemon()
    async with Api(daemon.config.api_socket) as api:
        session_id = await api.open_id()
        with refused(WRONG_STATE, "CODE_UNAVAILABLE") as refusal:
            await run_code(api, session_id, "echo 1")
        assert "reset the session" in refusal.message
        assert (await api.run(session_id, "echo fine")).stdout.data == b"fine\n"


async def test_history_names_the_context(api: Api, session_id: str) -> None:
    """A run of code is in the history like a command, with its context."""
    await run_code(api, session_id, "echo 1", context="work")
    history = await api.executions(session_id)
    assert (history.executions[0].command, history.executions[0].context) == ("echo 1", "work")
    assert history.executions[0].exit.reason == exec_pb2.EXIT_REASON_EXITED


async def test_functions_are_for_python(api: Api, session_id: str) -> None:
    """A context of JavaScript has none of them; what it may use is its language."""
    await api.code.CreateContext(
        pb.CreateContextRequest(session_id=session_id, name="js", language="javascript")
    )
    for name, has_functions in (("main", True), ("js", False)):
        request = pb.ListFunctionsRequest(session_id=session_id, context=name)
        found = await api.code.ListFunctions(request)
        assert (bool(found.functions), bool(found.examples)) == (has_functions, has_functions)
