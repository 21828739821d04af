"""Frames on the link, at both of its ends."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from random import Random

from sandboxd.guest import frames
from sandboxd.guest.frames import (
    HEADER,
    Ack,
    Cause,
    Ending,
    ExecState,
    Exited,
    Kind,
    ProtocolError,
    Purpose,
    Remark,
    StartFailure,
    Stream,
    Target,
)
from sandboxd.link import GuestLink, LinkClosed
from tests.fakes.output_frame import encode_output
from tests.fuzz.target import Run, stateless
from tests.fuzz.target import Target as FuzzTarget
from tests.unit.link_rig import Heard, Wire, receive

HELLO = frames.encode_hello(1)
RESUMED = frames.encode_hello(1, is_resumed=True)
READY = frames.encode(Kind.READY)
END = Exited(Ending.CODE, Cause.ITSELF, 0, 0, 0)
KILLED = Exited(Ending.SIGNAL, Cause.KILLED, 9, 5, 0)
STATE = frames.encode_state(9, ExecState(END._replace(stdout_bytes=3), 3, 0, b"label"))
PLAIN, ENDED, RESUMING = 0, 1, 2
"""What the daemon does: only listens, kills and pings, or resumes what the guest reported."""


PIECES = (8192, 4096, 512, 64, 13, 8192, 9, 3)
"""Sizes in which the frames arrive."""


def told(*parts: bytes, scene: int = PLAIN, piece: int = 0) -> bytes:
    """An input: what the daemon does, the size of the pieces, the frames."""
    return bytes([scene, piece]) + b"".join(parts)


_KINDS = tuple(map(int, Kind))


def reframed(data: bytes, random: Random, *, head: int, longest: int) -> bytes:
    """The same with lengths that fit what follows: the bytes up to the next plausible header."""
    body, parts = data[head:], [data[:head]]
    while len(body) >= HEADER.size:
        size, kind, channel = HEADER.unpack_from(body)
        if size > len(body) - HEADER.size:
            size = random.randint(0, min(longest, len(body) - HEADER.size))
        if random.random() < 0.3:
            kind = random.choice(_KINDS)
        if random.random() < 0.3:
            channel = random.randrange(4)
        parts += (HEADER.pack(size, kind, channel), body[HEADER.size : HEADER.size + size])
        body = body[HEADER.size + size :]
    return b"".join((*parts, body))


# --- what a guest sends ---

FROM_GUEST_SEEDS = [
    told(HELLO, READY),
    told(HELLO, READY, encode_output(1, Stream.STDOUT, 0, b"hello"), piece=7),
    told(
        HELLO,
        READY,
        encode_output(1, Stream.STDOUT, 0, b"hello"),
        encode_output(1, Stream.STDERR, 0, b"oh"),
        frames.encode_exited(1, END._replace(stdout_bytes=5, stderr_bytes=2)),
        encode_output(2, Stream.STDOUT, 0, b"more"),
    ),
    told(HELLO, READY, frames.encode_refused(1, StartFailure.NO_DIRECTORY, "there is no x")),
    told(HELLO, READY, frames.encode_started(1, 40), frames.encode_exited(1, END)),
    told(
        HELLO,
        READY,
        frames.encode_remarks(2, Remark.COMPANY),
        frames.encode_exited(2, END),
        frames.encode_input_taken(1, 0),
    ),
    told(
        HELLO,
        READY,
        encode_output(1, Stream.STDOUT, 0, b"hello"),
        frames.encode_sweeping(1, 1),
        frames.encode_exited(1, KILLED),
        frames.encode_exited(2, END._replace(cause=Cause.SWEPT)),
        frames.encode_swept(1, was_known=True),
        frames.encode(Kind.PONG, 0, (1).to_bytes(8, "big")),
        frames.encode(Kind.PLACE),
        scene=ENDED,
    ),
    told(
        RESUMED,
        STATE,
        frames.encode_state(8, ExecState(None, 100, 7, b"")),
        READY,
        frames.encode_skipped(8, Stream.STDOUT, 40),
        encode_output(8, Stream.STDOUT, 40, b"x" * 60),
        frames.encode_exited(9, END._replace(stdout_bytes=3)),
        frames.encode_input_taken(8, 5),
        scene=RESUMING,
    ),
]


class Scene:
    """A link over a connection in memory, and the daemon's side of what happens on it."""

    def __init__(self, what: int) -> None:
        self._what = what % 3
        self.link = GuestLink(on_closed=lambda why: None, on_place=self._place)
        self.link.connection_made(Wire())
        self.channels = [Heard(), Heard()]
        self._greeting = asyncio.ensure_future(self._greet())

    def _place(self) -> None:
        self.link.placed()

    async def _greet(self) -> None:
        async def prepare() -> dict[str, object]:
            return {}

        with suppress(LinkClosed):
            states = await self.link.greet(prepare)
            if self._what == RESUMING:
                for number, state in states.items():
                    self.channels.append(Heard())
                    have = {Stream.STDOUT: 0, Stream.STDERR: min(3, state.stderr_bytes)}
                    self.link.resume(number, self.channels[-1], have)
            numbers = [self.link.start(b"{}", channel) for channel in self.channels[:2]]
            if self._what == ENDED:
                self.link.input(numbers[0], 0, b"input")
                self.link.kill(numbers[0])

    async def take(self, data: bytes) -> None:
        receive(self.link, data)
        if not self._greeting.done():
            await asyncio.sleep(0)

    async def close(self) -> None:
        self.link.close("it is over")
        await self._greeting


