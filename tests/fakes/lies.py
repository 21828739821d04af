"""What a hostile guest may say once it has been given a command, as raw bytes.

Run as a program it floods a link: `python -m tests.fakes.lies DESCRIPTOR CHANNEL SIZE`.
"""

from __future__ import annotations

import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import NamedTuple

from sandboxd.guest import frames
from sandboxd.guest.frames import (
    HEADER,
    Cause,
    Ending,
    ExecState,
    Exited,
    Kind,
    Remark,
    StartFailure,
    Stream,
)
from tests.fakes.output_frame import encode_output


class Lie(NamedTuple):
    frames: Callable[[int], bytes]
    """What is sent about the exec of this channel, which has sent nothing yet."""
    told: str
    """Part of what the link is closed with."""


def _exited(
    channel: int, *, value: int = 0, ending: int = 0, cause: int = 0, out: int = 0
) -> bytes:
    exited = Exited(Ending.CODE, Cause.ITSELF, value, out, 0)._replace(
        ending=ending,  # type: ignore[arg-type]  # a lie
        cause=cause,  # type: ignore[arg-type]
    )
    return frames.encode_exited(channel, exited)


def _output(channel: int, *, data: bytes = b"hi", offset: int = 0, stream: int = 1) -> bytes:
    return encode_output(channel, stream, offset, data)  # type: ignore[arg-type]


def _refused(channel: int, text: bytes = b"no", *, kind: int = 0) -> bytes:
    return frames.encode(Kind.REFUSED, channel, bytes([kind]) + text)


def _beyond_the_window(channel: int) -> bytes:
    chunk = b"x" * frames.MAX_CHUNK
    count = frames.WINDOW // frames.MAX_CHUNK + 2
    return b"".join(_output(channel, data=chunk, offset=n * len(chunk)) for n in range(count))


def _tiny_beyond_the_window(channel: int) -> bytes:
    count = frames.WINDOW // (frames.FRAME_COST + 1) + 2
    return b"".join(_output(channel, data=b"x", offset=n) for n in range(count))


def _raw(kind: int, payload: bytes = b"", *, size: int | None = None) -> Callable[[int], bytes]:
    length = len(payload) if size is None else size
    return lambda channel: HEADER.pack(length, kind, channel) + payload


_CONTEXT = frames.ContextState(
    "main", 1, 1, frames.ContextPhase.LOST, Ending.SIGNAL, 9, b"", b"label"
)
_NOT_RUNNING = "which does not run"
_WRONG_SIZE = "bytes where"

