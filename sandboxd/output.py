"""Where the output of a command goes on its way to its readers: always bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from sandboxd.guest.frames import FRAME_COST, STREAMS, Ack, Stream
from sandboxd.spool import Spool

ACK_STEP = 256 * 1024
"""Acknowledged in few large pieces: each costs a write and wakes the guest."""
PERSIST_AT = 256 * 1024
"""When the guest keeps so much, it goes to disk, so that it can be forgotten there."""
RECENT_COST = 128 * 1024
"""What is at hand in the order it came, for readers to come. For those who are there it is whatever
they have not taken yet: the guest is never further ahead of them than its window, so that they
never have to read it back from disk."""


class Chunk(NamedTuple):
    stream: Stream
    offset: int
    data: bytes
    frame_count: int = 1
    """How many it came in, each of which the guest has counted."""

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    @property
    def cost(self) -> int:
        return len(self.data) + self.frame_count * FRAME_COST


class Gap(NamedTuple):
    """Output that is not kept any more."""

    stream: Stream
    offset: int
    size: int


class Sink(Protocol):
    """Takes chunks as they come, and says when the guest may forget them."""

    def put(self, chunk: Chunk) -> None: ...


class Debts:
    """What the guest still keeps, oldest first."""

    def __init__(self, acknowledge: Callable[[Ack], None]) -> None:
        self._acknowledge = acknowledge
        self._owed: deque[tuple[Stream, int, int]] = deque()
        self._ready: dict[Stream, tuple[int, int]] = {}
        """By stream: the offset up to which it can be acknowledged, and the window for it."""
        self._ready_cost = 0
        self.cost = 0

    def add(self, chunk: Chunk) -> None:
        self._owed.append((chunk.stream, chunk.end, chunk.cost))
        self.cost += chunk.cost

    def settle(self, safe: Mapping[Stream, int]) -> None:
        """Acknowledge what is safe up to these offsets."""
        while self._owed and self._owed[0][1] <= safe[self._owed[0][0]]:
            stream, end, cost = self._owed.popleft()
            self.cost -= cost
            self._ready[stream] = (end, self._ready.get(stream, (0, 0))[1] + cost)
            self._ready_cost += cost
        if self._ready_cost >= ACK_STEP:
            self.send()

    def send(self) -> None:
        ready, self._ready, self._ready_cost = self._ready, {}, 0
        for stream, (offset, credit) in ready.items():
            self._acknowledge(Ack(stream, offset, credit))


class Output:
    """The output of an exec, kept in a spool and followed by any number of readers.

    The guest forgets what is safe: on disk, and taken by every reader. So a slow reader slows the
    command down, and a kill of the daemon loses nothing.
    """

    def __init__(self, spool: Spool, acknowledge: Callable[[Ack], None]) -> None:
        self.spool = spool
        self._debts = Debts(acknowledge)
        self._recent: deque[Chunk] = deque()
        self._recent_cost = 0
        self._followers: set[Follower] = set()

    def put(self, chunk: Chunk) -> None:
        self.spool.append(chunk.stream, chunk.data)
        self._recent.append(chunk)
        self._recent_cost += chunk.cost
        self._debts.add(chunk)
        if self._debts.cost > PERSIST_AT:
            self.settle()

    def settle(self) -> None:
        """Let the guest forget what it need not keep any more."""
        if self._debts.cost > PERSIST_AT:
            self.spool.persist()
        safe, taken = {}, {}
        for stream in STREAMS:
            cursors = [follower.cursors[stream] for follower in self._followers]
            taken[stream] = min(cursors, default=self.spool.length(stream))
            safe[stream] = min(taken[stream], self.spool.releasable(stream))
        self._debts.settle(safe)
        while self._recent_cost > RECENT_COST:
            first = self._recent[0]
            if first.end > taken[first.stream]:
                break
            self._recent.popleft()
            self._recent_cost -= first.cost

    def follow(self, offsets: Mapping[Stream, int]) -> Follower:
        follower = Follower(self, offsets)
        self._followers.add(follower)
        return follower

    def leave(self, follower: Follower) -> None:
        self._followers.discard(follower)
        self.settle()

    @property
    def is_followed(self) -> bool:
        return bool(self._followers)

    @property
    def recent(self) -> Sequence[Chunk]:
        return self._recent

    def recent_from(self, stream: Stream) -> int:
        """Offset from which on everything of the stream is at hand."""
        return next(
            (chunk.offset for chunk in self._recent if chunk.stream == stream),
            self.spool.length(stream),
        )

    def let_go(self) -> None:
        """It has ended: nothing more needs to be at hand in its order."""
        self._recent.clear()
        self._recent_cost = 0


class Follower:
    """One reader's place in the output."""

    def __init__(self, output: Output, offsets: Mapping[Stream, int]) -> None:
        self._output = output
        self.cursors = {stream: offsets.get(stream, 0) for stream in STREAMS}

    @property
    def is_behind(self) -> bool:
        return any(self.cursors[s] < self._output.spool.length(s) for s in STREAMS)

    def take(self, max_bytes: int) -> list[Chunk | Gap]:
        """What comes next, about `max_bytes` of it; what is dropped is told as a gap."""
        taken: list[Chunk | Gap] = []
        left = max_bytes
        for stream in STREAMS:
            left -= self._catch_up(stream, left, taken)
        if left > 0:
            self._take_recent(left, taken)
        self._output.settle()
        return taken

    def _catch_up(self, stream: Stream, max_bytes: int, taken: list[Chunk | Gap]) -> int:
        """Read what is not at hand any more; returns how many bytes."""
        count = 0
        end = self._output.recent_from(stream)
        while self.cursors[stream] < end and count < max_bytes:
            wanted = min(max_bytes - count, end - self.cursors[stream])
            piece = self._output.spool.read(stream, self.cursors[stream], wanted)
            if piece.skipped:
                taken.append(Gap(stream, self.cursors[stream], piece.skipped))
                self.cursors[stream] += piece.skipped
            if not piece.data:
                break
            taken.append(Chunk(stream, piece.offset, piece.data))
            self.cursors[stream] += len(piece.data)
            count += len(piece.data)
        return count

    def _take_recent(self, max_bytes: int, taken: list[Chunk | Gap]) -> None:
        for chunk in self._output.recent:
            cursor = self.cursors[chunk.stream]
            if chunk.end <= cursor:
                continue
            if max_bytes <= 0 or chunk.offset > cursor:
                return
            data = chunk.data[cursor - chunk.offset :] if cursor > chunk.offset else chunk.data
            taken.append(Chunk(chunk.stream, cursor, data))
            self.cursors[chunk.stream] = chunk.end
            max_bytes -= len(data)


