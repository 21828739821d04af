"""Ids of sessions that lead to the same record as their user and thread do."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from sandboxd.cluster.contract import ThreadKey

PREFIX = "ses_"
SLOT_DIGITS = 16
RANDOM_DIGITS = 8
_HEX = frozenset("0123456789abcdef")


def thread_digest(key: bytes, thread: ThreadKey) -> str:
    """64 hex digits that nobody without the cluster's key can compute or invert."""
    user = thread.user_id.encode()
    # With its length, so that no two pairs give the same bytes.
    message = len(user).to_bytes(8, "big") + user + thread.thread_id.encode()
    return hmac.new(key, message, hashlib.sha256).hexdigest()


def session_id_for(key: bytes, thread: ThreadKey) -> str:
    """A new id for a session of this thread; two calls give two ids."""
    slot = thread_digest(key, thread)[:SLOT_DIGITS]
    return PREFIX + slot + secrets.token_hex(RANDOM_DIGITS // 2)


def slot_of(session_id: str) -> str | None:
    """Where the record of this session is; None if the id was not made for a cluster."""
    digits = session_id.removeprefix(PREFIX)
    is_id = (
        session_id.startswith(PREFIX)
        and len(digits) == SLOT_DIGITS + RANDOM_DIGITS
        and _HEX.issuperset(digits)
    )
    return digits[:SLOT_DIGITS] if is_id else None
