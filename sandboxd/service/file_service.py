"""FileService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Protocol

from sandboxd import calls
from sandboxd.config import Config
from sandboxd.files.requests import MAX_TEXT
from sandboxd.service import wire, wire_files
from sandboxd.service.wire import Context
from sandboxd.sessions import Sessions
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import file_service_pb2_grpc as pb_grpc


class FileServicer(pb_grpc.FileServiceServicer):
    def __init__(self, sessions: Sessions, config: Config) -> None:
        self._sessions = sessions
        self._paths = wire_files.Paths(config)

    async def UploadFile(
        self, requests: AsyncIterator[pb.UploadFileRequest | memoryview], context: Context
    ) -> pb.UploadFileResponse:
        header = (await wire_files.first_of(requests)).header
        calls.about(header.session_id)
        spec = wire_files.upload_spec(header, self._paths)
        async with self._sessions.file_work(
            header.session_id, incarnation=header.incarnation
        ) as desk:
            chunks = wire_files.chunks(desk.arriving(requests))
            if spec.size is None and spec.sha256 is None:
                chunks = wire_files.settled(chunks)
            done = await desk.files.upload(spec, chunks)
        self._tell("file.uploaded", header, bytes_in=done.entry.size)
        return pb.UploadFileResponse(entry=wire_files.entry(done.entry), sha256=done.sha256)

    async def DownloadFile(
        self, request: pb.DownloadFileRequest, context: Context
    ) -> AsyncIterator[pb.DownloadFileResponse]:
        path = self._paths.of(request)
        async with (
            self._sessions.file_work(request.session_id) as desk,
            desk.files.download(path, offset=request.offset, length=request.length) as download,
        ):
            yield pb.DownloadFileResponse(entry=wire_files.entry(download.entry))
            try:
                async for chunk in download:
                    yield wire_files.download_chunk(chunk)
            finally:
                self._tell("file.downloaded", request, bytes_out=download.sent_bytes)
            end = pb.DownloadEnd(sent_bytes=download.sent_bytes, sha256=download.sha256)
        yield pb.DownloadFileResponse(end=end)

    async def ListFiles(
        self, request: pb.ListFilesRequest, context: Context
    ) -> pb.ListFilesResponse:
        path = self._paths.or_workspace(request)
        page_size = wire_files.page_size(request.page_size)
        after = wire_files.after(request.page_token)
        response = pb.ListFilesResponse()
        async with self._sessions.file_work(request.session_id) as desk:
            found = await desk.files.list(
                path,
                recursive=request.recursive,
                page_size=page_size,
                after=after,
                as_they_come=partial(wire_files.add_entries, response),
            )
        wire_files.finish_listing(response, found)
        return response

    async def StatFile(self, request: pb.StatFileRequest, context: Context) -> pb.StatFileResponse:
        path = self._paths.or_workspace(request)
        async with self._sessions.file_work(request.session_id) as desk:
            entry = await desk.files.stat(path, follow_links=request.follow_links)
        return pb.StatFileResponse(entry=wire_files.entry(entry))

    async def MakeDirectory(
        self, request: pb.MakeDirectoryRequest, context: Context
    ) -> pb.MakeDirectoryResponse:
        path = self._paths.of(request)
        mode = wire_files.mode(request.mode, default=0o755)
        async with self._sessions.file_work(request.session_id) as desk:
            made = await desk.files.make_directory(
                path, make_parents=request.make_parents, mode=mode
            )
        return pb.MakeDirectoryResponse(entry=wire_files.entry(made.entry), created=made.created)

    async def MoveFile(self, request: pb.MoveFileRequest, context: Context) -> pb.MoveFileResponse:
        path, new_path = self._paths.of(request), self._paths.new_of(request)
        async with self._sessions.file_work(request.session_id) as desk:
            entry = await desk.files.move(path, new_path, replace=request.replace)
        self._tell("file.moved", request)
        return pb.MoveFileResponse(entry=wire_files.entry(entry))

    async def RemoveFile(
        self, request: pb.RemoveFileRequest, context: Context
    ) -> pb.RemoveFileResponse:
        path = self._paths.of(request)
        async with self._sessions.file_work(request.session_id) as desk:
            removed = await desk.files.remove(
                path, recursive=request.recursive, ignore_missing=request.ignore_missing
            )
        self._tell("file.removed", request)
        return pb.RemoveFileResponse(removed=removed)

    async def ReadText(self, request: pb.ReadTextRequest, context: Context) -> pb.ReadTextResponse:
        path = self._paths.of(request)
        max_bytes = wire.bounded(
            "max_bytes", request.max_bytes, default=wire_files.DEFAULT_READ, limit=MAX_TEXT
        )
        async with self._sessions.file_work(request.session_id) as desk:
            read = await desk.files.read_text(
                path,
                first_line=request.first_line or 1,
                max_lines=request.max_lines,
                max_bytes=max_bytes,
            )
        self._tell("file.read", request, bytes_out=len(read.text))
        return wire_files.text_read(read)

    async def WriteText(
        self, request: pb.WriteTextRequest, context: Context
    ) -> pb.WriteTextResponse:
        spec = wire_files.text_spec(request, self._paths)
        async with self._sessions.file_work(request.session_id) as desk:
            entry = await desk.files.write_text(spec)
        self._tell("file.written", request, bytes_in=len(spec.text))
        return pb.WriteTextResponse(entry=wire_files.entry(entry))

    async def EditText(self, request: pb.EditTextRequest, context: Context) -> pb.EditTextResponse:
        spec = wire_files.edit_spec(request, self._paths)
        async with self._sessions.file_work(request.session_id) as desk:
            edited = await desk.files.edit_text(spec)
        self._tell("file.edited", request, bytes_in=len(request.new_text))
        return pb.EditTextResponse(replaced=edited.replaced, entry=wire_files.entry(edited.entry))

    async def GrepFiles(
        self, request: pb.GrepFilesRequest, context: Context
    ) -> pb.GrepFilesResponse:
        spec = wire_files.grep_spec(request, self._paths)
        async with self._sessions.file_work(request.session_id) as desk:
            found = await desk.files.grep(spec)
        return wire_files.grepped(found)

    async def GlobFiles(
        self, request: pb.GlobFilesRequest, context: Context
    ) -> pb.GlobFilesResponse:
        path = self._paths.or_workspace(request)
        pattern = wire_files.pattern(request.pattern)
        max_entries = wire.bounded(
            "max_entries",
            request.max_entries,
            default=wire_files.DEFAULT_PAGE,
            limit=wire_files.MAX_PAGE,
        )
        async with self._sessions.file_work(request.session_id) as desk:
            found = await desk.files.glob(path, pattern, max_entries=max_entries)
        return wire_files.globbed(found.entries, complete=found.complete)

    async def WatchFiles(
        self, request: pb.WatchFilesRequest, context: Context
    ) -> AsyncIterator[pb.WatchFilesResponse]:
        path = self._paths.or_workspace(request)
        gather = wire_files.gather_seconds(request)
        async with (
            self._sessions.file_work(request.session_id) as desk,
            desk.files.watch(path, recursive=request.recursive, gather_seconds=gather) as changes,
        ):
            yield pb.WatchFilesResponse(watching=True)
            async for told in changes:
                yield wire_files.changed(told)

    async def UploadTar(
        self, requests: AsyncIterator[pb.UploadTarRequest | memoryview], context: Context
    ) -> pb.UploadTarResponse:
        header = (await wire_files.first_of(requests)).header
        calls.about(header.session_id)
        spec = wire_files.tar_spec(header, self._paths)
        async with self._sessions.file_work(
            header.session_id, incarnation=header.incarnation
        ) as desk:
            chunks = _Counted(wire_files.whole(wire_files.chunks(desk.arriving(requests))))
            done = await desk.files.upload_tar(spec, aiter(chunks))
        self._tell("tar.uploaded", header, bytes_in=chunks.bytes)
        return wire_files.unpacked(done)

    async def DownloadTar(
        self, request: pb.DownloadTarRequest, context: Context
    ) -> AsyncIterator[pb.DownloadTarResponse]:
        path = self._paths.or_workspace(request)
        compression = wire_files.compression(request.compression)
        async with (
            self._sessions.file_work(request.session_id) as desk,
            desk.files.download_tar(path, compression=compression) as download,
        ):
            chunks = _Counted(aiter(download))
            try:
                async for chunk in chunks:
                    yield wire_files.tar_chunk(chunk)
            finally:
                self._tell("tar.downloaded", request, bytes_out=chunks.bytes)
            end = wire_files.packed(download.made)
        yield pb.DownloadTarResponse(end=end)

    def _tell(self, action: str, asked: _Named, *, bytes_in: int = 0, bytes_out: int = 0) -> None:
        """For the audit log: something went into a workspace, or came out of it."""
        record = self._sessions.get(asked.session_id).record
        path = asked.path or asked.path_bytes.decode(errors="replace")
        self._sessions.house.journal.on_file_moved(
            record, action, path, bytes_in=bytes_in, bytes_out=bytes_out
        )


class _Named(wire_files.NamesPath, Protocol):
    """A request about a file of a session."""

    @property
    def session_id(self) -> str: ...


class _Counted:
    """Chunks, and how much they were."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.bytes = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            self.bytes += len(chunk)
            yield chunk
