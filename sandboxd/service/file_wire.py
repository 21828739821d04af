"""Messages of FileService to domain objects and back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Sequence
from typing import Protocol, TypeVar, cast

from sandboxd.config import Config
from sandboxd.errors import InvalidRequest
from sandboxd.files import (
    Change,
    Changes,
    Chunk,
    Compression,
    EditSpec,
    Entry,
    FilePath,
    FileType,
    GrepResult,
    GrepSpec,
    LeftOut,
    Listing,
    TarMade,
    TarSpec,
    TarUnpacked,
    TextRead,
    TextSpec,
    UploadSpec,
    exact_of,
    text_of,
)
from sandboxd.files.entries import iso_time
from sandboxd.files.patterns import MAX_PATTERN
from sandboxd.files.requests import MAX_TEXT
from sandboxd.service import page_tokens, wire
from sandboxd.service.transport.chunk_messages import with_chunk
from sandboxd.workspaces.layout import AGENT_WORKSPACE, NAMES, Layout
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import files_pb2
from sandboxd_proto.v1.project_service_pb2 import UploadProjectFileRequest
from sandboxd_proto.v1.snapshot_service_pb2 import ImportSnapshotRequest

MAX_PAGE = 10_000
DEFAULT_PAGE = 1000
DEFAULT_READ = 256 << 10
MAX_CHUNK = 4 << 20
MAX_GATHER_SECONDS = 10.0
DEFAULT_GATHER_SECONDS = 0.05
SHA256_BYTES = 32
_LAYOUT = tuple(name.encode() for name in NAMES)
_TYPES = {kind: files_pb2.FileType.ValueType(kind) for kind in FileType}
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""Range of a Timestamp; a command may set times outside of it."""

Part = TypeVar(
    "Part",
    pb.UploadFileRequest,
    pb.UploadTarRequest,
    UploadProjectFileRequest,
    ImportSnapshotRequest,
)
"""A message of an upload: the header first, then chunks."""


class NamesPath(Protocol):
    """A request about a path."""

    @property
    def path(self) -> str: ...

    @property
    def path_bytes(self) -> bytes: ...


# --- requests ---


class Paths:
    """Checks the paths of requests."""

    def __init__(self, config: Config) -> None:
        self._workspace = config.workspace_dir
        self._is_separate = config.workspace_layout == Layout.SEPARATE

    def parse(self, request: NamesPath) -> FilePath:
        """The path of something in the workspace or outside of it."""
        return self._parse(request.path, request.path_bytes)

    def parse_or_workspace(self, request: NamesPath) -> FilePath:
        return self._parse(request.path, request.path_bytes, may_be_workspace=True)

    def parse_new(self, request: pb.MoveFileRequest) -> FilePath:
        return self._parse(request.new_path, request.new_path_bytes, field="new_path")

    def _parse(
        self, text: str, exact: bytes, *, field: str = "path", may_be_workspace: bool = False
    ) -> FilePath:
        return FilePath.parse(
            text,
            exact,
            workspace=self._workspace,
            start=self._start(exact or text.encode(errors="surrogateescape")),
            field=field,
            may_be_workspace=may_be_workspace,
        )

    def _start(self, path: bytes) -> bytes:
        """The directory that a relative path starts from: that of commands, unless the path comes
        from a listing, where it is relative to the workspace."""
        first = next((name for name in path.split(b"/") if name not in (b"", b".")), b"")
        return b"" if not self._is_separate or first in _LAYOUT else AGENT_WORKSPACE.encode()


async def first_of(messages: AsyncIterator[Part | memoryview]) -> Part:
    """The message with the header."""
    async for message in messages:
        if not isinstance(message, memoryview) and message.WhichOneof("part") == "header":
            return message
        break
    raise InvalidRequest("header", "the first message of an upload must be its header")


async def chunks(messages: AsyncIterator[Part | memoryview]) -> AsyncIterator[Chunk]:
    """The bytes of an upload after its header."""
    async for message in messages:
        if isinstance(message, memoryview):
            chunk: Chunk = message
        elif message.WhichOneof("part") == "chunk":
            chunk = message.chunk
        else:
            raise InvalidRequest("chunk", "every message after the first must be a chunk")
        if len(chunk) > MAX_CHUNK:
            raise InvalidRequest("chunk", f"must have at most {MAX_CHUNK} bytes; send smaller ones")
        yield chunk


