"""Frames between the daemon and a guest: the codec that both ends share.

A frame is a header (payload length, kind, channel) and a payload. Channel 0 is the link itself, any
other is the number of an exec, chosen by the daemon and never used twice. What the guest sends has
a fixed binary form: the daemon parses nothing recursive from a guest that may be hostile.

Flow control: each channel starts with a window of WINDOW, every output frame takes its bytes and
FRAME_COST from it, CREDIT adds to it, and the guest sends no output while it is used up.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

PROTOCOL_VERSION = 2
HEADER = struct.Struct("!IBI")
WINDOW = 1 << 20
FRAME_COST = 1024
"""What an output frame takes from the window besides its bytes, so that tiny ones are not free: it
bounds how many of them a hostile guest can make the daemon handle in one turn."""
MAX_CHUNK = 1 << 16
MAX_REFUSAL = 256
MAX_GUEST_PAYLOAD = MAX_CHUNK + 64
"""Largest payload the daemon accepts."""
MAX_DAEMON_PAYLOAD = 1 << 20
"""Largest payload the guest accepts."""

Payload = bytes | memoryview

_HELLO = struct.Struct("!HI")
_OUTPUT = struct.Struct("!BQ")
_EXITED = struct.Struct("!BBiQQ")
_CREDIT = struct.Struct("!I")


class Kind(IntEnum):
    """What a frame says; the comment names its payload."""

    HELLO = 1  # guest: protocol version, pid the guest sees itself as
    WELCOME = 2  # daemon: JSON settings
    READY = 3  # guest: a shell waits
    START = 4  # daemon: JSON command
    REFUSED = 5  # guest: UTF-8 text, the command was not started
    OUTPUT = 6  # guest: stream, offset, bytes
    EXITED = 7  # guest: ending, cause, value, bytes of stdout, bytes of stderr
    CREDIT = 8  # daemon: further bytes that may be sent
    KILL = 9  # daemon: end this exec and all its processes
    PING = 10  # daemon: anything up to 64 bytes
    PONG = 11  # guest: the same bytes
    PLACE = 12  # guest: a shell was started that has to be moved to where commands belong
    PLACED = 13  # daemon: it was


class Stream(IntEnum):
    STDOUT = 1
    STDERR = 2


class Ending(IntEnum):
    """What the first process of a command did."""

    CODE = 0
    SIGNAL = 1


class Cause(IntEnum):
    """On whose account a command ended."""

    ITSELF = 0
    KILLED = 1  # by a KILL for it
    SWEPT = 2  # by a KILL for another exec that took everything in the sandbox along


class Frame(NamedTuple):
    kind: int
    channel: int
    payload: memoryview
    """Valid until the next frame is asked for; output is large, so it is not copied on the way."""


class Output(NamedTuple):
    stream: Stream
    offset: int
    data: bytes


class Exited(NamedTuple):
    ending: Ending
    cause: Cause
    value: int
    stdout_bytes: int
    stderr_bytes: int


class ProtocolError(Exception):
    """The other end broke the protocol; the link is of no more use."""


def encode(kind: Kind, channel: int = 0, payload: bytes = b"") -> bytes:
    return HEADER.pack(len(payload), kind, channel) + payload


def encode_hello(pid: int) -> bytes:
    return encode(Kind.HELLO, payload=_HELLO.pack(PROTOCOL_VERSION, pid))


def encode_output_head(channel: int, stream: Stream, offset: int, size: int) -> bytes:
    """What goes before `size` bytes of output to make them a frame."""
    head = HEADER.pack(_OUTPUT.size + size, Kind.OUTPUT, channel)
    return head + _OUTPUT.pack(stream, offset)


def encode_output(channel: int, stream: Stream, offset: int, data: bytes) -> bytes:
    return encode_output_head(channel, stream, offset, len(data)) + data


def encode_exited(channel: int, exited: Exited) -> bytes:
    return encode(Kind.EXITED, channel, _EXITED.pack(*exited))


def encode_credit(channel: int, count: int) -> bytes:
    return encode(Kind.CREDIT, channel, _CREDIT.pack(count))


def decode_hello(payload: Payload) -> tuple[int, int]:
    version, pid = _unpack(_HELLO, payload)
    return version, pid


def decode_output(payload: Payload) -> Output:
    if len(payload) <= _OUTPUT.size:
        raise ProtocolError("output frame without output")
    stream, offset = _OUTPUT.unpack_from(payload)
    if stream not in (1, 2):
        raise ProtocolError(f"output on unknown stream {stream}")
    return Output(Stream(stream), offset, bytes(payload[_OUTPUT.size :]))


def decode_exited(payload: Payload) -> Exited:
    ending, cause, value, stdout_bytes, stderr_bytes = _unpack(_EXITED, payload)
    if ending not in (0, 1) or cause not in (0, 1, 2):
        raise ProtocolError("unknown way of ending")
    low, high = (0, 255) if ending == Ending.CODE else (1, 64)
    if not low <= value <= high:
        raise ProtocolError(f"impossible exit value {value}")
    return Exited(Ending(ending), Cause(cause), value, stdout_bytes, stderr_bytes)


def decode_credit(payload: Payload) -> int:
    (count,) = _unpack(_CREDIT, payload)
    return int(count)


def _unpack(layout: struct.Struct, payload: Payload) -> tuple[int, ...]:
    if len(payload) != layout.size:
        raise ProtocolError(f"payload of {len(payload)} bytes where {layout.size} belong")
    return layout.unpack(payload)


class Decoder:
    """Cuts a byte stream into frames, holding at most one incomplete frame."""

    def __init__(self, max_payload: int) -> None:
        self._max_payload = max_payload
        self._parts: list[bytes] = []
        self._held = 0
        self._needed = HEADER.size
        """Bytes that have to be there before there is anything new to say."""

    @property
    def is_mid_frame(self) -> bool:
        return bool(self._held)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that `data` completes; ProtocolError if one is over the limit."""
        self._parts.append(data)
        self._held += len(data)
        # Joined only when something can come of it: a drip of single bytes must not be copied over
        # and over.
        if self._held < self._needed:
            return
        buffer = memoryview(data if len(self._parts) == 1 else b"".join(self._parts))
        position, end = 0, len(buffer)
        self._needed = HEADER.size
        try:
            while end - position >= HEADER.size:
                size, kind, channel = HEADER.unpack_from(buffer, position)
                if size > self._max_payload:
                    raise ProtocolError(f"frame of {size} bytes, at most {self._max_payload}")
                body = position + HEADER.size
                if end - body < size:
                    self._needed = HEADER.size + size
                    break
                position = body + size
                yield Frame(kind, channel, buffer[body:position])
        finally:
            self._held = end - position
            self._parts = [bytes(buffer[position:])] if self._held else []
