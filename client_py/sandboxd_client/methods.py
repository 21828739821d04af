"""The calls of the API, and whether each may be repeated when its answer is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from sandboxd_proto.v1 import admin_service_pb2 as admin
from sandboxd_proto.v1 import cluster_service_pb2 as cluster
from sandboxd_proto.v1 import code_service_pb2 as code
from sandboxd_proto.v1 import data_service_pb2 as data
from sandboxd_proto.v1 import door_service_pb2 as doors
from sandboxd_proto.v1 import environment_service_pb2 as environments
from sandboxd_proto.v1 import exec_service_pb2 as execs
from sandboxd_proto.v1 import file_service_pb2 as files
from sandboxd_proto.v1 import port_service_pb2 as ports
from sandboxd_proto.v1 import project_service_pb2 as projects
from sandboxd_proto.v1 import session_service_pb2 as sessions
from sandboxd_proto.v1 import snapshot_service_pb2 as snapshots

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True)
class Method(Generic[Request, Response]):
    """One call."""

    service: str
    name: str
    request: type[Request]
    response: type[Response]
    is_repeatable: bool = False
    """Whether calling it twice has the same effect and answer as calling it once."""

    @property
    def path(self) -> str:
        return f"/sandboxd.v1.{self.service}/{self.name}"


_SESSION, _EXEC, _FILE, _ADMIN = "SessionService", "ExecService", "FileService", "AdminService"
_PROJECT, _ENVIRONMENT = "ProjectService", "EnvironmentService"
_SNAPSHOT = "SnapshotService"
_DOOR, _PORT = "DoorService", "PortService"
_CODE = "CodeService"

OPEN_SESSION = Method(
    _SESSION, "OpenSession", sessions.OpenSessionRequest, sessions.OpenSessionResponse, True
)
CREATE_CONSOLE_LINK = Method(
    _SESSION,
    "CreateConsoleLink",
    sessions.CreateConsoleLinkRequest,
    sessions.CreateConsoleLinkResponse,
    True,
)
GET_SESSION = Method(
    _SESSION, "GetSession", sessions.GetSessionRequest, sessions.GetSessionResponse, True
)
LIST_SESSIONS = Method(
    _SESSION, "ListSessions", sessions.ListSessionsRequest, sessions.ListSessionsResponse, True
)
TOUCH_SESSION = Method(
    _SESSION, "TouchSession", sessions.TouchSessionRequest, sessions.TouchSessionResponse, True
)
UPDATE_SESSION = Method(
    _SESSION, "UpdateSession", sessions.UpdateSessionRequest, sessions.UpdateSessionResponse, True
)
CLOSE_SESSION = Method(
    _SESSION, "CloseSession", sessions.CloseSessionRequest, sessions.CloseSessionResponse, True
)
RESET_SESSION = Method(
    _SESSION, "ResetSession", sessions.ResetSessionRequest, sessions.ResetSessionResponse
)
WHO_AM_I = Method(_SESSION, "WhoAmI", sessions.WhoAmIRequest, sessions.WhoAmIResponse, True)

# These two only with an exec id, which this package always sets.
RUN = Method(_EXEC, "Run", execs.ExecRequest, execs.RunResponse, True)
START_EXEC = Method(_EXEC, "StartExec", execs.ExecRequest, execs.StartExecResponse, True)
ATTACH_EXEC = Method(_EXEC, "AttachExec", execs.AttachExecRequest, execs.ExecResponse)
WAIT_EXEC = Method(_EXEC, "WaitExec", execs.WaitExecRequest, execs.WaitExecResponse, True)
LIST_EXECS = Method(_EXEC, "ListExecs", execs.ListExecsRequest, execs.ListExecsResponse, True)
LIST_EXECUTIONS = Method(
    _EXEC, "ListExecutions", execs.ListExecutionsRequest, execs.ListExecutionsResponse, True
)
SIGNAL_EXEC = Method(_EXEC, "SignalExec", execs.SignalExecRequest, execs.SignalExecResponse)
WRITE_STDIN = Method(_EXEC, "WriteStdin", execs.WriteStdinRequest, execs.WriteStdinResponse, True)
RESIZE_EXEC = Method(_EXEC, "ResizeExec", execs.ResizeExecRequest, execs.ResizeExecResponse, True)
READ_OUTPUT = Method(_EXEC, "ReadOutput", execs.ReadOutputRequest, execs.ReadOutputResponse, True)
SEARCH_OUTPUT = Method(
    _EXEC, "SearchOutput", execs.SearchOutputRequest, execs.SearchOutputResponse, True
)
PREVIEW_OUTPUT = Method(
    _EXEC, "PreviewOutput", execs.PreviewOutputRequest, execs.PreviewOutputResponse, True
)

# Runs only with an exec id, as commands.
RUN_CODE = Method(_CODE, "RunCode", code.RunCodeRequest, code.RunCodeResponse, True)
START_CODE = Method(_CODE, "StartCode", code.RunCodeRequest, execs.StartExecResponse, True)
GET_CODE_RUN = Method(_CODE, "GetCodeRun", code.GetCodeRunRequest, code.RunCodeResponse, True)
STEP_THROUGH = Method(_CODE, "StepThrough", code.StepThroughRequest, execs.ExecResponse)
DEBUG_CODE = Method(_CODE, "DebugCode", code.DebugCodeRequest, execs.ExecResponse)
CREATE_CONTEXT = Method(
    _CODE, "CreateContext", code.CreateContextRequest, code.CreateContextResponse, True
)
LIST_CONTEXTS = Method(
    _CODE, "ListContexts", code.ListContextsRequest, code.ListContextsResponse, True
)
GET_CONTEXT_STATE = Method(
    _CODE, "GetContextState", code.GetContextStateRequest, code.GetContextStateResponse, True
)
INTERRUPT_CONTEXT = Method(
    _CODE, "InterruptContext", code.InterruptContextRequest, code.InterruptContextResponse
)
RESTART_CONTEXT = Method(
    _CODE, "RestartContext", code.RestartContextRequest, code.RestartContextResponse
)
DELETE_CONTEXT = Method(
    _CODE, "DeleteContext", code.DeleteContextRequest, code.DeleteContextResponse
)
QUICK_EXECUTE = Method(_CODE, "QuickExecute", code.QuickExecuteRequest, code.QuickExecuteResponse)
CHECK_CODE = Method(_CODE, "CheckCode", code.CheckCodeRequest, code.CheckCodeResponse, True)
LIST_FUNCTIONS = Method(
    _CODE, "ListFunctions", code.ListFunctionsRequest, code.ListFunctionsResponse, True
)

UPLOAD_FILE = Method(_FILE, "UploadFile", files.UploadFileRequest, files.UploadFileResponse)
DOWNLOAD_FILE = Method(_FILE, "DownloadFile", files.DownloadFileRequest, files.DownloadFileResponse)
LIST_FILES = Method(_FILE, "ListFiles", files.ListFilesRequest, files.ListFilesResponse, True)
STAT_FILE = Method(_FILE, "StatFile", files.StatFileRequest, files.StatFileResponse, True)
MAKE_DIRECTORY = Method(
    _FILE, "MakeDirectory", files.MakeDirectoryRequest, files.MakeDirectoryResponse, True
)
MOVE_FILE = Method(_FILE, "MoveFile", files.MoveFileRequest, files.MoveFileResponse)
REMOVE_FILE = Method(_FILE, "RemoveFile", files.RemoveFileRequest, files.RemoveFileResponse)
READ_TEXT = Method(_FILE, "ReadText", files.ReadTextRequest, files.ReadTextResponse, True)
EDIT_TEXT = Method(_FILE, "EditText", files.EditTextRequest, files.EditTextResponse)
GREP_FILES = Method(_FILE, "GrepFiles", files.GrepFilesRequest, files.GrepFilesResponse, True)
GLOB_FILES = Method(_FILE, "GlobFiles", files.GlobFilesRequest, files.GlobFilesResponse, True)
WATCH_FILES = Method(_FILE, "WatchFiles", files.WatchFilesRequest, files.WatchFilesResponse)
UPLOAD_TAR = Method(_FILE, "UploadTar", files.UploadTarRequest, files.UploadTarResponse)
DOWNLOAD_TAR = Method(_FILE, "DownloadTar", files.DownloadTarRequest, files.DownloadTarResponse)

CREATE_PROJECT = Method(
    _PROJECT, "CreateProject", projects.CreateProjectRequest, projects.CreateProjectResponse, True
)
GET_PROJECT = Method(
    _PROJECT, "GetProject", projects.GetProjectRequest, projects.GetProjectResponse, True
)
LIST_PROJECTS = Method(
    _PROJECT, "ListProjects", projects.ListProjectsRequest, projects.ListProjectsResponse, True
)
DELETE_PROJECT = Method(
    _PROJECT, "DeleteProject", projects.DeleteProjectRequest, projects.DeleteProjectResponse
)
UPLOAD_PROJECT_FILE = Method(
    _PROJECT,
    "UploadProjectFile",
    projects.UploadProjectFileRequest,
    projects.UploadProjectFileResponse,
)
LIST_PROJECT_FILES = Method(
    _PROJECT,
    "ListProjectFiles",
    projects.ListProjectFilesRequest,
    projects.ListProjectFilesResponse,
    True,
)
DOWNLOAD_PROJECT_FILE = Method(
    _PROJECT,
    "DownloadProjectFile",
    projects.DownloadProjectFileRequest,
    projects.DownloadProjectFileResponse,
)
DELETE_PROJECT_FILE = Method(
    _PROJECT,
    "DeleteProjectFile",
    projects.DeleteProjectFileRequest,
    projects.DeleteProjectFileResponse,
)

LIST_ENVIRONMENTS = Method(
    _ENVIRONMENT,
    "ListEnvironments",
    environments.ListEnvironmentsRequest,
    environments.ListEnvironmentsResponse,
    True,
)
GET_ENVIRONMENT = Method(
    _ENVIRONMENT,
    "GetEnvironment",
    environments.GetEnvironmentRequest,
    environments.GetEnvironmentResponse,
    True,
)
BUILD_ENVIRONMENT = Method(
    _ENVIRONMENT,
    "BuildEnvironment",
    environments.BuildEnvironmentRequest,
    environments.BuildEnvironmentResponse,
)
DELETE_ENVIRONMENT = Method(
    _ENVIRONMENT,
    "DeleteEnvironment",
    environments.DeleteEnvironmentRequest,
    environments.DeleteEnvironmentResponse,
)

ENSURE_PACKAGES = Method(
    _ENVIRONMENT,
    "EnsurePackages",
    environments.EnsurePackagesRequest,
    environments.EnsurePackagesResponse,
)

# Those that change something only with a request id, which this package always sets.
CREATE_SNAPSHOT = Method(
    _SNAPSHOT,
    "CreateSnapshot",
    snapshots.CreateSnapshotRequest,
    snapshots.CreateSnapshotResponse,
    True,
)
LIST_SNAPSHOTS = Method(
    _SNAPSHOT,
    "ListSnapshots",
    snapshots.ListSnapshotsRequest,
    snapshots.ListSnapshotsResponse,
    True,
)
GET_SNAPSHOT = Method(
    _SNAPSHOT,
    "GetSnapshot",
    snapshots.GetSnapshotRequest,
    snapshots.GetSnapshotResponse,
    True,
)
DIFF_SNAPSHOTS = Method(
    _SNAPSHOT,
    "DiffSnapshots",
    snapshots.DiffSnapshotsRequest,
    snapshots.DiffSnapshotsResponse,
)
READ_SNAPSHOT_FILE = Method(
    _SNAPSHOT,
    "ReadSnapshotFile",
    snapshots.ReadSnapshotFileRequest,
    snapshots.ReadSnapshotFileResponse,
)
RESTORE_SESSION = Method(
    _SNAPSHOT,
    "RestoreSession",
    snapshots.RestoreSessionRequest,
    snapshots.RestoreSessionResponse,
    True,
)
FORK_SESSION = Method(
    _SNAPSHOT,
    "ForkSession",
    snapshots.ForkSessionRequest,
    snapshots.ForkSessionResponse,
    True,
)
PARK_SESSION = Method(
    _SNAPSHOT,
    "ParkSession",
    snapshots.ParkSessionRequest,
    snapshots.ParkSessionResponse,
    True,
)
DELETE_SNAPSHOT = Method(
    _SNAPSHOT,
    "DeleteSnapshot",
    snapshots.DeleteSnapshotRequest,
    snapshots.DeleteSnapshotResponse,
    True,
)
EXPORT_SNAPSHOT = Method(
    _SNAPSHOT,
    "ExportSnapshot",
    snapshots.ExportSnapshotRequest,
    snapshots.ExportSnapshotResponse,
)
IMPORT_SNAPSHOT = Method(
    _SNAPSHOT,
    "ImportSnapshot",
    snapshots.ImportSnapshotRequest,
    snapshots.ImportSnapshotResponse,
)
VERIFY_SNAPSHOTS = Method(
    _SNAPSHOT,
    "VerifySnapshots",
    snapshots.VerifySnapshotsRequest,
    snapshots.VerifySnapshotsResponse,
    True,
)

GET_EGRESS = Method(_DOOR, "GetEgress", doors.GetEgressRequest, doors.GetEgressResponse, True)
SET_EGRESS = Method(_DOOR, "SetEgress", doors.SetEgressRequest, doors.SetEgressResponse, True)
LIST_DOORS = Method(_DOOR, "ListDoors", doors.ListDoorsRequest, doors.ListDoorsResponse, True)
LIST_PORTS = Method(_PORT, "ListPorts", ports.ListPortsRequest, ports.ListPortsResponse, True)
FORWARD_PORT = Method(_PORT, "ForwardPort", ports.ForwardPortRequest, ports.ForwardPortResponse)
CREATE_PREVIEW = Method(
    _PORT, "CreatePreview", ports.CreatePreviewRequest, ports.CreatePreviewResponse
)
DELETE_PREVIEWS = Method(
    _PORT, "DeletePreviews", ports.DeletePreviewsRequest, ports.DeletePreviewsResponse, True
)

_CLUSTER = "ClusterService"
LIST_WORKERS = Method(
    _CLUSTER, "ListWorkers", cluster.ListWorkersRequest, cluster.ListWorkersResponse, True
)
FIND_SESSION = Method(
    _CLUSTER, "FindSession", cluster.FindSessionRequest, cluster.FindSessionResponse, True
)
DRAIN_WORKER = Method(
    _CLUSTER, "DrainWorker", cluster.DrainWorkerRequest, cluster.DrainWorkerResponse
)

GET_STATUS = Method(_ADMIN, "GetStatus", admin.GetStatusRequest, admin.GetStatusResponse, True)

_DATA = "DataService"
LIST_DATA_SOURCES = Method(
    _DATA, "ListDataSources", data.ListDataSourcesRequest, data.ListDataSourcesResponse, True
)
QUERY = Method(_DATA, "Query", data.QueryRequest, data.QueryResponse)
GET_SCHEMA = Method(_DATA, "GetSchema", data.GetSchemaRequest, data.GetSchemaResponse, True)
LIST_QUERIES = Method(_DATA, "ListQueries", data.ListQueriesRequest, data.ListQueriesResponse, True)
GET_STATISTICS = Method(
    _ADMIN, "GetStatistics", admin.GetStatisticsRequest, admin.GetStatisticsResponse, True
)
