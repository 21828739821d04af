"""The calls of the API, and whether each may be repeated when its answer is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from google.protobuf.message import Message

from sandboxd_proto.v1 import admin_service_pb2 as admin
from sandboxd_proto.v1 import exec_service_pb2 as execs
from sandboxd_proto.v1 import file_service_pb2 as files
from sandboxd_proto.v1 import project_service_pb2 as projects
from sandboxd_proto.v1 import session_service_pb2 as sessions

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
_PROJECT = "ProjectService"

OPEN_SESSION = Method(
    _SESSION, "OpenSession", sessions.OpenSessionRequest, sessions.OpenSessionResponse, True
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

# These two only with an exec id, which this package always sets.
RUN = Method(_EXEC, "Run", execs.ExecRequest, execs.RunResponse, True)
START_EXEC = Method(_EXEC, "StartExec", execs.ExecRequest, execs.StartExecResponse, True)
ATTACH_EXEC = Method(_EXEC, "AttachExec", execs.AttachExecRequest, execs.ExecResponse)
WAIT_EXEC = Method(_EXEC, "WaitExec", execs.WaitExecRequest, execs.WaitExecResponse, True)
LIST_EXECS = Method(_EXEC, "ListExecs", execs.ListExecsRequest, execs.ListExecsResponse, True)
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

GET_STATUS = Method(_ADMIN, "GetStatus", admin.GetStatusRequest, admin.GetStatusResponse, True)
