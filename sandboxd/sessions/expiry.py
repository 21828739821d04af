"""Expiry: idle sessions end, lost ones lose their files, old ones are deleted."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from sandboxd.cluster.contract import OwnershipUnknown
from sandboxd.errors import OwnedElsewhere, SandboxdError
from sandboxd.registry.contract import SessionState
from sandboxd.sessions.ends import SessionEnds
from sandboxd.sessions.ownership import claimed, is_same_owner
from sandboxd.sessions.parking import Parking
from sandboxd.sessions.session import Session
from sandboxd.sessions.shared import SharedSessionState

log = structlog.get_logger()

MAX_PAUSE_SECONDS = 60.0
MIN_PAUSE_SECONDS = 0.05
PARKING_SECONDS = 1.0
"""Pause between two looks at a session that is being parked."""
SURPLUS = 1.01
"""Ended sessions that there may be until the next pass, of those that may be remembered."""
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
        self._lines = shared.lines
        self.parking: Parking | None = None
        """Set before the start; it needs us too."""
        self._is_due = asyncio.Event()
        self._next_pass_at = math.inf
        """By the monotonic clock."""
        self._is_deleting = False
        self._ownership = shared.ownership
        self._claiming: set[str] = set()
        """Parked sessions that are about to expire, unless other workers have them."""
        self.on_forgotten: Callable[[str], None] = lambda session_id: None
        """Called with the id of a session that is deleted."""

    def start(self) -> None:
        self._tasks.spawn(self._keep_expiring(), _TASK)

    def stop(self) -> None:
        self._tasks.cancel(_TASK)

    def wake(self) -> None:
        """Look again now: the idle time of a session has changed."""
        self._is_due.set()

    def expect(self, session: Session) -> None:
        """Look again in time for a new session. As a rule the next pass is early enough: a pass for
        each would make every open take longer, the more sessions there are."""
        is_early = time.monotonic() + self._seconds_left(session) < self._next_pass_at
        if is_early or self._sessions.past_count > self._settings.max_remembered * SURPLUS:
            self.wake()

    async def _keep_expiring(self) -> None:
        while True:
            # Cleared before the pass: a change during it calls for another.
            self._is_due.clear()
            self._next_pass_at = math.inf
            left = await self._expire()
            try:
                # Use only postpones an expiry, so nothing is due before the earliest one; a changed
                # session, or a new one that has less time than that, wakes us.
                pause = max(MIN_PAUSE_SECONDS, min([*left, MAX_PAUSE_SECONDS]))
                self._next_pass_at = time.monotonic() + pause
                async with asyncio.timeout(pause):
                    await self._is_due.wait()
            except TimeoutError:
                pass  # the earliest expiry is due

    async def _expire(self) -> Sequence[float]:
        """One pass over all sessions; returns the seconds that each of them has left."""
        active = [session for session in self._sessions.present if session.is_active]
        for session in active:
            self._end_if_idle(session)
        if not self._is_deleting:
            self._is_deleting = True
            # Not here: a store of snapshots that does not answer must not delay an expiry.
            self._tasks.spawn(self._delete_old(), f"{_TASK}-deletes")
        for session in self._sessions.present:
            session.execs.forget_old()
        left = [self._seconds_left(session) for session in active if session.is_active]
        return [*left, *self._expire_lost(), *self._expire_parked()]

    def _end_if_idle(self, session: Session) -> None:
        until_parked = session.seconds_until_parked
        is_parked_instead = self._lines.settings.parks_instead_of_expiry and session.record.disk_id
        if self._can_park and (
            (until_parked is not None and until_parked <= 0)
            or (session.seconds_left <= 0 and is_parked_instead)
        ):
            assert self.parking is not None
            self.parking.park_if_idle(session)
            return
        if session.seconds_left <= 0:
            idle = session.record.idle_seconds
            self._ends.end(session, SessionState.EXPIRED, f"was not used for {idle:g} s")

    @property
    def _can_park(self) -> bool:
        return self.parking is not None and self.parking.can_park

    def _seconds_left(self, session: Session) -> float:
        """Seconds until something is to be done with a session; one that is being parked, or could
        not be, is looked at again after a moment."""
        left = session.seconds_left
        if self._can_park and (until_parked := session.seconds_until_parked) is not None:
            left = min(left, until_parked)
        return left if left > 0 else PARKING_SECONDS

    def _expire_parked(self) -> Sequence[float]:
        """Expire sessions that stayed parked for as long as that is allowed; returns the seconds
        that each of the others has left."""
        left, keeps = [], self._lines.settings.parked_seconds
        for session in self._sessions.present:
            if session.record.state == SessionState.PARKED:
                seconds = keeps - session.seconds_since_end
                if seconds > 0 or self._transitions.is_under_way(session.thread):
                    left.append(max(seconds, 1.0))
                else:
                    why = f"was parked and not opened again for {keeps:g} s"
                    self._end_parked(session, why)
        return left

    def _end_parked(self, session: Session, why: str) -> None:
        if not self._ownership.is_shared:
            self._ends.end(session, SessionState.EXPIRED, why)
        elif session.id not in self._claiming:
            self._claiming.add(session.id)
            self._tasks.spawn(self._end_if_ours(session, why), f"{_TASK}-parked")

    async def _end_if_ours(self, session: Session, why: str) -> None:
        """End a parked session, unless another worker has opened it since: then it is that
        worker's, with all its snapshots."""
        try:
            mine = await self._ownership.claim(*session.thread, session.record)
        except OwnedElsewhere:
            await self._forget(session)
        except SandboxdError as error:
            log.warning("session.not_expired", session_id=session.id, error=str(error))
        else:
            if is_same_owner(session.record, mine):
                session.record = claimed(session.record, mine)
                self._ends.end(session, SessionState.EXPIRED, why)
            else:
                await self._ownership.give_back(mine)
                await self._forget(session)
        finally:
            self._claiming.discard(session.id)

    async def keep_forgetting(self, pause_seconds: float) -> None:
        """Forget parked sessions that other workers have had since, so that only those say what
        became of them. Often enough to see one that was closed while the directory still knows."""
        while True:
            await asyncio.sleep(pause_seconds)
            with suppress(OwnershipUnknown):
                await self.forget_moved()

    async def forget_moved(self) -> None:
        """Once; OwnershipUnknown."""
        for session in [one for one in self._sessions.present if self._is_at_rest(one)]:
            if await self._has_moved(session) and self._is_at_rest(session):
                log.info("session.moved", session_id=session.id)
                await self._forget(session)

    def _is_at_rest(self, session: Session) -> bool:
        """Whether it is parked, and nobody here is about to open or to end it."""
        is_parked = session.record.state == SessionState.PARKED
        is_used = self._transitions.is_under_way(session.thread) or session.id in self._claiming
        return is_parked and not is_used and self._sessions.get(session.id) is session

    async def _has_moved(self, session: Session) -> bool:
        directory = self._ownership.directory
        for is_certain in (False, True):  # as a rule it has not, and that needs no write
            place = await directory.find(session.id, is_certain=is_certain)
            if place is None or place.worker == directory.worker_id:
                return False
        return True

    async def _forget(self, session: Session) -> None:
        session.execs.delete()
        self._sessions.remove(session)
        self.on_forgotten(session.id)
        await self._registry.delete([session.id])

    def _expire_lost(self) -> Sequence[float]:
        """Expire sessions that nobody opened again within their idle time, until when their files
        are kept; returns the seconds that each of the others has left."""
        left = []
        for session in self._sessions.present:
            record = session.record
            if record.state == SessionState.LOST and session.has_files:
                seconds = record.idle_seconds - session.seconds_since_end
                if seconds > 0 or self._transitions.is_under_way(session.thread):
                    left.append(max(seconds, 1.0))
                else:
                    why = f"was {session.state} and not opened again for {record.idle_seconds:g} s"
                    self._ends.end(session, SessionState.EXPIRED, why)
        return left

    async def _delete_old(self) -> None:
        try:
            for session in self._find_old():
                if await self._is_line_deleted(session) and not self._is_back(session):
                    await self._forget(session)
        except Exception as error:  # whatever is wrong with the registry may pass
            log.error("sessions.not_deleted", exc_info=error)
        finally:
            self._is_deleting = False

    def _is_back(self, session: Session) -> bool:
        """Whether it was opened again meanwhile, or is about to be."""
        is_known = self._sessions.get(session.id) is session
        return not is_known or self._transitions.is_under_way(session.thread)

    async def _is_line_deleted(self, session: Session) -> bool:
        """Delete the snapshots of a session; False if that has to be tried again, for which the
        record is needed."""
        try:
            await self._lines.delete_line(session.record)
        except (SandboxdError, OSError) as error:
            log.warning("snapshots.not_deleted", session_id=session.id, error=str(error))
            return False
        return True

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