class Capture:
    """Keeps the beginning and the end of each stream and counts what was between.

    For a command that nobody will ask about again: the guest may forget everything at once.
    """

    def __init__(self, acknowledge: Callable[[Ack], None], *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._debts = Debts(acknowledge)
        self._streams: dict[Stream, CapturedStream] = {}
        self._ends: dict[Stream, int] = {}

    def __getitem__(self, stream: Stream) -> CapturedStream:
        return self._streams.get(stream) or CapturedStream(0)

    def put(self, chunk: Chunk) -> None:
        stream = chunk.stream
        if stream not in self._streams:
            self._streams[stream] = CapturedStream(self._max_bytes)
        self._streams[stream].add(chunk.data)
        self._ends[stream] = chunk.end
        self._debts.add(chunk)
        self._debts.settle(self._ends)


def _read(spool: Spool, stream: Stream, start: int, end: int) -> bytes:
    return spool.read(stream, start, end - start).data if start < end else b""


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

    def take_from(self, spool: Spool, stream: Stream) -> None:
        """Take both ends from what is kept, with the same outcome as if all had passed here."""
        length, gap = spool.length(stream), spool.dropped(stream)
        head_end = min(self._head_size, gap.at if gap.size else length)
        tail_start = max(length - self._tail_size, head_end, gap.at + gap.size)
        self._head += _read(spool, stream, 0, head_end)
        self._tail += _read(spool, stream, tail_start, length)
        self._total = length

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