LIES: dict[str, Lie] = {
    "huge length": Lie(_raw(Kind.OUTPUT, size=0xFFFFFFFF), "frame of 4294967295 bytes"),
    "length just over": Lie(_raw(Kind.OUTPUT, size=frames.MAX_GUEST_PAYLOAD + 1), "at most"),
    "zero length flood": Lie(lambda _: HEADER.pack(0, 0, 0) * 100_000, "frames of kind 0"),
    "empty output flood": Lie(
        lambda channel: HEADER.pack(0, Kind.OUTPUT, channel) * 100_000, "output frame without"
    ),
    "unknown kind": Lie(_raw(99), "frames of kind 99"),
    "last kind": Lie(_raw(255), "frames of kind 255"),
    **{
        f"daemon's {kind.name}": Lie(_raw(kind), f"frames of kind {kind.value}")
        for kind in (
            Kind.WELCOME,
            Kind.START,
            Kind.ACK,
            Kind.KILL,
            Kind.SWEEP,
            Kind.PING,
            Kind.PLACED,
            Kind.RESUME,
            Kind.RELEASE,
            Kind.INPUT,
            Kind.INPUT_END,
            Kind.SIGNAL,
            Kind.RESIZE,
            Kind.DROP_CONTEXT,
            Kind.CODE_PARENT_PLACED,
        )
    },
    "second hello": Lie(lambda _: frames.encode_hello(1), "second hello"),
    "second ready": Lie(lambda _: frames.encode(Kind.READY), "ready out of order"),
    "place asked for twice": Lie(lambda _: 2 * frames.encode(Kind.PLACE), "out of order"),
    "state of an exec unasked": Lie(
        lambda channel: frames.encode_state(channel + 7, ExecState(None, 0, 0, b"")), "out of order"
    ),
    "state with an endless label": Lie(
        _raw(Kind.STATE, b"\0" * (24 + frames.MAX_LABEL)), "out of order"
    ),
    "input taken that nobody gave": Lie(
        lambda channel: frames.encode_input_taken(channel, 1), "input that was not sent"
    ),
    "input of another taken": Lie(
        lambda channel: frames.encode_input_taken(channel + 1, 0), _NOT_RUNNING
    ),
    "input taken in words": Lie(_raw(Kind.INPUT_TAKEN, b"all"), _WRONG_SIZE),
    "kill reported that nobody asked for": Lie(
        lambda channel: frames.encode_sweeping(channel, 1), "was not asked to kill"
    ),
    "kill of another reported": Lie(
        lambda channel: frames.encode_sweeping(channel + 1, 1), _NOT_RUNNING
    ),
    "kill reported after exit": Lie(
        lambda channel: _exited(channel) + frames.encode_sweeping(channel, 1), _NOT_RUNNING
    ),
    "sweep that nobody asked for": Lie(
        lambda channel: frames.encode_swept(channel, was_known=True), "not asked to sweep"
    ),
    "kill reported in words": Lie(_raw(Kind.SWEEPING, b"dying"), _WRONG_SIZE),
    "pong unasked": Lie(_raw(Kind.PONG, b"12345678"), "ping that was not sent"),
    "exit twice": Lie(lambda channel: 2 * _exited(channel), _NOT_RUNNING),
    "exit of another": Lie(lambda channel: _exited(channel + 1), _NOT_RUNNING),
    "exit of the link": Lie(lambda _: _exited(0), _NOT_RUNNING),
    "output of another": Lie(lambda channel: _output(channel + 1), _NOT_RUNNING),
    "output of the last channel": Lie(lambda _: _output(0xFFFFFFFF), _NOT_RUNNING),
    "refusal of another": Lie(lambda channel: _refused(channel + 1), _NOT_RUNNING),
    "output after exit": Lie(lambda channel: _exited(channel) + _output(channel), _NOT_RUNNING),
    "exit after refusal": Lie(lambda channel: _refused(channel) + _exited(channel), _NOT_RUNNING),
    "refusal after output": Lie(
        lambda channel: _output(channel) + _refused(channel), "malformed refusal"
    ),
    "endless refusal": Lie(
        lambda channel: _refused(channel, b"n" * (frames.MAX_REFUSAL + 1)), "malformed refusal"
    ),
    "refusal without a kind": Lie(_raw(Kind.REFUSED), "unknown kind of refusal"),
    "refusal of an unknown kind": Lie(
        lambda channel: _refused(channel, kind=len(StartFailure)), "unknown kind of refusal"
    ),
    "refusal after start": Lie(
        lambda channel: frames.encode_started(channel, 2) + _refused(channel), "malformed refusal"
    ),
    "started twice": Lie(lambda channel: 2 * frames.encode_started(channel, 2), "second start"),
    "started as nobody": Lie(lambda channel: frames.encode_started(channel, 0), "impossible"),
    "started as PID 1": Lie(lambda channel: frames.encode_started(channel, 1), "impossible"),
    "started as 2^32-1": Lie(
        lambda channel: frames.encode_started(channel, 2**32 - 1), "impossible"
    ),
    "started, too long": Lie(_raw(Kind.STARTED, b"\0\0\0\2\0"), _WRONG_SIZE),
    "start of what does not run": Lie(
        lambda channel: frames.encode_started(channel + 7, 2), _NOT_RUNNING
    ),
    "exit code 256": Lie(lambda channel: _exited(channel, value=256), "impossible exit value"),
    "exit code -1": Lie(lambda channel: _exited(channel, value=-1), "impossible exit value"),
    "exit code 2^31-1": Lie(
        lambda channel: _exited(channel, value=2**31 - 1), "impossible exit value"
    ),
    "exit code -2^31": Lie(
        lambda channel: _exited(channel, value=-(2**31)), "impossible exit value"
    ),
    "exit code 2^63": Lie(
        _raw(Kind.EXITED, struct.pack("!BBQQQQ", 0, 0, 2**63, 0, 0, 0)), _WRONG_SIZE
    ),
    "exit code in words": Lie(
        _raw(Kind.EXITED, struct.pack("!BB4sQQQ", 0, 0, b"zero", 0, 0, 0)), "impossible exit value"
    ),
    "signal 0": Lie(lambda channel: _exited(channel, ending=1), "impossible exit value"),
    "signal 65": Lie(lambda channel: _exited(channel, ending=1, value=65), "impossible exit value"),
    "unknown ending": Lie(lambda channel: _exited(channel, ending=3), "unknown way of ending"),
    "end of a run that is a command": Lie(
        lambda channel: _exited(channel, ending=2), "ended without its process"
    ),
    "unknown end of a run": Lie(
        lambda channel: _exited(channel, ending=2, value=4), "impossible exit value"
    ),
    "unknown cause": Lie(lambda channel: _exited(channel, cause=4), "unknown way of ending"),
    "deadline before its time": Lie(
        lambda channel: _exited(channel, ending=1, value=9, cause=3), "not asked to kill"
    ),
    "no remarks": Lie(_raw(Kind.REMARKS, b"\0"), "unknown remarks"),
    "unknown remarks": Lie(_raw(Kind.REMARKS, b"\x08"), "unknown remarks"),
    "remarks too long": Lie(_raw(Kind.REMARKS, b"\1\1"), _WRONG_SIZE),
    "remarks twice": Lie(
        lambda channel: 2 * frames.encode_remarks(channel, Remark.COMPANY), "second remarks"
    ),
    "exit too short": Lie(_raw(Kind.EXITED, b"\0" * 29), _WRONG_SIZE),
    "exit too long": Lie(_raw(Kind.EXITED, b"\0" * 31), _WRONG_SIZE),
    "hello too long": Lie(_raw(Kind.HELLO, b"\0" * 8), _WRONG_SIZE),
    "output with a gap": Lie(lambda channel: _output(channel, offset=1), "out of order"),
    "output once more": Lie(lambda channel: 2 * _output(channel), "out of order"),
    "output from the end of time": Lie(
        lambda channel: _output(channel, offset=2**64 - 1), "out of order"
    ),
    "output on stream 0": Lie(lambda channel: _output(channel, stream=0), "unknown stream 0"),
    "events of a command": Lie(lambda channel: _output(channel, stream=3), "events of a command"),
    "output on stream 4": Lie(lambda channel: _output(channel, stream=4), "unknown stream 4"),
    "context of a command": Lie(
        lambda channel: frames.encode_context_run(channel, frames.ContextRun(1, 1)),
        "a context where none belongs",
    ),
    "context unasked": Lie(
        lambda _: frames.encode_context(_CONTEXT), "more reports of contexts than there can be"
    ),
    "malformed context": Lie(lambda _: frames.encode(Kind.CONTEXT, 0, b"\0" * 17), _WRONG_SIZE),
    "parents of contexts without end": Lie(
        lambda _: 200 * frames.encode_code_parent(7), "a parent of contexts out of order"
    ),
    "parent of contexts that is PID 1": Lie(
        lambda _: frames.encode_code_parent(1), "impossible process"
    ),
    "too much output": Lie(_beyond_the_window, "more output than was allowed"),
    "too many tiny outputs": Lie(_tiny_beyond_the_window, "more output than was allowed"),
    "more counted than sent": Lie(lambda channel: _exited(channel, out=1), "counts other output"),
    "2^64-1 counted": Lie(lambda channel: _exited(channel, out=2**64 - 1), "counts other output"),
    "less counted than sent": Lie(
        lambda channel: _output(channel) + _exited(channel, out=1), "counts other output"
    ),
}


def flood(link: socket.socket, channel: int, size: int) -> None:
    """Send output in frames of `size` bytes, as fast as it is taken, until the other end is gone.

    The window is not looked at.
    """
    data = b"x" * size
    step = size * max(1, 1000 // size)  # few system calls, also for tiny frames
    with suppress(BrokenPipeError, ConnectionResetError):
        for begin in count(0, step):
            offsets = range(begin, begin + step, size)
            link.sendall(
                b"".join(encode_output(channel, Stream.STDOUT, at, data) for at in offsets)
            )


def main() -> None:
    descriptor, channel, size = map(int, sys.argv[1:])
    with socket.socket(fileno=descriptor) as link:
        link.settimeout(30.0)  # its other users have made it non-blocking
        flood(link, channel, size)


if __name__ == "__main__":
    main()
