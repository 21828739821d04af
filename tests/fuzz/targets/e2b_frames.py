"""Streams of messages that callers of the E2B gateway send."""

from __future__ import annotations

from collections.abc import Hashable

from sandboxd_client.integrations.e2b.connect import (
    Frames,
    Refused,
    end_frame,
    frame,
    number,
    pairs,
    part,
    text,
    texts,
)
from sandboxd_client.integrations.e2b.processes import input_of
from tests.fuzz.target import Target, stateless

START = {
    "process": {"cmd": "/bin/bash", "args": ["-l", "-c", "ls"], "envs": {"A": "1"}, "cwd": "/"},
    "pty": {"size": {"rows": 24, "cols": 80}},
    "stdin": False,
}
DATA = {"data": {"input": {"stdin": "aGVsbG8="}}}


async def read(data: bytes) -> Hashable:
    """The first byte says in which pieces the rest comes; the answer must not depend on it."""
    body = data[1:]
    whole, cut = taken(body, len(body) or 1), taken(body, (data[0] if data else 0) + 1)
    assert whole == cut
    return whole


def taken(body: bytes, size: int) -> tuple[str, ...]:
    frames, found = Frames(max_bytes=4096), []
    try:
        for begin in range(0, len(body), size):
            for message in frames.feed(body[begin : begin + size]):
                found.append(understood(message))
    except Refused as refused:
        found.append(f"{refused.code} {refused.status}")
    return tuple(found)


def understood(message: dict[str, object]) -> str:
    """Look at every field as the handlers do."""
    process = part(message, "process")
    texts(process, "args")
    pairs(process, "envs")
    number(part(part(message, "pty"), "size"), "rows")
    input_of(part(part(message, "data"), "input"))
    return "command" if text(process, "cmd") else "other"


E2B_FRAMES = Target(
    name="e2b-frames",
    open=stateless(read),
    seeds=[
        b"\0" + frame(START),
        b"\3" + frame(START) + frame(DATA) * 3 + end_frame(),
        b"\1" + end_frame(Refused("internal", "no")),
        b"\0" + frame({"process": {"pid": 7, "tag": "x"}, "signal": "SIGNAL_SIGKILL"}),
    ],
    words=[b'"process"', b'"pty"', b'"size"', b"null", b"[]", b"{}", b"1e999", b'"\\ud800"'],
)
