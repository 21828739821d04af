"""What calls about snapshots return."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, TypeAlias

from sandboxd_client.errors import InvalidRequestError
from sandboxd_client.records import Record, record
from sandboxd_client.results import Result, iso
from sandboxd_proto.v1 import snapshot_pb2

if TYPE_CHECKING:
    from sandboxd_proto.v1 import snapshot_service_pb2 as pb

AutoSnapshotName: TypeAlias = Literal["off", "commands", "turns"]
"""Which automatic snapshots a session gets: none, after every change, or one per turn."""
ConsistencyName: TypeAlias = Literal["whole_files", "one_moment"]
"""Whether all files have to be of one moment, even if commands have to stop for it."""
SnapshotChangeName: TypeAlias = Literal["added", "changed", "removed", "moved"]


class SnapshotInfo(Result):
    """A snapshot of a workspace."""

    session_id: str
    number: int
    """Names it in its session."""
    created_at: str
    """ISO 8601 time."""
    label: str
    cause: str
    """Why it was taken: `requested`, `exec`, `files`, `baseline`, `park`, `before_rewind`,
    `import`, `fork`."""
    turn_id: str
    exec_id: str
    incarnation: int
    files: int
    size_bytes: int
    stored_bytes: int
    """Bytes that had to be stored for it."""
    added: int
    changed: int
    removed: int

    moving_files: list[str]
    """Files that changed while it was taken; empty for a workspace at rest."""

    @classmethod
    def of(cls, snapshot: snapshot_pb2.Snapshot) -> SnapshotInfo:
        cause = snapshot_pb2.SnapshotCause.Name(snapshot.cause)
        info = cls(
            session_id=snapshot.session_id,
            number=snapshot.number,
            created_at=iso(snapshot.create_time),
            label=snapshot.label,
            cause=cause.removeprefix("SNAPSHOT_CAUSE_").lower(),
            turn_id=snapshot.turn_id,
            exec_id=snapshot.exec_id,
            incarnation=snapshot.incarnation,
            files=snapshot.files,
            size_bytes=snapshot.size_bytes,
            stored_bytes=snapshot.stored_bytes,
            added=snapshot.added,
            changed=snapshot.changed,
            removed=snapshot.removed,
        )
        info.moving_files = list(snapshot.moving_files)
        return info


SnapshotName: TypeAlias = int | str | SnapshotInfo
"""A snapshot: its number, or 0 for the newest; `-1` as text for the one before it, and so on; its
label; or what a call returned. `turn:ID` is the end of a turn, `before:ID` what was before it."""


@record(frozen=True)
class SnapshotChange(Record):
    """A path that differs between two states of a workspace."""

    path: str
    kind: SnapshotChangeName
    moved_from: str
    """Earlier path of what was moved."""
    old_size_bytes: int
    new_size_bytes: int
    old_mode: int
    """Type and permissions as in stat(2); 0 if it was not there. `new_mode` likewise."""
    new_mode: int
    unified_diff: str
    """If it was asked for: how the text changed."""
    is_binary: bool
    """Whether the content changed and is no text."""
    is_cut: bool
    """Whether the text diff is too large to be complete."""

    @classmethod
    def of(cls, change: snapshot_pb2.SnapshotChange) -> SnapshotChange:
        kind = snapshot_pb2.SnapshotChangeKind.Name(change.kind)
        return cls(
            path=change.path,
            kind=_kind(kind.removeprefix("SNAPSHOT_CHANGE_KIND_").lower()),
            moved_from=change.moved_from,
            old_size_bytes=change.old_size_bytes,
            new_size_bytes=change.new_size_bytes,
            old_mode=change.old_mode,
            new_mode=change.new_mode,
            unified_diff=change.unified_diff,
            is_binary=change.binary,
            is_cut=change.cut,
        )


def _kind(name: str) -> SnapshotChangeName:
    kinds: dict[str, SnapshotChangeName] = {
        "added": "added",
        "changed": "changed",
        "removed": "removed",
        "moved": "moved",
    }
    return kinds[name]


@record(frozen=True)
class SnapshotDiff(Record):
    """What differs between two states of a workspace."""

    changes: list[SnapshotChange]
    """Sorted by path."""
    added: int
    changed: int
    removed: int
    moved: int
    is_cut: bool
    """Whether there are more changes than `changes` has."""


@record(frozen=True)
class SnapshotCheck(Record):
    """What a check of the store found."""

    snapshots: int
    objects: int
    content_bytes: int
    problems: list[str]
    """The first 100."""
    problem_count: int

    @classmethod
    def of(cls, found: pb.VerifySnapshotsResponse) -> SnapshotCheck:
        return cls(
            snapshots=found.snapshots,
            objects=found.objects,
            content_bytes=found.content_bytes,
            problems=[f"{one.key}: {one.problem}" for one in found.problems],
            problem_count=found.problem_count,
        )


def reference(snapshot: SnapshotName) -> snapshot_pb2.SnapshotRef:
    """How a snapshot is named in a request."""
    if isinstance(snapshot, SnapshotInfo):
        return snapshot_pb2.SnapshotRef(number=snapshot.number)
    if isinstance(snapshot, int):
        if snapshot > 0:
            return snapshot_pb2.SnapshotRef(number=snapshot)
        return snapshot_pb2.SnapshotRef(back=0)
    if re.fullmatch(r"-[0-9]{1,9}", snapshot, re.ASCII):
        return snapshot_pb2.SnapshotRef(back=int(snapshot[1:]))
    kind, _, rest = snapshot.partition(":")
    if kind == "turn" and rest:
        return snapshot_pb2.SnapshotRef(turn_id=rest)
    if kind == "before" and rest:
        return snapshot_pb2.SnapshotRef(before_turn_id=rest)
    if not snapshot:
        raise InvalidRequestError("snapshot: name it by number, label or turn")
    return snapshot_pb2.SnapshotRef(label=snapshot)
