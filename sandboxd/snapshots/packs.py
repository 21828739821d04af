"""Chunks of content, compressed, many of them to an object.

A chunk is found by the reference that a snapshot has: which pack, where in it, and the SHA-256 that
its content must have. The name of a pack is random: were it made from what is in it, a pack that is
stored again could be one that a garbage collection is about to delete.
"""

from __future__ import annotations

import hashlib
import secrets
import sys
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from sandboxd.errors import SnapshotDamaged
from sandboxd.snapshots.contract import ChunkRef
from sandboxd.snapshots.keys import pack_key
from sandboxd.snapshots.node import Tree
from sandboxd.snapshots.objects import ObjectMissing, Objects

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    import backports.zstd as zstd  # the other form is not always found by mypy

CHUNK_BYTES = 4 << 20
"""Most bytes of a chunk: a file that is larger has several."""
PACK_BYTES = 8 << 20
"""A pack that has this much is stored."""
PACK_NAME_BYTES = 16
_LEVEL = 1
_GAP_BYTES = 64 << 10
"""Bytes between two chunks that are read along rather than with another call."""
_HELD_BYTES = 32 << 20


def compress(data: bytes | bytearray | memoryview) -> bytes:
    return zstd.compress(data, level=_LEVEL)


def decompress(data: bytes, most: int) -> bytes:
    """SnapshotDamaged unless it is one frame of at most this many bytes."""
    try:
        frame = zstd.ZstdDecompressor()
        plain = frame.decompress(data, most + 1)
    except zstd.ZstdError:
        raise SnapshotDamaged("stored data cannot be decompressed") from None
    if not frame.eof or len(plain) > most:
        raise SnapshotDamaged("stored data is not complete")
    return plain


def unplaced(digest: bytes, size: int) -> ChunkRef:
    """A chunk of which it is not yet known where it will be."""
    return ChunkRef(digest, size, "", 0, 0)


class PackWriter:
    """Collects new chunks of one snapshot. Where they are is known after `finish`."""

    def __init__(self, objects: Objects, owner: str, *, is_durable: bool = True) -> None:
        self._objects = objects
        self._owner = owner
        self._is_durable = is_durable
        self._parts: list[bytes] = []
        self._size = 0
        self._unnamed: list[tuple[bytes, int, int, int]] = []
        self.refs: dict[bytes, ChunkRef] = {}
        """Of the chunks whose pack is stored, by digest."""
        self._pending: set[bytes] = set()
        self.stored_bytes = 0

    def has(self, digest: bytes) -> bool:
        return digest in self.refs or digest in self._pending

    def add(self, digest: bytes, data: bytes | bytearray | memoryview) -> None:
        stored = compress(data)
        if len(stored) >= len(data):  # as long as it is: not compressed
            stored = bytes(data)
        self._pending.add(digest)
        self._unnamed.append((digest, len(data), self._size, len(stored)))
        self._parts.append(stored)
        self._size += len(stored)
        if self._size >= PACK_BYTES:
            self.finish()

    def placed(self, ref: ChunkRef) -> ChunkRef:
        return ref if ref.pack else self.refs[ref.digest]

    def finish(self) -> None:
        """Store what has been collected."""
        if not self._unnamed:
            return
        data = b"".join(self._parts)
        name = secrets.token_hex(PACK_NAME_BYTES)
        self._objects.put(pack_key(self._owner, name), data, is_durable=self._is_durable)
        for digest, size, offset, length in self._unnamed:
            self.refs[digest] = ChunkRef(digest, size, name, offset, length)
        self.stored_bytes += len(data)
        self._parts, self._unnamed, self._pending, self._size = [], [], set(), 0


class ChunkReader:
    """Reads chunks and checks them."""

    def __init__(self, objects: Objects, owner: str) -> None:
        self._objects = objects
        self._owner = owner

    def read(self, ref: ChunkRef) -> bytes:
        """SnapshotDamaged if the chunk is missing or its content is not what it should be."""
        _check(ref)
        return opened(self.read_range(ref.pack, ref.offset, ref.length), ref)

    def read_range(self, pack: str, offset: int, length: int) -> bytes:
        try:
            return self._objects.get_range(pack_key(self._owner, pack), offset, length)
        except ObjectMissing:
            raise SnapshotDamaged("a piece of a file is missing in the store") from None


class Readahead:
    """Reads the chunks of a whole tree, those that are near to each other with one call."""

    def __init__(self, chunks: ChunkReader, tree: Tree) -> None:
        self._chunks = chunks
        self._groups: dict[ChunkRef, _Group] = {}
        self._held: OrderedDict[_Group, bytes] = OrderedDict()
        by_pack: dict[str, set[ChunkRef]] = {}
        for node in tree.nodes.values():
            for ref in node.chunks:
                _check(ref)
                by_pack.setdefault(ref.pack, set()).add(ref)
        for refs in by_pack.values():
            for group, members in _groups(sorted(refs, key=lambda ref: ref.offset)):
                self._groups |= dict.fromkeys(members, group)

    def read(self, ref: ChunkRef) -> bytes:
        """SnapshotDamaged if the chunk is missing or its content is not what it should be."""
        group = self._groups[ref]
        data = self._held.get(group)
        if data is None:
            data = self._chunks.read_range(*group)
            self._held[group] = data
            while sum(map(len, self._held.values())) > _HELD_BYTES and len(self._held) > 1:
                self._held.popitem(last=False)
        start = ref.offset - group.offset
        return opened(data[start : start + ref.length], ref)


class _Group(NamedTuple):
    """A range of a pack."""

    pack: str
    offset: int
    length: int


def _groups(refs: list[ChunkRef]) -> Iterator[tuple[_Group, list[ChunkRef]]]:
    """Ranges to read with one call: of chunks near to each other, and not too much at once."""
    members: list[ChunkRef] = []
    for ref in refs:
        if members:
            is_far = ref.offset - (members[-1].offset + members[-1].length) > _GAP_BYTES
            is_much = ref.offset + ref.length - members[0].offset > PACK_BYTES
            if is_far or is_much:
                yield _group(members), members
                members = []
        members.append(ref)
    if members:
        yield _group(members), members


def _group(members: list[ChunkRef]) -> _Group:
    start = members[0].offset
    end = max(ref.offset + ref.length for ref in members)
    return _Group(members[0].pack, start, end - start)


def _check(ref: ChunkRef) -> None:
    if not 0 < ref.size <= CHUNK_BYTES or not 0 < ref.length <= ref.size or ref.offset < 0:
        raise SnapshotDamaged("a piece of a file has an impossible size")


def opened(stored: bytes, ref: ChunkRef) -> bytes:
    """The content of a chunk, checked."""
    if len(stored) != ref.length:
        raise SnapshotDamaged("a piece of a file is not complete in the store")
    data = stored if ref.length == ref.size else decompress(stored, ref.size)
    if len(data) != ref.size or hashlib.sha256(data).digest() != ref.digest:
        raise SnapshotDamaged("a piece of a file is not what was stored")
    return data
