"""FileService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Protocol

from sandboxd.config import Config
from sandboxd.files.requests import MAX_TEXT
from sandboxd.observability import calls
from sandboxd.service import file_wire, page_tokens, wire
from sandboxd.service.wire import Context
from sandboxd.sessions.journal import Journal
from sandboxd.sessions.sessions import Sessions
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import file_service_pb2_grpc as pb_grpc


class FileServicer(pb_grpc.FileServiceServicer):
    def __init__(self, sessions: Sessions, config: Config, journal: Journal) -> None:
        self._sessions = sessions
        self._journal = journal
        self._paths = file_wire.Paths(config)

    async def UploadFile(
        self, requests: AsyncIterator[pb.UploadFileRequest | memoryview], context: Context
    ) -> pb.UploadFileResponse:
        header = (await file_wire.first_of(requests)).header
        calls.set_session(header.session_id)
        spec = file_wire.upload_spec(header, self._paths)
        async with self._sessions.file_work(
            header.session_id, incarnation=header.incarnation, changes=True
        ) as session_files:
            chunks = file_wire.chunks(session_files.until_closed(requests))
            if spec.size is None and spec.sha256 is None:
                chunks = file_wire.unless_cancelled(chunks, context)
            done = await session_files.files.upload(spec, chunks)
        self._record("file.uploaded", header, bytes_in=done.entry.size)
        return pb.UploadFileResponse(entry=file_wire.entry(done.entry), sha256=done.sha256)

    async def DownloadFile(
        self, request: pb.DownloadFileRequest, context: Context
    ) -> AsyncIterator[pb.DownloadFileResponse]:
        path = self._paths.parse(request)
        async with (
            self._sessions.file_work(request.session_id) as session_files,
            session_files.files.download(
                path, offset=request.offset, length=request.length
            ) as download,
        ):
            yield pb.DownloadFileResponse(entry=file_wire.entry(download.entry))
            try:
                async for chunk in download:
                    yield file_wire.download_chunk(chunk)
            finally:
                self._record("file.downloaded", request, bytes_out=download.sent_bytes)
            end = pb.DownloadEnd(sent_bytes=download.sent_bytes, sha256=download.sha256)
        yield pb.DownloadFileResponse(end=end)

    async def ListFiles(
        self, request: pb.ListFilesRequest, context: Context
    ) -> pb.ListFilesResponse:
        path = self._paths.parse_or_workspace(request)
        page_size = file_wire.page_size(request.page_size)
        after = page_tokens.FILES.decode(request.page_token) or b""
        response = pb.ListFilesResponse()
        async with self._sessions.file_work(request.session_id) as session_files:
            found = await session_files.files.list(
                path,
                recursive=request.recursive,
                depth=request.depth,
                page_size=page_size,
                after=after,
                on_entries=partial(file_wire.add_entries, response),
            )
        file_wire.finish_listing(response, found)
        return response

    async def StatFile(self, request: pb.StatFileRequest, context: Context) -> pb.StatFileResponse:
        path = self._paths.parse_or_workspace(request)
        async with self._sessions.file_work(request.session_id) as session_files:
            entry = await session_files.files.stat(path, follow_links=request.follow_links)
        return pb.StatFileResponse(entry=file_wire.entry(entry))

    async def MakeDirectory(
        self, request: pb.MakeDirectoryRequest, context: Context
    ) -> pb.MakeDirectoryResponse:
        path = self._paths.parse(request)
        mode = file_wire.mode(request.mode) if request.mode else 0o755
        async with self._sessions.file_work(request.session_id, changes=True) as session_files:
            made = await session_files.files.make_directory(
                path, make_parents=request.make_parents, mode=mode
            )
        return pb.MakeDirectoryResponse(entry=file_wire.entry(made.entry), created=made.created)

    async def MoveFile(self, request: pb.MoveFileRequest, context: Context) -> pb.MoveFileResponse:
        path, new_path = self._paths.parse(request), self._paths.parse_new(request)
        async with self._sessions.file_work(request.session_id, changes=True) as session_files:
            entry = await session_files.files.move(
                path, new_path, replace=request.replace, make_parents=request.make_parents
            )
        self._record("file.moved", request)
        return pb.MoveFileResponse(entry=file_wire.entry(entry))

    async def RemoveFile(
        self, request: pb.RemoveFileRequest, context: Context
    ) -> pb.RemoveFileResponse:
        path = self._paths.parse(request)
        async with self._sessions.file_work(request.session_id, changes=True) as session_files:
            removed = await session_files.files.remove(
                path, recursive=request.recursive, ignore_missing=request.ignore_missing
            )
        self._record("file.removed", request)
        return pb.RemoveFileResponse(removed=removed)

    async def ReadText(self, request: pb.ReadTextRequest, context: Context) -> pb.ReadTextResponse:
        path = self._paths.parse(request)
        max_bytes = wire.bounded(
            "max_bytes", request.max_bytes, default=file_wire.DEFAULT_READ, limit=MAX_TEXT
        )
        async with self._sessions.file_work(request.session_id) as session_files:
            read = await session_files.files.read_text(
                path,
                first_line=request.first_line or 1,
                max_lines=request.max_lines,
                max_bytes=max_bytes,
            )
        self._record("file.read", request, bytes_out=len(read.text))
        return file_wire.text_read(read)

    async def WriteText(
        self, request: pb.WriteTextRequest, context: Context
    ) -> pb.WriteTextResponse:
        spec = file_wire.text_spec(request, self._paths)
        async with self._sessions.file_work(request.session_id, changes=True) as session_files:
            entry = await session_files.files.write_text(spec)
        self._record("file.written", request, bytes_in=len(spec.text))
        return pb.WriteTextResponse(entry=file_wire.entry(entry))

    async def EditText(self, request: pb.EditTextRequest, context: Context) -> pb.EditTextResponse:
        spec = file_wire.edit_spec(request, self._paths)
        async with self._sessions.file_work(request.session_id, changes=True) as session_files:
            edited = await session_files.files.edit_text(spec)
        self._record("file.edited", request, bytes_in=len(request.new_text))
        return pb.EditTextResponse(replaced=edited.replaced, entry=file_wire.entry(edited.entry))

    async def GrepFiles(
        self, request: pb.GrepFilesRequest, context: Context
    ) -> pb.GrepFilesResponse:
        spec = file_wire.grep_spec(request, self._paths)
        async with self._sessions.file_work(request.session_id) as session_files:
            found = await session_files.files.grep(spec)
        return file_wire.grepped(found)

    async def GlobFiles(
        self, request: pb.GlobFilesRequest, context: Context
    ) -> pb.GlobFilesResponse:
        path = self._paths.parse_or_workspace(request)
        pattern = file_wire.pattern(request.pattern)
        types = file_wire.file_types(request.types)
        max_entries = wire.bounded(
            "max_entries",
            request.max_entries,
            default=file_wire.DEFAULT_PAGE,
            limit=file_wire.MAX_PAGE,
        )
        async with self._sessions.file_work(request.session_id) as session_files:
            found = await session_files.files.glob(
                path,
                pattern,
                types=types,
                skip_hidden=request.skip_hidden,
                exclude_dirs=request.exclude_dirs,
                max_entries=max_entries,
            )
        return file_wire.globbed(found.entries, complete=found.complete)

    async def WatchFiles(
        self, request: pb.WatchFilesRequest, context: Context
    ) -> AsyncIterator[pb.WatchFilesResponse]:
        path = self._paths.parse_or_workspace(request)
        gather = file_wire.gather_seconds(request)
        async with (
            self._sessions.file_work(request.session_id) as session_files,
            session_files.files.watch(
                path, recursive=request.recursive, gather_seconds=gather
            ) as changes,
        ):
            yield pb.WatchFilesResponse(watching=True)
            async for seen in changes:
                yield file_wire.changed(seen)

    async def UploadTar(
        self, requests: AsyncIterator[pb.UploadTarRequest | memoryview], context: Context
    ) -> pb.UploadTarResponse:
        header = (await file_wire.first_of(requests)).header
        calls.set_session(header.session_id)
        spec = file_wire.tar_spec(header, self._paths)
        async with self._sessions.file_work(
            header.session_id, incarnation=header.incarnation, changes=True
        ) as session_files:
            chunks = _Counted(
                file_wire.whole(file_wire.chunks(session_files.until_closed(requests)))
            )
            done = await session_files.files.upload_tar(spec, aiter(chunks))
        self._record("tar.uploaded", header, bytes_in=chunks.bytes)
        return file_wire.unpacked(done)

    async def DownloadTar(
        self, request: pb.DownloadTarRequest, context: Context
    ) -> AsyncIterator[pb.DownloadTarResponse]:
        path = self._paths.parse_or_workspace(request)
        compression = file_wire.compression(request.compression)
        async with (
            self._sessions.file_work(request.session_id) as session_files,
            session_files.files.download_tar(path, compression=compression) as download,
        ):
            chunks = _Counted(aiter(download))
            try:
                async for chunk in chunks:
                    yield file_wire.tar_chunk(chunk)
            finally:
                self._record("tar.downloaded", request, bytes_out=chunks.bytes)
            end = file_wire.packed(download.made)
        yield pb.DownloadTarResponse(end=end)

    def _record(
        self, action: str, request: _NamesFile, *, bytes_in: int = 0, bytes_out: int = 0
    ) -> None:
        """Record in the audit log that a file was written, read or deleted."""
        record = self._sessions.get(request.session_id).record
        path = request.path or request.path_bytes.decode(errors="replace")
        self._journal.on_file_moved(record, action, path, bytes_in=bytes_in, bytes_out=bytes_out)


class _NamesFile(file_wire.NamesPath, Protocol):
    """A request about a file of a session."""

    @property
    def session_id(self) -> str: ...


class _Counted:
    """Chunks, and the number of their bytes."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self.bytes = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            self.bytes += len(chunk)
            yield chunk