async def unless_cancelled(
    chunks: AsyncIterator[Chunk], context: wire.Context
) -> AsyncIterator[Chunk]:
    """The chunks of an upload that announces neither its size nor its checksum.

    In grpc.aio the stream of a cancelled call ends like a complete one, and the cancellation
    follows. But nothing can be sent to such a caller: a cancelled stream is closed in both
    directions at once, and one that is complete only in theirs. So the end is trusted when the
    first half of the answer was sent.
    """
    async for chunk in chunks:
        yield chunk
    try:
        await context.send_initial_metadata(())
    except Exception as error:
        raise asyncio.CancelledError from error


async def whole(chunks: AsyncIterator[Chunk]) -> AsyncIterator[bytes]:
    """The chunks as bytes, for readers that join them."""
    async for chunk in chunks:
        yield bytes(chunk)


def upload_spec(header: pb.UploadHeader, paths: Paths) -> UploadSpec:
    if header.sha256 and len(header.sha256) != SHA256_BYTES:
        raise InvalidRequest("sha256", f"must have {SHA256_BYTES} bytes")
    return UploadSpec(
        path=paths.parse(header),
        mode=mode(header.mode) if header.mode else None,
        size=header.size_bytes if header.HasField("size_bytes") else None,
        sha256=header.sha256 or None,
        replace=replaces(header.overwrite),
        make_parents=header.make_parents,
    )


def tar_spec(header: pb.UploadTarHeader, paths: Paths) -> TarSpec:
    return TarSpec(
        path=paths.parse_or_workspace(header),
        compression=compression(header.compression),
        replace=replaces(header.overwrite),
    )


def mode(value: int) -> int:
    if value > 0o7777:
        raise InvalidRequest("mode", "must be permission bits, at most 07777")
    return value & 0o777


def replaces(policy: pb.OverwritePolicy.ValueType) -> bool:
    wire.check_enum("overwrite", policy, pb.OverwritePolicy.DESCRIPTOR, noun="policy")
    return policy != pb.OVERWRITE_POLICY_FAIL


def compression(value: files_pb2.TarCompression.ValueType) -> Compression:
    wire.check_enum("compression", value, files_pb2.TarCompression.DESCRIPTOR, noun="compression")
    return Compression(value or Compression.NONE)


def page_size(value: int) -> int:
    return wire.bounded("page_size", value, default=DEFAULT_PAGE, limit=MAX_PAGE)


def text_spec(request: pb.WriteTextRequest, paths: Paths) -> TextSpec:
    if request.line_count and not request.first_line:
        raise InvalidRequest("line_count", "requires `first_line`")
    return TextSpec(
        path=paths.parse(request),
        text=_text("text", request.text),
        first_line=request.first_line or None,
        line_count=request.line_count,
        make_parents=request.make_parents,
        replace=replaces(request.overwrite),
    )


def edit_spec(request: pb.EditTextRequest, paths: Paths) -> EditSpec:
    if not request.old_text:
        raise wire.missing("old_text")
    if request.replace_all and request.expected_count:
        raise InvalidRequest("expected_count", "cannot be combined with `replace_all`")
    return EditSpec(
        path=paths.parse(request),
        old_text=_text("old_text", request.old_text),
        new_text=_text("new_text", request.new_text),
        expected_count=None if request.replace_all else request.expected_count or 1,
    )


def _text(field: str, value: str) -> str:
    if len(value.encode()) > MAX_TEXT:
        raise InvalidRequest(field, f"must have at most {MAX_TEXT} bytes; upload it as a file")
    return value


def grep_spec(request: pb.GrepFilesRequest, paths: Paths) -> GrepSpec:
    return GrepSpec(
        path=paths.parse_or_workspace(request),
        pattern=pattern(request.pattern),
        regex=request.regex,
        ignore_case=request.ignore_case,
        glob=request.glob,
        exclude_dirs=request.exclude_dirs,
        max_matches=wire.bounded(
            "max_matches", request.max_matches, default=DEFAULT_PAGE, limit=MAX_PAGE
        ),
    )


def pattern(value: str) -> str:
    if not value:
        raise wire.missing("pattern")
    return _short("pattern", value)


def _short(field: str, value: str) -> str:
    if len(value) > MAX_PATTERN:
        raise InvalidRequest(field, f"must have at most {MAX_PATTERN} characters")
    return value


def file_types(values: Iterable[files_pb2.FileType.ValueType]) -> Collection[FileType]:
    """The types of a filter; none means all."""
    found = set(values)
    for value in found:
        wire.check_enum("types", value, files_pb2.FileType.DESCRIPTOR, noun="type")
    return () if files_pb2.FILE_TYPE_UNSPECIFIED in found else [FileType(one) for one in found]


def gather_seconds(request: pb.WatchFilesRequest) -> float:
    asked = wire.seconds(request, "gather", low=0.0, high=MAX_GATHER_SECONDS)
    return DEFAULT_GATHER_SECONDS if asked is None else asked


