"""The lines of snapshots of sessions: each session has one, and every snapshot has a cause."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from weakref import WeakValueDictionary

from sandboxd.errors import (
    SandboxdError,
    SandboxLost,
    SnapshotLimitReached,
    SnapshotsOff,
)
from sandboxd.registry.contract import SessionRecord
from sandboxd.sandboxes.kept_files import KeptFilesStore
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sessions.thinning import LineLimits, surplus
from sandboxd.snapshots.contract import (
    Consistency,
    Line,
    Notes,
    Snapshot,
    Snapshots,
    WorkspaceDisk,
)
from sandboxd.snapshots.objects import snapshots_need_space
from sandboxd.workspaces.disks import Disk


class AutoSnapshot(StrEnum):
    """Which automatic snapshots a session gets."""

    OFF = "off"
    COMMANDS = "commands"
    """After every command or file call that changed something."""
    TURNS = "turns"
    """One per turn that callers name."""


class Cause(StrEnum):
    """Why a snapshot was taken."""

    REQUESTED = "requested"
    EXEC = "exec"
    FILES = "files"
    BASELINE = "baseline"
    PARK = "park"
    BEFORE_REWIND = "before_rewind"
    IMPORT = "import"
    FORK = "fork"
    COMPARED = "compared"
    """Only to compare the present with another snapshot; it is deleted afterwards."""


PASSING = (Cause.EXEC, Cause.FILES, Cause.BASELINE, Cause.COMPARED)
"""Causes of snapshots beside which the workspace lives on."""
LASTING = (Cause.REQUESTED, Cause.IMPORT)
"""Causes of snapshots that only callers delete."""


@dataclass(frozen=True, kw_only=True)
class SnapshotSettings:
    """When automatic snapshots are taken, and how many are kept."""

    directory: Path
    """On the filesystem whose free space decides whether there are automatic snapshots."""
    reserve_bytes: int
    """Free space below which none are taken."""
    limits: LineLimits
    auto: AutoSnapshot = AutoSnapshot.OFF
    """Of new sessions that ask for nothing else."""
    park_seconds: float = 0.0
    """The same for the idle time after which a session is parked; 0 means never."""
    parks_instead_of_expiry: bool = False
    parked_seconds: float = 7 * 86400.0
    """How long a parked session is kept."""
    max_user_parked: int = 0
    """Parked sessions of one user; 0 means no limit."""


@dataclass(frozen=True, kw_only=True)
class Occasion:
    """Why, and after what, a snapshot is taken."""

    cause: Cause
    label: str = ""
    exec_id: str = ""
    turn_id: str = ""
    request_id: str = ""

    @property
    def is_automatic(self) -> bool:
        return self.cause not in LASTING

    def notes(self, record: SessionRecord) -> Notes:
        return Notes(
            label=self.label,
            cause=self.cause.value,
            exec_id=self.exec_id,
            turn_id=self.turn_id,
            incarnation=record.incarnation,
            request_id=self.request_id,
        )


def cause_of(snapshot: Snapshot) -> Cause:
    try:
        return Cause(snapshot.notes.cause)
    except ValueError:  # of a later release
        return Cause.REQUESTED


def is_automatic(snapshot: Snapshot) -> bool:
    return cause_of(snapshot) not in LASTING


def line_of(record: SessionRecord) -> Line:
    return Line(user_id=record.user_id, name=record.session_id)


class SessionLines:
    """Takes, finds and deletes the snapshots of sessions, and restores them."""

    def __init__(
        self,
        snapshots: Snapshots | None,
        kept_files: KeptFilesStore,
        settings: SnapshotSettings,
        *,
        workspace_dir: str,
        why_off: str = "",
    ) -> None:
        """Without `snapshots`, `why_off` says why there are none."""
        self._snapshots = snapshots
        self.why_off = why_off
        self._kept_files = kept_files
        self._workspace_dir = workspace_dir
        self.settings = settings
        self.check_owner: Callable[[SessionRecord], None] = lambda record: None
        """Raises if this worker may not write for a session."""
        self.on_taken: Callable[[SessionRecord, int], None] = lambda record, number: None
        """Called with every snapshot of a session that is in the store."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @classmethod
    def off(cls, kept_files: KeptFilesStore) -> SessionLines:
        """Of a daemon that takes no snapshots."""
        settings = SnapshotSettings(directory=Path("/"), reserve_bytes=0, limits=LineLimits())
        return cls(None, kept_files, settings, workspace_dir="", why_off="it is not set up for it")

    @property
    def is_on(self) -> bool:
        return self._snapshots is not None

    @property
    def store(self) -> Snapshots:
        """All snapshots; SnapshotsOff if this daemon takes none."""
        if self._snapshots is None:
            raise SnapshotsOff(self.why_off)
        return self._snapshots

    # --- taking ---

    async def take(
        self,
        record: SessionRecord,
        sandbox: Sandbox | None,
        occasion: Occasion,
        *,
        consistency: Consistency = Consistency.WHOLE_FILES,
        only_if_changed: bool = False,
    ) -> Snapshot | None:
        """A snapshot of a session's workspace; None if nothing has changed and that is enough.

        Without a sandbox, of the disk that a lost one has left.
        """
        store, line = self.store, line_of(record)
        self.check_owner(record)
        disk = Disk(id=record.disk_id, uid=record.disk_owner) if record.disk_id else None
        if disk is None:
            raise SnapshotsOff("the workspace of this session is in memory")
        self.check_space()
        async with self._lock(record.session_id):
            await self._check_room(line, occasion)
            with self._workspace(disk, sandbox) as workspace:
                taken = await store.take(
                    line,
                    workspace,
                    notes=occasion.notes(record),
                    consistency=consistency,
                    only_if_changed=only_if_changed,
                    # A power cut that takes such a snapshot takes the workspace, too.
                    is_durable=occasion.cause not in PASSING,
                )
        if taken is None:
            return None
        try:
            self.check_owner(record)
        except SandboxdError:
            # Another worker may have the session by now, and this is nothing of it.
            await store.delete(line, taken.number)
            raise
        if occasion.cause is not Cause.COMPARED:
            self.on_taken(record, taken.number)
        return taken

    async def import_archive(
        self,
        record: SessionRecord,
        archive: AsyncIterator[bytes],
        occasion: Occasion,
        *,
        max_bytes: int,
        max_entries: int,
    ) -> Snapshot:
        """A snapshot of a tar archive."""
        store, line = self.store, line_of(record)
        self.check_space()
        async with self._lock(record.session_id):
            await self._check_room(line, occasion)
            return await store.import_archive(
                line,
                archive,
                max_bytes=max_bytes,
                max_entries=max_entries,
                notes=occasion.notes(record),
            )

    def check_space(self) -> None:
        """DiskSpaceLow if snapshots would use up what is reserved on the host's disk."""
        free = shutil.disk_usage(self.settings.directory).free
        if free < self.settings.reserve_bytes:
            raise snapshots_need_space(free, self.settings.reserve_bytes)

    async def _check_room(self, line: Line, occasion: Occasion) -> None:
        """Callers may not fill the store with snapshots that only callers delete."""
        if occasion.is_automatic:
            return
        limits = self.settings.limits
        found = await self.store.find(line)
        if occasion.request_id and made_by(found, occasion.request_id) is not None:
            return
        lasting = [one for one in found if not is_automatic(one)]
        if len(lasting) >= limits.lasting:
            raise SnapshotLimitReached(
                f"The session has {limits.lasting} snapshots that only callers may delete",
                "delete some",
                limit=limits.lasting,
                setting="SANDBOXD_SNAPSHOT_TURNS",
            )
        if sum(one.stored_bytes for one in lasting) >= limits.stored_bytes:
            raise SnapshotLimitReached(
                "The snapshots of this session that only callers may delete take "
                f"{limits.stored_bytes >> 20} MiB",
                "delete some",
                limit=limits.stored_bytes,
                setting="SANDBOXD_SNAPSHOT_SESSION_MB",
            )

    def check_parked(self, count: int) -> None:
        """SnapshotLimitReached if a user who has so many parked sessions may have no other."""
        limit = self.settings.max_user_parked
        if limit and count >= limit:
            raise SnapshotLimitReached(
                f"This user has {limit} parked sessions",
                "close some, or open them and let them expire",
                limit=limit,
                setting="SANDBOXD_MAX_USER_PARKED_SESSIONS",
            )

    @contextmanager
    def _workspace(self, disk: Disk, sandbox: Sandbox | None) -> Iterator[WorkspaceDisk]:
        image = self._kept_files.image(disk)
        if sandbox is None:
            yield WorkspaceDisk(image=image, workspace=None)
            return
        with opened_workspace(sandbox, self._workspace_dir) as descriptor:
            yield WorkspaceDisk(image=image, workspace=descriptor)

    def _lock(self, session_id: str) -> asyncio.Lock:
        """One snapshot of a session at a time."""
        return self._locks.setdefault(session_id, asyncio.Lock())

    # --- restoring ---

    async def restore(self, line: Line, number: int, sandbox: Sandbox) -> None:
        """Write a snapshot into a sandbox that nobody has used. After an error, destroy it."""
        if not sandbox.is_untouched:
            raise AssertionError("a snapshot is restored only before the first command")
        with opened_workspace(sandbox, self._workspace_dir) as descriptor:
            await self.store.restore(line, number, descriptor, uid=sandbox.uid, gid=sandbox.uid)

    # --- keeping within bounds ---

    async def find(self, record: SessionRecord) -> Sequence[Snapshot]:
        """The snapshots of a session, oldest first."""
        found = await self.store.find(line_of(record))
        return [one for one in found if cause_of(one) is not Cause.COMPARED]

    async def thin(self, record: SessionRecord, now: float) -> int:
        """Delete automatic snapshots that are too many, too old or too large; returns how many."""
        line = line_of(record)
        found = await self.store.find(line)
        doomed = surplus(found, self.settings.limits, now=now, is_automatic=is_automatic)
        for snapshot in doomed:
            await self.store.delete(line, snapshot.number)
        return len(doomed)

    async def replace_turn(self, record: SessionRecord, newest: Snapshot) -> None:
        """Delete earlier automatic snapshots of the turn that this one is of."""
        line = line_of(record)
        for snapshot in await self.store.find(line):
            is_same = snapshot.notes.turn_id == newest.notes.turn_id
            if is_same and is_automatic(snapshot) and snapshot.number < newest.number:
                await self.store.delete(line, snapshot.number)

    async def delete_line(self, record: SessionRecord) -> None:
        """Delete all snapshots of a session."""
        if self._snapshots is not None:
            await self._snapshots.delete_line(line_of(record))


def made_by(line: Sequence[Snapshot], request_id: str) -> Snapshot | None:
    """The snapshot that an earlier call with this request id has made."""
    return next((one for one in line if one.notes.request_id == request_id), None)


@contextmanager
def opened_workspace(sandbox: Sandbox, path: str) -> Iterator[int]:
    """A descriptor of the workspace that a sandbox shows. SandboxLost if it is gone."""
    if sandbox.process is None:
        raise SandboxLost("it has no process")
    try:
        descriptor = sandbox.process.open_directory(path)
    except OSError as error:
        raise SandboxLost("its workspace cannot be opened") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)
