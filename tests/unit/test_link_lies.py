"""What a guest may not do on its link, and what becomes of it when it does."""

from __future__ import annotations

import random
from unittest.mock import AsyncMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxd.guest import frames
from sandboxd.guest.frames import Cause, Ending, Exited, Kind, Stream
from sandboxd.link import LinkClosed
from tests.fakes.lies import LIES
from tests.fakes.output_frame import encode_output
from tests.scale import examples
from tests.unit.link_rig import Rig

BYE = Exited(Ending.CODE, Cause.ITSELF, 0, 0, 0)


@pytest.mark.parametrize("lie", LIES)
async def test_lie_cuts_the_guest_off(lie: str) -> None:
    """The first broken rule ends the connection, and every exec is told once why."""
    rig = Rig()
    number, heard = rig.start()
    _, bystander = rig.start()
    channel = number if "another" not in lie else number + 1

    rig.receive(LIES[lie].frames(channel))

    assert rig.link.closed_because is not None
    assert LIES[lie].told in rig.link.closed_because
    assert rig.closed == [rig.link.closed_because]
    assert (rig.wire.is_aborted, rig.link.is_open) == (True, False)
    assert bystander.ends == [f"lost: {rig.link.closed_because}"]
    assert len(heard.ends) == 1
    assert len(heard.output) <= frames.WINDOW + frames.MAX_CHUNK


@pytest.mark.parametrize("lie", LIES)
async def test_lie_in_single_bytes_is_the_same_lie(lie: str) -> None:
    """It does not matter in what pieces a lie arrives."""
    rig = Rig()
    number, _ = rig.start()
    rig.start()
    data = LIES[lie].frames(number if "another" not in lie else number + 1)

    for byte in data[:1000]:
        rig.receive(bytes([byte]))
    rig.receive(data[1000:])

    assert LIES[lie].told in (rig.link.closed_because or "")


@pytest.mark.parametrize(
    ("greeting", "told"),
    [
        (frames.encode_hello(2), "not PID 1"),
        (frames.encode_hello(0), "not PID 1"),
        (frames.encode(Kind.HELLO, payload=b"\x00\x63\x00\x00\x00\x01\x00"), "speaks version 99"),
        (frames.encode(Kind.HELLO, payload=b"\x00\x03\x00\x00\x00\x01\x01"), "speaks version 3"),
        (frames.encode(Kind.HELLO), "payload of 0 bytes"),
        (frames.encode(Kind.READY), "ready out of order"),
        (encode_output(1, Stream.STDOUT, 0, b"x"), "does not run"),
        (frames.encode_exited(1, BYE), "does not run"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "at most"),
        (b"GET / HTTP/1.1\r\n\r\n", "at most"),
    ],
)
async def test_wrong_greeting_is_refused(greeting: bytes, told: str) -> None:
    """Only a guest of a version that we speak, and that is PID 1, gets as far as its settings."""
    rig = Rig(is_greeted=False)
    rig.receive(greeting)

    with pytest.raises(LinkClosed, match=told):
        await rig.link.greet(AsyncMock(return_value={}))
    assert rig.wire.frames() == []


plausible = st.one_of(
    st.builds(
        encode_output,
        st.integers(0, 4),
        st.sampled_from(Stream),
        st.integers(0, 3),
        st.binary(min_size=1, max_size=3),
    ),
    st.integers(0, 4).map(lambda channel: frames.encode_exited(channel, BYE)),
    st.integers(0, 4).map(lambda channel: frames.encode(Kind.REFUSED, channel, b"\0no")),
    st.binary(max_size=30),
)


@settings(max_examples=examples(50))
@given(pieces=st.lists(plausible, max_size=40))
async def test_any_conversation_ends_each_exec_at_most_once(pieces: list[bytes]) -> None:
    """Whatever a guest says, nothing escapes and each exec hears of one end."""
    rig = Rig()
    channels = [rig.start()[1] for _ in range(3)]
    for piece in pieces:
        rig.receive(piece)
    rig.link.connection_lost(None)

    assert [len(heard.ends) for heard in channels] == [1, 1, 1]
    assert len(rig.closed) == 1


@pytest.mark.parametrize("seed", range(5))
async def test_random_bytes_never_escape(seed: int) -> None:
    """Pure noise, at any stage, ends the connection and raises nothing."""
    chance = random.Random(seed)
    for _ in range(100):
        rig = Rig(is_greeted=chance.random() < 0.7)
        rig.start()
        while rig.link.is_open:
            rig.receive(chance.randbytes(chance.randint(1, 2000)))
        assert rig.closed == [rig.link.closed_because]
