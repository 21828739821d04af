"""Code in contexts of real sandboxes: what runs, what is kept, and how it ends."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import grpc
import pytest

from sandboxd_proto.v1 import code_service_pb2 as pb
from sandboxd_proto.v1 import exec_pb2, exec_service_pb2, session_pb2, session_service_pb2
from tests.docker.code import (
    CREATED,
    INTERRUPTED,
    KEPT,
    LOST,
    OK,
    RAISED,
    RECREATED,
    TIMED_OUT,
    code_request,
    contexts_of,
    ended_code,
    interrupt,
    run_code,
    start_code,
    value_of,
)
from tests.docker.commands import list_execs, run
from tests.docker.daemon_process import Api
from tests.docker.test_lifecycle import eventually, reason

STUBBORN = (
    "while True:\n    try:\n        sum(range(10**11))\n    except BaseException:\n        pass"
)


async def streamed(call: Any) -> list[exec_pb2.ExecEvent]:
    return [event async for response in call for event in response.events]


async def test_first_run_and_the_next(api: Api, session_id: str) -> None:
    """The last expression is the value; variables, imports and functions survive."""
    first = await run_code(
        api, session_id, "import math\ndef twice(n): return 2 * n\nx = 20\nx + 1"
    )
    second = await run_code(api, session_id, "twice(x) + math.floor(2.5)")

    assert (first.status, first.outcome, first.result.json) == (OK, CREATED, "21")
    assert (second.status, second.outcome, second.result.json) == (OK, KEPT, "42")
    assert second.value.data[0].media_type == "text/plain"
    assert (second.context.name, second.context.generation, second.context.runs) == ("main", 1, 2)
    assert second.exit.reason == exec_pb2.EXIT_REASON_EXITED


async def test_same_id_runs_once(api: Api, session_id: str) -> None:
    """A repeated call gets the first one's answer; other code under the same id is a conflict."""
    code = "n = globals().get('n', 0) + 1\nn"
    answers = await asyncio.gather(
        *(run_code(api, session_id, code, exec_id="once") for _ in range(5))
    )
    assert {answer.result.json for answer in answers} == {"1"}
    assert await value_of(api, session_id, "n") == 1
    with pytest.raises(grpc.RpcError) as refused:
        await run_code(api, session_id, "n = 5", exec_id="once")
    assert reason(refused.value) == "EXEC_CONFLICT"


async def test_runs_of_a_context_queue_and_contexts_do_not(api: Api, session_id: str) -> None:
    """Runs of one context happen in order, one at a time; another context runs meanwhile."""
    slow = await start_code(
        api, session_id, "import time\nlog = ['begin']\ntime.sleep(1.0)\nlog.append('end')"
    )
    second = asyncio.ensure_future(run_code(api, session_id, "log"))
    beside = await run_code(api, session_id, "1", context="beside")
    assert beside.status == OK
    assert (await list_execs(api, session_id))[slow].state == exec_pb2.EXEC_STATE_RUNNING
    assert (await second).result.json == '["begin", "end"]'


async def test_await_at_top_level(api: Api, session_id: str) -> None:
    """Code awaits without a function around it, and tasks run side by side."""
    code = (
        "import asyncio\n"
        "async def one(n):\n    await asyncio.sleep(0.05)\n    return n\n"
        "await asyncio.gather(*(one(n) for n in range(5)))"
    )
    assert await value_of(api, session_id, code) == [0, 1, 2, 3, 4]


async def test_output_is_live_also_of_children_and_c(api: Api, session_id: str) -> None:
    """What Python, a child and C write arrives while the code still runs."""
    code = (
        "import ctypes, os, subprocess, time\n"
        "print('python', flush=True)\n"
        "subprocess.run(['echo', 'child'])\n"
        "ctypes.CDLL(None).puts(b'from c')\n"
        "os.write(2, b'error\\n')\n"
        "while not os.path.exists('go'): time.sleep(0.01)\n"
    )
    call = api.code.StreamCode(code_request(session_id, code))
    seen = b""
    async for response in call:
        for event in response.events:
            seen += event.stdout.data + event.stderr.data
            assert event.WhichOneof("event") != "exited" or b"from c" in seen
        if all(word in seen for word in (b"python", b"child", b"from c", b"error")):
            await run(api, session_id, "touch go")
    assert b"error" in seen


