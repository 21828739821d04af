"""Packing and unpacking of archives, a bounded piece at a time and beside the event loop."""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import AsyncIterator
from typing import Protocol

from sandboxd.errors import InvalidArchive
from sandboxd.files.archive import Compression

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    import backports.zstd as zstd  # the other form is not always found by mypy

PIECE = 1 << 20
"""However well something is packed, it is unpacked in pieces of this size."""
MAX_WINDOW_LOG = 24
"""16 MiB, twice what levels up to 19 ask for: it is held in memory."""
_GZIP = 31
"""How zlib calls the format."""


class _Unpacker(Protocol):
    needs_input: bool

    def take(self, data: bytes) -> bytes:
        """Up to PIECE bytes of what `data`, or what is left of earlier data, holds."""
        ...

    def is_whole(self) -> bool:
        """Whether everything was there to the end."""
        ...


class _Gunzip:
    """One member after the other, as the gzip program does."""

    def __init__(self) -> None:
        self._inside = zlib.decompressobj(_GZIP)
        self._left = b""
        self.needs_input = True

    def take(self, data: bytes) -> bytes:
        data = self._left + data
        if self._inside.eof and data.strip(b"\0"):
            self._inside = zlib.decompressobj(_GZIP)
        if self._inside.eof:
            data = b""
        piece = self._inside.decompress(data, PIECE)
        self._left = self._inside.unused_data if self._inside.eof else self._inside.unconsumed_tail
        is_over = self._inside.eof and not self._left.strip(b"\0")
        self.needs_input = is_over or (len(piece) < PIECE and not self._left)
        return piece

    def is_whole(self) -> bool:
        return self._inside.eof


class _Unzstd:
    def __init__(self) -> None:
        self._inside = self._new()
        self._left = b""
        self.needs_input = True

    def _new(self) -> zstd.ZstdDecompressor:
        return zstd.ZstdDecompressor(
            options={zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
        )

    def take(self, data: bytes) -> bytes:
        if self._inside.eof:
            data = self._left + data
            self._left = b""
            if not data:
                return b""
            self._inside = self._new()
        piece = self._inside.decompress(data, PIECE)
        if self._inside.eof:
            self._left = self._inside.unused_data
            self.needs_input = not self._left
        else:
            self.needs_input = self._inside.needs_input
        return piece

    def is_whole(self) -> bool:
        return self._inside.eof


async def unpacked(chunks: AsyncIterator[bytes], compression: Compression) -> AsyncIterator[bytes]:
    """What the chunks hold; InvalidArchive if they are not packed like that."""
    if compression == Compression.NONE:
        async for chunk in chunks:
            yield chunk
        return
    unpacker: _Unpacker = _Gunzip() if compression == Compression.GZIP else _Unzstd()
    async for chunk in chunks:
        data = chunk
        while True:
            try:
                piece = await asyncio.to_thread(unpacker.take, data)
            except (zlib.error, zstd.ZstdError) as error:
                raise InvalidArchive(f"its {compression.name.lower()} is damaged") from error
            data = b""
            if piece:
                yield piece
            if unpacker.needs_input:
                break
    if not unpacker.is_whole():
        raise InvalidArchive("it is cut off")


async def packed(chunks: AsyncIterator[bytes], compression: Compression) -> AsyncIterator[bytes]:
    """The chunks, packed; about as large as they come out of it."""
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
