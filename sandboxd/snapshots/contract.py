"""What a snapshot is, and what can be done with snapshots.

A snapshot holds the names, modes, times, links, extended attributes and content of everything in a
workspace. It never changes. The snapshots of one workspace are a line, oldest first; each belongs
to one user, and content is stored once among all snapshots of that user.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

LINE_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")
"""Names of lines; they become part of keys in the store."""
MAX_NOTE_BYTES = 16 << 10
"""Of all notes of a snapshot together."""
MAX_MOVING = 20
CHUNK_DIGEST_BYTES = 32


class Kind(StrEnum):
    """What a name in a workspace leads to. Sockets are left out, devices cannot exist."""

    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    FIFO = "fifo"


@dataclass(frozen=True, slots=True)
class ChunkRef:
    """A piece of a file's content, and where it is stored."""

    digest: bytes
    """SHA-256 of the content."""
    size: int
    pack: str
    """The object that holds it, compressed, at `offset` with `length` bytes."""
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class Hole:
    """A piece of a file's content that is not stored anywhere: zeros."""

    size: int


Piece = ChunkRef | Hole


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One name in a snapshot."""

    path: bytes
    """Relative to the workspace, without a slash at either end; empty for the workspace itself."""
    kind: Kind
    mode: int
    """Permission bits, with set-id and sticky bits."""
    is_root: bool
    """Whether it belongs to root, as some directories of every workspace do; else to commands."""
    mtime_ns: int
    size: int
    """Bytes of a file's content; 0 for anything else."""
    number: int
    """Names with the same number are hard links to one file."""
    links: int
    """How many names it has."""
    target: bytes = b""
    """What a symbolic link leads to."""
    pieces: tuple[Piece, ...] = ()
    attributes: tuple[tuple[bytes, bytes], ...] = ()
    """Extended attributes: name and value."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """The snapshots of one workspace."""

    user_id: str
    name: str
    """For example the id of a session; see LINE_NAME."""


@dataclass(frozen=True, kw_only=True)
class WorkspaceDisk:
    """The disk to take a snapshot of."""

    image: Path
    """The file that holds its filesystem (`Disks.image`)."""
    workspace: int | None
    """Descriptor of the mounted workspace, opened for reading (not O_PATH), for as long as the call
    lasts; None if it is not mounted anywhere."""


class Consistency(StrEnum):
    """What to do with a workspace that keeps changing while it is read."""

    WHOLE_FILES = "whole_files"
    """Look a few times. If some files still change, the snapshot names them in `moving`."""
    ONE_MOMENT = "one_moment"
    """Look a few times, then stop writers for at most half a second. WorkspaceBusy if that is not
    enough."""


@dataclass(frozen=True, kw_only=True)
class Notes:
    """What a snapshot is for. All of it is at most MAX_NOTE_BYTES."""

    label: str = ""
    cause: str = ""
    """Why it was taken; `exec_id` and `turn_id` after what, and `incarnation` of which sandbox."""
    exec_id: str = ""
    turn_id: str = ""
    incarnation: int = 0
    request_id: str = ""
    """A second call with the same one returns the snapshot of the first."""
    details: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """A snapshot, without what it holds."""

    line: Line
    number: int
    """Its name in the line. Counts from 1; a number is not used again."""
    created_at: float
    """Seconds since 1970."""
    notes: Notes
    entries: int
    """Number of names."""
    content_bytes: int
    """Bytes of all files."""
    stored_bytes: int
    """Bytes that this snapshot added to the store."""
    added: int = 0
    """Names that the snapshot before it does not have; a directory that was moved is one name."""
    changed: int = 0
    """Names of what differs; a directory in which only names came and went is not counted."""
    removed: int = 0
    moving: tuple[bytes, ...] = ()
    """Paths of files that changed while they were read, the first MAX_MOVING. Each is whole, but
    they may not fit together."""
    moving_count: int = 0
    left_out: int = 0
    """Number of sockets, which a snapshot cannot hold."""


class ChangeKind(StrEnum):
    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    MOVED = "moved"


@dataclass(frozen=True, kw_only=True)
class Change:
    """One path that differs between two snapshots."""

    kind: ChangeKind
    path: bytes
    """In the later snapshot; of what was removed, in the earlier one."""
    old_path: bytes = b""
    """Of what was moved."""
    before: Entry | None = None
    after: Entry | None = None
    is_content_changed: bool = False
    """Whether the content of a file differs, and not only its mode, times or attributes."""
    is_binary: bool = False
    """Whether the content is not text, so that there is no text diff."""
    text_diff: str = ""
    """A unified diff, if it was asked for and the content is text and not too large."""
    is_text_cut: bool = False
    """Whether the text diff was left out or shortened because it is too large."""


@dataclass(frozen=True, kw_only=True)
class Diff:
    changes: Sequence[Change]
    """Ordered by path."""
    counts: Mapping[ChangeKind, int]
    """How many there are of each kind, also beyond `max_changes`."""


@dataclass(frozen=True, kw_only=True)
class DiffLimits:
    max_changes: int = 10_000
    with_text: bool = True
    path_prefix: bytes = b""
    """Only what is at or below this path."""
    context_lines: int = 3
    max_file_bytes: int = 1 << 20
    """Larger files get no text diff."""
    max_text_bytes: int = 64 << 10
    """Of one text diff."""
    max_total_bytes: int = 1 << 20
    """Of all text diffs."""


@dataclass(frozen=True, kw_only=True)
class Restored:
    entries: int
    content_bytes: int


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Something that `verify` found."""

    key: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    snapshots: int
    packs: int
    chunks: int
    content_bytes: int
    problems: Sequence[Problem]