async def test_no_display_before_an_earlier_line(api: Api, session_id: str) -> None:
    """Events and text keep the order in which they were written."""
    code = "for n in range(90):\n    print('line', n)\n    display(n)"
    lines = displays = 0
    for event in await streamed(api.code.StreamCode(code_request(session_id, code))):
        lines += event.stdout.data.count(b"\n")
        if event.WhichOneof("event") == "code":
            displays += 1
            assert displays <= lines
    assert (lines, displays) == (90, 90)


async def test_attach_from_any_offset_of_all_streams(api: Api, session_id: str) -> None:
    """A reader goes on where it left, also in the events."""
    code = "for n in range(20):\n    print(n)\n    debug(f'log {n}')"
    exec_id = await start_code(api, session_id, code)
    await ended_code(api, session_id, exec_id)
    request = exec_service_pb2.AttachExecRequest(session_id=session_id, exec_id=exec_id)
    everything = await streamed(api.execs.AttachExec(request))
    events = [event.code for event in everything if event.WhichOneof("event") == "code"]
    assert [event.log.message for event in events] == [f"log {n}" for n in range(20)]

    request.events_offset, request.stdout_offset = events[9].next_offset, 20
    rest = await streamed(api.execs.AttachExec(request))
    later = [event.code for event in rest if event.WhichOneof("event") == "code"]
    assert later == events[10:]
    assert b"".join(e.stdout.data for e in rest) == b"".join(e.stdout.data for e in everything)[20:]


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("import sys; sys.exit()", OK, ""),
        ("import sys; sys.exit(3)", RAISED, "SystemExit"),
        ("raise SystemExit('enough')", RAISED, "SystemExit"),
        ("1/0", RAISED, "ZeroDivisionError"),
        ("x = (", RAISED, "SyntaxError"),
    ],
)
async def test_how_code_ends_by_itself(
    code: str, status: int, kind: str, api: Api, session_id: str
) -> None:
    """Exceptions are the end of a run, never that of its context."""
    await run_code(api, session_id, "kept = 1")
    ended = await run_code(api, session_id, code)
    assert (ended.status, ended.error.type) == (status, kind)
    assert await value_of(api, session_id, "kept") == 1


async def test_syntax_error_has_line_and_caret(api: Api, session_id: str) -> None:
    """The error names the line, and the traceback points at the place."""
    ended = await run_code(api, session_id, "a = 1\nb = = 2\n")
    assert ended.error.frames[-1].line == 2
    assert "^" in ended.error.traceback


# --- ends ---


async def test_timeout_interrupts_and_keeps_variables(api: Api, session_id: str) -> None:
    """A run that takes too long is interrupted; the answer says that its context lives on."""
    ended = await run_code(api, session_id, "x = 5\nwhile True: pass", seconds=0.5)
    assert ended.status == TIMED_OUT
    assert ended.context.state == pb.CONTEXT_STATE_IDLE
    assert "keeps its variables" in ended.exit.hint
    assert await value_of(api, session_id, "x") == 5


async def test_what_cannot_be_interrupted_is_killed_and_said(api: Api, session_id: str) -> None:
    """The answer says that the variables are lost, and the next run that it began without them."""
    ended = await run_code(api, session_id, f"x = 5\n{STUBBORN}", seconds=0.5)
    assert ended.status == TIMED_OUT
    assert ended.context.state == pb.CONTEXT_STATE_LOST
    assert "variables are lost" in ended.exit.hint
    following = await run_code(api, session_id, "'x' in globals()")
    assert (following.outcome, following.result.json) == (RECREATED, "false")
    assert following.context.lost.reason == exec_pb2.EXIT_REASON_TIMED_OUT


