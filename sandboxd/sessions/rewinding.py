"""Rewinds: a session gets a fresh sandbox with the files of one of its snapshots."""

from __future__ import annotations

from typing import NamedTuple

import structlog

from sandboxd.registry.contract import SessionState
from sandboxd.sessions.ends import SessionEnds
from sandboxd.sessions.lines import Cause, Occasion, line_of
from sandboxd.sessions.opening import result_of
from sandboxd.sessions.resetting import Resetting
from sandboxd.sessions.session import Session, kept_files_of
from sandboxd.sessions.shared import SharedSessionState
from sandboxd.snapshots.contract import Snapshot
from sandboxd.tasks import run_to_end

log = structlog.get_logger()

REWOUND = "it was rewound"
_BEFORE = Occasion(cause=Cause.BEFORE_REWIND)


class Rewound(NamedTuple):
    """A session on its next incarnation."""

    session: Session
    before: Snapshot | None
    """What it had; None if it had no files, or nothing changed since an earlier snapshot."""


class Rewinding:
    """Rewinds sessions. What a session had is in a snapshot before it is given up: also what its
    commands wrote until they were ended."""

    def __init__(self, shared: SharedSessionState, ends: SessionEnds, resetting: Resetting) -> None:
        self._kept_files = shared.kept_files
        self._lines = shared.lines
        self._journal = shared.journal
        self._transitions = shared.transitions
        self._ends = ends
        self._resetting = resetting

    async def rewind(self, session: Session, target: Snapshot, request_id: str) -> Rewound:
        """Rewind a session of which nothing else is under way."""
        before: list[Snapshot] = []
        work = self._rewind(session, target, request_id, before)
        rewound = await result_of(self._transitions.start_move(session.thread, work))
        return Rewound(rewound, before[-1] if before else None)

    async def _rewind(
        self, session: Session, target: Snapshot, request_id: str, before: list[Snapshot]
    ) -> Session:
        try:
            return await self._replace(session, target, request_id, before)
        except BaseException:
            if session.record.state == SessionState.LOST:
                self._ends.save_soon(session)  # its disk is still there
            raise

    async def _replace(
        self, session: Session, target: Snapshot, request_id: str, before: list[Snapshot]
    ) -> Session:
        uses = session.uses
        if session.is_active:
            await self._keep_present(session, before)
        async with self._resetting.replacement(session, REWOUND) as found:
            await self._lines.restore(line_of(session.record), target.number, found.sandbox)
            if session.is_active and (session.uses != uses or not session.is_at_rest):
                # What runs may go on writing until it is ended.
                self._ends.stop(session, SessionState.LOST, REWOUND)
            if not session.is_active:
                await self._keep_present(session, before)
            fresh = await run_to_end(
                self._resetting.swap(
                    session,
                    found,
                    REWOUND,
                    restored_number=target.number,
                    restore_request=request_id,
                )
            )
        self._journal.on_rewound(fresh.record, target)
        log.info("session.rewound", session_id=session.id, snapshot=target.number)
        return fresh

    async def _keep_present(self, session: Session, before: list[Snapshot]) -> None:
        """Take a snapshot of what a session has, if that has changed since the last one. It
        replaces an earlier one of the same rewind."""
        disk = kept_files_of(session.record).disk
        if disk is None or not self._kept_files.has(disk):
            return  # it expired, or a snapshot holds its files already
        if session.sandbox is None:
            await self._kept_files.wait_until_free(disk)
        taken = await self._lines.take(
            session.record, session.sandbox, _BEFORE, only_if_changed=True
        )
        if taken is not None:
            if before:
                await self._lines.store.delete(line_of(session.record), before.pop().number)
            before.append(taken)
