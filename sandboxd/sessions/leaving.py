"""Sessions that leave this worker: taken by others, or moved away before it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import structlog

from sandboxd.errors import SandboxdError, SnapshotsOff
from sandboxd.registry.contract import SessionState
from sandboxd.sessions.ends import SessionEnds
from sandboxd.sessions.lines import Cause, Occasion
from sandboxd.sessions.parking import Parking
from sandboxd.sessions.session import Session, kept_files_of
from sandboxd.sessions.shared import SharedSessionState

log = structlog.get_logger()

TAKEN = "another worker has it now"
LOOK_SECONDS = 0.2
"""Pause between two looks at whether the commands of a session have ended."""
REPORT_SECONDS = 5.0
"""Longest pause between two reports on a drain."""


@dataclass(frozen=True)
class DrainProgress:
    """How far a drain is."""

    moved: int
    left: int
    failed: int
    """Sessions that could not be parked; they stay here."""
    running: int
    """Commands that are waited for."""


class Leaving:
    """Lets go of sessions."""

    def __init__(self, shared: SharedSessionState, ends: SessionEnds, parking: Parking) -> None:
        self._sessions = shared.sessions
        self._kept_files = shared.kept_files
        self._registry = shared.registry
        self._tasks = shared.tasks
        self._ends = ends
        self._parking = parking
        self._lines = shared.lines
        self._drains = 0
        """Number of the drain that counts."""

    def let_go(self, session_ids: Sequence[str]) -> None:
        """Destroy what there is of sessions that other workers own now. Their snapshots stay."""
        for session_id in session_ids:
            session = self._sessions.get(session_id)
            if session is not None:
                log.warning("session.taken", session_id=session_id)
                self._forget(session)

    def pause(self) -> None:
        """Stop the commands of all sessions: others may own them by now."""
        self._freeze(is_frozen=True)

    def resume(self) -> None:
        """What is still here is this worker's own."""
        self._freeze(is_frozen=False)

    def _freeze(self, *, is_frozen: bool) -> None:
        sandboxes = [one.sandbox for one in self._active() if one.sandbox is not None]
        for sandbox in sandboxes:
            sandbox.freeze_commands(is_frozen=is_frozen)
        if sandboxes:
            event = "sessions.paused" if is_frozen else "sessions.resumed"
            log.warning(event, count=len(sandboxes))

    def _forget(self, session: Session) -> None:
        kept = kept_files_of(session.record)
        self._ends.stop(session, SessionState.LOST, TAKEN)
        self._sessions.remove(session)
        self._tasks.spawn(self._registry.delete([session.id]), "session-forget")
        self._kept_files.discard(kept)
        self._ends.delete_execs_later(session)

    async def drain(self, seconds: float) -> AsyncIterator[DrainProgress]:
        """Park every session, the idle ones first; commands get so many seconds to end.

        It ends early if another begins, or at `stop_drain`. SnapshotsOff if nothing can be parked.
        """
        if self._active() and not self._lines.is_on:
            raise SnapshotsOff(self._lines.why_off)
        self._drains += 1
        this = self._drains
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        moved = failed = 0
        given_up: set[str] = set()
        reported_at = loop.time()
        while left := [one for one in self._active() if one.id not in given_up]:
            if this != self._drains:
                yield DrainProgress(moved, len(left), failed, 0)
                return
            is_late = loop.time() >= until
            ready = [one for one in left if is_late or one.is_at_rest]
            for session in ready:
                if this != self._drains:
                    break
                if await self._park(session):
                    moved += 1
                else:
                    failed += 1
                    given_up.add(session.id)
            running = sum(len(one.execs) for one in left)
            if ready or loop.time() - reported_at >= REPORT_SECONDS:
                reported_at = loop.time()
                count = len([one for one in self._active() if one.id not in given_up])
                yield DrainProgress(moved, count, failed, running)
            if not ready:
                await asyncio.sleep(LOOK_SECONDS)
        yield DrainProgress(moved, 0, failed, 0)

    def stop_drain(self) -> None:
        """Move nothing more away."""
        self._drains += 1

    async def keep_committing(self, pause_seconds: float) -> None:
        uses: dict[str, int] = {}
        while True:
            await asyncio.sleep(pause_seconds)
            for session in self._active():
                if session.is_at_rest and uses.get(session.id) != session.uses:
                    uses[session.id] = session.uses
                    await self._commit(session)
            uses = {one.id: uses[one.id] for one in self._active() if one.id in uses}

    async def _commit(self, session: Session) -> None:
        if not (self._lines.is_on and session.record.disk_id):
            return
        occasion = Occasion(cause=Cause.BASELINE)
        try:
            await self._lines.take(session.record, session.sandbox, occasion, only_if_changed=True)
        except (SandboxdError, OSError) as error:
            log.warning("session.not_committed", session_id=session.id, error=str(error))

    def _active(self) -> Sequence[Session]:
        return [session for session in self._sessions.present if session.is_active]

    async def _park(self, session: Session) -> bool:
        try:
            await self._parking.park(session)
        except (SandboxdError, OSError) as error:
            log.warning("session.not_moved", session_id=session.id, error=str(error))
            return False
        return True
