"""Changes of sessions that are open: idle time, labels, environment variables."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

from sandboxd.errors import InvalidRequest, RequestTooLarge
from sandboxd.execs.spec import check_env
from sandboxd.sessions.expiry import SessionExpiry
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


class Changing:
    """Changes sessions, and saves them."""

    def __init__(self, shared: SharedSessionState, expiry: SessionExpiry) -> None:
        self._registry = shared.registry
        self._journal = shared.journal
        self._sessions = shared.sessions
        self._transitions = shared.transitions
        self._expiry = expiry

    async def change(self, session: Session, wanted: SessionChange) -> Session:
        """Change a session, once it is neither opened nor reset: those write its record too."""
        while (resetting := self._transitions.resetting(session.thread)) is not None:
            await asyncio.wait([resetting])
        current = self._sessions.get(session.id) or session
        current.check_active()
        record = current.record
        changed = replace(
            record,
            idle_seconds=wanted.idle_seconds or record.idle_seconds,
            metadata=merged_labels(record.metadata, wanted.labels, wanted.removed_labels),
        )
        current.touch()
        if changed == record:
            return current
        current.record = changed
        self._expiry.wake()
        try:
            await run_to_end(self._registry.save(changed))
        except Exception:
            if current.record is changed:
                current.record = record
            raise
        self._journal.on_changed(changed, wanted.labels, wanted.removed_labels)
        return current


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
