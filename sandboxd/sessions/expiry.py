"""Expiry: idle sessions end, lost ones lose their files, old ones are deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from sandboxd.registry.contract import SessionState
from sandboxd.sessions.ends import SessionEnds
from sandboxd.sessions.session import Session
from sandboxd.sessions.shared import SharedSessionState

log = structlog.get_logger()

MAX_PAUSE_SECONDS = 60.0
MIN_PAUSE_SECONDS = 0.05
_TASK = "sessions-expiry"


class SessionExpiry:
    """Ends sessions whose time is over, and deletes those that ended long ago."""

    def __init__(self, shared: SharedSessionState, ends: SessionEnds) -> None:
        self._registry = shared.registry
        self._settings = shared.settings
        self._sessions = shared.sessions
        self._transitions = shared.transitions
        self._tasks = shared.tasks
        self._ends = ends
        self._is_due = asyncio.Event()

    def start(self) -> None:
        self._tasks.spawn(self._keep_expiring(), _TASK)

    def stop(self) -> None:
        self._tasks.cancel(_TASK)

    def wake(self) -> None:
        """Look again now: a session is new, or its idle time has changed."""
        self._is_due.set()

    async def _keep_expiring(self) -> None:
        while True:
            # Cleared before the pass: a change during it calls for another.
            self._is_due.clear()
            left = await self._expire()
            try:
                # Use only postpones an expiry, so nothing is due before the earliest one; a new or
                # changed session wakes us.
                pause = max(MIN_PAUSE_SECONDS, min([*left, MAX_PAUSE_SECONDS]))
                async with asyncio.timeout(pause):
                    await self._is_due.wait()
            except TimeoutError:
                pass  # the earliest expiry is due

    async def _expire(self) -> Sequence[float]:
        """One pass over all sessions; returns the seconds that each of them has left."""
        active = [session for session in self._sessions.present if session.is_active]
        for session in active:
            if session.seconds_left <= 0:
                idle = session.record.idle_seconds
                self._ends.end(session, SessionState.EXPIRED, f"was not used for {idle:g} s")
        try:
            await self._delete_old()
        except Exception as error:  # whatever is wrong with the registry, expiry has to continue
            log.error("sessions.not_deleted", exc_info=error)
        for session in self._sessions.present:
            session.execs.forget_old()
        left = [session.seconds_left for session in active if session.is_active]
        return [*left, *self._expire_lost()]

    def _expire_lost(self) -> Sequence[float]:
        """Expire sessions that stayed lost for their idle time, until when their files are kept;
        returns the seconds that each of the others has left."""
        left = []
        for session in self._sessions.present:
            record = session.record
            if record.state == SessionState.LOST and session.has_files:
                seconds = record.idle_seconds - session.seconds_since_end
                if seconds > 0 or self._transitions.is_under_way(session.thread):
                    left.append(max(seconds, 1.0))
                else:
                    why = f"was lost and not opened again for {record.idle_seconds:g} s"
                    self._ends.end(session, SessionState.EXPIRED, why)
        return left

    async def _delete_old(self) -> None:
        old = self._find_old()
        for session in old:
            session.execs.delete()
            self._sessions.remove(session)
        if old:
            await self._registry.delete([session.id for session in old])

    def _find_old(self) -> Sequence[Session]:
        seconds = self._settings.memory_seconds
        old = [
            session
            for session in self._sessions.present
            if not session.is_active
            and not session.has_files  # with files it has to expire first
            and session.seconds_since_end > seconds
        ]
        old += self._sessions.outdated(seconds=seconds, count=self._settings.max_remembered)
        # An open or reset under way has saved the session again, or is about to.
        return [session for session in old if not self._transitions.is_under_way(session.thread)]
