"""The parts of an image: superblock, groups, inode tables, blocks."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sandboxd.workspaces.ext4.damage import Damaged, require

BLOCK = 4096
INODE_SIZE = 256
PER_BLOCK = BLOCK // INODE_SIZE
ROOT = 2
"""Number of the inode of the root directory."""

_SUPERBLOCK_AT = 1024
# Inodes, blocks, first data block, block size, blocks and inodes per group, magic, inode size,
# features.
_SUPERBLOCK = struct.Struct("<II 12x II 4x I 4x I 12x H 30x H 2x III")
_MAGIC = 0xEF53
_GROUP = struct.Struct("<8x I 20x")
_BLOCK_SIZE_CODE = 2
_FIRST_DATA_BLOCK = 0
# Features that change what is where: those of `disk_template` and no other.
_INCOMPATIBLE = 0x2 | 0x40 | 0x200  # filetype, extent, flex_bg
_NEEDED = 0x2 | 0x40
_READ_ONLY_COMPATIBLE = 0x1 | 0x2 | 0x8 | 0x20 | 0x40
_COMPATIBLE = 0x8 | 0x20  # ext_attr, dir_index
_MAX_BLOCKS = (1 << 40) // BLOCK
_MAX_INODES = 1 << 23
_MAX_GROUPS = 1 << 15
_SPARE_BLOCKS = 1 << 14
"""Blocks that may be read beyond those that there are: of files that are read again."""

Tables = Sequence[bytes]
"""The inode tables, one for each group."""


class _Superblock(NamedTuple):
    inodes: int
    blocks: int
    first_data_block: int
    block_size_code: int
    blocks_per_group: int
    inodes_per_group: int
    magic: int
    inode_size: int
    compatible: int
    incompatible: int
    read_only_compatible: int


class Image:
    """An open image. It neither owns nor closes the descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        found = _checked(self._read(_SUPERBLOCK_AT, _SUPERBLOCK.size))
        self.blocks = found.blocks
        self.inodes = found.inodes
        self.inodes_per_group = found.inodes_per_group
        size = os.fstat(descriptor).st_size
        require(found.blocks * BLOCK <= size, "it is larger than its image")
        self._tables = self._places_of_tables(found)
        self._left = self.blocks + _SPARE_BLOCKS

    def tables(self) -> Tables:
        """Every inode, as it is now."""
        self._left = self.blocks + _SPARE_BLOCKS
        size = self.inodes_per_group * INODE_SIZE
        return [self._read(block * BLOCK, size) for block in self._tables]

    def inode(self, number: int) -> bytes:
        """One inode, as it is now."""
        group, index = self._place(number)
        return self._read(self._tables[group] * BLOCK + index * INODE_SIZE, INODE_SIZE)

    def inode_in(self, tables: Tables, number: int) -> bytes:
        group, index = self._place(number)
        start = index * INODE_SIZE
        return tables[group][start : start + INODE_SIZE]

    def block(self, number: int) -> bytes:
        self.check(number, 1)
        return self._read(number * BLOCK, BLOCK)

    def read_into(self, buffer: memoryview, block: int, skip: int = 0) -> None:
        """Fill the buffer with what is `skip` bytes after the start of a block."""
        position = block * BLOCK + skip
        while buffer:
            count = os.preadv(self._descriptor, [buffer], position)
            require(count > 0, "the image is too short")
            buffer, position = buffer[count:], position + count

    def check(self, block: int, count: int) -> None:
        """Damaged unless these blocks are in the filesystem and can be those of a file."""
        require(block > 0 and count > 0 and block + count <= self.blocks, "a block is not in it")

    def spend(self, count: int) -> None:
        """Damaged if more blocks are read after a look at the tables than there are."""
        self._left -= count
        require(self._left >= 0, "its files have more blocks than it has")

    def changed(self, before: Tables, after: Tables) -> Iterator[int]:
        """Numbers of the inodes that differ."""
        for group, (old, new) in enumerate(zip(before, after, strict=True)):
            if old == new:
                continue
            first = group * self.inodes_per_group + 1
            for start in _different(old, new, BLOCK, 0, len(new)):
                end = min(start + BLOCK, len(new))
                for place in _different(old, new, INODE_SIZE, start, end):
                    yield first + place // INODE_SIZE

    def _place(self, number: int) -> tuple[int, int]:
        require(0 < number <= self.inodes, "an inode has no place")
        return divmod(number - 1, self.inodes_per_group)

    def _places_of_tables(self, found: _Superblock) -> list[int]:
        groups = -(-found.blocks // found.blocks_per_group)
        require(groups <= _MAX_GROUPS, "it has too many groups")
        require(groups * found.inodes_per_group == found.inodes, "its number of inodes is wrong")
        descriptors = self._read(BLOCK, groups * _GROUP.size)
        places = [block for (block,) in _GROUP.iter_unpack(descriptors)]
        for block in places:
            self.check(block, -(-found.inodes_per_group // PER_BLOCK))
        return places

    def _read(self, position: int, size: int) -> bytes:
        data = os.pread(self._descriptor, size, position)
        if len(data) != size:  # a large table may come in pieces
            whole = bytearray(size)
            self.read_into(memoryview(whole), 0, position)
            data = bytes(whole)
        return data


def _different(old: bytes, new: bytes, step: int, start: int, end: int) -> Iterator[int]:
    for place in range(start, end, step):
        if old[place : place + step] != new[place : place + step]:
            yield place


def _checked(data: bytes) -> _Superblock:
    found = _Superblock._make(_SUPERBLOCK.unpack(data))
    require(found.magic == _MAGIC, "it is not an ext4 filesystem")
    is_known = (
        found.incompatible & ~_INCOMPATIBLE == 0
        and found.incompatible & _NEEDED == _NEEDED
        and found.read_only_compatible & ~_READ_ONLY_COMPATIBLE == 0
        and found.compatible & ~_COMPATIBLE == 0
    )
    require(is_known, "it has features that our disks do not have")
    is_ours = (found.block_size_code, found.first_data_block, found.inode_size) == (
        _BLOCK_SIZE_CODE,
        _FIRST_DATA_BLOCK,
        INODE_SIZE,
    )
    require(is_ours, "its blocks or inodes have another size than ours")
    require(0 < found.blocks <= _MAX_BLOCKS, "it has an impossible size")
    require(0 < found.inodes <= _MAX_INODES, "it has too many inodes")
    if not 0 < found.inodes_per_group <= 8 * BLOCK or not 0 < found.blocks_per_group <= 8 * BLOCK:
        raise Damaged("its groups have an impossible size")
    return found