async def test_generation_refuses_a_silent_swap(api: Api, session_id: str) -> None:
    """A caller that counts on variables is told that they are gone."""
    await run_code(api, session_id, "x = 1", generation=1)
    assert (await run_code(api, session_id, "import os; os._exit(0)")).status == LOST
    with pytest.raises(grpc.RpcError) as refused:
        await run_code(api, session_id, "x", generation=1)
    assert reason(refused.value) == "CONTEXT_LOST"
    assert (await run_code(api, session_id, "1", generation=2)).status == OK


@pytest.mark.parametrize(
    ("code", "why", "code_or_signal"),
    [
        ("import os; os._exit(3)", "EXITED", 3),
        ("import os; os.kill(os.getpid(), 9)", "SIGNALLED", 9),
        ("import ctypes; ctypes.string_at(0)", "SIGNALLED", 11),
        ("x = bytearray(400 << 20)", "OUT_OF_MEMORY", 9),
    ],
)
async def test_lost_context_says_how(
    code: str, why: str, code_or_signal: int, api: Api, session_id: str
) -> None:
    """Exit, signal, segmentation fault and memory limit are each reported as what they were."""
    ended = await run_code(api, session_id, code)
    assert ended.status == LOST
    assert exec_pb2.ExitReason.Name(ended.exit.reason) == f"EXIT_REASON_{why}"
    assert code_or_signal in (ended.exit.code, ended.exit.signal)
    assert "variables are lost" in ended.exit.hint
    assert (await run_code(api, session_id, "1")).outcome == RECREATED


async def test_interrupt_of_an_idle_context_does_nothing(api: Api, session_id: str) -> None:
    """Neither the context nor the next run notices it."""
    await run_code(api, session_id, "x = 1")
    assert not await interrupt(api, session_id)
    assert await value_of(api, session_id, "x") == 1


async def test_interrupt_between_runs_hits_neither(api: Api, session_id: str) -> None:
    """However close to the end it comes, the next run is not the one that it ends."""
    for n in range(20):
        exec_id = await start_code(api, session_id, f"y = {n}")
        await interrupt(api, session_id)
        first = await ended_code(api, session_id, exec_id)
        assert first.status in (OK, INTERRUPTED)
        assert await value_of(api, session_id, f"{n} + 1") == n + 1


async def test_interrupt_keeps_variables(api: Api, session_id: str) -> None:
    """A run that is interrupted ends as that, and its context lives on."""
    exec_id = await start_code(api, session_id, "x = 3\nimport time\ntime.sleep(60)")

    async def is_sleeping() -> bool:
        return (await contexts_of(api, session_id))["main"].exec_id == exec_id

    await eventually(is_sleeping)
    await asyncio.sleep(0.2)  # more often than not it sleeps by then; either way it is interrupted
    assert await interrupt(api, session_id)
    assert (await ended_code(api, session_id, exec_id)).status in (INTERRUPTED, RAISED)
    assert await value_of(api, session_id, "'time' in globals() or 'x' in globals()")


@pytest.mark.calm  # it waits for processes that a busy machine does not get to in time
async def test_caller_that_goes_away_interrupts(api: Api, session_id: str) -> None:
    """The run of a cancelled call ends, and the variables are kept."""
    call = api.code.RunCode(code_request(session_id, "x = 1\nwhile True: pass", exec_id="left"))

    async def runs() -> bool:
        return "left" in await list_execs(api, session_id)

    await eventually(runs)
    call.cancel()
    ended = await ended_code(api, session_id, "left")
    assert ended.exit.reason == exec_pb2.EXIT_REASON_CANCELLED
    assert (await run_code(api, session_id, "1")).outcome in (KEPT, CREATED)


