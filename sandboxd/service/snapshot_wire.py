"""Messages of SnapshotService to domain objects and back."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import cast

from sandboxd.config import Config
from sandboxd.errors import InvalidRequest, quoted
from sandboxd.files import FilePath, exact_of, text_of
from sandboxd.service import session_wire, wire
from sandboxd.service.transport.chunk_messages import with_chunk
from sandboxd.sessions.lines import AutoSnapshot, Cause, cause_of
from sandboxd.sessions.snapshots import Fork, ForkRequest, SnapshotRef, new_threads
from sandboxd.sessions.thinning import LineLimits
from sandboxd.snapshots.contract import (
    Change,
    ChangeKind,
    Consistency,
    Diff,
    DiffLimits,
    Entry,
    Kind,
    Snapshot,
    Verification,
)
from sandboxd_proto.v1 import session_pb2, snapshot_pb2
from sandboxd_proto.v1 import snapshot_service_pb2 as pb

MAX_LABEL = 256
MAX_FORKS = 100
MAX_CONTEXT_LINES = 20
DEFAULT_TEXT_BYTES = 1 << 20
MAX_TEXT_BYTES = 8 << 20
MAX_PROBLEMS = 100
CHANGES_PER_MESSAGE = 200
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)

_CAUSES = {
    Cause.REQUESTED: snapshot_pb2.SNAPSHOT_CAUSE_REQUESTED,
    Cause.EXEC: snapshot_pb2.SNAPSHOT_CAUSE_EXEC,
    Cause.FILES: snapshot_pb2.SNAPSHOT_CAUSE_FILES,
    Cause.BASELINE: snapshot_pb2.SNAPSHOT_CAUSE_BASELINE,
    Cause.PARK: snapshot_pb2.SNAPSHOT_CAUSE_PARK,
    Cause.BEFORE_REWIND: snapshot_pb2.SNAPSHOT_CAUSE_BEFORE_REWIND,
    Cause.IMPORT: snapshot_pb2.SNAPSHOT_CAUSE_IMPORT,
    Cause.FORK: snapshot_pb2.SNAPSHOT_CAUSE_FORK,
}
_KINDS = {
    ChangeKind.ADDED: snapshot_pb2.SNAPSHOT_CHANGE_KIND_ADDED,
    ChangeKind.CHANGED: snapshot_pb2.SNAPSHOT_CHANGE_KIND_CHANGED,
    ChangeKind.REMOVED: snapshot_pb2.SNAPSHOT_CHANGE_KIND_REMOVED,
    ChangeKind.MOVED: snapshot_pb2.SNAPSHOT_CHANGE_KIND_MOVED,
}
_FILE_TYPES = {
    Kind.FILE: stat.S_IFREG,
    Kind.DIRECTORY: stat.S_IFDIR,
    Kind.LINK: stat.S_IFLNK,
    Kind.FIFO: stat.S_IFIFO,
}


# --- requests ---


def request_id(text: str) -> str:
    if text and not _REQUEST_ID.fullmatch(text):
        raise InvalidRequest(
            "request_id", f"{quoted(text)} is not valid; use 1 to 64 letters, digits or _ - ."
        )
    return text


def label(text: str) -> str:
    if len(text) > MAX_LABEL:
        raise InvalidRequest("label", f"must have at most {MAX_LABEL} characters")
    if not text.isprintable():
        raise InvalidRequest("label", "must not contain control characters")
    return text


def consistency(value: int) -> Consistency:
    wire.check_enum("consistency", value, pb.SnapshotConsistency.DESCRIPTOR, noun="consistency")
    if value == pb.SNAPSHOT_CONSISTENCY_ONE_MOMENT:
        return Consistency.ONE_MOMENT
    return Consistency.WHOLE_FILES


def ref(message: snapshot_pb2.SnapshotRef, field: str = "snapshot") -> SnapshotRef:
    chosen = message.WhichOneof("ref")
    if chosen is None:
        raise InvalidRequest(field, "name a snapshot by number, label, turn, command or `back`")
    value = getattr(message, chosen)
    if isinstance(value, str) and not 1 <= len(value) <= MAX_LABEL:
        raise InvalidRequest(f"{field}.{chosen}", f"must have 1 to {MAX_LABEL} characters")
    return SnapshotRef(**{chosen: value})


def optional_ref(message: snapshot_pb2.SnapshotRef, field: str) -> SnapshotRef | None:
    return ref(message, field) if message.WhichOneof("ref") is not None else None


def path(request: pb.ReadSnapshotFileRequest, config: Config) -> bytes:
    parsed = FilePath.parse(request.path, request.path_bytes, workspace=config.workspace_dir)
    return _inside(parsed, "path")


def diff_limits(request: pb.DiffSnapshotsRequest, config: Config) -> DiffLimits:
    total = wire.bounded(
        "max_text_bytes", request.max_text_bytes, default=DEFAULT_TEXT_BYTES, limit=MAX_TEXT_BYTES
    )
    lines = request.context_lines if request.HasField("context_lines") else 3
    if lines > MAX_CONTEXT_LINES:
        raise InvalidRequest("context_lines", f"must be at most {MAX_CONTEXT_LINES}")
    prefix = FilePath.parse(
        request.path_prefix,
        workspace=config.workspace_dir,
        field="path_prefix",
        may_be_workspace=True,
    )
    return DiffLimits(
        with_text=request.with_text,
        path_prefix=_inside(prefix, "path_prefix"),
        context_lines=lines,
        max_total_bytes=total,
    )


def _inside(parsed: FilePath, field: str) -> bytes:
    if parsed.is_outside:
        raise InvalidRequest(field, "snapshots hold nothing outside of the workspace")
    return parsed.raw


def fork_request(request: pb.ForkSessionRequest) -> ForkRequest:
    wanted_id = request_id(request.request_id)
    if bool(request.thread_ids) == bool(request.count):
        raise InvalidRequest("thread_ids", "set either `thread_ids` or `count`")
    if max(len(request.thread_ids), request.count) > MAX_FORKS:
        raise InvalidRequest("thread_ids", f"at most {MAX_FORKS} forks can be made at once")
    threads = [session_wire.name("thread_ids", one) for one in request.thread_ids]
    if len(set(threads)) < len(threads):
        raise InvalidRequest("thread_ids", "a thread is named twice")
    return ForkRequest(
        threads=threads or new_threads(request.count, wanted_id),
        idle_seconds=session_wire.idle_seconds(request),
        metadata=session_wire.metadata(request.metadata) if request.metadata else None,
        request_id=wanted_id,
    )


# --- responses ---


def snapshot(source: Snapshot) -> snapshot_pb2.Snapshot:
    notes = source.notes
    return snapshot_pb2.Snapshot(
        session_id=source.line.name,
        number=source.number,
        create_time=wire.timestamp(source.created_at),
        label=notes.label,
        cause=_CAUSES.get(cause_of(source), snapshot_pb2.SNAPSHOT_CAUSE_REQUESTED),
        exec_id=notes.exec_id,
        turn_id=notes.turn_id,
        incarnation=notes.incarnation,
        files=source.entries,
        size_bytes=source.content_bytes,
        stored_bytes=source.stored_bytes,
        added=source.added,
        changed=source.changed,
        removed=source.removed,
        moving_files=[text_of(path) for path in source.moving],
        moving_count=source.moving_count,
        left_out=source.left_out,
    )


def line(
    found: Sequence[Snapshot], limits: LineLimits, auto: AutoSnapshot, paused_because: str
) -> pb.SnapshotLine:
    return pb.SnapshotLine(
        snapshots=len(found),
        stored_bytes=sum(one.stored_bytes for one in found),
        max_snapshots=limits.count,
        max_stored_bytes=limits.stored_bytes,
        auto_snapshot=session_wire.AUTO_SNAPSHOTS[auto],
        paused_because=paused_because,
    )


def diff(found: Diff) -> Iterator[pb.DiffSnapshotsResponse]:
    """The messages of a comparison; the last one has the totals."""
    rest = iter(found.changes)
    while part := list(islice(rest, CHANGES_PER_MESSAGE)):
        yield pb.DiffSnapshotsResponse(changes=map(_change, part))
    yield pb.DiffSnapshotsResponse(
        summary=pb.DiffSummary(
            added=found.counts.get(ChangeKind.ADDED, 0),
            changed=found.counts.get(ChangeKind.CHANGED, 0),
            removed=found.counts.get(ChangeKind.REMOVED, 0),
            moved=found.counts.get(ChangeKind.MOVED, 0),
            cut=sum(found.counts.values()) > len(found.changes),
        )
    )


def _change(source: Change) -> snapshot_pb2.SnapshotChange:
    before, after = source.before, source.after
    return snapshot_pb2.SnapshotChange(
        path=text_of(source.path),
        path_bytes=exact_of(source.path),
        kind=_KINDS[source.kind],
        moved_from=text_of(source.old_path),
        moved_from_bytes=exact_of(source.old_path),
        old_size_bytes=before.size if before else 0,
        new_size_bytes=after.size if after else 0,
        old_mode=mode(before) if before else 0,
        new_mode=mode(after) if after else 0,
        unified_diff=source.text_diff,
        binary=source.is_binary,
        cut=source.is_text_cut,
    )


def mode(entry: Entry) -> int:
    """Type and permissions, as in stat(2)."""
    return _FILE_TYPES[entry.kind] | entry.mode


def file(entry: Entry) -> pb.SnapshotFile:
    return pb.SnapshotFile(path=text_of(entry.path), size_bytes=entry.size, mode=mode(entry))


def file_chunk(data: bytes) -> pb.ReadSnapshotFileResponse:
    """A message in serialised form, which the guard sends as it is."""
    written = with_chunk(pb.ReadSnapshotFileResponse.CHUNK_FIELD_NUMBER, data)
    return cast(pb.ReadSnapshotFileResponse, written)


def archive_chunk(data: bytes) -> pb.ExportSnapshotResponse:
    """A message in serialised form, which the guard sends as it is."""
    written = with_chunk(pb.ExportSnapshotResponse.CHUNK_FIELD_NUMBER, data)
    return cast(pb.ExportSnapshotResponse, written)


def fork(source: Fork, described: session_pb2.Session | None) -> pb.ForkResult:
    return pb.ForkResult(
        thread_id=source.thread_id,
        session=described,
        reason=source.error.reason if source.error else "",
        message=source.error.message if source.error else "",
    )


def verification(found: Verification) -> pb.VerifySnapshotsResponse:
    return pb.VerifySnapshotsResponse(
        snapshots=found.snapshots,
        objects=found.packs,
        content_bytes=found.content_bytes,
        problems=[
            pb.SnapshotProblem(key=one.key, problem=one.problem)
            for one in found.problems[:MAX_PROBLEMS]
        ],
        problem_count=len(found.problems),
    )
