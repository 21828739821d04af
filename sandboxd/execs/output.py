"""The output of a command between guest and readers: always bounded."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from sandboxd.guest.frames import FRAME_COST, STREAMS, Ack, Stream
from sandboxd.spool import Spool

ACK_STEP = 256 * 1024
"""Acknowledged in few large pieces: each costs a write and wakes the guest."""
PERSIST_AT = 256 * 1024
"""Once the guest keeps so much, it is written to disk, so that the guest can forget it."""
RECENT_COST = 128 * 1024
"""Output that stays in memory, in its order, for later readers. For present ones it is everything
they have not taken yet: the guest is never further ahead of them than its window, so that they
never have to read it back from disk."""


class Chunk(NamedTuple):
    stream: Stream
    offset: int
    data: bytes
    frame_count: int = 1
    """Frames that it came in; the guest charges each to its window."""

    @property
    def end(self) -> int:
        return self.offset + len(self.data)

    @property
    def cost(self) -> int:
        return len(self.data) + self.frame_count * FRAME_COST


class Gap(NamedTuple):
    """Output that was dropped."""

    stream: Stream
    offset: int
    size: int


class Output(Protocol):
    """Takes the output of an exec as it comes, and acknowledges what the guest may forget."""

    @property
    def is_followed(self) -> bool:
        """Whether a reader is attached."""
        ...

    def put(self, chunk: Chunk) -> None: ...

    def excerpt(self, stream: Stream, max_bytes: int) -> Excerpt:
        """The first and last bytes of a stream, as far as they are there."""
        ...

    def dropped(self, stream: Stream) -> int:
        """Bytes that were to be kept and are not."""
        ...


class Unacknowledged:
    """Output that the guest still keeps, oldest first."""

    def __init__(self, send_ack: Callable[[Ack], None]) -> None:
        self._send_ack = send_ack
        self._pending: deque[tuple[Stream, int, int]] = deque()
        """Stream, end and cost of each chunk."""
        self._ready: dict[Stream, tuple[int, int]] = {}
        """Offset up to which each stream can be acknowledged, and the window that this returns."""
        self._ready_cost = 0
        self.cost = 0

    def add(self, chunk: Chunk) -> None:
        self._pending.append((chunk.stream, chunk.end, chunk.cost))
        self.cost += chunk.cost

    def acknowledge(self, safe: Mapping[Stream, int]) -> None:
        """Let the guest forget everything up to these offsets."""
        while self._pending and self._pending[0][1] <= safe[self._pending[0][0]]:
            stream, end, cost = self._pending.popleft()
            self.cost -= cost
            self._ready[stream] = (end, self._ready.get(stream, (0, 0))[1] + cost)
            self._ready_cost += cost
        if self._ready_cost >= ACK_STEP:
            self.send()

    def send(self) -> None:
        ready, self._ready, self._ready_cost = self._ready, {}, 0
        for stream, (offset, credit) in ready.items():
            self._send_ack(Ack(stream, offset, credit))


class KeptOutput:
    """Output that is kept in a spool and followed by any number of readers.

    The guest forgets what is safe: on disk, and taken by every reader. So a slow reader slows the
    command down, and a kill of the daemon loses nothing.
    """

    def __init__(self, spool: Spool, send_ack: Callable[[Ack], None]) -> None:
        self.spool = spool
        self._unacknowledged = Unacknowledged(send_ack)
        self._recent: deque[Chunk] = deque()
        self._recent_cost = 0
        self._followers: set[Follower] = set()

    def put(self, chunk: Chunk) -> None:
        self.spool.append(chunk.stream, chunk.data)
        self._recent.append(chunk)
        self._recent_cost += chunk.cost
        self._unacknowledged.add(chunk)
        if self._unacknowledged.cost > PERSIST_AT:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Let the guest forget what is safe, and memory what every reader has taken."""
        if self._unacknowledged.cost > PERSIST_AT:
            self.spool.persist()
        safe, taken = {}, {}
        for stream in STREAMS:
            cursors = [follower.cursors[stream] for follower in self._followers]
            taken[stream] = min(cursors, default=self.spool.length(stream))
            safe[stream] = min(taken[stream], self.spool.releasable(stream))
        self._unacknowledged.acknowledge(safe)
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
        self.acknowledge()

    @property
    def is_followed(self) -> bool:
        return bool(self._followers)

    @property
    def recent(self) -> Sequence[Chunk]:
        return self._recent

    def recent_from(self, stream: Stream) -> int:
        """Offset from which the whole stream is in memory."""
        return next(
            (chunk.offset for chunk in self._recent if chunk.stream == stream),
            self.spool.length(stream),
        )

    def excerpt(self, stream: Stream, max_bytes: int) -> Excerpt:
        return Excerpt.of(self.spool, stream, max_bytes)

    def dropped(self, stream: Stream) -> int:
        return self.spool.dropped(stream).size

    def drop_recent(self) -> None:
        """Keep nothing in memory for readers to come: the command has ended."""
        self._recent.clear()
        self._recent_cost = 0


