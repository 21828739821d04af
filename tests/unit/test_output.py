"""Output on its way to its readers: what is kept, what is counted, what the guest may forget."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.execs.output import (
    ACK_STEP,
    PERSIST_AT,
    RECENT_COST,
    Chunk,
    Excerpt,
    Gap,
    KeptOutput,
    Unacknowledged,
    UnkeptOutput,
)
from sandboxd.guest.frames import FRAME_COST, MAX_CHUNK, WINDOW, Ack, Stream
from sandboxd.spool import Spool, SpoolBudget, SpoolSettings
from tests.scale import examples

pieces = st.lists(st.binary(min_size=1, max_size=300), max_size=60)
streams = st.sampled_from(Stream)
sizes = st.lists(st.integers(1, MAX_CHUNK), min_size=1, max_size=80)


def chunks(sizes: list[int]) -> list[Chunk]:
    offset, made = 0, []
    for size in sizes:
        made.append(Chunk(Stream.STDOUT, offset, bytes(size)))
        offset += size
    return made


@given(written=pieces, max_bytes=st.integers(1, 2000))
def test_excerpt_keeps_exact_head_and_tail(written: list[bytes], max_bytes: int) -> None:
    """Everything up to the cap, beyond it the first and the last half, and the rest counted."""
    stream = Excerpt(max_bytes)
    for piece in written:
        stream.add(piece)
    whole = b"".join(written)
    head, tail = max_bytes - max_bytes // 2, max_bytes // 2

    if len(whole) <= max_bytes:
        assert (stream.data, stream.omitted_bytes) == (whole, 0)
    else:
        assert stream.data == whole[:head] + whole[len(whole) - tail :]
        assert stream.omitted_bytes == len(whole) - max_bytes
        assert stream.omitted_at == head


@pytest.mark.parametrize("max_bytes", [1, 2, 3, 1024])
def test_excerpt_does_not_grow_with_what_it_sees(max_bytes: int) -> None:
    """A flood leaves the cap and a little slack, and every byte is accounted for."""
    stream = Excerpt(max_bytes)
    for _ in range(200):
        stream.add(b"x" * MAX_CHUNK)

    assert len(stream.data) == max_bytes
    assert stream.omitted_bytes == 200 * MAX_CHUNK - max_bytes


def test_excerpt_can_be_read_while_it_grows() -> None:
    """Looking at an excerpt changes nothing about the next one."""
    stream = Excerpt(4)
    stream.add(b"abcd")
    assert stream.data == b"abcd"
    stream.add(b"ef")
    assert (stream.data, stream.omitted_bytes) == (b"abef", 2)
    stream.add(b"g")
    assert (stream.data, stream.omitted_bytes) == (b"abfg", 3)


@given(written=st.lists(st.tuples(streams, st.binary(min_size=1, max_size=50)), max_size=40))
def test_unkept_output_keeps_streams_apart(written: list[tuple[Stream, bytes]]) -> None:
    """What went to stderr is not in stdout."""
    output = UnkeptOutput(lambda _: None, max_bytes=10_000)
    for stream, data in written:
        output.put(Chunk(stream, 0, data))

    for stream in Stream:
        expected = b"".join(data for other, data in written if other is stream)
        assert output.excerpt(stream, 10_000).data == expected


@given(sizes=sizes)
def test_unkept_output_lets_the_guest_forget_what_it_took(sizes: list[int]) -> None:
    """Bytes and frames come back as window, whole but for less than one step."""
    acks: list[Ack] = []
    output = UnkeptOutput(acks.append, max_bytes=1024)
    for chunk in chunks(sizes):
        output.put(chunk)
    cost = sum(sizes) + FRAME_COST * len(sizes)

    assert 0 <= cost - sum(ack.credit for ack in acks) < ACK_STEP
    assert all(ack.credit >= ACK_STEP for ack in acks)


@given(sizes=sizes, safe=st.lists(st.integers(0, 80 * MAX_CHUNK), max_size=20))
def test_window_comes_back_once_and_only_when_safe(sizes: list[int], safe: list[int]) -> None:
    """No chunk is acknowledged before it is safe as a whole, and its window comes back once."""
    acks: list[Ack] = []
    unacknowledged = Unacknowledged(acks.append)
    sent = chunks(sizes)
    for chunk in sent:
        unacknowledged.add(chunk)
    for offset in safe:
        unacknowledged.acknowledge({Stream.STDOUT: offset, Stream.STDERR: 0})
    unacknowledged.send()

    furthest = max(safe, default=0)
    forgotten = [chunk for chunk in sent if chunk.end <= furthest]
    assert sum(ack.credit for ack in acks) == sum(chunk.cost for chunk in forgotten)
    assert max((ack.offset for ack in acks), default=0) == (forgotten[-1].end if forgotten else 0)
    assert unacknowledged.cost == sum(chunk.cost for chunk in sent[len(forgotten) :])


def content(stream: Stream, offset: int, size: int) -> bytes:
    """What a stream holds there: told apart by stream and by place."""
    unit = bytes(range(251)) if stream == Stream.STDOUT else bytes(range(250, -1, -1))
    start = offset % 251
    return (unit * (size // 251 + 2))[start : start + size]


class Reader:
    """A follower and what it was told."""

    def __init__(self, output: KeptOutput, offsets: dict[Stream, int]) -> None:
        self.output = output
        self.places = dict(offsets)
        self.dropped = dict.fromkeys(Stream, 0)
        self.follower = output.follow(offsets)

    def take(self, max_bytes: int) -> None:
        for one in self.follower.take(max_bytes):
            assert one.offset == self.places[one.stream]
            if isinstance(one, Gap):
                self.places[one.stream] += one.size
                self.dropped[one.stream] += one.size
            else:
                assert one.data == content(one.stream, one.offset, len(one.data))
                self.places[one.stream] += len(one.data)


class Source:
    """A guest that keeps to its window, into an output on disk."""

    def __init__(self, directory: Path, *, max_bytes: int) -> None:
        settings = SpoolSettings(directory=directory, memory_bytes=8192, max_bytes=max_bytes)
        self.spool = Spool(settings, "e1", SpoolBudget(1 << 30))
        self.output = KeptOutput(self.spool, self._on_ack)
        self.readers: list[Reader] = []
        self.window = WINDOW
        self.lengths = dict.fromkeys(Stream, 0)
        self.acknowledged = dict.fromkeys(Stream, 0)

    def put(self, stream: Stream, size: int) -> None:
        if self.window > 0:
            chunk = Chunk(stream, self.lengths[stream], content(stream, self.lengths[stream], size))
            self.window -= chunk.cost
            self.lengths[stream] += size
            self.output.put(chunk)

    def follow(self, parts: tuple[float, float]) -> None:
        offsets = {
            stream: int(self.lengths[stream] * part)
            for stream, part in zip(Stream, (*parts, parts[0]), strict=True)
        }
        self.readers.append(Reader(self.output, offsets))

    def leave(self) -> None:
        if self.readers:
            self.output.leave(self.readers.pop(0).follower)

    def _on_ack(self, ack: Ack) -> None:
        self.window += ack.credit
        self.acknowledged[ack.stream] = ack.offset
        assert ack.offset <= self.spool.durable(ack.stream)
        for reader in self.readers:
            assert ack.offset <= reader.follower.cursors[ack.stream]


moves = st.one_of(
    st.tuples(st.just("put"), streams, st.integers(1, MAX_CHUNK)),
    st.tuples(st.just("follow"), st.tuples(st.floats(0, 1), st.floats(0, 1))),
    st.tuples(st.just("take"), st.integers(0, 3), st.integers(1, 300_000)),
    st.tuples(st.just("persist")),
    st.tuples(st.just("leave")),
)


def play(source: Source, script: list[tuple[Any, ...]]) -> None:
    for move, *arguments in script:
        match move:
            case "put":
                source.put(*arguments)
            case "follow" if len(source.readers) < 4:
                source.follow(*arguments)
            case "take" if source.readers:
                number, max_bytes = arguments
                source.readers[number % len(source.readers)].take(max_bytes)
            case "persist":
                source.spool.persist()
            case "leave":
                source.leave()
        assert source.window > -(MAX_CHUNK + FRAME_COST)


@pytest.mark.parametrize("max_bytes", [64 << 20, 100_000])
@given(script=st.lists(moves, max_size=60))
@hypothesis.settings(
    max_examples=examples(30),
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
def test_every_reader_gets_every_byte_in_order(
    max_bytes: int, script: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    """Whatever is put, read, persisted and left in whatever order: each reader gets the bytes from
    its offset on, gaps are told, and nothing is acknowledged before it is durable and taken."""
    source = Source(tmp_path / secrets.token_hex(8), max_bytes=max_bytes)
    play(source, script)

    for reader in source.readers:
        turns = 0
        while reader.follower.is_behind:
            reader.take(200_000)
            turns += 1
            assert turns < 1000
        assert reader.places == source.lengths
        if max_bytes > sum(source.lengths.values()):
            assert reader.dropped == dict.fromkeys(Stream, 0)
    source.spool.delete()


@given(sizes=st.lists(st.integers(1, MAX_CHUNK), min_size=100, max_size=120))
@hypothesis.settings(
    max_examples=examples(10),
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
def test_output_without_readers_flows_for_ever(sizes: list[int], tmp_path: Path) -> None:
    """What nobody reads goes to disk, and the guest is never held back."""
    source = Source(tmp_path / secrets.token_hex(8), max_bytes=1 << 20)
    for size in sizes:
        before = source.lengths[Stream.STDOUT]
        source.put(Stream.STDOUT, size)
        assert source.lengths[Stream.STDOUT] == before + size
    source.spool.delete()


def test_reader_that_stops_holds_the_guest_back_until_it_leaves(tmp_path: Path) -> None:
    """The guest keeps what a reader has not taken; a window of that is the most."""
    source = Source(tmp_path, max_bytes=64 << 20)
    source.follow((0, 0))
    for _ in range(100):
        source.put(Stream.STDOUT, MAX_CHUNK)
    assert source.window <= 0
    assert source.acknowledged[Stream.STDOUT] == 0
    source.leave()

    assert source.window > WINDOW // 2
    source.spool.delete()


@pytest.mark.parametrize("reader", ["none", "quick", "slow"])
def test_memory_holds_what_a_reader_lacks_and_little_more(tmp_path: Path, reader: str) -> None:
    """What all have taken is left to the disk; one that lags has all it lacks at hand."""
    source = Source(tmp_path, max_bytes=64 << 20)
    if reader != "none":
        source.follow((0, 0))
    for _ in range(100):
        source.put(Stream.STDOUT, MAX_CHUNK)
        if reader == "quick":
            source.readers[0].take(MAX_CHUNK)

    held = sum(chunk.cost for chunk in source.output.recent)
    if reader == "slow":
        assert held == source.lengths[Stream.STDOUT] // MAX_CHUNK * (MAX_CHUNK + FRAME_COST)
        assert held <= WINDOW + MAX_CHUNK + FRAME_COST
    else:
        assert source.lengths[Stream.STDOUT] == 100 * MAX_CHUNK
        assert held <= RECENT_COST + PERSIST_AT + MAX_CHUNK
    source.spool.delete()


@pytest.mark.parametrize("max_bytes", [1, 2, 3, 1000, 70_000, 150_000, 1 << 20])
@pytest.mark.parametrize("kept_bytes", [64 << 20, 40_000])
@pytest.mark.parametrize("length", [0, 1, 1000, 120_000])
def test_excerpt_of_what_is_kept_accounts_for_every_byte(
    length: int, kept_bytes: int, max_bytes: int, tmp_path: Path
) -> None:
    """Both ends as far as they are kept, in their order, and what is missing is counted."""
    source = Source(tmp_path, max_bytes=kept_bytes)
    for begin in range(0, length, 30_000):
        source.put(Stream.STDOUT, min(30_000, length - begin))
    excerpt = Excerpt.of(source.spool, Stream.STDOUT, max_bytes)

    whole = content(Stream.STDOUT, 0, length)
    data, at = excerpt.data, excerpt.omitted_at
    assert len(data) + excerpt.omitted_bytes == length
    assert len(data) <= max_bytes
    if excerpt.omitted_bytes:
        assert data[:at] == whole[:at]
        assert data[at:] == whole[length - len(data) + at :]
    else:
        assert data == whole
    if kept_bytes > length:
        assert len(data) == min(length, max_bytes)
    source.spool.delete()
