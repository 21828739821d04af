"""Compression of archives, a bounded piece at a time and beside the event loop."""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import AsyncIterator, Callable
from enum import IntEnum
from typing import Protocol

from sandboxd.errors import InvalidArchive

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    import backports.zstd as zstd  # the other form is not always found by mypy

PIECE = 1 << 20
"""Size of the pieces that come out, however well something is packed."""
MAX_WINDOW_LOG = 24
"""16 MiB, twice what levels up to 19 need. The window is held in memory."""
FIRST_SLICE = 4096
"""Bytes of input that a member gets in its first step; each further step doubles them."""
FREE_MEMBERS = 1024
MEMBER_BYTES = 256
"""Bytes of content for which an archive may have one more member than FREE_MEMBERS: each costs as
much as the content, and a member with a header of a tar archive has twice as many."""
_GZIP = 31
"""The number that zlib has for the format."""
_GZIP_PADDING = b"\0"
"""What may follow a member, as in files from tapes."""


class Compression(IntEnum):
    """Numbers as in the protos."""

    NONE = 1
    GZIP = 2
    ZSTD = 3


class _Member(Protocol):
    """A member of a gzip file or a frame of a zstd file, as the decompressors have it."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool:
        """Whether all that can be had from the input so far was returned."""
        ...

    @property
    def unused_data(self) -> bytes:
        """What follows the end of the member."""
        ...

    def decompress(self, data: memoryview, max_length: int) -> bytes: ...


class _GzipMember:
    def __init__(self) -> None:
        self._inside = zlib.decompressobj(_GZIP)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inside.eof

    @property
    def unused_data(self) -> bytes:
        return self._inside.unused_data

    def decompress(self, data: memoryview, max_length: int) -> bytes:
        piece = self._inside.decompress(self._inside.unconsumed_tail or data, max_length)
        self.needs_input = not self._inside.unconsumed_tail and len(piece) < max_length
        return piece


def _zstd_frame() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(
        options={zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
    )


class _Unpacker:
    """Unpacks all members of a file, as the programs do, with work in proportion to the bytes that
    come in and out."""

    def __init__(self, compression: Compression) -> None:
        is_gzip = compression == Compression.GZIP
        self._new_member: Callable[[], _Member] = _GzipMember if is_gzip else _zstd_frame
        self._padding = _GZIP_PADDING if is_gzip else b""
        self._member: _Member = self._new_member()
        self._input = memoryview(b"")
        self._position = 0
        self._bytes = 0
        self._members = 1
        self._slice_bytes = FIRST_SLICE

    def feed(self, data: bytes) -> None:
        """Add input, after everything from the input before was taken."""
        self._input, self._position = memoryview(data), 0

    def take(self) -> bytes:
        """The next PIECE bytes; fewer where the input ends."""
        pieces, room = [], PIECE
        while room and self._has_more():
            piece = self._member.decompress(self._slice(), room)
            if self._member.eof:
                self._position -= len(self._member.unused_data)
            self._bytes += len(piece)
            room -= len(piece)
            pieces.append(piece)
        return b"".join(pieces)

    @property
    def is_whole(self) -> bool:
        return self._member.eof

    def _has_more(self) -> bool:
        """Whether a step would use input or return output; begins the next member."""
        if self._member.eof:
            self._skip_padding()
            if self._position < len(self._input):
                self._begin_member()
        is_used_up = self._position == len(self._input)
        return not is_used_up or not (self._member.eof or self._member.needs_input)

    def _begin_member(self) -> None:
        self._members += 1
        if self._members > FREE_MEMBERS + self._bytes // MEMBER_BYTES:
            raise InvalidArchive("it has too many compressed members with almost no content")
        self._member, self._slice_bytes = self._new_member(), FIRST_SLICE

    def _skip_padding(self) -> None:
        while self._padding and self._position < len(self._input):
            ahead = bytes(self._input[self._position : self._position + FIRST_SLICE])
            rest = ahead.lstrip(self._padding)
            self._position += len(ahead) - len(rest)
            if rest:
                return

    def _slice(self) -> memoryview:
        """Input for the member, if it needs any. What it does not use is copied and given to the
        next, so a member gets little at first."""
        if not self._member.needs_input:
            return self._input[:0]
        data = self._input[self._position : self._position + self._slice_bytes]
        self._position += len(data)
        self._slice_bytes = min(2 * self._slice_bytes, PIECE)
        return data


async def unpacked(chunks: AsyncIterator[bytes], compression: Compression) -> AsyncIterator[bytes]:
    """The unpacked content of the chunks; InvalidArchive if they are damaged."""
    if compression == Compression.NONE:
        async for chunk in chunks:
            yield chunk
        return
    unpacker = _Unpacker(compression)
    try:
        async for chunk in chunks:
            unpacker.feed(chunk)
            while piece := await asyncio.to_thread(unpacker.take):
                yield piece
    except (zlib.error, zstd.ZstdError) as error:
        raise InvalidArchive(f"its {compression.name.lower()} is damaged") from error
    if not unpacker.is_whole:
        raise InvalidArchive("it is truncated")


async def packed(chunks: AsyncIterator[bytes], compression: Compression) -> AsyncIterator[bytes]:
    """The chunks, packed, in pieces of the size that the packer returns."""
    if compression == Compression.NONE:
        async for chunk in chunks:
            yield chunk
        return
    packer = (
        zlib.compressobj(wbits=_GZIP) if compression == Compression.GZIP else zstd.ZstdCompressor()
    )
    async for chunk in chunks:
        if piece := await asyncio.to_thread(packer.compress, chunk):
            yield piece
    yield await asyncio.to_thread(packer.flush)
