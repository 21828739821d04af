"""What one session did with its egress: counted, bounded, and recorded without flooding."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextvars import Context
from enum import StrEnum
from typing import Any, NamedTuple, TypeAlias

RECENT = 50
"""Denials that are kept to be read."""
WINDOW_SECONDS = 60.0
MAX_LINES = 64
"""Lines of one kind in a window; what is beyond shares one."""
OTHER_HOSTS = "other hosts"

Recorder: TypeAlias = Callable[[str, Mapping[str, Any]], None]
"""Writes a line of the audit log: an action, and what belongs to it."""


class Kind(StrEnum):
    """Which rule refused something."""

    HOST = "host"
    PORT = "port"
    METHOD = "method"
    ADDRESS = "address"
    NAME = "name"
    """TLS asks for another host than CONNECT, for none, or hides which."""
    PROTOCOL = "protocol"
    LIMIT = "limit"


class Denial(NamedTuple):
    """Something that was refused."""

    at: float
    """Seconds since the epoch."""
    kind: Kind
    host: str
    """Empty if none was named."""
    port: int
    message: str


class LimitReached(Exception):
    """A session has moved as many bytes as it may."""


class EgressLedger:
    """Counts connections, bytes and denials of one session."""

    def __init__(self, *, max_bytes: int, record: Recorder) -> None:
        self.connections = 0
        self.bytes_in = 0
        """From the outside to the sandbox."""
        self.bytes_out = 0
        self.denials: Counter[Kind] = Counter()
        self.recent: deque[Denial] = deque(maxlen=RECENT)
        self.max_bytes = max_bytes
        self._record = record
        self._denied: Counter[tuple[Kind, str, int]] = Counter()
        self._used: dict[tuple[str, int], list[int]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def denied(self) -> int:
        return self.denials.total()

    @property
    def has_room(self) -> bool:
        return self.bytes_in + self.bytes_out < self.max_bytes

    def add_in(self, count: int) -> None:
        """LimitReached if these bytes are too many."""
        self.bytes_in += count
        self._check()

    def add_out(self, count: int) -> None:
        """LimitReached if these bytes are too many."""
        self.bytes_out += count
        self._check()

    def _check(self) -> None:
        if self.bytes_in + self.bytes_out > self.max_bytes:
            raise LimitReached

    def on_used(self, host: str, port: int, *, bytes_in: int, bytes_out: int) -> None:
        """A connection has ended."""
        self._start_window()
        key = self._key(self._used, (host, port))
        sums = self._used.setdefault(key, [0, 0, 0])
        for position, count in enumerate((1, bytes_in, bytes_out)):
            sums[position] += count

    def on_denied(self, kind: Kind, host: str, port: int, message: str) -> None:
        """The first of its kind is recorded at once, the others of the window as a number."""
        self.denials[kind] += 1
        self.recent.append(Denial(time.time(), kind, host, port, message))
        self._start_window()
        key = (kind, *self._key({key[1:]: 0 for key in self._denied}, (host, port)))
        if key not in self._denied:
            self._write_denied(key, 1, message)
        self._denied[key] += 1

    def flush(self) -> None:
        """Record what was counted since."""
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        denied, self._denied = self._denied, Counter()
        used, self._used = self._used, {}
        for key, times in denied.items():
            if times > 1:
                self._write_denied(key, times - 1, "as before")
        for (host, port), (times, bytes_in, bytes_out) in used.items():
            sums = {"times": times, "bytes_in": bytes_in, "bytes_out": bytes_out}
            self._record("egress.used", {"host": host, "port": port, **sums})

    def _start_window(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(WINDOW_SECONDS, self.flush, context=Context())

    def _key(self, known: Mapping[tuple[str, int], Any], key: tuple[str, int]) -> tuple[str, int]:
        is_known = key in known or len(known) < MAX_LINES
        return key if is_known else (OTHER_HOSTS, 0)

    def _write_denied(self, key: tuple[Kind, str, int], times: int, message: str) -> None:
        kind, host, port = key
        fields = {"rule": kind.value, "host": host, "port": port, "times": times}
        self._record("egress.denied", {**fields, "message": message})
