"""Compressed archives, as they are uploaded."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Hashable
from functools import partial

from sandboxd.errors import InvalidArchive
from sandboxd.files.compression import Compression, _Unpacker
from tests.fuzz.target import Target, stateless

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    import backports.zstd as zstd

MOST_OUT = 4 << 20
"""Bytes after which enough has come out of an input, as a caller's limit would be."""
MAX_PIECES = 500
CONTENT = (b"", b"text", b"x" * 20_000, bytes(range(256)) * 20)
SKIPPABLE = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"


async def unpack(data: bytes, *, compression: Compression) -> Hashable:
    """As an upload does it; the first byte says in which pieces the rest comes."""
    first, body = (data[0] if data else 0), data[1:]
    unpacker = _Unpacker(compression)
    size = max((1 << 20, 4096, 100, 1)[first % 4], len(body) // MAX_PIECES)
    count = steps = 0
    try:
        for begin in range(0, len(body), size):
            unpacker.feed(body[begin : begin + size])
            while piece := unpacker.take():
                steps += 1
                count += len(piece)
                if count > MOST_OUT:
                    return "much"
    except (zlib.error, zstd.ZstdError) as error:
        return type(error).__name__, str(error)[:60]
    except InvalidArchive as error:
        return error.message
    # A piece is small only at the end of what was fed.
    assert steps <= len(body) // size + 1 + count // (1 << 20) + 1
    return unpacker.is_whole, count.bit_length()


GZIP = Target(
    name="gzip",
    open=stateless(partial(unpack, compression=Compression.GZIP)),
    seeds=[
        *(b"\0" + gzip.compress(content, mtime=0) for content in CONTENT),
        b"\1" + gzip.compress(b"one", mtime=0) + gzip.compress(b"two", mtime=0) + bytes(100),
        b"\2" + gzip.compress(b"", mtime=0) * 20,
        b"\0" + gzip.compress(bytes(1 << 20), mtime=0),
    ],
    words=[b"\x1f\x8b\x08", b"\x1f\x8b\x08\x1f", b"\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00"],
    processor_seconds=1.0,
)
ZSTD = Target(
    name="zstd",
    open=stateless(partial(unpack, compression=Compression.ZSTD)),
    seeds=[
        *(b"\0" + zstd.compress(content) for content in CONTENT),
        b"\0" + zstd.compress(bytes(range(256)) * 300, level=19),
        b"\1" + zstd.compress(b"one") + SKIPPABLE + zstd.compress(b"two"),
        b"\2" + zstd.compress(b"") * 20,
        b"\0" + zstd.compress(bytes(1 << 20)),
    ],
    words=[b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfd\x20\x00\x01\x00\x00", SKIPPABLE],
    processor_seconds=1.0,
)
