"""The frame codec, from both of its ends."""

from __future__ import annotations

import itertools
import struct
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.guest import frames
from sandboxd.guest.frames import (
    HEADER,
    Ack,
    Cause,
    Decoder,
    Ending,
    ExecState,
    Exited,
    Frame,
    Kind,
    Output,
    ProtocolError,
    StartFailure,
    Stream,
    Target,
)
from tests.fakes.output_frame import encode_output
from tests.scale import examples

LIMITS = [frames.MAX_GUEST_PAYLOAD, frames.MAX_DAEMON_PAYLOAD]
channels = st.integers(0, 2**32 - 1)
counts = st.integers(0, 2**64 - 1)
any_frames = st.lists(
    st.tuples(st.sampled_from(Kind), channels, st.binary(max_size=200)).map(
        lambda parts: Frame(*parts)
    ),
    max_size=12,
)


def decode_all(decoder: Decoder, pieces: list[bytes]) -> list[Frame]:
    return [frame for piece in pieces for frame in decoder.feed(piece)]


def cut(data: bytes, positions: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(position % (len(data) + 1) for position in positions)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@given(sent=any_frames, positions=st.lists(st.integers(0, 10_000), max_size=20))
def test_frames_come_out_as_they_went_in(sent: list[Frame], positions: list[int]) -> None:
    """However a stream is cut into pieces, the same frames come out, and nothing is left."""
    data = b"".join(frames.encode(Kind(kind), channel, body) for kind, channel, body in sent)
    decoder = Decoder(frames.MAX_GUEST_PAYLOAD)

    assert decode_all(decoder, cut(data, positions)) == sent
    assert not decoder.is_mid_frame


def test_frames_come_out_of_single_bytes() -> None:
    """A frame that arrives byte by byte is complete at its last byte and not before."""
    data = encode_output(7, Stream.STDERR, 3, b"abc")
    decoder = Decoder(frames.MAX_GUEST_PAYLOAD)

    early = decode_all(decoder, [bytes([byte]) for byte in data[:-1]])
    assert (early, decoder.is_mid_frame) == ([], True)
    (frame,) = decoder.feed(data[-1:])
    assert frames.decode_output(frame.payload) == Output(Stream.STDERR, 3, b"abc")


@pytest.mark.parametrize("limit", LIMITS)
def test_largest_frame_is_taken_and_one_byte_more_is_not(limit: int) -> None:
    """The limit is exact, and an oversize frame is refused at its header."""
    decoder = Decoder(limit)
    (frame,) = decoder.feed(frames.encode(Kind.OUTPUT, 1, bytes(limit)))
    assert len(frame.payload) == limit

    with pytest.raises(ProtocolError, match=f"at most {limit}"):
        list(decoder.feed(HEADER.pack(limit + 1, Kind.OUTPUT, 1)))


@settings(max_examples=examples(100))
@given(pieces=st.lists(st.binary(max_size=300), max_size=30), limit=st.integers(0, 600))
def test_garbage_gives_frames_or_a_protocol_error(pieces: list[bytes], limit: int) -> None:
    """Any bytes end in frames or in ProtocolError, and never is more than one frame held back."""
    decoder = Decoder(limit)
    held = 0
    try:
        for piece in pieces:
            held += len(piece)
            for frame in decoder.feed(piece):
                assert len(frame.payload) <= limit
                held -= HEADER.size + len(frame.payload)
            assert 0 <= held < HEADER.size + max(limit, 1)
            assert decoder.is_mid_frame == (held > 0)
    except ProtocolError:
        pass  # the other of the two


def test_frames_before_an_oversize_one_are_not_lost() -> None:
    """What was whole before the rule was broken still comes out."""
    good = frames.encode(Kind.READY)
    seen = []
    with pytest.raises(ProtocolError):  # the loop is what raises
        for frame in Decoder(10).feed(good + HEADER.pack(11, Kind.OUTPUT, 1)):
            seen.append(frame)

    assert seen == [Frame(Kind.READY, 0, b"")]


@given(
    channel=channels,
    stream=st.sampled_from(Stream),
    offset=counts,
    data=st.binary(min_size=1, max_size=500),
)
def test_output_round_trip(channel: int, stream: Stream, offset: int, data: bytes) -> None:
    """Output says the same at the other end."""
    (frame,) = Decoder(1000).feed(encode_output(channel, stream, offset, data))

    assert (frame.kind, frame.channel) == (Kind.OUTPUT, channel)
    assert frames.decode_output(frame.payload) == Output(stream, offset, data)


@given(code=st.integers(0, 255), signal=st.integers(1, 64), out=counts, err=counts)
@pytest.mark.parametrize("cause", Cause)
def test_exited_round_trip(cause: Cause, code: int, signal: int, out: int, err: int) -> None:
    """Every possible ending says the same at the other end."""
    for exited in (
        Exited(Ending.CODE, cause, code, out, err),
        Exited(Ending.SIGNAL, cause, signal, out, err),
        *(Exited(Ending.DONE, cause, end, out, err, code) for end in frames.RunEnd),
    ):
        (frame,) = Decoder(100).feed(frames.encode_exited(5, exited))
        assert frames.decode_exited(frame.payload) == exited


@given(pid=st.integers(0, 2**32 - 1), is_resumed=st.booleans(), end=counts, size=st.integers(0, 9))
@pytest.mark.parametrize("stream", Stream)
def test_small_frames_round_trip(
    stream: Stream, pid: int, is_resumed: bool, end: int, size: int
) -> None:
    """Greeting, acknowledgement, input, signal and size say the same at the other end."""
    hello, ack, resume, given, taken, signal, resized = Decoder(100).feed(
        frames.encode_hello(pid, is_resumed=is_resumed)
        + frames.encode_ack(3, Ack(stream, end, size))
        + frames.encode_resume(3, dict(zip(Stream, (end, size, end), strict=True)), 7)
        + frames.encode_input(3, end, b"x" * size)
        + frames.encode_input_taken(3, end)
        + frames.encode_signal(3, 15, Target.LEADER)
        + frames.encode_resize(3, 24, 80)
    )

    assert frames.decode_hello(hello.payload) == (frames.PROTOCOL_VERSION, pid, is_resumed)
    assert frames.decode_ack(ack.payload) == (stream, end, size)
    assert frames.decode_resume(resume.payload) == (end, size, end)
    assert frames.decode_input(given.payload) == (end, b"x" * size)
    assert frames.decode_input_taken(taken.payload) == end
    assert frames.decode_signal(signal.payload) == (15, Target.LEADER)
    assert frames.decode_resize(resized.payload) == (24, 80)


@given(out=counts, err=counts, label=st.binary(max_size=frames.MAX_LABEL), has_ended=st.booleans())
def test_state_round_trip(out: int, err: int, label: bytes, has_ended: bool) -> None:
    """A guest's memory of an exec says the same at the other end, label and all."""
    exited = Exited(Ending.SIGNAL, Cause.KILLED, 9, out, err, out) if has_ended else None
    state = ExecState(exited, out, err, label, out)
    (frame,) = Decoder(2000).feed(frames.encode_state(5, state))

    assert frames.decode_state(frame.payload) == state


@given(
    failure=st.sampled_from(StartFailure), text=st.text(max_size=400), pid=st.integers(2, 1 << 22)
)
def test_start_and_refusal_round_trip(failure: StartFailure, text: str, pid: int) -> None:
    """What became of a start says the same at the other end; long words are cut."""
    refused, started = Decoder(2000).feed(
        frames.encode_refused(5, failure, text) + frames.encode_started(6, pid)
    )
    kept = text.encode(errors="replace")[: frames.MAX_REFUSAL].decode(errors="replace")

    assert frames.decode_refused(refused.payload, frames.PROTOCOL_VERSION) == (failure, kept)
    assert frames.decode_started(started.payload) == pid


@pytest.mark.parametrize(
    ("text", "failure"),
    [(f"{frames.NO_PROCESS} (x)", StartFailure.NO_PROCESS), ("there is no x", StartFailure.OTHER)],
)
def test_refusal_of_an_earlier_guest_is_understood(text: str, failure: StartFailure) -> None:
    """It names no kind; whether another try may help is in its words."""
    for version in range(frames.OLDEST_VERSION, frames.START_REPORTS_VERSION):
        assert frames.decode_refused(text.encode(), version) == (failure, text)


@pytest.mark.parametrize("number", [0, 4, 255])
def test_what_is_not_known_is_a_broken_protocol_for_a_guest_too(number: int) -> None:
    """A stream or a target that there is not is refused as any other broken rule."""
    with pytest.raises(ProtocolError, match="unknown stream"):
        frames.decode_ack(struct.pack("!BQI", number, 0, 0))
    with pytest.raises(ProtocolError, match="unknown target"):
        frames.decode_signal(struct.pack("!BB", 15, number or 2))


def test_endless_label_is_refused() -> None:
    """A label that cannot be ours is not even looked at."""
    state = ExecState(None, 0, 0, b"x" * (frames.MAX_LABEL + 1))
    (frame,) = Decoder(2000).feed(frames.encode_state(5, state))
    with pytest.raises(ProtocolError, match="label"):
        frames.decode_state(frame.payload)


@pytest.mark.parametrize(
    "decode",
    [
        frames.decode_hello,
        frames.decode_output,
        frames.decode_exited,
        frames.decode_state,
        frames.decode_input_taken,
        frames.decode_started,
        frames.decode_context,
        frames.decode_context_run,
        partial(frames.decode_exited, version=frames.OLDEST_VERSION),
        partial(frames.decode_state, version=frames.OLDEST_VERSION),
        partial(frames.decode_refused, version=frames.OLDEST_VERSION),
        partial(frames.decode_refused, version=frames.PROTOCOL_VERSION),
    ],
)
@given(payload=st.binary(max_size=64))
def test_payload_of_garbage_is_read_or_refused(decode: object, payload: bytes) -> None:
    """Any payload is either understood or a ProtocolError; nothing else escapes."""
    try:
        decode(payload)  # type: ignore[operator]
    except ProtocolError:
        pass  # refused


@given(
    ending=st.integers(0, 255),
    cause=st.integers(0, 255),
    value=st.integers(-(2**31), 2**31 - 1),
)
def test_impossible_endings_are_refused(ending: int, cause: int, value: int) -> None:
    """Only codes 0 to 255, signals 1 to 64, ends of runs and known causes are believed."""
    payload = struct.pack("!BBiQQQ", ending, cause, value, 0, 0, 0)
    is_possible = cause in tuple(Cause) and (
        (ending == Ending.CODE and 0 <= value <= 255)
        or (ending == Ending.SIGNAL and 1 <= value <= 64)
        or (ending == Ending.DONE and value in tuple(frames.RunEnd))
    )
    if is_possible:
        assert frames.decode_exited(payload).value == value
    else:
        with pytest.raises(ProtocolError):
            frames.decode_exited(payload)


@given(
    name=st.from_regex(r"[A-Za-z0-9_.-]{1,64}", fullmatch=True),
    generation=counts,
    background=st.binary(max_size=5000),
    label=st.binary(max_size=2000),
    version=st.text(st.characters(codec="ascii", categories=("L", "N")), max_size=32),
    phase=st.sampled_from(frames.ContextPhase),
)
def test_context_round_trip(
    name: str,
    generation: int,
    background: bytes,
    label: bytes,
    version: str,
    phase: frames.ContextPhase,
) -> None:
    """A context says the same at the other end; of what it wrote between runs the end is kept."""
    number = generation % (1 << 32)
    state = frames.ContextState(
        name, number, 7, phase, Ending.SIGNAL, 9, background, label, version
    )
    (frame,) = Decoder(20_000).feed(frames.encode_context(state))

    kept = background[-frames.MAX_BACKGROUND :]
    assert frames.decode_context(frame.payload) == state._replace(background=kept)


def test_earlier_guests_count_two_streams() -> None:
    """What a guest of an earlier release sends is read by its length, and what it gets likewise."""
    version = frames.CODE_VERSION - 1
    exited = frames.decode_exited(struct.pack("!BBiQQ", 0, 0, 3, 5, 6), version)
    state = frames.decode_state(struct.pack("!BBBiQQ", 0, 0, 0, 0, 5, 6) + b"label", version)
    (resume,) = Decoder(100).feed(
        frames.encode_resume(1, {Stream.STDOUT: 5, Stream.STDERR: 6, Stream.EVENTS: 0}, version)
    )

    assert exited == Exited(Ending.CODE, Cause.ITSELF, 3, 5, 6)
    assert state == ExecState(None, 5, 6, b"label")
    assert resume.payload == struct.pack("!QQ", 5, 6)