class Follower:
    """One reader's place in the output."""

    def __init__(self, output: KeptOutput, offsets: Mapping[Stream, int]) -> None:
        self._output = output
        self.cursors = {stream: offsets.get(stream, 0) for stream in STREAMS}

    @property
    def is_behind(self) -> bool:
        return any(self.cursors[s] < self._output.spool.length(s) for s in STREAMS)

    def take(self, max_bytes: int) -> list[Chunk | Gap]:
        """Return what comes next, about `max_bytes` of it, with a gap for what was dropped."""
        taken: list[Chunk | Gap] = []
        left = max_bytes
        for stream in STREAMS:
            left -= self._catch_up(stream, left, taken)
        if left > 0:
            self._take_recent(left, taken)
        self._output.acknowledge()
        return taken

    def _catch_up(self, stream: Stream, max_bytes: int, taken: list[Chunk | Gap]) -> int:
        """Read what is no longer in memory; return the number of bytes."""
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


class UnkeptOutput:
    """Keeps the beginning and the end of each stream in memory and counts what was between.

    For a command that nobody can ask about later: the guest may forget everything at once.
    """

    is_followed = False

    def __init__(self, send_ack: Callable[[Ack], None], *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._unacknowledged = Unacknowledged(send_ack)
        self._streams: dict[Stream, Excerpt] = {}
        self._ends: dict[Stream, int] = {}

    def put(self, chunk: Chunk) -> None:
        stream = chunk.stream
        if stream not in self._streams:
            self._streams[stream] = Excerpt(self._max_bytes)
        self._streams[stream].add(chunk.data)
        self._ends[stream] = chunk.end
        self._unacknowledged.add(chunk)
        self._unacknowledged.acknowledge(self._ends)

    def excerpt(self, stream: Stream, max_bytes: int) -> Excerpt:
        """Of as many bytes as it was made for, whatever `max_bytes` says."""
        return self._streams.get(stream) or Excerpt(0)

    def dropped(self, stream: Stream) -> int:
        return 0  # an excerpt counts what it leaves out


def _read(spool: Spool, stream: Stream, start: int, end: int) -> bytes:
    return spool.read(stream, start, end - start).data if start < end else b""


class Excerpt:
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

    @classmethod
    def of(cls, spool: Spool, stream: Stream, max_bytes: int) -> Excerpt:
        """Both ends of what a spool keeps, as if the whole stream had been added."""
        excerpt = cls(max_bytes)
        length, gap = spool.length(stream), spool.dropped(stream)
        head_end = min(excerpt._head_size, gap.at if gap.size else length)
        tail_start = max(length - excerpt._tail_size, head_end, gap.at + gap.size)
        excerpt._head += _read(spool, stream, 0, head_end)
        excerpt._tail += _read(spool, stream, tail_start, length)
        excerpt._total = length
        return excerpt

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
