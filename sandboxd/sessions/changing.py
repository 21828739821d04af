"""Changes of sessions that are open: idle time, labels, environment variables, egress."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sandboxd.errors import InvalidRequest, RequestTooLarge
from sandboxd.execs.spec import check_env
from sandboxd.registry.contract import SessionRecord
from sandboxd.sessions.expiry import SessionExpiry
from sandboxd.sessions.lines import AutoSnapshot, Cause, Occasion
from sandboxd.sessions.session import Session
from sandboxd.sessions.shared import SharedSessionState
from sandboxd.tasks import run_to_end

MAX_LABELS = 32
MAX_ENV_BYTES = 512 << 10
"""Environment variables of a session, which are kept in its record and sent with every command."""


class SessionChange(NamedTuple):
    """What to change; what is not named stays."""

    idle_seconds: float | None
    labels: Mapping[str, str]
    """Labels to set."""
    removed_labels: Collection[str]
    auto_snapshot: AutoSnapshot | None = None
    park_seconds: float | None = None
    """0 means never."""


class Changing:
    """Changes sessions, and saves them."""

    def __init__(self, shared: SharedSessionState, expiry: SessionExpiry) -> None:
        self._registry = shared.registry
        self._journal = shared.journal
        self._sessions = shared.sessions
        self._transitions = shared.transitions
        self._egress = shared.preparation.doors.egress
        self._expiry = expiry

    async def change(self, session: Session, wanted: SessionChange) -> Session:
        """Change a session, once it is neither opened nor reset: those write its record too."""
        while (replacing := self._transitions.replacing(session.thread)) is not None:
            await asyncio.wait([replacing])
        current = self._sessions.get(session.id) or session
        current.check_active()
        record = current.record
        changed = replace(
            record,
            idle_seconds=wanted.idle_seconds or record.idle_seconds,
            metadata=merged_labels(record.metadata, wanted.labels, wanted.removed_labels),
            auto_snapshot=wanted.auto_snapshot or record.auto_snapshot,
            park_seconds=kept_or(record.park_seconds, wanted.park_seconds),
        )
        current.touch()
        if changed == record:
            return current
        self._expiry.wake()
        await self._save(current, changed)
        self._journal.on_changed(changed, wanted.labels, wanted.removed_labels)
        if changed.auto_snapshot != record.auto_snapshot:
            current.on_change(current, Occasion(cause=Cause.BASELINE))
        return current

    async def set_egress(self, session: Session, rules: Sequence[str] | None) -> Session:
        """Let a session reach these hosts from now on; None means those of its environment."""
        while (replacing := self._transitions.replacing(session.thread)) is not None:
            await asyncio.wait([replacing])
        current = self._sessions.get(session.id) or session
        current.check_active()
        current.touch()
        changed = replace(current.record, egress=rules)
        await self._save(current, changed)
        if current.sandbox is not None:
            await self._egress.apply(current.record, current.sandbox)
        named = ", ".join(map(str, self._egress.rules_of(changed)))
        self._journal.on_door(changed, "egress.changed", {"rules": named})
        return current

    async def _save(self, session: Session, changed: SessionRecord) -> None:
        before, session.record = session.record, changed
        try:
            await run_to_end(self._registry.save(changed))
        except Exception:
            if session.record is changed:
                session.record = before
            raise


def kept_or(before: float, wanted: float | None) -> float:
    """What is wanted; what was before if nothing is."""
    return before if wanted is None else wanted


def merged_labels(
    before: Mapping[str, str], labels: Mapping[str, str], removed: Collection[str] = ()
) -> Mapping[str, str]:
    """Labels after a change. Their number is limited, however many calls add to them."""
    merged = {**before, **labels}
    for key in removed:
        merged.pop(key, None)
    if len(merged) > MAX_LABELS:
        raise InvalidRequest(
            "metadata",
            f"the session would have {len(merged)} labels, more than {MAX_LABELS}; remove some",
        )
    return merged


def merged_env(before: Mapping[str, str], env: Mapping[str, str]) -> Mapping[str, str]:
    """Environment variables after a change. Their size is limited, however many calls add to it."""
    if not env:
        return before
    merged = {**before, **env}
    check_env(merged)
    if sum(len(name.encode()) + len(value.encode()) for name, value in merged.items()) > (
        MAX_ENV_BYTES
    ):
        raise RequestTooLarge(
            "env",
            f"the variables of the session would have more than {MAX_ENV_BYTES} bytes; use a "
            "file for data",
        )
    return merged
