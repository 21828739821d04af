"""Where the content of a file is."""

from __future__ import annotations

import itertools
import struct
from typing import NamedTuple

from sandboxd.workspaces.ext4.damage import require
from sandboxd.workspaces.ext4.image import BLOCK, Image
from sandboxd.workspaces.ext4.inode import Inode

_HEADER = struct.Struct("<HHHH4x")
_LEAF = struct.Struct("<IHHI")
_INDEX = struct.Struct("<IIH2x")
_MAGIC = 0xF30A
_MAX_DEPTH = 5
_UNWRITTEN = 32768


class Run(NamedTuple):
    """Blocks that follow each other in the file and in the image."""

    first: int
    """Of the file."""
    block: int
    """Of the image."""
    length: int


def runs_of(image: Image, inode: Inode) -> list[Run]:
    """The runs of a file or directory in order. What is between them is zeros.

    Space that is allocated but was never written is left out: it reads as zeros, too.
    """
    require(inode.has_extents, "a file has no extents")
    runs: list[Run] = []
    nodes = [(inode.body, _MAX_DEPTH + 1)]
    seen: set[int] = set()
    while nodes:
        data, above = nodes.pop()
        magic, entries, most, depth = _HEADER.unpack_from(data)
        require(magic == _MAGIC and depth < above, "the extents of a file are damaged")
        fits = entries <= most and _HEADER.size * (entries + 1) <= len(data)
        require(fits, "the extents of a file do not fit")
        if depth == 0:
            runs += _leaves(image, data, entries)
            continue
        for block in _children(data, entries):
            require(block not in seen, "the extents of a file are used twice")
            seen.add(block)
            nodes.append((image.block(block), depth))
    image.spend(sum(run.length for run in runs))
    return _ordered(runs)


def _leaves(image: Image, data: bytes, entries: int) -> list[Run]:
    runs = []
    end = _HEADER.size + entries * _LEAF.size
    for first, count, high, low in _LEAF.iter_unpack(data[_HEADER.size : end]):
        if count > _UNWRITTEN:
            continue
        block = low | high << 32
        image.check(block, count)
        runs.append(Run(first, block, count))
    return runs


def _children(data: bytes, entries: int) -> list[int]:
    end = _HEADER.size + entries * _INDEX.size
    found = _INDEX.iter_unpack(data[_HEADER.size : end])
    return [low | high << 32 for _first, low, high in found]


def _ordered(runs: list[Run]) -> list[Run]:
    runs.sort()
    for before, after in itertools.pairwise(runs):
        require(before.first + before.length <= after.first, "the extents of a file overlap")
    return runs


def read_whole(image: Image, inode: Inode, most: int) -> bytes:
    """All content of something small, such as a directory."""
    require(inode.size <= most, "something is larger than it can be")
    content = bytearray(inode.size)
    view = memoryview(content)
    for first, block, count in runs_of(image, inode):
        start = first * BLOCK
        end = min(start + count * BLOCK, inode.size)
        if start < end:
            image.read_into(view[start:end], block)
    return bytes(content)
