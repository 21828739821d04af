"""Workers: their sockets are handed over on the link, and none is believed, lost or left behind."""

from __future__ import annotations

import array
import asyncio
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise

import pytest

from sandboxd.errors import SandboxLost
from sandboxd.guest import frames
from sandboxd.guest.frames import Frame, Kind, Purpose
from sandboxd.guest.worker_frames import HEADER, MAX_PAYLOAD, frame
from sandboxd.link import GuestLink, LinkClosed, connection
from sandboxd.link.workers import (
    Controls,
    TooManyWorkers,
    WorkerGone,
    WorkerHungUp,
    WorkerLimit,
    Workers,
)
from tests.fakes.waiting import eventually
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
        self.purposes: list[bytes] = []
        self.descriptors: list[int] = []

    async def connect(self, version: int = frames.PROTOCOL_VERSION) -> None:
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: self.link, self.ours)
        hello = frames.encode(Kind.HELLO, payload=struct.pack("!HIB", version, 1, False))
        receive(self.link, hello + frames.encode(Kind.READY))

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
                for got in self._decoder.feed(data):
                    self.frames.append(_brief(got))
                    if got.kind == Kind.WORKER:
                        self.purposes.append(bytes(got.payload))

    def close(self) -> None:
        self.link.close("the test is over")
        self.guest.close()
        for descriptor in self.descriptors:
            os.close(descriptor)


def _brief(got: Frame) -> tuple[int, int]:
    return got.kind, got.channel


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
        numbers.append(await pair.link.start_worker(its, Purpose.FILES))
        ours.sendall(b"%d" % numbers[-1])
        its.close()
    pair.link.end_worker(numbers[0])
    await pair.read(count=7)

    assert numbers == [1, 2, 3]
    assert pair.purposes == 3 * [bytes([Purpose.FILES])]
    assert pair.frames == [
        (Kind.START, 1),
        (Kind.WORKER, 1),
        (Kind.START, 2),
        (Kind.WORKER, 2),
        (Kind.START, 3),
        (Kind.WORKER, 3),
        (Kind.WORKER_END, 1),
    ]
    for number, descriptor in zip(numbers, pair.descriptors, strict=True):
        with socket.socket(fileno=os.dup(descriptor)) as its:
            assert its.recv(10) == b"%d" % number
    for ours, _ in pairs:
        ours.close()


MIB = 1 << 20


async def test_what_was_sent_before_arrives_first(pair: Pair) -> None:
    """While much is unsent the socket waits; nothing is overtaken and nothing lost."""
    for _ in range(5):
        pair.link.start(b" " * MIB, Heard())
    ours, its = socket.socketpair()
    starting = asyncio.ensure_future(pair.link.start_worker(its, Purpose.FILES))
    await asyncio.sleep(0)
    assert not starting.done()
    await pair.read(count=6)
    await starting
    ours.close()
    its.close()

    assert pair.frames == [(Kind.START, number) for number in range(1, 6)] + [(Kind.WORKER, 1)]


