"""Operations on files without a guest, beside a process that swaps names."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandboxd.guest.files import codec
from sandboxd.guest.files.area import Area
from sandboxd.guest.files.codec import Entry, Failure, Kind
from sandboxd.guest.files.worker import serve
from sandboxd.guest.worker_frames import HEADER, frame

SWAPPER = """
import ctypes, sys
libc = ctypes.CDLL(None)
print("swapping", flush=True)
while True:
    libc.renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2)
"""


@contextmanager
def swapping(one: Path, other: Path) -> Iterator[None]:
    """Two names that change places without pause."""
    process = subprocess.Popen(
        [sys.executable, "-c", SWAPPER, str(one), str(other)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"swapping\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ask(area: Area, request: bytes, data: bytes = b"") -> tuple[bytes, Failure | None]:
    """One operation, without a process of its own: what it sent, and how it failed."""
    sent, failure = b"", None
    for kind, payload in _answers(area, request, data):
        if kind == Kind.DATA:
            sent += payload
        elif kind == Kind.FAILED:
            failure = codec.decode_failed(payload).failure
    return sent, failure


def entries_of(area: Area, request: bytes) -> tuple[list[Entry], tuple[int, ...]]:
    """One operation that succeeds: the entries that it sent, and its figures."""
    entries, figures = [], ()
    for kind, payload in _answers(area, request):
        if kind == Kind.ENTRIES:
            entries += codec.decode_entries(payload)
        elif kind == Kind.DONE:
            figures = codec.decode_done(payload)
    return entries, figures


def _answers(area: Area, request: bytes, data: bytes = b"") -> Iterator[tuple[int, bytes]]:
    ours, its = socket.socketpair()
    with ours, its:
        ours.sendall(frame(Kind.REQUEST, request))
        if data:
            ours.sendall(frame(Kind.DATA, data) + frame(Kind.END))
        serve(area, its)
        its.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := ours.recv(1 << 16):
            answer += piece
    while answer:
        kind, size = HEADER.unpack_from(answer)
        yield kind, answer[HEADER.size : HEADER.size + size]
        answer = answer[HEADER.size + size :]