async def test_background_output_is_not_the_next_runs(api: Api, session_id: str) -> None:
    """What a thread prints between runs is shown with the context."""
    code = (
        "import threading, time\n"
        "def later():\n    time.sleep(0.3)\n    print('late')\n"
        "threading.Thread(target=later).start()"
    )
    await run_code(api, session_id, code)

    async def is_told() -> bool:
        return b"late" in (await contexts_of(api, session_id))["main"].background_output

    await eventually(is_told)
    assert (await run_code(api, session_id, "print('mine')")).stdout.data == b"mine\n"


# --- contexts ---


async def test_the_first_answer_has_the_version(api: Api, session_id: str) -> None:
    """The interpreter's version is known from the first run of a context on."""
    code = "import sys\n'{}.{}.{}'.format(*sys.version_info[:3])"
    first = await run_code(api, session_id, code)

    assert re.fullmatch(r"3\.\d+\.\d+", first.context.version)
    assert json.loads(first.result.json) == first.context.version


async def test_life_of_a_context(api: Api, session_id: str) -> None:
    """Created with settings, described, restarted, deleted."""
    request = pb.CreateContextRequest(
        session_id=session_id, name="work", cwd="sub", env={"GREETING": "hi"}
    )
    await run(api, session_id, "mkdir sub")
    created = await api.code.CreateContext(request)
    again = await api.code.CreateContext(request)
    assert (created.already_exists, again.already_exists) == (False, True)
    assert re.fullmatch(r"3\.\d+\.\d+", created.context.version)
    request.cwd = "elsewhere"
    with pytest.raises(grpc.RpcError) as refused:
        await api.code.CreateContext(request)
    assert reason(refused.value) == "CONTEXT_CONFLICT"

    code = "import os\nplace = [os.getcwd(), os.environ['GREETING']]\nplace"
    assert await value_of(api, session_id, code, context="work") == ["/workspace/sub", "hi"]
    named = {"session_id": session_id, "context": "work"}
    state = await api.code.GetContextState(pb.GetContextStateRequest(**named))
    assert {v.name: v.type for v in state.variables} == {"os": "module", "place": "list"}

    restarted = await api.code.RestartContext(pb.RestartContextRequest(**named))
    assert restarted.context.state == pb.CONTEXT_STATE_LOST
    fresh = await run_code(api, session_id, "'place' in globals()", context="work")
    assert (fresh.outcome, fresh.result.json, fresh.context.generation) == (RECREATED, "false", 2)

    await api.code.DeleteContext(pb.DeleteContextRequest(**named))
    assert "work" not in await contexts_of(api, session_id)
    with pytest.raises(grpc.RpcError) as refused:
        await api.code.GetContextState(pb.GetContextStateRequest(**named))
    assert reason(refused.value) == "CONTEXT_NOT_FOUND"


async def test_ninth_context_is_refused(api: Api, session_id: str) -> None:
    """A session has as many contexts as the daemon allows."""
    for n in range(8):
        assert (await run_code(api, session_id, "1", context=f"c{n}")).status == OK
    with pytest.raises(grpc.RpcError) as refused:
        await run_code(api, session_id, "1", context="c8")
    assert reason(refused.value) == "CONTEXT_LIMIT_REACHED"
    await api.code.DeleteContext(pb.DeleteContextRequest(session_id=session_id, context="c0"))
    assert (await run_code(api, session_id, "1", context="c8")).status == OK


async def test_language_that_the_image_lacks(api: Api, session_id: str) -> None:
    """It is refused with what is missing, and other contexts are not affected."""
    with pytest.raises(grpc.RpcError) as refused:
        await run_code(api, session_id, "1 + 1", context="js", language="javascript")
    assert reason(refused.value) == "CODE_UNAVAILABLE"
    assert (await run_code(api, session_id, "1")).status == OK


