"""Sockets for workers, handed over on the link without disturbing what else is on it."""

from __future__ import annotations

import array
import asyncio
import os
import socket
from collections.abc import AsyncIterator

import pytest

from sandboxd.guest import frames
from sandboxd.guest.frames import Frame, Kind
from sandboxd.link import GuestLink, LinkClosed, connection
from tests.unit.link_rig import Heard, Wire, receive


class Pair:
    """A link over a real socket, and the guest's end of it."""

    def __init__(self) -> None:
        self.link = GuestLink(on_closed=lambda why: None)
        ours, self.guest = socket.socketpair()
        self.ours = ours
        self.guest.setblocking(False)
        self._decoder = frames.Decoder(frames.MAX_DAEMON_PAYLOAD)
        self.frames: list[tuple[int, int]] = []
        self.descriptors: list[int] = []

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: self.link, self.ours)
        receive(self.link, frames.encode_hello(1) + frames.encode(Kind.READY))

    async def read(self, *, count: int) -> None:
        """Until so many frames have come."""
        async with asyncio.timeout(10):
            while len(self.frames) < count:
                try:
                    data, rights, _, _ = self.guest.recvmsg(1 << 16, socket.CMSG_SPACE(64))
                except BlockingIOError:
                    await asyncio.sleep(0.001)
                    continue
                for _level, _kind, numbers in rights:
                    self.descriptors += array.array("i", numbers)
                self.frames += [_brief(frame) for frame in self._decoder.feed(data)]

    def close(self) -> None:
        self.link.close("the test is over")
        self.guest.close()
        for descriptor in self.descriptors:
            os.close(descriptor)


def _brief(frame: Frame) -> tuple[int, int]:
    return frame.kind, frame.channel


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    pair = Pair()
    await pair.connect()
    yield pair
    pair.close()
    await asyncio.sleep(0)


async def test_a_socket_comes_with_its_frame(pair: Pair) -> None:
    """Each worker gets the other end of its own pair, under a number of its own, in order with
    everything else on the link."""
    pairs = [socket.socketpair() for _ in range(3)]
    numbers = []
    for ours, its in pairs:
        pair.link.start(b"{}", Heard())
        numbers.append(await pair.link.start_worker(its))
        ours.sendall(b"%d" % numbers[-1])
        its.close()
    pair.link.end_worker(numbers[0])
    await pair.read(count=7)

    assert numbers == [1, 2, 3]
    assert pair.frames == [
        (Kind.START, 1),
        (Kind.FILES, 1),
        (Kind.START, 2),
        (Kind.FILES, 2),
        (Kind.START, 3),
        (Kind.FILES, 3),
        (Kind.FILES_END, 1),
    ]
    for number, descriptor in zip(numbers, pair.descriptors, strict=True):
        with socket.socket(fileno=os.dup(descriptor)) as its:
            assert its.recv(10) == b"%d" % number
    for ours, _ in pairs:
        ours.close()


async def test_what_is_on_its_way_goes_first(pair: Pair) -> None:
    """While much is unsent the socket waits; nothing is overtaken and nothing lost."""
    for _ in range(5):
        pair.link.start(b" " * frames.MAX_DAEMON_PAYLOAD, Heard())
    ours, its = socket.socketpair()
    starting = asyncio.ensure_future(pair.link.start_worker(its))
    await asyncio.sleep(0)
    assert not starting.done()
    await pair.read(count=6)
    await starting
    ours.close()
    its.close()

    assert pair.frames == [(Kind.START, number) for number in range(1, 6)] + [(Kind.FILES, 1)]


async def test_a_guest_that_reads_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for it for ever."""
    monkeypatch.setattr(connection, "HAND_OVER_SECONDS", 0.05)
    for _ in range(5):
        pair.link.start(b" " * frames.MAX_DAEMON_PAYLOAD, Heard())
    ours, its = socket.socketpair()
    with ours, its, pytest.raises(TimeoutError):
        await pair.link.start_worker(its)


async def test_a_closed_link_takes_no_sockets() -> None:
    """It says why it was closed; ending a worker then is no error."""
    link = GuestLink(on_closed=lambda why: None)
    ours, its = socket.socketpair()
    with ours, its:
        with pytest.raises(LinkClosed, match="not connected"):
            await link.start_worker(its)
        link.connection_made(Wire())
        link.close("it died")
        with pytest.raises(LinkClosed, match="it died"):
            await link.start_worker(its)
    link.end_worker(1)
