"""Parking: an idle session gives up its sandbox and keeps its files as a snapshot."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import structlog

from sandboxd.errors import SandboxdError
from sandboxd.registry.contract import SessionState
from sandboxd.sandboxes.kept_files import KeptFiles
from sandboxd.sessions.ends import SessionEnds
from sandboxd.sessions.lines import Cause, Occasion, line_of
from sandboxd.sessions.session import Session, kept_files_of
from sandboxd.sessions.shared import SharedSessionState
from sandboxd.snapshots.contract import Snapshot
from sandboxd.tasks import run_to_end
from sandboxd.workspaces.disks import Disk

log = structlog.get_logger()

PARKED = "it was parked"
RETRY_SECONDS = 30.0
"""Pause before a session that could not be parked is tried again."""
_OCCASION = Occasion(cause=Cause.PARK)


class Parking:
    """Parks sessions. The snapshot is stored before the sandbox is given up, and the disk is
    deleted after the record names the snapshot: a daemon that is killed loses nothing."""

    def __init__(self, shared: SharedSessionState, ends: SessionEnds) -> None:
        self._kept_files = shared.kept_files
        self._registry = shared.registry
        self._journal = shared.journal
        self._sessions = shared.sessions
        self._transitions = shared.transitions
        self._tasks = shared.tasks
        self._ends = ends
        self._lines = shared.lines
        self._not_before: dict[str, float] = {}
        """When sessions that could not be parked are tried again, by the monotonic clock."""
        self._under_way: set[str] = set()

    @property
    def can_park(self) -> bool:
        return self._lines.is_on

    def park_if_idle(self, session: Session) -> None:
        """Park an idle session in the background, unless it is used before that is done."""
        is_waiting = self._not_before.get(session.id, 0.0) > time.monotonic()
        if session.id in self._under_way or is_waiting or not session.record.disk_id:
            return
        self._under_way.add(session.id)
        self._tasks.spawn(self._try_to_park(session), "session-park")

    async def _try_to_park(self, session: Session) -> None:
        uses = session.uses
        try:
            taken = await self._taken(session)
            if session.uses == uses and self._may_park(session):
                await self._switch(session, taken)
            else:
                await self._lines.store.delete(line_of(session.record), taken.number)
            self._not_before.pop(session.id, None)
        except (SandboxdError, OSError) as error:
            if session.is_active:
                log.warning("session.not_parked", session_id=session.id, error=str(error))
                self._not_before[session.id] = time.monotonic() + RETRY_SECONDS
        finally:
            self._under_way.discard(session.id)

    async def park(self, session: Session) -> Session:
        """Park a session now, whatever runs in it."""
        if session.record.state == SessionState.PARKED:
            return session
        session.check_active()
        uses = session.uses
        taken: Snapshot | None = await self._taken(session)
        session.check_active()
        if session.uses != uses or not session.is_at_rest:
            taken = None  # what runs may go on writing: a snapshot is taken when it has ended
        await self._switch(session, taken)
        return session

    def forget(self, session_id: str) -> None:
        """The session is closed or forgotten."""
        self._not_before.pop(session_id, None)

    def _may_park(self, session: Session) -> bool:
        is_current = self._sessions.get(session.id) is session
        is_free = not self._transitions.is_under_way(session.thread)
        return is_current and is_free and session.is_active and session.is_at_rest

    async def _taken(self, session: Session) -> Snapshot:
        user_id = session.record.user_id
        present = (one.record for one in self._sessions.present if one.record.user_id == user_id)
        self._lines.check_parked(sum(one.state == SessionState.PARKED for one in present))
        taken = await self._lines.take(session.record, session.sandbox, _OCCASION)
        assert taken is not None
        return taken

    async def _switch(self, session: Session, taken: Snapshot | None) -> None:
        """Give up the sandbox. There is no await before that: nothing can use it meanwhile."""
        moving = self._transitions.start_move(session.thread, self._moved(session, taken))
        self._ends.stop(session, SessionState.LOST, PARKED)
        await asyncio.shield(moving)

    async def _moved(self, session: Session, taken: Snapshot | None) -> Session:
        try:
            return await run_to_end(self._finish(session, taken))
        except BaseException:
            self._ends.save_soon(session)  # as lost: its disk is still there
            raise

    async def _delete_when_free(self, disk: Disk) -> None:
        """Delete the disk of a parked session. Not while a sandbox has it: the project files, which
        stay, would be handed back together with it."""
        try:
            await self._kept_files.wait_until_free(disk)
        except TimeoutError:
            log.warning("disk.left_behind", disk_id=disk.id)  # to the sweep of the next start
            return
        self._kept_files.discard(KeptFiles(disk=disk))

    async def _finish(self, session: Session, taken: Snapshot | None) -> Session:
        kept = kept_files_of(session.record)
        if taken is None:
            assert kept.disk is not None
            await self._kept_files.wait_until_free(kept.disk)
            taken = await self._lines.take(session.record, None, _OCCASION)
            assert taken is not None
        if session.record.state != SessionState.LOST:
            return session  # it was closed meanwhile
        parked = replace(
            session.record,
            state=SessionState.PARKED,
            changed_at=time.time(),
            parked_number=taken.number,
        )
        await self._registry.save(replace(parked, disk_id=""))
        session.record = replace(parked, disk_id="")
        self._sessions.put(session)
        if kept.disk is not None:
            self._tasks.spawn(self._delete_when_free(kept.disk), "parked-disk")
        self._ends.delete_execs_later(session)
        self._journal.on_parked(session.record, taken)
        log.info("session.parked", session_id=session.id, snapshot=taken.number)
        return session
