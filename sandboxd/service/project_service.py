"""ProjectService."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandboxd.projects.projects import Projects
from sandboxd.projects.records import ProjectKey
from sandboxd.service import file_wire, page_tokens, project_wire, wire
from sandboxd.service.session_wire import name
from sandboxd.service.wire import Context
from sandboxd.sessions.journal import Journal
from sandboxd_proto.v1 import project_service_pb2 as pb
from sandboxd_proto.v1 import project_service_pb2_grpc as pb_grpc


class ProjectServicer(pb_grpc.ProjectServiceServicer):
    def __init__(self, projects: Projects, journal: Journal) -> None:
        self._projects = projects
        self._journal = journal

    async def CreateProject(
        self, request: pb.CreateProjectRequest, context: Context
    ) -> pb.CreateProjectResponse:
        project, is_new = await self._projects.create(project_wire.key(request))
        if is_new:
            self._journal.on_project("project.created", project.key)
        return pb.CreateProjectResponse(project=project_wire.project(project), created=is_new)

    async def GetProject(
        self, request: pb.GetProjectRequest, context: Context
    ) -> pb.GetProjectResponse:
        project = await self._projects.get(project_wire.key(request))
        return pb.GetProjectResponse(project=project_wire.project(project))

    async def ListProjects(
        self, request: pb.ListProjectsRequest, context: Context
    ) -> pb.ListProjectsResponse:
        user_id = name("user_id", request.user_id)
        page, following = await self._projects.list(
            user_id,
            page_size=wire.page_size(request.page_size),
            after=page_tokens.PROJECTS.decode(request.page_token) or "",
        )
        usage = await self._projects.usage(user_id)
        return pb.ListProjectsResponse(
            projects=[project_wire.project(project) for project in page],
            next_page_token=page_tokens.PROJECTS.encode(following),
            usage=project_wire.usage(usage, self._projects.limits),
        )

    async def DeleteProject(
        self, request: pb.DeleteProjectRequest, context: Context
    ) -> pb.DeleteProjectResponse:
        project = await self._projects.delete(project_wire.key(request))
        self._journal.on_project("project.deleted", project.key)
        return pb.DeleteProjectResponse(project=project_wire.project(project))

    async def UploadProjectFile(
        self, requests: AsyncIterator[pb.UploadProjectFileRequest | memoryview], context: Context
    ) -> pb.UploadProjectFileResponse:
        wanted = project_wire.new_file((await file_wire.first_of(requests)).header)
        chunks = file_wire.chunks(requests)
        if wanted.size is None and wanted.sha256 is None:
            chunks = file_wire.unless_cancelled(chunks, context)
        file, outcome = await self._projects.upload(wanted, chunks)
        self._record("project.file_uploaded", wanted.key, file.name, bytes_in=file.size)
        return pb.UploadProjectFileResponse(
            file=project_wire.file(file), outcome=project_wire.OUTCOMES[outcome]
        )

    async def ListProjectFiles(
        self, request: pb.ListProjectFilesRequest, context: Context
    ) -> pb.ListProjectFilesResponse:
        page, following = await self._projects.list_files(
            project_wire.key(request),
            page_size=wire.page_size(request.page_size),
            after=page_tokens.PROJECT_FILES.decode(request.page_token) or "",
        )
        return pb.ListProjectFilesResponse(
            files=[project_wire.file(file) for file in page],
            next_page_token=page_tokens.PROJECT_FILES.encode(following),
        )

    async def DownloadProjectFile(
        self, request: pb.DownloadProjectFileRequest, context: Context
    ) -> AsyncIterator[pb.DownloadProjectFileResponse]:
        key, wanted = project_wire.key(request), project_wire.file_name(request.name)
        async with self._projects.download(key, wanted) as (file, chunks):
            sent = 0
            try:
                yield pb.DownloadProjectFileResponse(file=project_wire.file(file))
                async for chunk in chunks:
                    sent += len(chunk)
                    yield project_wire.download_chunk(chunk)
            finally:
                self._record("project.file_downloaded", key, file.name, bytes_out=sent)

    async def DeleteProjectFile(
        self, request: pb.DeleteProjectFileRequest, context: Context
    ) -> pb.DeleteProjectFileResponse:
        key = project_wire.key(request)
        file = await self._projects.delete_file(key, project_wire.file_name(request.name))
        self._record("project.file_deleted", key, file.name)
        return pb.DeleteProjectFileResponse(file=project_wire.file(file))

    def _record(
        self, action: str, key: ProjectKey, file: str, *, bytes_in: int = 0, bytes_out: int = 0
    ) -> None:
        """Record in the audit log that a file was stored, read or deleted."""
        self._journal.on_project(action, key, file, bytes_in=bytes_in, bytes_out=bytes_out)
