"""What a client does with the files of one session, with the generated stub and nothing else."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from grpc import aio

from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import files_pb2
from sandboxd_proto.v1.file_service_pb2_grpc import FileServiceStub

CHUNK = 1 << 20
CALL_SECONDS = 60.0


def where(path: str | bytes) -> dict[str, Any]:
    """A path of a request: as text, or exactly."""
    return {"path_bytes": path} if isinstance(path, bytes) else {"path": path}


def pieces(data: bytes, size: int = CHUNK) -> Iterable[bytes]:
    return (data[begin : begin + size] for begin in range(0, len(data), size))


class FileClient:
    """The files of one session."""

    def __init__(self, stub: FileServiceStub, session_id: str) -> None:
        self.stub = stub
        self.session_id = session_id

    async def upload(self, path: str | bytes, data: bytes, **header: Any) -> pb.UploadFileResponse:
        return await self.stub.UploadFile(self._upload(path, data, header), timeout=CALL_SECONDS)

    async def _upload(
        self, path: str | bytes, data: bytes, header: dict[str, Any]
    ) -> AsyncIterator[pb.UploadFileRequest]:
        yield self.header(path, **header)
        for chunk in pieces(data):
            yield pb.UploadFileRequest(chunk=chunk)

    def header(self, path: str | bytes, **header: Any) -> pb.UploadFileRequest:
        message = pb.UploadHeader(session_id=self.session_id, **where(path), **header)
        return pb.UploadFileRequest(header=message)

    async def download(self, path: str | bytes, **fields: Any) -> bytes:
        """The bytes, which are as many as the end says and have its checksum."""
        request = pb.DownloadFileRequest(session_id=self.session_id, **where(path), **fields)
        parts = [part async for part in self.stub.DownloadFile(request, timeout=CALL_SECONDS)]
        assert [part.WhichOneof("part") for part in (parts[0], parts[-1])] == ["entry", "end"]
        data = b"".join(part.chunk for part in parts[1:-1])
        end = parts[-1].end
        assert (end.sent_bytes, end.sha256) == (len(data), hashlib.sha256(data).digest())
        return data

    async def list(self, path: str | bytes = "", **fields: Any) -> pb.ListFilesResponse:
        request = pb.ListFilesRequest(session_id=self.session_id, **where(path), **fields)
        return await self.stub.ListFiles(request, timeout=CALL_SECONDS)

    async def names(self, path: str | bytes = "", **fields: Any) -> list[str]:
        """Paths of a listing, page by page."""
        found, token = [], ""
        while True:
            page = await self.list(path, page_token=token, **fields)
            found += [entry.path for entry in page.entries]
            token = page.next_page_token
            if not token:
                return found

    async def stat(self, path: str | bytes, **fields: Any) -> files_pb2.FileEntry:
        request = pb.StatFileRequest(session_id=self.session_id, **where(path), **fields)
        return (await self.stub.StatFile(request, timeout=CALL_SECONDS)).entry

    async def make_directory(self, path: str | bytes, **fields: Any) -> pb.MakeDirectoryResponse:
        request = pb.MakeDirectoryRequest(session_id=self.session_id, **where(path), **fields)
        return await self.stub.MakeDirectory(request, timeout=CALL_SECONDS)

    async def move(self, path: str | bytes, new_path: str, **fields: Any) -> files_pb2.FileEntry:
        request = pb.MoveFileRequest(
            session_id=self.session_id, **where(path), new_path=new_path, **fields
        )
        return (await self.stub.MoveFile(request, timeout=CALL_SECONDS)).entry

    async def remove(self, path: str | bytes, **fields: Any) -> int:
        request = pb.RemoveFileRequest(session_id=self.session_id, **where(path), **fields)
        return (await self.stub.RemoveFile(request, timeout=CALL_SECONDS)).removed

    async def read_text(self, path: str | bytes, **fields: Any) -> pb.ReadTextResponse:
        request = pb.ReadTextRequest(session_id=self.session_id, **where(path), **fields)
        return await self.stub.ReadText(request, timeout=CALL_SECONDS)

    async def write_text(self, path: str | bytes, text: str, **fields: Any) -> files_pb2.FileEntry:
        request = pb.WriteTextRequest(
            session_id=self.session_id, **where(path), text=text, **fields
        )
        return (await self.stub.WriteText(request, timeout=CALL_SECONDS)).entry

    async def edit_text(
        self, path: str | bytes, old_text: str, new_text: str, **fields: Any
    ) -> int:
        request = pb.EditTextRequest(
            session_id=self.session_id,
            **where(path),
            old_text=old_text,
            new_text=new_text,
            **fields,
        )
        return (await self.stub.EditText(request, timeout=CALL_SECONDS)).replaced

    async def grep(self, pattern: str, **fields: Any) -> pb.GrepFilesResponse:
        request = pb.GrepFilesRequest(session_id=self.session_id, pattern=pattern, **fields)
        return await self.stub.GrepFiles(request, timeout=CALL_SECONDS)

    async def glob(self, pattern: str, **fields: Any) -> list[str]:
        request = pb.GlobFilesRequest(session_id=self.session_id, pattern=pattern, **fields)
        response = await self.stub.GlobFiles(request, timeout=CALL_SECONDS)
        return [entry.path for entry in response.entries]

    def watch(
        self, path: str | bytes = "", **fields: Any
    ) -> aio.UnaryStreamCall[pb.WatchFilesRequest, pb.WatchFilesResponse]:
        request = pb.WatchFilesRequest(session_id=self.session_id, **where(path), **fields)
        return self.stub.WatchFiles(request, timeout=CALL_SECONDS)

    async def upload_tar(
        self, path: str | bytes, archive: bytes, **header: Any
    ) -> pb.UploadTarResponse:
        return await self.stub.UploadTar(
            self._upload_tar(path, archive, header), timeout=CALL_SECONDS
        )

    async def _upload_tar(
        self, path: str | bytes, archive: bytes, header: dict[str, Any]
    ) -> AsyncIterator[pb.UploadTarRequest]:
        message = pb.UploadTarHeader(session_id=self.session_id, **where(path), **header)
        yield pb.UploadTarRequest(header=message)
        for chunk in pieces(archive):
            yield pb.UploadTarRequest(chunk=chunk)

    async def download_tar(
        self, path: str | bytes = "", **fields: Any
    ) -> tuple[bytes, pb.DownloadTarEnd]:
        request = pb.DownloadTarRequest(session_id=self.session_id, **where(path), **fields)
        parts = [part async for part in self.stub.DownloadTar(request, timeout=CALL_SECONDS)]
        assert parts[-1].WhichOneof("part") == "end"
        return b"".join(part.chunk for part in parts[:-1]), parts[-1].end
