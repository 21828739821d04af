"""Names in directories. Hashed directories look like linear ones to those who read all of them."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from sandboxd.workspaces.ext4.damage import Damaged, require
from sandboxd.workspaces.ext4.extents import read_whole
from sandboxd.workspaces.ext4.image import BLOCK, Image
from sandboxd.workspaces.ext4.inode import Inode

_ENTRY = struct.Struct("<IHBB")
_MAX_BYTES = 1 << 30


class NameType(IntEnum):
    """The type of what a name leads to, as directories have it."""

    FILE = 1
    DIRECTORY = 2
    CHARACTER_DEVICE = 3
    BLOCK_DEVICE = 4
    FIFO = 5
    SOCKET = 6
    LINK = 7


class Name(NamedTuple):
    name: bytes
    number: int
    type: NameType


def names_in(image: Image, directory: Inode) -> Iterator[Name]:
    """What is in a directory, except `.` and `..`. Damaged if it is not a valid one."""
    require(directory.size % BLOCK == 0, "a directory has an impossible size")
    data = read_whole(image, directory, min(_MAX_BYTES, image.blocks * BLOCK))
    position = 0
    while position < len(data):
        number, length, name_length, kind = _ENTRY.unpack_from(data, position)
        left = BLOCK - position % BLOCK
        is_possible = length >= _ENTRY.size + name_length and length % 4 == 0 and length <= left
        require(is_possible, "a directory is damaged")
        start = position + _ENTRY.size
        position += length
        if number == 0:
            continue
        name = data[start : start + name_length]
        if name not in (b".", b".."):
            yield _checked(image, name, number, kind)


def _checked(image: Image, name: bytes, number: int, kind: int) -> Name:
    require(bool(name) and b"/" not in name and b"\0" not in name, "a name is not a name")
    require(number <= image.inodes, "a name leads nowhere")
    try:
        return Name(name, number, NameType(kind))
    except ValueError:
        raise Damaged("a name leads to something of an unknown type") from None
