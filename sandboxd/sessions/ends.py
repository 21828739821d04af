"""Ends of sessions: what runs in them stops, and the registry learns of it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace

import structlog

from sandboxd.registry.contract import SessionRecord, SessionState
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sessions.session import Session, kept_files_of
from sandboxd.sessions.shared import SharedSessionState

log = structlog.get_logger()

DELETION_SECONDS = 5.0
"""How long the execs of an ended session stay, so that their readers receive the end."""
SAVE_RETRY_SECONDS = 1.0
"""Pause before an end that could not be saved is tried again."""


class SessionEnds:
    """Ends sessions, and saves each end in the registry, trying again until that succeeds."""

    def __init__(self, shared: SharedSessionState) -> None:
        self._pools = shared.pools
        self._kept_files = shared.kept_files
        self._registry = shared.registry
        self._journal = shared.journal
        self._sessions = shared.sessions
        self._transitions = shared.transitions
        self._tasks = shared.tasks
        self._unsaved: set[str] = set()
        self._is_saving = False
        self._is_stopping = asyncio.Event()
        self._deletions: dict[Session, asyncio.TimerHandle] = {}
        """Ended sessions whose execs are still to be deleted."""

    @property
    def unsaved_count(self) -> int:
        return len(self._unsaved)

    # --- ending ---

    def end(self, session: Session, state: SessionState, why: str) -> None:
        """End a session. Its files stay if its sandbox was lost: it may be opened again."""
        self.stop(session, state, why)
        if state != SessionState.LOST:
            self.delete_execs_later(session)
        self.save_soon(session)
        self._journal.on_session_ended(session.record)
        log.info("session.ended", session_id=session.id, state=state.value, why=why)

    def stop(self, session: Session, state: SessionState, why: str) -> None:
        """End everything that runs in a session, and give up its sandbox. Nothing is saved."""
        kept = kept_files_of(session.record)
        sandbox = session.end(_ended(session.record, state, why))
        self._sessions.put(session)
        if sandbox is not None:
            sandbox.cut_off(why)
            self._pools.destroy(sandbox, keep=state == SessionState.LOST)
        elif state != SessionState.LOST:
            # An open or a reset may be about to take these files over.
            self._transitions.when_done(session.thread, lambda: self._kept_files.discard(kept))

    def save_soon(self, session: Session) -> None:
        """Save the record of a session that ended, again and again until that succeeds."""
        self._unsaved.add(session.id)
        self._save_in_background()

    def end_unadopted(self, record: SessionRecord) -> SessionRecord:
        """End a session whose sandbox did not survive the daemon before; returns its record.

        `save_all` saves it, once the session is known.
        """
        ended = _ended(record, SessionState.LOST, "the daemon was restarted")
        self._journal.on_session_ended(ended)
        self._unsaved.add(ended.session_id)
        return ended

    def on_sandbox_lost(self, session: Session, sandbox: Sandbox, why: str) -> None:
        if session.sandbox is sandbox:
            self.end(session, SessionState.LOST, why)

    # --- execs of ended sessions ---

    def delete_execs_later(self, session: Session) -> None:
        """Delete the execs of an ended session once their readers have received the end."""
        if session not in self._deletions:
            loop = asyncio.get_running_loop()
            self._deletions[session] = loop.call_later(
                DELETION_SECONDS, self._delete_execs, session
            )

    def delete_execs_now(self) -> None:
        """Do not wait for the readers of ended sessions any longer."""
        for session in tuple(self._deletions):
            self._delete_execs(session)

    def _delete_execs(self, session: Session) -> None:
        self._deletions.pop(session).cancel()
        session.execs.delete()

    # --- saving ---

    async def save_all(self) -> None:
        """Save every end once; those that fail are tried again in the background."""
        for session_id in tuple(self._unsaved):
            await self._save(session_id)
        self._save_in_background()

    async def wait_until_saved(self, session_id: str) -> None:
        """Return when the end of a session is saved, or after a failure that is tried again."""
        if session_id in self._unsaved and not await self._save(session_id):
            self._save_in_background()

    def stop_retrying(self) -> None:
        """Try each unsaved end once more, then give up."""
        self._is_stopping.set()

    def _save_in_background(self) -> None:
        if self._unsaved and not self._is_saving:
            self._is_saving = True
            self._tasks.spawn(self._keep_saving(), "session-save")

    async def _keep_saving(self) -> None:
        while True:
            is_last = self._is_stopping.is_set()
            failed = [
                session_id
                for session_id in tuple(self._unsaved)
                if not await self._save(session_id)
            ]
            if is_last or not self._unsaved:
                break
            if failed:
                with suppress(TimeoutError):
                    async with asyncio.timeout(SAVE_RETRY_SECONDS):
                        await self._is_stopping.wait()
        self._is_saving = False
        if self._unsaved:
            log.error("sessions.ends_not_saved", session_ids=sorted(self._unsaved))

    async def _save(self, session_id: str) -> bool:
        """Save the end of a session; False if it must be tried again."""
        session = self._sessions.get(session_id)
        if session is None or session.is_active:
            self._unsaved.discard(session_id)
            return True
        if self._transitions.is_under_way(session.thread):
            return False  # its next incarnation may be saved right now, and must stay
        # Before the save: an end that comes during it has to be saved too.
        self._unsaved.discard(session_id)
        try:
            await self._registry.save(session.record)
        except Exception as error:  # whatever is wrong with the registry may pass
            log.error("session.end_not_saved", session_id=session_id, error=str(error))
            self._unsaved.add(session_id)
            return False
        except asyncio.CancelledError:
            self._unsaved.add(session_id)
            self._save_in_background()
            raise
        return True


def _ended(record: SessionRecord, state: SessionState, why: str) -> SessionRecord:
    ended = replace(record, state=state, changed_at=time.time(), end_reason=why)
    if state == SessionState.LOST:
        return ended
    return replace(ended, disk_id="", project_id="", parked_number=0)
