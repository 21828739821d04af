"""Archives as they arrive, without a worker around them."""

from __future__ import annotations

import io
import tarfile
import tracemalloc
from itertools import chain

import pytest

from sandboxd.guest.files.daemon_connection import DaemonConnection, Refused
from sandboxd.guest.files.tar_stream import BLOCK, MAX_EXTENDED, TarStream

MOST = 4 << 20


class Sender(DaemonConnection):
    """Sends blocks one after the other."""

    def __init__(self, *archives: bytes) -> None:
        self._blocks = chain.from_iterable(
            (archive[begin : begin + BLOCK] for begin in range(0, len(archive), BLOCK))
            for archive in archives
        )

    def receive_into(self, buffer: memoryview) -> int:
        block = next(self._blocks, b"")
        buffer[: len(block)] = block
        return len(block)


def header(kind: bytes, size: int) -> bytes:
    info = tarfile.TarInfo("name")
    info.type, info.size = kind, size
    return info.tobuf(tarfile.USTAR_FORMAT)


def extended(*records: bytes) -> bytes:
    payload = b"".join(records)
    return header(b"x", len(payload)) + payload + bytes(-len(payload) % BLOCK)


def record(text: bytes) -> bytes:
    """A record, which begins with its own length."""
    length = len(text) + 2
    while len(b"%d %s\n" % (length, text)) != length:
        length += 1
    return b"%d %s\n" % (length, text)


def test_extended_headers_before_a_member_take_little_memory() -> None:
    """Any number of them, each with names that mean nothing: only what is used is kept."""
    count = MAX_EXTENDED // 20
    headers = [
        extended(*(record(b"k%d.%d=v" % (part, number)) for number in range(count)))
        for part in range(60)
    ]
    stream = TarStream(Sender(*headers, header(b"0", 0)))
    tracemalloc.start()
    try:
        member = stream.next()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert member is not None
    assert (member.name, peak < MOST) == (b"name", True)


def test_records_that_are_used_are_read() -> None:
    """Also among others, and the last one counts."""
    records = [b"comment=x", b"path=other", b"mtime=1.5", b"path=last=one", b"linkpath=there"]
    stream = TarStream(Sender(extended(*map(record, records)), header(b"0", 0)))
    member = stream.next()

    assert member is not None
    assert (member.name, member.modified_ns) == (b"last=one", 1_500_000_000)
    assert (member.target, member.is_sparse) == (b"there", False)


def test_sparse_member_is_known_by_any_of_its_records() -> None:
    """Whichever way it was written."""
    stream = TarStream(Sender(extended(record(b"GNU.sparse.map=0,1")), header(b"0", 0)))
    member = stream.next()

    assert member is not None
    assert member.is_sparse


@pytest.mark.parametrize(
    "payload",
    [
        *(b"x", b"5 a=", b"4 a=\n", b"9 a=\n", b" a=\n", b"0 \n", b"5 a=\n6", b"5 ab\n"),
        *(b"1000000 a=\n", b"\0" + b"5 a=\n"),
    ],
)
def test_damaged_extended_header_is_refused(payload: bytes) -> None:
    """A record has to be as long as it says."""
    with pytest.raises(Refused):
        TarStream(Sender(extended(payload), header(b"0", 0))).next()


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_what_the_standard_library_writes_is_read(form: int) -> None:
    """Long names and targets, as extended headers of either kind."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=form) as tar:
        info = tarfile.TarInfo("d/" * 100 + "x")
        info.type, info.linkname, info.mtime = tarfile.SYMTYPE, "t" * 200, 1_700_000_000
        tar.addfile(info)
    member = TarStream(Sender(archive.getvalue())).next()

    assert member is not None
    assert (member.name, member.target) == (b"d/" * 100 + b"x", b"t" * 200)
