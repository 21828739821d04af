"""What workers say: it comes back as it was, and nothing else comes through."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.guest.files import codec
from sandboxd.guest.files.codec import (
    Change,
    Entry,
    Failed,
    Failure,
    Found,
    LeftOut,
    Malformed,
    Why,
)
from sandboxd.guest.worker_frames import HEADER

U64 = st.integers(0, (1 << 64) - 1)
PATHS = st.binary(max_size=300)

entries = st.builds(
    Entry,
    path=PATHS,
    type=st.integers(1, 6),
    mode=st.integers(0, 0o7777),
    size=U64,
    modified_ns=st.integers(-(1 << 63), (1 << 63) - 1),
    target=PATHS,
)
failures = st.builds(Failed, st.sampled_from(Failure), U64, U64, PATHS)
finds = st.builds(Found, U64, PATHS, st.binary(max_size=4096))
members = st.builds(LeftOut, st.sampled_from(Why), PATHS)
changes = st.builds(Change, st.integers(1, 4), st.booleans(), PATHS, PATHS)


def payload(frame: bytes) -> bytes:
    return frame[HEADER.size :]


@given(st.lists(entries, max_size=20))
def test_entries(given: list[Entry]) -> None:
    """Any number of them, whatever their names."""
    assert list(codec.decode_entries(b"".join(map(codec.encode_entry, given)))) == given


@given(failures)
def test_failures(given: Failed) -> None:
    """Each with its figures and its path."""
    assert codec.decode_failed(payload(codec.encode_failed(given))) == given


@given(finds)
def test_finds(given: Found) -> None:
    """Line and path apart."""
    assert codec.decode_found(payload(codec.encode_found(given))) == given


@given(st.lists(members, max_size=20))
def test_members_left_out(given: list[LeftOut]) -> None:
    """Each with its reason."""
    assert list(codec.decode_left_out(b"".join(map(codec.encode_left_out, given)))) == given


@given(st.booleans(), st.lists(changes, max_size=20))
def test_changes(overflow: bool, given: list[Change]) -> None:
    """In their order, with whether some are missing."""
    data = b"".join(map(codec.encode_change, given))
    frame = codec.encode_changes(overflow=overflow, changes=data)

    assert codec.decode_changes(payload(frame)) == (overflow, given)


@given(st.lists(U64, max_size=6))
def test_ends(figures: list[int]) -> None:
    """Six figures, those not given being zero."""
    given = codec.decode_done(payload(codec.encode_done(*figures)))

    assert list(given) == figures + [0] * (6 - len(figures))


DECODERS: list[Callable[[bytes], object]] = [
    lambda data: list(codec.decode_entries(data)),
    codec.decode_failed,
    codec.decode_found,
    lambda data: list(codec.decode_left_out(data)),
    codec.decode_changes,
    codec.decode_done,
]


@pytest.mark.parametrize("decode", DECODERS)
@given(data=st.binary(max_size=400))
def test_noise_is_malformed_or_small(decode: Callable[[bytes], object], data: bytes) -> None:
    """Whatever arrives, it is taken as something no larger than it is, or refused."""
    try:
        decode(data)
    except Malformed:
        pass


@pytest.mark.parametrize("decode", DECODERS)
@given(
    given=st.lists(
        st.one_of(entries.map(codec.encode_entry), members.map(codec.encode_left_out)),
        min_size=1,
        max_size=3,
    ),
    cut=st.integers(1, 30),
)
def test_what_is_cut_off_is_malformed(
    decode: Callable[[bytes], object], given: list[bytes], cut: int
) -> None:
    """Never an error of another kind."""
    data = b"".join(given)
    try:
        decode(data[:-cut])
    except Malformed:
        pass
