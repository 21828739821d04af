"""The beginning and the end of a command's output, within a bound."""

from __future__ import annotations

from sandboxd_proto.v1.exec_pb2 import CapturedOutput

MAX_BYTES = 1 << 20
"""Bytes kept of each stream; as many as the daemon itself returns at once."""


class Capture:
    """Keeps the beginning and the end of a stream."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._head_room = max_bytes // 2
        self._tail_room = max_bytes - self._head_room
        self._head = bytearray()
        self._tail = bytearray()
        self._omitted = 0

    def add(self, data: bytes) -> None:
        taken = 0
        if not self._omitted and not self._tail:
            taken = min(self._head_room - len(self._head), len(data))
            self._head += data[:taken]
        self._tail += data[taken:]
        # Cut only now and then, not after every piece.
        if len(self._tail) > 2 * self._tail_room:
            self._cut()

    def skip(self, count: int) -> None:
        """Count bytes that never arrived; the beginning that was kept before them stays."""
        room = self._head_room - len(self._head)
        if not self._omitted and room > 0:
            self._head += self._tail[:room]
            del self._tail[:room]
        self._omitted += count + len(self._tail)
        self._tail.clear()

    def output(self) -> CapturedOutput:
        self._cut()
        return CapturedOutput(
            data=bytes(self._head + self._tail),
            omitted_bytes=self._omitted,
            omitted_at=len(self._head),
        )

    def _cut(self) -> None:
        excess = len(self._tail) - self._tail_room
        if excess > 0:
            del self._tail[:excess]
            self._omitted += excess
