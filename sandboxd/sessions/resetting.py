"""Resets: a session gets a fresh sandbox, and keeps nothing but its project files."""

from __future__ import annotations

import time
from dataclasses import replace

import structlog

from sandboxd.errors import PoolExhausted
from sandboxd.pool.pool import Patience
from sandboxd.registry.contract import SessionState
from sandboxd.sandboxes.kept_files import KeptFiles
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sessions.ends import SessionEnds
from sandboxd.sessions.opening import result_of
from sandboxd.sessions.placement import Placement
from sandboxd.sessions.session import Session, kept_files_of
from sandboxd.sessions.shared import SharedSessionState
from sandboxd.tasks import run_to_end

log = structlog.get_logger()

RESET = "it was reset"


class Resetting:
    """Resets sessions; racing callers share one reset."""

    def __init__(self, shared: SharedSessionState, ends: SessionEnds, placement: Placement) -> None:
        self._pools = shared.pools
        self._kept_files = shared.kept_files
        self._registry = shared.registry
        self._journal = shared.journal
        self._transitions = shared.transitions
        self._tasks = shared.tasks
        self._attachments = shared.attachments
        self._ends = ends
        self._placement = placement

    async def reset(self, session: Session) -> Session:
        """Reset a session that is not being opened."""
        resetting = self._transitions.resetting(session.thread)
        if resetting is None:
            resetting = self._transitions.start_reset(session.thread, self._reset(session))
        return await result_of(resetting)

    async def _reset(self, session: Session) -> Session:
        sandbox = await self._acquire_replacement(session)
        return await run_to_end(self._swap(session, sandbox))

    async def _acquire_replacement(self, session: Session) -> Sandbox:
        """A sandbox to replace that of a session, which is given up first if the pool is full."""
        user_id = session.record.user_id
        pool = self._pools.get(session.record.environment)
        has_one = session.sandbox is not None
        patience = Patience.NONE if has_one else Patience.QUEUES
        shown = self._attachments.of(user_id, session.record.project)
        try:
            return await pool.acquire(user_id=user_id, patience=patience, attachments=shown)
        except PoolExhausted:
            if session.sandbox is None:
                raise
        self._ends.stop(session, SessionState.LOST, RESET)
        await self._registry.save(session.record)
        return await pool.acquire(user_id=user_id, patience=Patience.GOES_FIRST, attachments=shown)

    async def _swap(self, session: Session, sandbox: Sandbox) -> Session:
        if session.is_active:
            self._ends.stop(session, SessionState.LOST, RESET)
        kept = kept_files_of(session.record)
        try:
            session.check_not_closed()
            record = replace(
                session.record,
                state=SessionState.ACTIVE,
                incarnation=session.record.incarnation + 1,
                changed_at=time.time(),
                end_reason="",
            )
            record = await self._placement.assign(record, sandbox, kept)
            session.check_not_closed()
        except BaseException:
            self._pools.destroy(sandbox)
            self._tasks.spawn(self._registry.save(session.record), "session-save")
            raise
        self._kept_files.discard(KeptFiles(disk=kept.disk))
        self._ends.delete_execs_later(session)
        fresh = self._placement.install(record, sandbox)
        self._journal.on_reset(record)
        log.info("session.reset", session_id=session.id, incarnation=record.incarnation)
        return fresh
