"""The calls of ProjectService."""

from __future__ import annotations

from sandboxd_client.methods.method import Method
from sandboxd_proto.v1 import project_service_pb2 as pb

SERVICE = "ProjectService"

CREATE_PROJECT = Method(
    SERVICE, "CreateProject", pb.CreateProjectRequest, pb.CreateProjectResponse, True
)
GET_PROJECT = Method(SERVICE, "GetProject", pb.GetProjectRequest, pb.GetProjectResponse, True)
LIST_PROJECTS = Method(
    SERVICE, "ListProjects", pb.ListProjectsRequest, pb.ListProjectsResponse, True
)
DELETE_PROJECT = Method(SERVICE, "DeleteProject", pb.DeleteProjectRequest, pb.DeleteProjectResponse)
UPLOAD_PROJECT_FILE = Method(
    SERVICE,
    "UploadProjectFile",
    pb.UploadProjectFileRequest,
    pb.UploadProjectFileResponse,
)
LIST_PROJECT_FILES = Method(
    SERVICE,
    "ListProjectFiles",
    pb.ListProjectFilesRequest,
    pb.ListProjectFilesResponse,
    True,
)
DOWNLOAD_PROJECT_FILE = Method(
    SERVICE,
    "DownloadProjectFile",
    pb.DownloadProjectFileRequest,
    pb.DownloadProjectFileResponse,
)
DELETE_PROJECT_FILE = Method(
    SERVICE,
    "DeleteProjectFile",
    pb.DeleteProjectFileRequest,
    pb.DeleteProjectFileResponse,
)