async def test_a_guest_that_reads_nothing(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """The hand-over is given up."""
    monkeypatch.setattr(connection, "HAND_OVER_SECONDS", 0.05)
    for _ in range(5):
        pair.link.start(b" " * MIB, Heard())
    ours, its = socket.socketpair()
    with ours, its, pytest.raises(TimeoutError):
        await pair.link.start_worker(its, Purpose.FILES)


async def test_a_closed_link_takes_no_sockets() -> None:
    """It says why it was closed; ending a worker then is not an error."""
    link = GuestLink(on_closed=lambda why: None)
    ours, its = socket.socketpair()
    with ours, its:
        with pytest.raises(LinkClosed, match="not connected"):
            await link.start_worker(its, Purpose.FILES)
        link.connection_made(Wire())
        link.close("it died")
        with pytest.raises(LinkClosed, match="it died"):
            await link.start_worker(its, Purpose.FILES)
    link.end_worker(1)


def workers_of(link: GuestLink, *, limit: int = 1, idle_seconds: float = 5.0) -> Workers:
    places = WorkerLimit(limit, wait_seconds=0.05)
    return Workers(link, Purpose.FILES, places, idle_seconds=idle_seconds)


async def test_a_guest_that_outlived_an_upgrade_gets_workers(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the oldest version serves files: it does not read the purpose. It is never given a
    worker for a purpose that came later, which it would take for one for files."""
    old = Pair()
    await old.connect(frames.OLDEST_VERSION)
    async with workers_of(old.link).in_guest():
        await old.read(count=1)
    assert old.frames == [(Kind.WORKER, 1)]

    monkeypatch.setitem(frames.FIRST_VERSION, Purpose.FILES, frames.PROTOCOL_VERSION)
    with pytest.raises(WorkerGone, match="too old"):
        async with workers_of(old.link).in_guest():
            pass
    async with workers_of(pair.link).in_guest():
        await pair.read(count=1)
    old.close()


class Started:
    """Starts workers that are a socket in the hands of the test."""

    def __init__(self) -> None:
        self.ends: list[socket.socket] = []
        self.killed = 0

    async def start(self, its_end: socket.socket) -> Controls:
        its_end.setblocking(False)
        self.ends.append(its_end)
        return Controls(self._kill)

    def _kill(self) -> None:
        self.killed += 1

    @property
    def end(self) -> socket.socket:
        return self.ends[-1]

    def close(self) -> None:
        for end in self.ends:
            end.close()


@pytest.fixture
def started() -> Iterator[Started]:
    started = Started()
    yield started
    started.close()


@pytest.fixture
def workers(pair: Pair) -> Workers:
    return workers_of(pair.link)


async def test_frames_go_both_ways(workers: Workers, started: Started) -> None:
    """However they are cut on the way, and however large they are up to the limit."""
    async with workers.started(started.start) as worker:
        await worker.send(7, b"question")
        await worker.send(8)
        assert started.end.recv(100) == frame(7, b"question") + frame(8)

        large = os.urandom(MAX_PAYLOAD)
        answer = frame(1, b"a") + frame(2) + frame(1, large)
        sending = asyncio.ensure_future(_trickle(started.end, answer))
        assert await worker.receive((1,)) == (1, b"a")
        assert await worker.receive((1, 2)) == (2, b"")
        assert await worker.receive((1,)) == (1, large)
        await sending


async def _trickle(end: socket.socket, data: bytes) -> None:
    loop = asyncio.get_running_loop()
    for begin, until in pairwise((0, 3, 7, 12, 500_000, len(data))):
        await loop.sock_sendall(end, data[begin:until])
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (HEADER.pack(1, MAX_PAYLOAD + 1), "kind 1 with"),
        (HEADER.pack(1, 0xFFFFFFFF), "kind 1 with"),
        (frame(2), "kind 2 with"),
        (HEADER.pack(1, 10) + b"half", "has ended"),
        (b"\x01", "has ended"),
        (b"", "has ended"),
    ],
)
async def test_a_worker_is_not_believed(
    workers: Workers, started: Started, said: bytes, why: str
) -> None:
    """A frame that is too large, unexpected or cut off is the end of its worker."""
    with pytest.raises(WorkerGone, match=why):
        async with workers.started(started.start) as worker:
            started.end.sendall(said)
            started.end.shutdown(socket.SHUT_WR)
            await worker.receive((1,))
    assert started.killed == 1


async def test_a_silent_worker_is_given_up(pair: Pair, started: Started) -> None:
    """Also in the middle of a frame, and where it does not read; patience may be longer."""
    workers = workers_of(pair.link, idle_seconds=0.0)
    for said in (b"", HEADER.pack(1, 10) + b"half"):
        with pytest.raises(WorkerGone, match="silent"):
            async with workers.started(started.start) as worker:
                started.end.sendall(said)
                await worker.receive((1,))
    with pytest.raises(WorkerGone, match="does not read"):
        async with workers.started(started.start) as worker:
            while True:
                await worker.send(1, bytes(MAX_PAYLOAD))
    async with workers.started(started.start) as worker:
        answer = asyncio.ensure_future(worker.receive((1,), patience=20.0))
        for _ in range(5):  # turns of the loop; without patience the first is the last
            await asyncio.sleep(0)
        started.end.sendall(frame(1))
        assert await answer == (1, b"")


async def test_a_worker_that_hung_up_may_have_said_why(workers: Workers, started: Started) -> None:
    """Sending fails, and what it sent before can still be read."""
    async with workers.started(started.start) as worker:
        started.end.sendall(frame(1, b"why"))
        started.end.shutdown(socket.SHUT_RD)
        with pytest.raises(WorkerHungUp):
            await worker.send(1, b"x")
        assert await worker.receive((1,)) == (1, b"why")


async def test_no_more_workers_than_the_limit(workers: Workers, started: Started) -> None:
    """Another waits for a while, and is refused with the limit; then places are free again,
    however a worker or its start ended."""

    async def fail(its_end: socket.socket) -> Callable[[], None]:
        raise OSError

    async with workers.started(started.start):
        with pytest.raises(TooManyWorkers) as caught:
            async with workers.started(started.start):
                pass
        assert caught.value.limit == 1
    for start, error in ((fail, OSError), (started.start, KeyError)):
        with pytest.raises(error):
            async with workers.started(start):
                raise KeyError
    async with workers.started(started.start):
        pass
    assert started.killed == 3


async def test_time_to_clean_up(workers: Workers, started: Started) -> None:
    """A worker that is given up learns of it, and keeps its place until it has ended. Nobody waits
    for it, except who closes the whole."""
    async with workers.started(started.start, clean_up_seconds=20.0):
        pass
    async with asyncio.timeout(5):
        assert await asyncio.get_running_loop().sock_recv(started.end, 1) == b""
    assert started.killed == 0
    with pytest.raises(TooManyWorkers):
        async with workers.started(started.start):
            pass
    started.end.close()
    await workers.aclose()
    assert started.killed == 1


async def test_time_to_clean_up_is_limited(workers: Workers, started: Started) -> None:
    """One that does not end is killed; one that has finished needs no time."""
    async with workers.started(started.start, clean_up_seconds=0.01):
        pass
    await eventually(lambda: started.killed == 1)
    async with workers.started(started.start, clean_up_seconds=20.0) as worker:
        worker.has_finished = True
    assert started.killed == 2


async def test_a_lost_sandbox_is_reported(pair: Pair, started: Started) -> None:
    """Whether its link closes before a worker is started or meanwhile."""
    workers = workers_of(pair.link)
    with pytest.raises(SandboxLost):
        async with workers.started(started.start) as worker:
            pair.link.close("it died")
            started.end.close()
            await worker.receive((1,))
    with pytest.raises(SandboxLost):
        async with workers.in_guest():
            pass
