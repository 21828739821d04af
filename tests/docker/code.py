"""Runs of code over the API, for tests."""

from __future__ import annotations

import json
from typing import Any

from google.protobuf.duration_pb2 import Duration

from sandboxd_proto.v1 import code_service_pb2 as pb
from sandboxd_proto.v1 import exec_service_pb2
from tests.docker.daemon_process import Api

OK, RAISED = pb.CODE_STATUS_OK, pb.CODE_STATUS_RAISED
INTERRUPTED, TIMED_OUT = pb.CODE_STATUS_INTERRUPTED, pb.CODE_STATUS_TIMED_OUT
LOST, REFUSED = pb.CODE_STATUS_CONTEXT_LOST, pb.CODE_STATUS_REFUSED
CREATED, KEPT = pb.CONTEXT_OUTCOME_CREATED, pb.CONTEXT_OUTCOME_KEPT
RECREATED = pb.CONTEXT_OUTCOME_RECREATED


def code_request(
    session_id: str, code: str, *, seconds: float = 60.0, **more: Any
) -> pb.RunCodeRequest:
    timeout = Duration(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))
    return pb.RunCodeRequest(session_id=session_id, code=code, timeout=timeout, **more)


async def run_code(api: Api, session_id: str, code: str, **more: Any) -> pb.RunCodeResponse:
    return await api.code.RunCode(code_request(session_id, code, **more), timeout=120)


async def value_of(api: Api, session_id: str, code: str, **more: Any) -> Any:
    """The result of code that has to run to its end."""
    run = await run_code(api, session_id, code, **more)
    assert run.status == OK, run
    return json.loads(run.result.json)


async def start_code(api: Api, session_id: str, code: str, **more: Any) -> str:
    started = await api.code.StartCode(code_request(session_id, code, **more), timeout=60)
    return started.exec.exec_id


async def ended_code(api: Api, session_id: str, exec_id: str) -> pb.RunCodeResponse:
    """How a run ended that was started; waits for it."""
    wait = exec_service_pb2.WaitExecRequest(session_id=session_id, exec_id=exec_id)
    await api.execs.WaitExec(wait, timeout=120)
    asked = pb.GetCodeRunRequest(session_id=session_id, exec_id=exec_id)
    return await api.code.GetCodeRun(asked, timeout=60)


async def contexts_of(api: Api, session_id: str) -> dict[str, pb.Context]:
    listed = await api.code.ListContexts(pb.ListContextsRequest(session_id=session_id), timeout=60)
    return {context.name: context for context in listed.contexts}


async def interrupt(api: Api, session_id: str, context: str = "") -> bool:
    request = pb.InterruptContextRequest(session_id=session_id, context=context)
    return (await api.code.InterruptContext(request, timeout=60)).interrupted