# --- responses ---


def download_chunk(data: bytes) -> pb.DownloadFileResponse:
    """A message in serialised form, which the guard sends as it is."""
    written = with_chunk(pb.DownloadFileResponse.CHUNK_FIELD_NUMBER, data)
    return cast(pb.DownloadFileResponse, written)


def tar_chunk(data: bytes) -> pb.DownloadTarResponse:
    """A message in serialised form, which the guard sends as it is."""
    return cast(pb.DownloadTarResponse, with_chunk(pb.DownloadTarResponse.CHUNK_FIELD_NUMBER, data))


def fill_entry(message: files_pb2.FileEntry, source: Entry) -> None:
    # In place: a thousand entries would each be copied into the message around them.
    message.path = text = text_of(source.path)
    message.name = text.rpartition("/")[2]
    # ASCII of the same length is unchanged: escaping makes a path longer.
    is_exact = text.isascii() and len(text) == len(source.path)
    if not is_exact and (exact := exact_of(source.path)):
        message.path_bytes = exact
    message.type = _TYPES[source.type]
    message.size_bytes = source.size
    seconds, nanoseconds = divmod(source.modified_ns, 1_000_000_000)
    message.modified = iso_time(seconds, nanoseconds)
    time = message.modify_time
    time.nanos = nanoseconds
    time.seconds = min(max(seconds, _FIRST_SECOND), _LAST_SECOND)
    message.mode = source.mode
    message.permissions = source.permissions
    if source.link_target:
        message.link_target = text_of(source.link_target)
        message.link_target_bytes = exact_of(source.link_target)


def entry(source: Entry) -> files_pb2.FileEntry:
    message = files_pb2.FileEntry()
    fill_entry(message, source)
    return message


def add_entries(
    response: pb.ListFilesResponse | pb.GlobFilesResponse, entries: Sequence[Entry]
) -> None:
    for source in entries:
        fill_entry(response.entries.add(), source)


def finish_listing(response: pb.ListFilesResponse, found: Listing) -> None:
    """Fill everything but the entries."""
    response.next_page_token = page_tokens.FILES.encode(found.next_after or None)
    response.total_files = found.total_files
    response.total_bytes = found.total_bytes
    response.complete = found.complete
    usage = response.usage
    usage.used_bytes, usage.max_bytes = found.usage.used_bytes, found.usage.max_bytes
    usage.used_files, usage.max_files = found.usage.used_files, found.usage.max_files
    usage.max_file_bytes = found.usage.max_file_bytes


def globbed(entries: Sequence[Entry], *, complete: bool) -> pb.GlobFilesResponse:
    response = pb.GlobFilesResponse(complete=complete)
    add_entries(response, entries)
    return response


def text_read(read: TextRead) -> pb.ReadTextResponse:
    return pb.ReadTextResponse(
        text=read.text,
        first_line=read.first_line,
        line_count=read.line_count,
        total_lines=read.total_lines,
        truncated=read.truncated,
        invalid_utf8=read.invalid_utf8,
        entry=entry(read.entry),
    )


def grepped(found: GrepResult) -> pb.GrepFilesResponse:
    return pb.GrepFilesResponse(
        matches=[
            files_pb2.GrepMatch(
                path=text_of(match.path),
                path_bytes=exact_of(match.path),
                line_number=match.line_number,
                line=match.line,
            )
            for match in found.matches
        ],
        complete=found.complete,
        searched_files=found.searched_files,
    )


def changed(seen: Changes) -> pb.WatchFilesResponse:
    return pb.WatchFilesResponse(
        changes=[_change(change) for change in seen.changes], overflow=seen.overflow
    )


def _change(change: Change) -> pb.FileChange:
    return pb.FileChange(
        kind=pb.FileChangeKind.ValueType(change.kind),
        path=text_of(change.path),
        path_bytes=exact_of(change.path),
        old_path=text_of(change.old_path),
        old_path_bytes=exact_of(change.old_path),
        is_directory=change.is_directory,
    )


def unpacked(done: TarUnpacked) -> pb.UploadTarResponse:
    return pb.UploadTarResponse(
        extracted=done.extracted,
        extracted_bytes=done.extracted_bytes,
        refused=_left_out(done.refused),
        refused_count=done.refused_count,
    )


def packed(made: TarMade) -> pb.DownloadTarEnd:
    return pb.DownloadTarEnd(
        members=made.members,
        skipped=_left_out(made.skipped),
        skipped_count=made.skipped_count,
    )


def _left_out(members: Sequence[LeftOut]) -> Sequence[files_pb2.RefusedMember]:
    return [
        files_pb2.RefusedMember(name=text_of(member.name), why=member.why) for member in members
    ]
