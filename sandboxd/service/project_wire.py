"""Messages of ProjectService to domain objects and back."""

from __future__ import annotations

from typing import Protocol, cast

from sandboxd.errors import InvalidRequest
from sandboxd.projects.projects import NewFile
from sandboxd.projects.records import (
    OnConflict,
    Outcome,
    Project,
    ProjectFile,
    ProjectKey,
    ProjectLimits,
    Usage,
)
from sandboxd.service import wire
from sandboxd.service.file_wire import SHA256_BYTES
from sandboxd.service.session_wire import name
from sandboxd.service.transport.chunk_messages import with_chunk
from sandboxd_proto.v1 import project_pb2
from sandboxd_proto.v1 import project_service_pb2 as pb

_ON_CONFLICT = {
    pb.ON_CONFLICT_UNSPECIFIED: OnConflict.RENAME,
    pb.ON_CONFLICT_RENAME: OnConflict.RENAME,
    pb.ON_CONFLICT_REPLACE: OnConflict.REPLACE,
    pb.ON_CONFLICT_FAIL: OnConflict.FAIL,
}
OUTCOMES = {
    Outcome.CREATED: pb.UPLOAD_OUTCOME_CREATED,
    Outcome.REPLACED: pb.UPLOAD_OUTCOME_REPLACED,
    Outcome.UNCHANGED: pb.UPLOAD_OUTCOME_UNCHANGED,
}


class NamesProject(Protocol):
    """A request about a project."""

    @property
    def user_id(self) -> str: ...

    @property
    def project_id(self) -> str: ...


# --- requests ---


def key(request: NamesProject) -> ProjectKey:
    return ProjectKey(name("user_id", request.user_id), name("project_id", request.project_id))


def file_name(value: str) -> str:
    """The name of a file that exists."""
    if not value:
        raise wire.missing("name")
    return value


def new_file(header: pb.ProjectFileHeader) -> NewFile:
    if header.sha256 and len(header.sha256) != SHA256_BYTES:
        raise InvalidRequest("sha256", f"must have {SHA256_BYTES} bytes")
    wire.check_enum("on_conflict", header.on_conflict, pb.OnConflict.DESCRIPTOR, noun="word")
    return NewFile(
        key=key(header),
        name=header.name,
        on_conflict=_ON_CONFLICT[header.on_conflict],
        size=header.size_bytes if header.HasField("size_bytes") else None,
        sha256=header.sha256 or None,
    )


# --- responses ---


def project(source: Project) -> project_pb2.Project:
    return project_pb2.Project(
        user_id=source.key.user_id,
        project_id=source.key.project_id,
        create_time=wire.timestamp(source.created_at),
        files=source.files,
        size_bytes=source.size,
    )


def file(source: ProjectFile) -> project_pb2.ProjectFile:
    return project_pb2.ProjectFile(
        name=source.name,
        size_bytes=source.size,
        sha256=bytes.fromhex(source.digest),
        mime_type=source.mime_type,
        create_time=wire.timestamp(source.created_at),
    )


def usage(source: Usage, limits: ProjectLimits) -> project_pb2.ProjectUsage:
    return project_pb2.ProjectUsage(
        projects=source.projects,
        files=source.files,
        size_bytes=source.size,
        stored_bytes=source.stored,
        max_projects=limits.user_projects,
        max_size_bytes=limits.user_bytes,
        max_project_files=limits.project_files,
        max_project_bytes=limits.project_bytes,
        max_file_bytes=limits.max_file_bytes,
    )


def download_chunk(data: bytes) -> pb.DownloadProjectFileResponse:
    """A message in serialised form, which the guard sends as it is."""
    written = with_chunk(pb.DownloadProjectFileResponse.CHUNK_FIELD_NUMBER, data)
    return cast(pb.DownloadProjectFileResponse, written)
