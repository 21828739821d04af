"""Refused calls of strangers: callers without valid credentials.

They have a log of their own, so that no number of them can push out of the audit log what known
callers did: a line for each peer and minute, with numbers of calls and nothing that the peer wrote.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextvars import Context

import structlog

from sandboxd.access import UNKNOWN
from sandboxd.audit import AuditLog

log = structlog.get_logger()

WINDOW_SECONDS = 60.0
MAX_PEERS = 256
"""Peers with a line of their own in one window; the rest share one."""
OTHER_PEERS = "other peers"


class StrangersLog:
    """Counts refused calls by peer, and writes the counts once per window."""

    def __init__(self, audit: AuditLog) -> None:
        self.audit = audit
        self._calls: dict[str, Counter[str]] = {}
        """Calls in the current window, by peer and method."""
        self._began_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, peer: str, method: str) -> None:
        """Count a refused call."""
        if self._timer is None:
            self._began_at = time.time()
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(WINDOW_SECONDS, self.flush, context=Context())
        host = _host(peer)
        if host not in self._calls and len(self._calls) >= MAX_PEERS:
            host = OTHER_PEERS
        self._calls.setdefault(host, Counter())[method] += 1

    def flush(self) -> None:
        """Write what was counted."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        calls, self._calls = self._calls, {}
        seconds = round(time.time() - self._began_at, 3)
        total = sum(methods.total() for methods in calls.values())
        log.info("strangers.refused", calls=total, peers=len(calls), seconds=seconds)
        for peer, methods in calls.items():
            self._write(peer, methods, seconds)

    def _write(self, peer: str, methods: Counter[str], seconds: float) -> None:
        self.audit.append(
            lambda: {
                "action": "calls.refused",
                "who": UNKNOWN.name,
                "peer": peer,
                "calls": methods.total(),
                "methods": methods,
                "seconds": seconds,
            }
        )


def _host(peer: str) -> str:
    """The address of a peer without its port, which changes with each connection."""
    kind, _, rest = peer.partition(":")
    return kind if kind == "unix" else f"{kind}:{rest.rpartition(':')[0]}"