@contextmanager
def listening() -> Iterator[Run]:
    async def run(data: bytes) -> Hashable:
        what, piece = (*data[:2], 0, 0)[:2]
        scene = Scene(what)
        body, size = data[2:], PIECES[piece % len(PIECES)]
        for begin in range(0, len(body), size):
            await scene.take(body[begin : begin + size])
            if scene.link.closed_because is not None:
                break
        why = re.sub(r"\d+", "#", scene.link.closed_because or "")
        is_open = scene.link.is_open
        await scene.close()
        for heard in scene.channels:
            assert len(heard.output) <= frames.WINDOW + frames.MAX_CHUNK
            assert len(heard.ends) <= 1
        return why, is_open, tuple(bool(one.output) for one in scene.channels)

    yield run


FROM_GUEST = FuzzTarget(
    name="guest-frames",
    open=listening,
    seeds=FROM_GUEST_SEEDS,
    max_bytes=8 << 10,
    words=[HEADER.pack(size, kind, 1) for kind in range(36) for size in (0, 1, 4, 8, 30)],
    repair=lambda data, random: reframed(data, random, head=2, longest=64),
)

# --- what a daemon sends ---

DECODERS = {
    Kind.ACK: frames.decode_ack,
    Kind.KILL: frames.decode_kill,
    Kind.SWEEP: frames.decode_kill,
    Kind.RESUME: frames.decode_resume,
    Kind.INPUT: frames.decode_input,
    Kind.SIGNAL: frames.decode_signal,
    Kind.RESIZE: frames.decode_resize,
    Kind.WORKER: frames.decode_worker,
    Kind.DROP_CONTEXT: frames.decode_drop_context,
}


async def decode_as_a_guest(data: bytes) -> Hashable:
    decoder = frames.Decoder(frames.MAX_DAEMON_PAYLOAD)
    seen = []
    try:
        for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
            for frame in decoder.feed(piece):
                seen.append(frame.kind)
                decode = DECODERS.get(Kind(frame.kind)) if frame.kind in _KINDS else None
                if decode is not None:
                    decode(bytes(frame.payload))
    except ProtocolError as error:
        return re.sub(r"\d+", "#", str(error)), tuple(seen[-2:])
    return tuple(seen[-3:])


FROM_DAEMON = FuzzTarget(
    name="daemon-frames",
    open=stateless(decode_as_a_guest),
    seeds=[
        frames.encode(Kind.WELCOME, payload=b"{}") + frames.encode(Kind.START, 1, b'{"shell":""}'),
        frames.encode_ack(1, Ack(Stream.STDOUT, 10, 2000)) + frames.encode_kill(1, 0.05),
        frames.encode_resume(1, END.counts, frames.PROTOCOL_VERSION)
        + frames.encode_drop_context("main", is_forgotten=True)
        + frames.encode_input(1, 0, b"text"),
        frames.encode_signal(1, 15, Target.GROUP) + frames.encode_resize(1, 24, 80),
        frames.encode_worker(1, Purpose.FILES) + frames.encode(Kind.KILL, 1),
    ],
    max_bytes=8 << 10,
    repair=lambda data, random: reframed(data, random, head=0, longest=64),
)
