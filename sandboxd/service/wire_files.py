"""Messages about files to domain objects and back."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator, Sequence
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
from sandboxd.files.entries import in_words
from sandboxd.files.requests import MAX_PATTERN, MAX_TEXT
from sandboxd.isolation.layout import AGENT_WORKSPACE, OUTPUTS, PROJECT_FILES, Layout
from sandboxd.service import wire
from sandboxd.service.chunk_messages import with_chunk
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import files_pb2

MAX_PAGE = 10_000
DEFAULT_PAGE = 1000
DEFAULT_READ = 256 << 10
MAX_CHUNK = 4 << 20
MAX_GATHER_SECONDS = 10.0
DEFAULT_GATHER_SECONDS = 0.05
SHA256_BYTES = 32
SETTLE_SECONDS = 0.05
"""For the news that a call was cancelled, which comes right after the end of its stream."""
_LAYOUT = tuple(name.encode() for name in (PROJECT_FILES, AGENT_WORKSPACE, OUTPUTS))
_TYPES = {one: files_pb2.FileType.ValueType(one) for one in FileType}
_FIRST_SECOND, _LAST_SECOND = -62_135_596_800, 253_402_300_799
"""What a Timestamp may hold; a command may set any."""

Part = TypeVar("Part", pb.UploadFileRequest, pb.UploadTarRequest)
"""Of an upload: what it is about first, then its bytes."""


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

    def of(self, request: NamesPath) -> FilePath:
        """Of something in the workspace."""
        return self._parse(request.path, request.path_bytes)

    def or_workspace(self, request: NamesPath) -> FilePath:
        return self._parse(request.path, request.path_bytes, may_be_workspace=True)

    def new_of(self, request: pb.MoveFileRequest) -> FilePath:
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
        """Where it begins if it is relative: where commands do, unless it is what a listing says,
        which is relative to the workspace."""
        first = next((name for name in path.split(b"/") if name not in (b"", b".")), b"")
        return b"" if not self._is_separate or first in _LAYOUT else AGENT_WORKSPACE.encode()


async def first_of(messages: AsyncIterator[Part | memoryview]) -> Part:
    """The message with the header."""
    async for message in messages:
        if not isinstance(message, memoryview) and message.WhichOneof("part") == "header":
            return message
        break
    raise InvalidRequest("header", "the first message of an upload is its header")


async def chunks(messages: AsyncIterator[Part | memoryview]) -> AsyncIterator[Chunk]:
    """The bytes of an upload after its header."""
    async for message in messages:
        if isinstance(message, memoryview):
            chunk: Chunk = message
        elif message.WhichOneof("part") == "chunk":
            chunk = message.chunk
        else:
            raise InvalidRequest("chunk", "every message after the first is a chunk")
        if len(chunk) > MAX_CHUNK:
            raise InvalidRequest("chunk", f"it has over {MAX_CHUNK} bytes; send smaller ones")
        yield chunk


async def settled(chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    """For an upload that says neither its size nor its checksum.

    To grpc.aio a stream that its caller has cancelled ends like one that is complete; that the call
    is cancelled is only heard afterwards. So its end is not believed at once.
    """
    async for chunk in chunks:
        yield chunk
    await asyncio.sleep(SETTLE_SECONDS)


async def whole(chunks: AsyncIterator[Chunk]) -> AsyncIterator[bytes]:
    """For readers that put chunks together."""
    async for chunk in chunks:
        yield bytes(chunk)


def upload_spec(header: pb.UploadHeader, paths: Paths) -> UploadSpec:
    if header.sha256 and len(header.sha256) != SHA256_BYTES:
        raise InvalidRequest("sha256", f"it has {SHA256_BYTES} bytes")
    return UploadSpec(
        path=paths.of(header),
        mode=mode(header.mode, default=0o644),
        size=header.size_bytes if header.HasField("size_bytes") else None,
        sha256=header.sha256 or None,
        replace=replaces(header.overwrite),
        make_parents=header.make_parents,
    )


def tar_spec(header: pb.UploadTarHeader, paths: Paths) -> TarSpec:
    return TarSpec(
        path=paths.or_workspace(header),
        compression=compression(header.compression),
        replace=replaces(header.overwrite),
    )


def mode(value: int, *, default: int) -> int:
    if value > 0o7777:
        raise InvalidRequest("mode", "it is more than the permission bits 07777")
    return value & 0o777 if value else default


def replaces(policy: pb.OverwritePolicy.ValueType) -> bool:
    if policy not in pb.OverwritePolicy.values():
        raise InvalidRequest("overwrite", "it is no known policy")
    return policy != pb.OVERWRITE_POLICY_FAIL


def compression(value: files_pb2.TarCompression.ValueType) -> Compression:
    if value not in files_pb2.TarCompression.values():
        raise InvalidRequest("compression", "it is no known compression")
    return Compression(value or Compression.NONE)


def page_size(value: int) -> int:
    return wire.bounded("page_size", value, default=DEFAULT_PAGE, limit=MAX_PAGE)


def after(token: str) -> bytes:
    """What the page before ended with."""
    try:
        return base64.urlsafe_b64decode(token.encode("ascii"))
    except (ValueError, binascii.Error):
        raise InvalidRequest("page_token", "use the token of the page before, unchanged") from None


def text_spec(request: pb.WriteTextRequest, paths: Paths) -> TextSpec:
    if request.line_count and not request.first_line:
        raise InvalidRequest("line_count", "it goes with `first_line`")
    return TextSpec(
        path=paths.of(request),
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
        raise InvalidRequest("expected_count", "it does not go with `replace_all`")
    return EditSpec(
        path=paths.of(request),
        old_text=_text("old_text", request.old_text),
        new_text=_text("new_text", request.new_text),
        expected_count=None if request.replace_all else request.expected_count or 1,
    )


def _text(field: str, value: str) -> str:
    if len(value.encode()) > MAX_TEXT:
        raise InvalidRequest(field, f"it has over {MAX_TEXT} bytes; use UploadFile")
    return value


def grep_spec(request: pb.GrepFilesRequest, paths: Paths) -> GrepSpec:
    return GrepSpec(
        path=paths.or_workspace(request),
        pattern=pattern(request.pattern),
        regex=request.regex,
        ignore_case=request.ignore_case,
        glob=_short("glob", request.glob),
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
        raise InvalidRequest(field, f"it has over {MAX_PATTERN} characters")
    return value


def gather_seconds(request: pb.WatchFilesRequest) -> float:
    asked = wire.seconds(request, "gather", low=0.0, high=MAX_GATHER_SECONDS)
    return DEFAULT_GATHER_SECONDS if asked is None else asked


# --- responses ---


def download_chunk(data: bytes) -> pb.DownloadFileResponse:
    """Written already: the guard sends it as it is."""
    written = with_chunk(pb.DownloadFileResponse.CHUNK_FIELD_NUMBER, data)
    return cast(pb.DownloadFileResponse, written)


def tar_chunk(data: bytes) -> pb.DownloadTarResponse:
    """Likewise."""
    return cast(pb.DownloadTarResponse, with_chunk(pb.DownloadTarResponse.CHUNK_FIELD_NUMBER, data))


def fill_entry(message: files_pb2.FileEntry, one: Entry) -> None:
    # In place: of a thousand entries, each would be copied into the message around it.
    message.path = text = text_of(one.path)
    message.name = text.rpartition("/")[2]
    # ASCII of the same length is what it was: whatever is escaped becomes longer.
    is_exact = text.isascii() and len(text) == len(one.path)
    if not is_exact and (exact := exact_of(one.path)):
        message.path_bytes = exact
    message.type = _TYPES[one.type]
    message.size_bytes = one.size
    seconds, nanoseconds = divmod(one.modified_ns, 1_000_000_000)
    message.modified = in_words(seconds, nanoseconds)
    time = message.modify_time
    time.nanos = nanoseconds
    time.seconds = min(max(seconds, _FIRST_SECOND), _LAST_SECOND)
    message.mode = one.mode
    message.permissions = one.permissions
    if one.link_target:
        message.link_target = text_of(one.link_target)
        message.link_target_bytes = exact_of(one.link_target)


def entry(one: Entry) -> files_pb2.FileEntry:
    message = files_pb2.FileEntry()
    fill_entry(message, one)
    return message


def add_entries(
    response: pb.ListFilesResponse | pb.GlobFilesResponse, entries: Sequence[Entry]
) -> None:
    for one in entries:
        fill_entry(response.entries.add(), one)


def finish_listing(response: pb.ListFilesResponse, found: Listing) -> None:
    """All but the entries."""
    response.next_page_token = base64.urlsafe_b64encode(found.next_after).decode()
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
        entry=entry(read.entry),
    )


def grepped(found: GrepResult) -> pb.GrepFilesResponse:
    return pb.GrepFilesResponse(
        matches=[
            files_pb2.GrepMatch(
                path=text_of(one.path),
                path_bytes=exact_of(one.path),
                line_number=one.line_number,
                line=one.line,
            )
            for one in found.matches
        ],
        complete=found.complete,
        searched_files=found.searched_files,
    )


def changed(told: Changes) -> pb.WatchFilesResponse:
    return pb.WatchFilesResponse(
        changes=[_change(one) for one in told.changes], overflow=told.overflow
    )


def _change(one: Change) -> pb.FileChange:
    return pb.FileChange(
        kind=pb.FileChangeKind.ValueType(one.kind),
        path=text_of(one.path),
        path_bytes=exact_of(one.path),
        old_path=text_of(one.old_path),
        old_path_bytes=exact_of(one.old_path),
        is_directory=one.is_directory,
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
    return [files_pb2.RefusedMember(name=text_of(one.name), why=one.why) for one in members]
