"""Where the output of a command goes on its way to the caller: always bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from sandboxd.guest.frames import FRAME_COST, Stream


class Chunk(NamedTuple):
    stream: Stream
    offset: int
    data: bytes

    @property
    def cost(self) -> int:
        return len(self.data) + FRAME_COST


class Sink(Protocol):
    """Takes chunks as they come and gives credit back when it has room again."""

    def put(self, chunk: Chunk) -> None: ...


CREDIT_STEP = 128 * 1024
"""Credit goes back in few large pieces: each costs a write and wakes the guest."""


class _Credit:
    """Collects what is owed to the guest."""

    def __init__(self, give: Callable[[int], None]) -> None:
        self._give = give
        self._owed = 0

    def add(self, count: int) -> None:
        self._owed += count
        if self._owed >= CREDIT_STEP:
            owed, self._owed = self._owed, 0
            self._give(owed)


class Queue:
    """Holds chunks until a reader takes them; credit returns only then, so a slow reader slows the
    command down. What it holds is bounded by the window of the link."""

    def __init__(self, give_credit: Callable[[int], None]) -> None:
        self._credit = _Credit(give_credit)
        self._chunks: deque[Chunk] = deque()

    def __len__(self) -> int:
        return len(self._chunks)

    def put(self, chunk: Chunk) -> None:
        self._chunks.append(chunk)

    def clear(self) -> None:
        """Forget what is there, and give the credit for it back."""
        while self._chunks:
            self._credit.add(self._chunks.popleft().cost)

    def take(self, max_bytes: int) -> list[Chunk]:
        """Remove what is there, up to about `max_bytes`."""
        taken: list[Chunk] = []
        size = 0
        while self._chunks and size < max_bytes:
            chunk = self._chunks.popleft()
            size += len(chunk.data)
            self._credit.add(chunk.cost)
            taken.append(chunk)
        return taken


class Capture:
    """Keeps the beginning and the end of each stream and counts what was between."""

    def __init__(self, give_credit: Callable[[int], None], *, max_bytes: int) -> None:
        self._credit = _Credit(give_credit)
        self._streams = {stream: CapturedStream(max_bytes) for stream in Stream}

    def __getitem__(self, stream: Stream) -> CapturedStream:
        return self._streams[stream]

    def put(self, chunk: Chunk) -> None:
        self._streams[chunk.stream].add(chunk.data)
        self._credit.add(chunk.cost)


class CapturedStream:
    """The first and the last bytes of one stream, half of `max_bytes` each."""

    def __init__(self, max_bytes: int) -> None:
        self._head_size = max_bytes - max_bytes // 2
        self._tail_size = max_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, data: bytes) -> None:
        self._total += len(data)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Cut with slack, so that a flood of small pieces does not move the tail each time.
        if len(self._tail) > 2 * self._tail_size + 4096:
            self._cut_tail()

    def _cut_tail(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_size)]

    @property
    def data(self) -> bytes:
        self._cut_tail()
        return bytes(self._head + self._tail)

    @property
    def omitted_bytes(self) -> int:
        self._cut_tail()
        return self._total - len(self._head) - len(self._tail)

    @property
    def omitted_at(self) -> int:
        return len(self._head)


class Discard:
    """Forgets everything at once."""

    def __init__(self, give_credit: Callable[[int], None]) -> None:
        self._credit = _Credit(give_credit)

    def put(self, chunk: Chunk) -> None:
        self._credit.add(chunk.cost)
