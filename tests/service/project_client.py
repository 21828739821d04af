"""What a client does with one project, with the generated stub and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

from sandboxd_proto.v1 import project_pb2
from sandboxd_proto.v1 import project_service_pb2 as pb
from sandboxd_proto.v1.project_service_pb2_grpc import ProjectServiceStub
from tests.service.file_client import CALL_SECONDS, pieces


class ProjectClient:
    """One project of one user."""

    def __init__(
        self, stub: ProjectServiceStub, *, user_id: str = "ada", project_id: str = "book"
    ) -> None:
        self.stub = stub
        self._names = {"user_id": user_id, "project_id": project_id}

    async def create(self) -> bool:
        """Whether it is new."""
        request = pb.CreateProjectRequest(**self._names)
        return (await self.stub.CreateProject(request, timeout=CALL_SECONDS)).created

    async def get(self) -> project_pb2.Project:
        request = pb.GetProjectRequest(**self._names)
        return (await self.stub.GetProject(request, timeout=CALL_SECONDS)).project

    async def delete(self) -> project_pb2.Project:
        request = pb.DeleteProjectRequest(**self._names)
        return (await self.stub.DeleteProject(request, timeout=CALL_SECONDS)).project

    async def all_of_user(self, **fields: Any) -> pb.ListProjectsResponse:
        request = pb.ListProjectsRequest(user_id=self._names["user_id"], **fields)
        return await self.stub.ListProjects(request, timeout=CALL_SECONDS)

    def header(self, name: str, **fields: Any) -> pb.UploadProjectFileRequest:
        header = pb.ProjectFileHeader(**self._names, name=name, **fields)
        return pb.UploadProjectFileRequest(header=header)

    async def upload(self, name: str, data: bytes, **fields: Any) -> pb.UploadProjectFileResponse:
        fields = {"size_bytes": len(data), **fields}
        return await self.stub.UploadProjectFile(
            self._parts(name, data, fields), timeout=CALL_SECONDS
        )

    async def _parts(
        self, name: str, data: bytes, fields: dict[str, Any]
    ) -> AsyncIterator[pb.UploadProjectFileRequest]:
        yield self.header(
            name, **{key: value for key, value in fields.items() if value is not None}
        )
        for chunk in pieces(data):
            yield pb.UploadProjectFileRequest(chunk=chunk)

    async def files(self, page_size: int = 0) -> list[project_pb2.ProjectFile]:
        """Page by page."""
        found, token = [], ""
        while True:
            request = pb.ListProjectFilesRequest(
                **self._names, page_size=page_size, page_token=token
            )
            page = await self.stub.ListProjectFiles(request, timeout=CALL_SECONDS)
            found += page.files
            token = page.next_page_token
            if not token:
                return found

    async def names(self) -> list[str]:
        return [file.name for file in await self.files()]

    async def download(self, name: str) -> bytes:
        """The bytes, which are those that the description promises."""
        request = pb.DownloadProjectFileRequest(**self._names, name=name)
        parts = [part async for part in self.stub.DownloadProjectFile(request, timeout=60)]
        file, data = parts[0].file, b"".join(part.chunk for part in parts[1:])
        assert (file.size_bytes, file.sha256) == (len(data), hashlib.sha256(data).digest())
        return data

    async def delete_file(self, name: str) -> project_pb2.ProjectFile:
        request = pb.DeleteProjectFileRequest(**self._names, name=name)
        return (await self.stub.DeleteProjectFile(request, timeout=CALL_SECONDS)).file
