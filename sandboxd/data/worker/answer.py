"""Writes the answer to a request, with the caps of rows and bytes."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from sandboxd.data.frames import MAX_FRAME_BYTES, Kind, frame
from sandboxd.data.worker.failure import QueryFailure

FLUSH_BYTES = 64 << 10


class Cut(StrEnum):
    """Which limit ended an answer before its last row."""

    ROWS = "ROWS"
    BYTES = "BYTES"
    TIME = "TIME"


class Answer:
    """The answer to one request. Short ones are sent as a whole."""

    def __init__(self, channel: socket.socket, *, max_rows: int, max_bytes: int) -> None:
        self._channel = channel
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._started = time.monotonic()
        self._frames: list[bytes] = []
        self._rows: list[bytes] = []
        self._pending = 0
        self.rows = 0
        self.bytes = 0
        self.cut: Cut | None = None

    def columns(self, columns: Sequence[tuple[str, str, str]]) -> None:
        """Each column: its name, our type, the type of the database."""
        self._frames.append(frame(Kind.COLUMNS, json.dumps(columns).encode()))

    def row(self, text: str) -> bool:
        """Add a row, an array in JSON; False if it does not fit, and no other row will."""
        if self.rows >= self._max_rows:
            self.cut = Cut.ROWS
            return False
        line = text.encode() + b"\n"
        if self.bytes + len(line) > self._max_bytes:
            self.cut = Cut.BYTES
            return False
        self.rows += 1
        self.bytes += len(line)
        self._pending += len(line)
        self._rows.append(line)
        if self._pending >= FLUSH_BYTES:
            self._flush_rows()
            self._send()
        return True

    def end(self, **fields: Any) -> None:
        self._flush_rows()
        fields |= {
            "rows": self.rows,
            "bytes": self.bytes,
            "truncated": self.cut,
            "seconds": round(time.monotonic() - self._started, 6),
        }
        self._frames.append(frame(Kind.END, json.dumps(fields).encode()))
        self._send()

    def fail(
        self, failure: QueryFailure, params: Mapping[str, Any], kind: Kind = Kind.ERROR
    ) -> None:
        self._rows.clear()
        fields = {**failure.encode(), "params": params}
        self._frames.append(frame(kind, json.dumps(fields).encode()))
        self._send()

    def _flush_rows(self) -> None:
        data = b"".join(self._rows)
        self._rows.clear()
        self._pending = 0
        for start in range(0, len(data), MAX_FRAME_BYTES):
            self._frames.append(frame(Kind.ROWS, data[start : start + MAX_FRAME_BYTES]))

    def _send(self) -> None:
        data = b"".join(self._frames)
        self._frames.clear()
        self._channel.sendall(data)
