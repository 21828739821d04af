"""The calls of ExecService."""

from __future__ import annotations

from sandboxd_client.methods.method import Method
from sandboxd_proto.v1 import exec_service_pb2 as pb

SERVICE = "ExecService"

# These two only with an exec id, which this package always sets.
RUN = Method(SERVICE, "Run", pb.ExecRequest, pb.RunResponse, True)
START_EXEC = Method(SERVICE, "StartExec", pb.ExecRequest, pb.StartExecResponse, True)
ATTACH_EXEC = Method(SERVICE, "AttachExec", pb.AttachExecRequest, pb.ExecResponse)
WAIT_EXEC = Method(SERVICE, "WaitExec", pb.WaitExecRequest, pb.WaitExecResponse, True)
LIST_EXECS = Method(SERVICE, "ListExecs", pb.ListExecsRequest, pb.ListExecsResponse, True)
LIST_EXECUTIONS = Method(
    SERVICE, "ListExecutions", pb.ListExecutionsRequest, pb.ListExecutionsResponse, True
)
SIGNAL_EXEC = Method(SERVICE, "SignalExec", pb.SignalExecRequest, pb.SignalExecResponse)
WRITE_STDIN = Method(SERVICE, "WriteStdin", pb.WriteStdinRequest, pb.WriteStdinResponse, True)
RESIZE_EXEC = Method(SERVICE, "ResizeExec", pb.ResizeExecRequest, pb.ResizeExecResponse, True)
READ_OUTPUT = Method(SERVICE, "ReadOutput", pb.ReadOutputRequest, pb.ReadOutputResponse, True)
SEARCH_OUTPUT = Method(
    SERVICE, "SearchOutput", pb.SearchOutputRequest, pb.SearchOutputResponse, True
)
PREVIEW_OUTPUT = Method(
    SERVICE, "PreviewOutput", pb.PreviewOutputRequest, pb.PreviewOutputResponse, True
)
