"""Archives that are unpacked: whatever is sent, the work is in proportion to bytes in and out."""

from __future__ import annotations

import asyncio
import gzip
import os
import time
import zlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from sandboxd.errors import InvalidArchive
from sandboxd.files import compression
from sandboxd.files.compression import Compression, unpacked, zstd

MIB = 1 << 20
TAR_HEADER = 512
WORK_PER_BYTE = 16
"""Bytes that are given to a decompressor, for each that comes in or out."""
PACKERS: dict[Compression, Callable[[bytes], bytes]] = {
    Compression.GZIP: gzip.compress,
    Compression.ZSTD: zstd.compress,
}
both = pytest.mark.parametrize("form", PACKERS)


class Work:
    """Counts what decompressors and threads are given to do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.given_bytes = 0
        self.threads = 0
        to_thread = asyncio.to_thread

        async def counted(work: Callable[..., Any], *arguments: Any) -> Any:
            self.threads += 1
            return await to_thread(work, *arguments)

        monkeypatch.setattr(asyncio, "to_thread", counted)
        monkeypatch.setattr(compression.zlib, "decompressobj", self._counted(zlib.decompressobj))
        decompressor = self._counted(zstd.ZstdDecompressor)
        monkeypatch.setattr(compression.zstd, "ZstdDecompressor", decompressor)

    def _counted(self, new: Callable[..., Any]) -> Callable[..., Any]:
        work = self

        class Counted:
            def __init__(self, *arguments: Any, **options: Any) -> None:
                self._inside = new(*arguments, **options)

            def decompress(self, data: bytes, max_length: int) -> Any:
                work.given_bytes += len(data)
                return self._inside.decompress(data, max_length)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._inside, name)

        return Counted


async def unpack(data: bytes, form: Compression, chunk: int = MIB) -> bytes:
    async def chunks() -> AsyncIterator[bytes]:
        for begin in range(0, len(data), chunk):
            yield data[begin : begin + chunk]

    return b"".join([piece async for piece in unpacked(chunks(), form)])


@both
async def test_members_without_content_are_refused(
    monkeypatch: pytest.MonkeyPatch, form: Compression
) -> None:
    """A MiB of them costs no more than the members that are allowed."""
    empty = PACKERS[form](b"")
    work, began = Work(monkeypatch), time.process_time()

    with pytest.raises(InvalidArchive, match="too many compressed members"):
        await unpack(empty * (MIB // len(empty)), form)

    seconds = time.process_time() - began
    print(f"a mib of empty {form.name.lower()} members: {seconds * 1000:.0f} ms")
    assert work.threads == 1
    assert work.given_bytes <= (compression.FREE_MEMBERS + 1) * compression.FIRST_SLICE


@both
async def test_a_member_for_each_header_is_unpacked(
    monkeypatch: pytest.MonkeyPatch, form: Compression
) -> None:
    """Archives with a member per file are common; their work grows with their bytes only."""
    headers = [bytes([number % 256]) * TAR_HEADER for number in range(20_000)]
    data, content = b"".join(map(PACKERS[form], headers)), b"".join(headers)
    work = Work(monkeypatch)

    assert await unpack(data, form, chunk=4 * MIB) == content
    assert work.given_bytes <= WORK_PER_BYTE * (len(data) + len(content))
    chunks, pieces = len(data) // (4 * MIB) + 1, len(content) // MIB + 1
    assert work.threads <= 2 * (chunks + pieces)


@both
@pytest.mark.parametrize("chunk", [1, 7, 4096, MIB])
async def test_the_size_of_chunks_does_not_matter(form: Compression, chunk: int) -> None:
    """Members of all sizes, cut anywhere; gzip has zeros between them and at the end."""
    pad = b"\0" * 5 if form == Compression.GZIP else b""
    parts = [b"", b"a", b"zeros " + bytes(3000), os.urandom(300), b"", b"end"]
    data = pad.join(map(PACKERS[form], parts)) + pad

    assert await unpack(data, form, chunk=chunk) == b"".join(parts)
    with pytest.raises(InvalidArchive):
        await unpack(data[: -3 - len(pad)], form, chunk=chunk)


@both
async def test_a_bomb_comes_in_pieces(monkeypatch: pytest.MonkeyPatch, form: Compression) -> None:
    """However well something is packed, no more input is copied than output comes of it."""
    data = PACKERS[form](bytes(256 * MIB))
    work = Work(monkeypatch)

    async def chunks() -> AsyncIterator[bytes]:
        yield data

    sizes = [len(piece) async for piece in unpacked(chunks(), form)]
    assert (sum(sizes), max(sizes)) == (256 * MIB, MIB)
    assert work.given_bytes <= WORK_PER_BYTE * len(data) + 256 * MIB
