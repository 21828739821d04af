"""Automatic snapshots: one after what changed a workspace, taken while nothing runs in it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import structlog

from sandboxd.errors import DiskSpaceLow, SandboxdError, SandboxLost
from sandboxd.sessions.journal import Journal
from sandboxd.sessions.lines import AutoSnapshot, Cause, Occasion, SessionLines
from sandboxd.sessions.session import Session
from sandboxd.snapshots.contract import Snapshot
from sandboxd.tasks import Tasks

log = structlog.get_logger()

SETTLE_SECONDS = 0.02
"""How long a command waits for the snapshot of what was before it; then it starts anyway."""

BASELINE_SECONDS = 1.0
"""The same for the first snapshot of a line, which is short: what a command changes meanwhile would
be in it, so that the command could not be taken back."""

FINISH_SECONDS = 10.0
"""How long a caller who asks for snapshots waits for the one that is being taken."""


class Turns:
    """The automatic snapshots of all sessions. A failure never reaches a command; it pauses the
    snapshots of its session until one succeeds again."""

    def __init__(self, lines: SessionLines, tasks: Tasks, journal: Journal) -> None:
        self._lines = lines
        self._tasks = tasks
        self._journal = journal
        self._wanted: dict[str, Occasion] = {}
        """The newest change of each session that is in no snapshot yet."""
        self._running: dict[str, asyncio.Event] = {}
        """Set when the snapshot that is being taken of a session is done."""
        self._paused: dict[str, str] = {}
        self._taking: dict[str, Cause] = {}
        """Sessions of which a snapshot is being read, and why."""
        self._overtaken: set[str] = set()
        """Sessions whose last snapshot may have what a command did that began meanwhile: the next
        one is taken even if nothing differs, so that the command has one."""

    def paused_because(self, session_id: str) -> str:
        """Why a session gets no automatic snapshots at the moment; empty if it does."""
        return self._paused.get(session_id, "")

    def on_placed(self, session: Session) -> None:
        """A session is on a new sandbox: its line begins with what is there."""
        self.on_change(session, Occasion(cause=Cause.BASELINE))

    def on_change(self, session: Session, occasion: Occasion) -> None:
        """The workspace of a session may have changed."""
        auto = session.record.auto_snapshot
        is_due = auto == AutoSnapshot.COMMANDS or (
            auto == AutoSnapshot.TURNS and (occasion.turn_id or occasion.cause is Cause.BASELINE)
        )
        if not (is_due and self._lines.is_on and session.record.disk_id):
            return
        self._wanted[session.id] = occasion
        if session.id not in self._running:
            self._running[session.id] = asyncio.Event()
            self._tasks.spawn(self._take_all(session), "session-turn")

    def is_busy(self, session_id: str) -> bool:
        return session_id in self._running

    async def settle(self, session_id: str) -> None:
        """Return when the snapshot that is being taken of a session is done, or after a moment."""
        if (done := self._running.get(session_id)) is None:
            return
        is_first = self._taking.get(session_id) is Cause.BASELINE
        try:
            async with asyncio.timeout(BASELINE_SECONDS if is_first else SETTLE_SECONDS):
                await done.wait()
        except TimeoutError:
            if session_id in self._taking:
                self._overtaken.add(session_id)

    async def finish(self, session_id: str) -> None:
        """Return when no snapshot is being taken of a session, or after a while: callers ask for
        the turn that has just ended."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_SECONDS):
                while (done := self._running.get(session_id)) is not None:
                    await done.wait()

    def forget(self, session_id: str) -> None:
        """The session is closed or forgotten."""
        self._wanted.pop(session_id, None)
        self._paused.pop(session_id, None)
        self._overtaken.discard(session_id)

    async def _take_all(self, session: Session) -> None:
        try:
            # If something runs, its end calls us again.
            while session.id in self._wanted and session.is_at_rest:
                await self._take(session, self._wanted.pop(session.id))
        finally:
            self._running.pop(session.id).set()
        if session.id in self._wanted and session.is_at_rest:
            self.on_change(session, self._wanted[session.id])

    async def _take(self, session: Session, occasion: Occasion) -> None:
        began = time.monotonic()
        is_overtaken = session.id in self._overtaken
        self._overtaken.discard(session.id)
        try:
            self._taking[session.id] = occasion.cause
            try:
                taken = await self._lines.take(
                    session.record, session.sandbox, occasion, only_if_changed=not is_overtaken
                )
            finally:
                del self._taking[session.id]
            self._paused.pop(session.id, None)
            if taken is not None:
                self._journal.on_turn(session.record, taken, time.monotonic() - began)
                await self._keep_within_bounds(session, taken)
        except SandboxLost:
            pass  # there is nothing left to take
        except (SandboxdError, OSError) as error:
            self._pause(session, error)

    async def _keep_within_bounds(self, session: Session, taken: Snapshot) -> None:
        is_turn = session.record.auto_snapshot == AutoSnapshot.TURNS
        if is_turn and taken.notes.turn_id:
            await self._lines.replace_turn(session.record, taken)
        if taken.number % self._lines.settings.limits.check_every == 0:
            await self._lines.thin(session.record, time.time())

    def _pause(self, session: Session, error: SandboxdError | OSError) -> None:
        if not session.is_active:
            return
        if isinstance(error, DiskSpaceLow):
            why = "The host's disk has too little free space."
        else:
            why = error.message if isinstance(error, SandboxdError) else "The host failed."
        if session.id not in self._paused:
            log.warning("turns.paused", session_id=session.id, error=str(error))
        self._paused[session.id] = why
        self._journal.on_turn_failed(session.record)