@dataclass(frozen=True, kw_only=True)
class Garbage:
    """What a garbage collection did."""

    kept: int
    """Objects that are needed."""
    waiting: int
    """Objects that nothing needs and snapshots that were deleted, too short a time ago."""
    deleted: int
    deleted_bytes: int


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Counted since the start of the daemon."""

    taken: int = 0
    moving: int = 0
    freezes: int = 0
    restored: int = 0
    failed: int = 0
    stored_bytes: int = 0
    deduplicated_bytes: int = 0
    """Bytes of changed content that the store had already."""
    store_calls: int = 0
    store_retries: int = 0
    garbage_bytes: int = 0


class Snapshots(Protocol):
    """All snapshots. Every call has a deadline and can be cancelled.

    Calls raise SnapshotNotFound, SnapshotDamaged, SnapshotStoreFailed, and what they name.
    """

    async def take(
        self,
        line: Line,
        disk: WorkspaceDisk,
        *,
        notes: Notes = Notes(),
        consistency: Consistency = Consistency.WHOLE_FILES,
        only_if_changed: bool = False,
        is_durable: bool = True,
    ) -> Snapshot | None:
        """Take a snapshot; None if it was to be taken only after a change and nothing changed.

        One that is not durable may be lost in a power cut, and takes a tenth of the time.

        With a request id that the line has already, returns that snapshot and takes none.
        WorkspaceBusy if it is not of one moment, WorkspaceUnreadable if the filesystem is not one
        that we made.
        """
        ...

    async def find(self, line: Line) -> Sequence[Snapshot]:
        """The snapshots of a line, oldest first."""
        ...

    async def get(self, line: Line, number: int) -> Snapshot: ...

    async def entries(self, line: Line, number: int) -> Sequence[Entry]:
        """Everything in it; a directory comes before what is in it."""
        ...

    def read_file(
        self,
        line: Line,
        number: int,
        path: bytes,
        *,
        offset: int = 0,
        max_bytes: int | None = None,
    ) -> AsyncIterator[bytes]:
        """The content of a file, checked. FileNotFound and NotAFile; links are not followed."""
        ...

    async def diff(
        self,
        line: Line,
        before: int,
        after: int,
        limits: DiffLimits = DiffLimits(),
    ) -> Diff: ...

    async def restore(
        self, line: Line, number: int, directory: int, *, uid: int, gid: int
    ) -> Restored:
        """Write it into a workspace in which no command has run.

        `directory` is a descriptor of that workspace. Other mounts in it are left alone. After an
        error the workspace holds a part: destroy it.
        """
        ...

    async def copy(self, line: Line, number: int, to: Line, *, notes: Notes = Notes()) -> Snapshot:
        """Make it the next snapshot of another line of the same user. Stores no content."""
        ...

    async def delete(self, line: Line, number: int) -> None:
        """Delete it, if it exists. Its space is free after a garbage collection."""
        ...

    async def delete_line(self, line: Line) -> None: ...

    def export(self, line: Line, number: int) -> AsyncIterator[bytes]:
        """A tar archive (PAX) of everything in it."""
        ...

    async def import_archive(
        self,
        line: Line,
        archive: AsyncIterator[bytes],
        *,
        max_bytes: int,
        max_entries: int,
        notes: Notes = Notes(),
    ) -> Snapshot:
        """Make a snapshot of a tar archive. InvalidArchive says what is wrong with it."""
        ...

    async def verify(self, line: Line | None = None) -> Verification:
        """Read everything that a line needs, or everything there is, and check it."""
        ...

    async def collect_garbage(self, owners: Collection[str] | None = None) -> Garbage:
        """Delete what no snapshot needs and has not needed for a while: of all users, or of these.

        The first look notes what is not needed, so it takes a few.
        """
        ...

    async def much_deleted(self, seconds: float) -> Collection[str]:
        """Owners that have deleted so much that its space should be free soon; waits for the first
        one, for so many seconds at most."""
        ...

    def figures(self) -> Figures: ...

    async def close(self) -> None: ...
