"""The calls of CodeService."""

from __future__ import annotations

from sandboxd_client.methods.method import Method
from sandboxd_proto.v1 import code_service_pb2 as pb
from sandboxd_proto.v1 import exec_service_pb2 as execs

SERVICE = "CodeService"

# Runs only with an exec id, as commands.
RUN_CODE = Method(SERVICE, "RunCode", pb.RunCodeRequest, pb.RunCodeResponse, True)
START_CODE = Method(SERVICE, "StartCode", pb.RunCodeRequest, execs.StartExecResponse, True)
GET_CODE_RUN = Method(SERVICE, "GetCodeRun", pb.GetCodeRunRequest, pb.RunCodeResponse, True)
STEP_THROUGH = Method(SERVICE, "StepThrough", pb.StepThroughRequest, execs.ExecResponse)
DEBUG_CODE = Method(SERVICE, "DebugCode", pb.DebugCodeRequest, execs.ExecResponse)
CREATE_CONTEXT = Method(
    SERVICE, "CreateContext", pb.CreateContextRequest, pb.CreateContextResponse, True
)
LIST_CONTEXTS = Method(
    SERVICE, "ListContexts", pb.ListContextsRequest, pb.ListContextsResponse, True
)
GET_CONTEXT_STATE = Method(
    SERVICE, "GetContextState", pb.GetContextStateRequest, pb.GetContextStateResponse, True
)
INTERRUPT_CONTEXT = Method(
    SERVICE, "InterruptContext", pb.InterruptContextRequest, pb.InterruptContextResponse
)
RESTART_CONTEXT = Method(
    SERVICE, "RestartContext", pb.RestartContextRequest, pb.RestartContextResponse
)
DELETE_CONTEXT = Method(SERVICE, "DeleteContext", pb.DeleteContextRequest, pb.DeleteContextResponse)
QUICK_EXECUTE = Method(SERVICE, "QuickExecute", pb.QuickExecuteRequest, pb.QuickExecuteResponse)
CHECK_CODE = Method(SERVICE, "CheckCode", pb.CheckCodeRequest, pb.CheckCodeResponse, True)
LIST_FUNCTIONS = Method(
    SERVICE, "ListFunctions", pb.ListFunctionsRequest, pb.ListFunctionsResponse, True
)
