"""Calls whose messages are the pieces of one file, as the bytes of that file."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from sandboxd.service.transport.chunk_messages import with_chunk
from sandboxd_proto.v1 import file_service_pb2, project_service_pb2

_CHUNK_FIELD = 2
"""Field of the chunk in all messages that callers stream."""
UPLOADS: Set[str] = frozenset(
    {
        "/sandboxd.v1.FileService/UploadFile",
        "/sandboxd.v1.FileService/UploadTar",
        "/sandboxd.v1.ProjectService/UploadProjectFile",
    }
)
"""Calls that take a header and then the chunks of a file."""
_DOWNLOADS: Mapping[str, Any] = {
    "/sandboxd.v1.FileService/DownloadFile": file_service_pb2.DownloadFileResponse,
    "/sandboxd.v1.FileService/DownloadTar": file_service_pb2.DownloadTarResponse,
    "/sandboxd.v1.ProjectService/DownloadProjectFile": (
        project_service_pb2.DownloadProjectFileResponse
    ),
}
DOWNLOADS: Set[str] = frozenset(_DOWNLOADS)
"""Calls that answer with the chunks of a file."""


def chunk_message(data: bytes) -> bytes:
    """The next message of an upload."""
    return with_chunk(_CHUNK_FIELD, data)


def chunk_of(path: str, message: bytes) -> bytes:
    """The bytes of the file in an answer of a download; empty if it has none."""
    chunk: bytes = _DOWNLOADS[path].FromString(message).chunk
    return chunk
