"""What callers do with the snapshots of sessions."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from sandboxd.errors import SandboxdError, SnapshotInUse, SnapshotNotFound
from sandboxd.registry.contract import SessionRecord, SessionState
from sandboxd.sessions.journal import Journal
from sandboxd.sessions.lines import (
    AutoSnapshot,
    Cause,
    Occasion,
    SessionLines,
    line_of,
    made_by,
)
from sandboxd.sessions.opening import EnvironmentConfig, OpenRequest, Origin
from sandboxd.sessions.session import Session, kept_files_of
from sandboxd.sessions.sessions import Sessions
from sandboxd.snapshots.contract import (
    Consistency,
    Diff,
    DiffLimits,
    Entry,
    Line,
    Snapshot,
    Verification,
)

FORKS_AT_ONCE = 8


@dataclass(frozen=True)
class SnapshotRef:
    """A snapshot as a caller names it; one field is set."""

    number: int | None = None
    label: str | None = None
    turn_id: str | None = None
    before_turn_id: str | None = None
    before_exec_id: str | None = None
    back: int | None = None

    def __str__(self) -> str:
        named = {name: value for name, value in vars(self).items() if value is not None}
        return " ".join(f"{name} {value}" for name, value in named.items())

    def find(self, line: Sequence[Snapshot]) -> Snapshot:
        """The one that is meant, of a line from old to new; SnapshotNotFound."""
        found = self._matching(line)
        if not found:
            raise SnapshotNotFound(f"with {self}")
        return found[-1]

    def _matching(self, line: Sequence[Snapshot]) -> Sequence[Snapshot]:
        if self.number is not None:
            return [one for one in line if one.number == self.number]
        if self.label is not None:
            return [one for one in line if one.notes.label == self.label]
        if self.turn_id is not None:
            return [one for one in line if one.notes.turn_id == self.turn_id]
        if self.before_turn_id is not None:
            return _before(line, [one.notes.turn_id == self.before_turn_id for one in line])
        if self.before_exec_id is not None:
            return _before(line, [one.notes.exec_id == self.before_exec_id for one in line])
        return line[: len(line) - (self.back or 0)]


def _before(line: Sequence[Snapshot], is_meant: Sequence[bool]) -> Sequence[Snapshot]:
    return line[: is_meant.index(True)] if True in is_meant else ()


@dataclass(frozen=True, kw_only=True)
class ForkRequest:
    """What the forks of a session are to be."""

    threads: Sequence[str]
    idle_seconds: float | None = None
    metadata: Mapping[str, str] | None = None
    """None means the labels of the session."""
    request_id: str = ""


class Fork(NamedTuple):
    """One of the forks that were asked for."""

    thread_id: str
    session: Session | None
    error: SandboxdError | None


class Restoration(NamedTuple):
    """A session that was rewound."""

    session: Session
    restored_from: Snapshot
    before: Snapshot | None


class SessionSnapshots:
    """The snapshots of sessions that the caller may see."""

    def __init__(self, sessions: Sessions, journal: Journal) -> None:
        self._sessions = sessions
        self._journal = journal

    @property
    def lines(self) -> SessionLines:
        return self._sessions.lines

    # --- looking ---

    async def list(self, session_id: str) -> tuple[Session, Sequence[Snapshot]]:
        """A session and its snapshots, oldest first."""
        session = self._sessions.get(session_id)
        await self._sessions.turns.finish(session_id)
        return session, await self.lines.find(session.record)

    async def get(self, session_id: str, ref: SnapshotRef) -> Snapshot:
        _, line = await self.list(session_id)
        return ref.find(line)

    async def diff(
        self, session_id: str, before: SnapshotRef, after: SnapshotRef | None, limits: DiffLimits
    ) -> Diff:
        """What differs between two snapshots, or between one and the present."""
        session, line = await self.list(session_id)
        first = before.find(line)
        if after is not None:
            second = after.find(line)
            return await self.lines.store.diff(
                line_of(session.record), first.number, second.number, limits
            )
        async with self._present(session, line) as present:
            return await self.lines.store.diff(
                line_of(session.record), first.number, present.number, limits
            )

    @asynccontextmanager
    async def _present(self, session: Session, line: Sequence[Snapshot]) -> AsyncIterator[Snapshot]:
        """A snapshot of the present, which is deleted after the block unless it was there."""
        record = session.record
        if record.state == SessionState.PARKED:
            yield SnapshotRef(number=record.parked_number).find(line)
            return
        taken = await self._take(session, Occasion(cause=Cause.COMPARED), only_if_changed=True)
        if taken is None:
            yield line[-1]
            return
        try:
            yield taken
        finally:
            await asyncio.shield(self.lines.store.delete(line_of(record), taken.number))

    async def _take(
        self,
        session: Session,
        occasion: Occasion,
        *,
        consistency: Consistency = Consistency.WHOLE_FILES,
        only_if_changed: bool = False,
    ) -> Snapshot | None:
        """A snapshot of an active session, or of the disk that a lost one has left."""
        if session.record.state != SessionState.LOST or not kept_files_of(session.record).disk:
            session.check_active()
        try:
            return await self.lines.take(
                session.record,
                session.sandbox,
                occasion,
                consistency=consistency,
                only_if_changed=only_if_changed,
            )
        except OSError:
            session.check_active()  # its end is the cause
            raise

    async def find_file(
        self, session_id: str, ref: SnapshotRef, path: bytes
    ) -> tuple[Line, Snapshot, Entry | None]:
        """A snapshot, and what it has at a path; None if that is nothing."""
        session, line = await self.list(session_id)
        snapshot = ref.find(line)
        entries = await self.lines.store.entries(line_of(session.record), snapshot.number)
        found = next((entry for entry in entries if entry.path == path), None)
        return line_of(session.record), snapshot, found

    def read_file(self, line: Line, snapshot: Snapshot, path: bytes) -> AsyncIterator[bytes]:
        return self.lines.store.read_file(line, snapshot.number, path)

    # --- making and deleting ---

    async def create(
        self,
        session_id: str,
        *,
        label: str = "",
        consistency: Consistency = Consistency.WHOLE_FILES,
        incarnation: int = 0,
        request_id: str = "",
    ) -> Snapshot:
        """Take a snapshot of the present; does not count as use of the session."""
        await self._sessions.wait_until_back(session_id)
        session = self._sessions.get(session_id)
        if (earlier := await self._made_by(session, request_id)) is not None:
            return earlier
        session.check_incarnation(incarnation)
        occasion = Occasion(cause=Cause.REQUESTED, label=label, request_id=request_id)
        taken = await self._take(session, occasion, consistency=consistency)
        assert taken is not None
        # While it was stored, another worker may have taken the session over without it.
        self._sessions.get(session_id)
        self._journal.on_snapshot("snapshot.created", session.record, taken.number, label)
        return taken

    async def _made_by(self, session: Session, request_id: str) -> Snapshot | None:
        """The snapshot that an earlier call with this request id has made."""
        return made_by(await self.lines.find(session.record), request_id) if request_id else None

    async def delete(self, session_id: str, number: int) -> bool:
        """Delete a snapshot; False if it was deleted before. SnapshotNotFound, SnapshotInUse."""
        session, line = await self.list(session_id)
        if number and number == session.record.parked_number:
            raise SnapshotInUse(number)
        found = next((one for one in line if one.number == number), None)
        if found is None:
            if not line or not 0 < number < line[-1].number:
                raise SnapshotNotFound(f"with number {number}")
            return False
        await self.lines.store.delete(line_of(session.record), found.number)
        self._journal.on_snapshot("snapshot.deleted", session.record, number)
        return True

    async def export(
        self, session_id: str, ref: SnapshotRef
    ) -> tuple[Snapshot, AsyncIterator[bytes]]:
        """A snapshot, and its files as a tar archive."""
        session, line = await self.list(session_id)
        snapshot = ref.find(line)
        self._journal.on_snapshot("snapshot.exported", session.record, snapshot.number)
        return snapshot, self.lines.store.export(line_of(session.record), snapshot.number)

    async def import_archive(
        self,
        session_id: str,
        archive: AsyncIterator[bytes],
        *,
        label: str = "",
        request_id: str = "",
    ) -> Snapshot:
        """Make a snapshot of a tar archive; the workspace does not change."""
        session = self._sessions.get(session_id)
        session.check_not_closed()
        if (earlier := await self._made_by(session, request_id)) is not None:
            return earlier
        environment = session.environment
        max_bytes = environment.workspace_bytes if environment else 0
        max_entries = environment.workspace_files if environment else 0
        occasion = Occasion(cause=Cause.IMPORT, label=label, request_id=request_id)
        made = await self.lines.import_archive(
            session.record, archive, occasion, max_bytes=max_bytes, max_entries=max_entries
        )
        self._journal.on_snapshot("snapshot.imported", session.record, made.number, label)
        return made

    async def verify(self, session_id: str) -> Verification:
        """Check the snapshots of a session, or of all if the id is empty."""
        line = line_of(self._sessions.get(session_id).record) if session_id else None
        return await self.lines.store.verify(line)

    # --- rewinding and forking ---

    async def restore(
        self, session_id: str, ref: SnapshotRef, *, incarnation: int = 0, request_id: str = ""
    ) -> Restoration:
        """Rewind a session."""
        await self._sessions.wait_until_back(session_id)
        session, line = await self.list(session_id)
        target = self._restored_before(session, line, request_id) or ref.find(line)
        rewound = await self._sessions.rewind(
            session_id, target, incarnation=incarnation, request_id=request_id
        )
        before = rewound.before or _newest(line, session.record)
        return Restoration(rewound.session, target, before)

    def _restored_before(
        self, session: Session, line: Sequence[Snapshot], request_id: str
    ) -> Snapshot | None:
        """What an earlier call with this request id has restored."""
        record = session.record
        if not request_id or record.restore_request != request_id:
            return None
        return next((one for one in line if one.number == record.restored_number), None)

    async def park(self, session_id: str, *, incarnation: int = 0) -> Session:
        return await self._sessions.park(session_id, incarnation=incarnation)

    async def fork(
        self, session_id: str, ref: SnapshotRef | None, wanted: ForkRequest
    ) -> tuple[Snapshot, Sequence[Fork]]:
        """Open threads of the same user with the files of a snapshot, or of the present."""
        await self._sessions.wait_until_back(session_id)
        session, line = await self.list(session_id)
        snapshot = ref.find(line) if ref else await self._snapshot_to_fork(session, wanted)
        places = asyncio.Semaphore(FORKS_AT_ONCE)

        async def fork(thread_id: str) -> Fork:
            async with places:
                return await self._fork(session.record, snapshot, thread_id, wanted)

        forks = await asyncio.gather(*map(fork, wanted.threads))
        made = sum(one.session is not None for one in forks)
        self._journal.on_snapshot(
            "session.forked", session.record, snapshot.number, f"{made} of {len(forks)}"
        )
        return snapshot, forks

    async def _snapshot_to_fork(self, session: Session, wanted: ForkRequest) -> Snapshot:
        """A snapshot of the present, the same one for a request that is repeated."""
        if session.record.state == SessionState.PARKED:
            return await self.get(session.id, SnapshotRef(number=session.record.parked_number))
        request_id = f"fork:{wanted.request_id}" if wanted.request_id else ""
        if (earlier := await self._made_by(session, request_id)) is not None:
            return earlier
        occasion = Occasion(cause=Cause.FORK, request_id=request_id)
        taken = await self._take(session, occasion)
        assert taken is not None
        return taken

    async def _fork(
        self, record: SessionRecord, snapshot: Snapshot, thread_id: str, wanted: ForkRequest
    ) -> Fork:
        origin = Origin(record=record, snapshot=snapshot, request_id=wanted.request_id)
        try:
            opened, _ = await self._sessions.open(
                record.user_id, thread_id, _as_fork(record, wanted, origin)
            )
        except SandboxdError as error:
            return Fork(thread_id, None, error)
        return Fork(thread_id, opened, None)


def new_threads(count: int, request_id: str) -> Sequence[str]:
    """Ids of threads for forks; the same ones for a request that is repeated."""
    stem = request_id or secrets.token_hex(8)
    return [f"fork-{stem}-{number}" for number in range(1, count + 1)]


def _newest(line: Sequence[Snapshot], record: SessionRecord) -> Snapshot | None:
    """The snapshot that already holds what a session has; None if it has no files."""
    has_files = record.disk_id or record.parked_number
    return line[-1] if line and has_files else None


def _as_fork(record: SessionRecord, wanted: ForkRequest, origin: Origin) -> OpenRequest:
    return OpenRequest(
        idle_seconds=wanted.idle_seconds or record.idle_seconds,
        metadata=record.metadata if wanted.metadata is None else wanted.metadata,
        env=record.env,
        project_id=record.project,
        environment=record.environment,
        environment_config=EnvironmentConfig(record.packages, record.env_vars),
        command_policy=record.command_policy,
        data_sources=record.data_sources,
        egress=record.egress,
        auto_snapshot=AutoSnapshot(record.auto_snapshot),
        park_seconds=record.park_seconds,
        origin=origin,
    )
