"""Resets: a session gets a fresh sandbox, and keeps nothing but its project files."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import structlog

from sandboxd.errors import PoolExhausted
from sandboxd.isolation.attachment import Attachment
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


@dataclass
class Replacement:
    """A sandbox that a session is to be put on."""

    sandbox: Sandbox
    package_set: str
    """Key of the set that holds its packages; empty when it has none."""
    is_used: bool = False
    """Whether the session has begun to use it."""


class Resetting:
    """Resets sessions; racing callers share one reset."""

    def __init__(self, shared: SharedSessionState, ends: SessionEnds, placement: Placement) -> None:
        self._pools = shared.pools
        self._packages = shared.packages
        self._doors = shared.preparation.doors
        self._kept_files = shared.kept_files
        self._registry = shared.registry
        self._journal = shared.journal
        self._transitions = shared.transitions
        self._tasks = shared.tasks
        self._attachments = shared.preparation.attachments
        self._ends = ends
        self._placement = placement

    async def reset(self, session: Session) -> Session:
        """Reset a session that is not being opened."""
        resetting = self._transitions.resetting(session.thread)
        if resetting is None:
            resetting = self._transitions.start_reset(session.thread, self._reset(session))
        return await result_of(resetting)

    async def _reset(self, session: Session) -> Session:
        async with self.replacement(session, RESET) as found:
            fresh = await run_to_end(self.swap(session, found, RESET))
        self._journal.on_reset(fresh.record)
        log.info("session.reset", session_id=session.id, incarnation=fresh.record.incarnation)
        return fresh

    @asynccontextmanager
    async def replacement(self, session: Session, why: str) -> AsyncIterator[Replacement]:
        """A sandbox to replace that of a session. An error in the block destroys it, unless `swap`
        has begun, which sees to that itself."""
        environment = self._pools.get(session.record.environment).environment
        found = await self._packages.find(environment, session.record)
        with self._packages.held(found) as packages:
            project = self._attachments.of(session.record.user_id, session.record.project)
            sandbox = await self._acquire(session, [*project, *packages], why)
            replacement = Replacement(sandbox, found.key if found else "")
            try:
                yield replacement
            except BaseException:
                if not replacement.is_used:
                    self._pools.destroy(sandbox)
                raise

    async def _acquire(self, session: Session, shown: Sequence[Attachment], why: str) -> Sandbox:
        """A sandbox to replace that of a session, which is given up first if the pool is full."""
        user_id = session.record.user_id
        pool = self._pools.get(session.record.environment)
        has_one = session.sandbox is not None
        patience = Patience.NONE if has_one else Patience.QUEUES
        try:
            return await pool.acquire(user_id=user_id, patience=patience, attachments=shown)
        except PoolExhausted:
            if session.sandbox is None:
                raise
        self._ends.stop(session, SessionState.LOST, why)
        await self._registry.save(session.record)
        return await pool.acquire(user_id=user_id, patience=Patience.GOES_FIRST, attachments=shown)

    async def swap(self, session: Session, found: Replacement, why: str, **changes: Any) -> Session:
        """Put a session on its replacement, with these changes of its record."""
        found.is_used = True
        sandbox = found.sandbox
        if session.is_active:
            self._ends.stop(session, SessionState.LOST, why)
        kept = kept_files_of(session.record)
        try:
            session.check_not_closed()
            record = replace(
                session.record,
                state=SessionState.ACTIVE,
                incarnation=session.record.incarnation + 1,
                changed_at=time.time(),
                end_reason="",
                parked_number=0,
                package_set=found.package_set,
                **changes,
            )
            record = await self._placement.assign(record, sandbox, kept)
            await self._doors.open(record, sandbox)
            session.check_not_closed()
        except BaseException:
            self._pools.destroy(sandbox)
            self._tasks.spawn(self._registry.save(session.record), "session-save")
            raise
        self._kept_files.discard(KeptFiles(disk=kept.disk))
        self._ends.delete_execs_later(session)
        return self._placement.install(record, sandbox)
