"""Snapshots as tar archives, out and in."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator

from sandboxd.snapshots.contract import ChunkRef, Kind
from sandboxd.snapshots.node import Node, Tree
from sandboxd.snapshots.packs import Readahead

_BLOCK = tarfile.BLOCKSIZE
_ZEROS = bytes(1 << 20)
_TYPES = {
    Kind.FILE: tarfile.REGTYPE,
    Kind.DIRECTORY: tarfile.DIRTYPE,
    Kind.LINK: tarfile.SYMTYPE,
    Kind.FIFO: tarfile.FIFOTYPE,
}


def exported(tree: Tree, chunks: Readahead) -> Iterator[bytes]:
    """A tar archive of everything but the workspace's own directory; SnapshotDamaged."""
    first: dict[int, bytes] = {}
    for path, node in tree.walk():
        if not path:
            continue
        link = first.get(node.number)
        yield _header(path, node, link)
        if link is None and node.kind is Kind.FILE:
            yield from _content(node, chunks)
        if node.links > 1 and node.kind is not Kind.DIRECTORY:
            first.setdefault(node.number, path)
    yield bytes(2 * _BLOCK)


def _header(path: bytes, node: Node, link: bytes | None) -> bytes:
    info = tarfile.TarInfo(os.fsdecode(path))
    info.type, info.mode = _TYPES[node.kind], node.mode
    if node.kind is Kind.LINK:
        info.linkname = os.fsdecode(node.target)
    elif node.kind is Kind.FILE:
        info.size = node.size
    if link is not None:
        info.type, info.linkname, info.size = tarfile.LNKTYPE, os.fsdecode(link), 0
    seconds, nanoseconds = divmod(abs(node.mtime_ns), 1_000_000_000)
    sign = "-" if node.mtime_ns < 0 else ""
    info.pax_headers = {"mtime": f"{sign}{seconds}.{nanoseconds:09}"}
    for name, value in node.attributes:
        if name.startswith(b"user."):
            info.pax_headers["SCHILY.xattr." + os.fsdecode(name)] = os.fsdecode(value)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _content(node: Node, chunks: Readahead) -> Iterator[bytes]:
    for piece in node.pieces:
        if isinstance(piece, ChunkRef):
            yield chunks.read(piece)
        else:
            left = piece.size
            while left:
                zeros = _ZEROS[: min(left, len(_ZEROS))]
                left -= len(zeros)
                yield zeros
    if node.size % _BLOCK:
        yield bytes(-node.size % _BLOCK)
