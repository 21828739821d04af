"""Output on its way to the caller: what is kept, what is counted, what is given back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.guest.frames import FRAME_COST, MAX_CHUNK, Stream
from sandboxd.output import CREDIT_STEP, Capture, CapturedStream, Chunk, Discard, Queue

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
def test_captured_stream_keeps_exact_head_and_tail(written: list[bytes], max_bytes: int) -> None:
    """Everything up to the cap, beyond it the first and the last half, and the rest counted."""
    stream = CapturedStream(max_bytes)
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
def test_captured_stream_does_not_grow_with_what_it_sees(max_bytes: int) -> None:
    """A flood leaves the cap and a little slack, and every byte is accounted for."""
    stream = CapturedStream(max_bytes)
    for _ in range(200):
        stream.add(b"x" * MAX_CHUNK)

    assert len(stream.data) == max_bytes
    assert stream.omitted_bytes == 200 * MAX_CHUNK - max_bytes


def test_captured_stream_can_be_read_while_it_grows() -> None:
    """Looking at an excerpt changes nothing about the next one."""
    stream = CapturedStream(4)
    stream.add(b"abcd")
    assert stream.data == b"abcd"
    stream.add(b"ef")
    assert (stream.data, stream.omitted_bytes) == (b"abef", 2)
    stream.add(b"g")
    assert (stream.data, stream.omitted_bytes) == (b"abfg", 3)


@given(written=st.lists(st.tuples(streams, st.binary(min_size=1, max_size=50)), max_size=40))
def test_capture_keeps_streams_apart(written: list[tuple[Stream, bytes]]) -> None:
    """What went to stderr is not in stdout."""
    capture = Capture(lambda _: None, max_bytes=10_000)
    for stream, data in written:
        capture.put(Chunk(stream, 0, data))

    for stream in Stream:
        assert capture[stream].data == b"".join(data for one, data in written if one is stream)


def read_at_once(given: list[int], put: list[Chunk]) -> None:
    queue = Queue(given.append)
    for chunk in put:
        queue.put(chunk)
        queue.take(1)


def captured(given: list[int], put: list[Chunk]) -> None:
    capture = Capture(given.append, max_bytes=1024)
    for chunk in put:
        capture.put(chunk)


def discarded(given: list[int], put: list[Chunk]) -> None:
    discard = Discard(given.append)
    for chunk in put:
        discard.put(chunk)


@pytest.mark.parametrize("go_through", [read_at_once, captured, discarded])
@given(sizes=sizes)
def test_credit_equals_what_was_taken(go_through: Callable[..., Any], sizes: list[int]) -> None:
    """Bytes and frames taken in come back as credit, whole but for less than one step."""
    given: list[int] = []
    go_through(given, chunks(sizes))
    cost = sum(sizes) + FRAME_COST * len(sizes)

    assert 0 <= cost - sum(given) < CREDIT_STEP
    assert all(count >= CREDIT_STEP for count in given)


@given(sizes=sizes, max_bytes=st.integers(1, 300_000))
def test_queue_gives_back_in_order_and_credit_only_when_read(
    sizes: list[int], max_bytes: int
) -> None:
    """Nothing is credited while it waits; what is taken is what was put, in order."""
    given: list[int] = []
    queue = Queue(given.append)
    put = chunks(sizes)
    for chunk in put:
        queue.put(chunk)
    assert (sum(given), len(queue)) == (0, len(put))

    taken = []
    while queue:
        batch = queue.take(max_bytes)
        assert sum(len(chunk.data) for chunk in batch[:-1]) < max_bytes
        taken += batch
    assert taken == put
    assert queue.take(max_bytes) == []
