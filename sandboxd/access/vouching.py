"""How a worker of a cluster tells another who the caller of a forwarded call is.

The worker that a call reaches first has identified the caller, by a token that only it may know, by
a certificate or by its socket. It passes on what it found, sealed with the key of the cluster, and
never the credentials themselves.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from typing import Any

from sandboxd.access.caller import Caller, Scope

VALID_SECONDS = 60.0
"""How long a statement counts, by the clock of the worker that reads it."""
MAX_BYTES = 16 << 10
_MAC_BYTES = 32


class NotVouched(Exception):
    """The statement is not one of this cluster, or is about another method."""


class NotInTime(NotVouched):
    """The statement is of this cluster, but not of this minute by the clock of its reader."""

    def __init__(self, now: float) -> None:
        super().__init__("it is too old, or the clocks of the workers differ")
        self.now = now
        """The time of the reader."""


def vouch(key: bytes, caller: Caller, method: str, now: float) -> bytes:
    """State who calls this method, at a time by the clock of the reader."""
    stated = json.dumps(
        {
            "name": caller.name,
            "scope": caller.scope.value,
            "user": caller.user_id,
            "policies": sorted(caller.policies),
            "egress": list(caller.egress),
            "method": method,
            "time": now,
        }
    ).encode()
    return _mac(key, stated) + stated


def vouched(key: bytes, statement: bytes, method: str) -> Caller:
    """The caller in a statement; NotVouched."""
    mac, stated = statement[:_MAC_BYTES], statement[_MAC_BYTES:]
    if len(statement) > MAX_BYTES or not hmac.compare_digest(mac, _mac(key, stated)):
        raise NotVouched("it is not sealed with the key of this cluster")
    fields: dict[str, Any] = json.loads(stated)
    if fields["method"] != method:
        raise NotVouched("it is about another method")
    now = time.time()
    if abs(now - fields["time"]) > VALID_SECONDS:
        raise NotInTime(now)
    return Caller(
        name=fields["name"],
        scope=Scope(fields["scope"]),
        user_id=fields["user"],
        policies=frozenset(fields["policies"]),
        egress=tuple(fields["egress"]),
    )


def _mac(key: bytes, stated: bytes) -> bytes:
    return hmac.new(key, b"sandboxd caller\0" + stated, hashlib.sha256).digest()