async def test_state_of_a_busy_context(api: Api, session_id: str) -> None:
    """It is waited for as long as was asked, and not at all otherwise."""
    exec_id = await start_code(api, session_id, "import time\ntime.sleep(1.5)\nx = 1")
    request = pb.GetContextStateRequest(session_id=session_id)
    with pytest.raises(grpc.RpcError) as refused:
        await api.code.GetContextState(request)
    assert reason(refused.value) == "CONTEXT_BUSY"
    request.timeout.seconds = 60
    state = await api.code.GetContextState(request)
    assert {"x", "time"} <= {variable.name for variable in state.variables}
    assert (await ended_code(api, session_id, exec_id)).status == OK


async def test_quick_execute_leaves_nothing(api: Api) -> None:
    """One call opens a session, runs, and closes it."""
    answer = await api.code.QuickExecute(
        pb.QuickExecuteRequest(user_id="quick", code="print('hi')\n6 * 7"), timeout=120
    )
    assert (answer.run.result.json, answer.run.stdout.data) == ("42", b"hi\n")

    async def is_closed() -> bool:
        request = session_service_pb2.ListSessionsRequest(user_id="quick")
        listed = await api.sessions.ListSessions(request)
        states = {session.state for session in listed.sessions}
        return states == {session_pb2.SESSION_STATE_CLOSED}

    await eventually(is_closed)


async def test_policy_refuses_before_anything_runs(api: Api, session_id: str) -> None:
    """A refusal names line and rule; CheckCode says the same without a run."""
    await api.code.CreateContext(
        pb.CreateContextRequest(session_id=session_id, name="strict", policy="strict")
    )
    code = "ran = True\nimport subprocess\n"
    with pytest.raises(grpc.RpcError) as refused:
        await run_code(api, session_id, code, context="strict")
    assert reason(refused.value) == "CODE_NOT_ALLOWED"
    named = {"session_id": session_id, "context": "strict"}
    checked = await api.code.CheckCode(pb.CheckCodeRequest(**named, code=code))
    assert not checked.allowed
    assert (checked.violations[0].line, checked.violations[0].name) == (2, "subprocess")
    assert (await run_code(api, session_id, "ran", context="strict")).error.type == "NameError"
    functions = await api.code.ListFunctions(pb.ListFunctionsRequest(**named))
    assert "math" in functions.allowed_modules
    assert "subprocess" not in functions.allowed_modules
    assert {"debug", "inspect_var", "display"} <= {one.name for one in functions.functions}


# --- limits ---


async def test_limits_of_threads_files_and_processor(api: Api, session_id: str) -> None:
    """The eleventh thread and the hundred and first file fail; CPU is half of a processor."""
    threads = (
        "import threading, time\nstarted = 0\nstop = threading.Event()\n"
        "try:\n"
        "    for _ in range(30):\n"
        "        threading.Thread(target=stop.wait, daemon=True).start()\n        started += 1\n"
        "except RuntimeError as error:\n    print(error)\n"
        "stop.set()\nstarted"
    )
    # One more while no context is forked ahead; fewer while a process of before is ending.
    counts = [await value_of(api, session_id, threads)]
    while counts[-1] < 10 and len(counts) < 50:
        counts.append(await value_of(api, session_id, threads))
    assert counts[-1] in (10, 11), counts
    files = (
        "opened = []\n"
        "try:\n"
        "    for _ in range(200):\n        opened.append(open('/dev/null'))\n"
        "except OSError as error:\n    pass\n"
        "count = len(opened)\nopened.clear()\ncount"
    )
    assert 90 <= await value_of(api, session_id, files) <= 100
    busy = (
        "import time\nbegun = time.monotonic(), time.process_time()\n"
        "while time.monotonic() < begun[0] + 2: pass\n"
        "(time.process_time() - begun[1]) / (time.monotonic() - begun[0])"
    )
    assert await value_of(api, session_id, busy) <= 0.65
