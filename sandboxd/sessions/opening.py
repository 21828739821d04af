"""Opens: the session of a thread is found, awaited or created."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

import structlog

from sandboxd.environments.environment import DEFAULT_ENVIRONMENT
from sandboxd.errors import Draining
from sandboxd.registry.contract import SessionRecord, SessionState
from sandboxd.sandboxes.kept_files import KeptFiles
from sandboxd.sandboxes.sandbox import Sandbox
from sandboxd.sessions.book import ThreadKey
from sandboxd.sessions.changing import merged_env, merged_labels
from sandboxd.sessions.expiry import SessionExpiry
from sandboxd.sessions.placement import Placement
from sandboxd.sessions.session import Outcome, Session, kept_files_of
from sandboxd.sessions.shared import SharedSessionState

log = structlog.get_logger()

T = TypeVar("T")


class OpenRequest(NamedTuple):
    """What an open asks for."""

    idle_seconds: float | None
    metadata: Mapping[str, str]
    env: Mapping[str, str]
    project_id: str = ""


class Opening:
    """Opens sessions; racing callers share one creation."""

    def __init__(
        self, shared: SharedSessionState, expiry: SessionExpiry, placement: Placement
    ) -> None:
        self._pools = shared.pools
        self._registry = shared.registry
        self._settings = shared.settings
        self._quotas = shared.exec_state.quotas
        self._sessions = shared.sessions
        self._transitions = shared.transitions
        self._tasks = shared.tasks
        self._attachments = shared.attachments
        self._expiry = expiry
        self._placement = placement

    async def open(self, key: ThreadKey, wanted: OpenRequest) -> tuple[Session, Outcome]:
        while (resetting := self._transitions.resetting(key)) is not None:
            await asyncio.wait([resetting])
        opening = self._transitions.opening(key)
        if opening is not None:
            opened, _ = await result_of(opening)
            return await self._attach(opened, wanted)
        session = self._sessions.of_thread(key)
        if session is not None and session.is_active:
            return await self._attach(session, wanted)
        return await result_of(self._transitions.start_open(key, self._create(key, wanted)))

    async def _attach(self, session: Session, wanted: OpenRequest) -> tuple[Session, Outcome]:
        session.check_not_returning()
        session.check_project(wanted.project_id)
        session.touch()
        record = session.record
        changed = replace(
            record,
            idle_seconds=wanted.idle_seconds or record.idle_seconds,
            metadata=merged_labels(record.metadata, wanted.metadata),
            env=merged_env(record.env, wanted.env),
        )
        if changed != record:
            session.record = changed
            self._expiry.wake()
            await self._registry.save(changed)
        return session, Outcome.ATTACHED

    async def _create(self, key: ThreadKey, wanted: OpenRequest) -> tuple[Session, Outcome]:
        self._check_room_of(key[0])
        earlier = self._sessions.of_thread(key)
        # Refuses too many labels or variables, before a sandbox is taken.
        self._new_record(key, wanted, earlier.record if earlier else None)
        kept = kept_files_of(earlier.record) if earlier else KeptFiles()
        environment = earlier.record.environment if earlier else DEFAULT_ENVIRONMENT
        if earlier is not None and not earlier.is_over:
            earlier.check_project(wanted.project_id)
        if wanted.project_id:
            shown = self._attachments.asked_for(key[0], wanted.project_id)
        else:
            shown = self._attachments.of(key[0], earlier.record.project if earlier else "")
        sandbox = await self._pools.get(environment).acquire(
            kept, user_id=key[0], attachments=shown
        )
        is_kept = _is_on(sandbox, kept)
        try:
            record = self._new_record(key, wanted, earlier.record if earlier else None)
            record = await self._placement.assign(record, sandbox, kept)
        except BaseException:
            self._pools.destroy(sandbox, keep=is_kept)
            raise
        if earlier is not None and earlier.is_closed:
            self._pools.destroy(sandbox, keep=is_kept)
            self._tasks.spawn(self._registry.save(earlier.record), "session-save")
            return await self._create(key, wanted)
        if earlier is not None:
            earlier.execs.delete()  # of another incarnation
        session = self._placement.install(record, sandbox)
        session.has_earlier_files = is_kept
        outcome = Outcome.RECREATED if earlier else Outcome.CREATED
        log.info("session.opened", session_id=session.id, outcome=outcome.name.lower())
        return session, outcome

    def _new_record(
        self, key: ThreadKey, wanted: OpenRequest, before: SessionRecord | None
    ) -> SessionRecord:
        now = time.time()
        return SessionRecord(
            session_id=before.session_id if before else f"ses_{secrets.token_hex(12)}",
            user_id=key[0],
            thread_id=key[1],
            state=SessionState.ACTIVE,
            incarnation=before.incarnation + 1 if before else 1,
            created_at=before.created_at if before else now,
            changed_at=now,
            idle_seconds=wanted.idle_seconds or self._settings.idle_seconds,
            metadata=merged_labels(before.metadata if before else {}, wanted.metadata),
            env=merged_env(before.env if before else {}, wanted.env),
            environment=before.environment if before else DEFAULT_ENVIRONMENT,
            project=wanted.project_id or (before.project if before else ""),
        )

    def _check_room_of(self, user_id: str) -> None:
        """Refuse another session, counting those that are being opened, this one among them."""
        if not self._quotas.limits.sessions:
            return  # and do not look through all sessions
        of_user = {key for key in self._transitions.opening_threads if key[0] == user_id}
        of_user |= {
            session.thread
            for session in self._sessions.present
            if session.record.user_id == user_id and session.is_active
        }
        self._quotas.check_sessions(len(of_user))


async def result_of(task: asyncio.Task[T]) -> T:
    """The result of an open or a reset that others may wait for too."""
    try:
        # Shielded: a caller that gives up must not take the session away from the others.
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if task.cancelled():  # by the shutdown, not by our caller
            raise Draining from None
        raise


def _is_on(sandbox: Sandbox, kept: KeptFiles) -> bool:
    return kept.disk is not None and sandbox.disk == kept.disk
