"""Inodes."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from sandboxd.workspaces.ext4.damage import Damaged, require

BODY = 60
"""Bytes of an inode that hold the root of its extents, or a short link."""

_FIELDS = struct.Struct("<HHIIIIIHHIII60sIIIIHHHHHHHHII")
_EXTENTS = 0x80000
_REFUSED = 0x800 | 0x200000 | 0x10000000  # encrypted, values in inodes, data in inodes
_EPOCH_BITS = 2
_TIMES_END = 0x8C - 0x80  # where the extra fields that are needed end


class InodeType(IntEnum):
    """The type in a mode, as in stat(2)."""

    FIFO = 0x1000
    CHARACTER_DEVICE = 0x2000
    DIRECTORY = 0x4000
    BLOCK_DEVICE = 0x6000
    FILE = 0x8000
    LINK = 0xA000
    SOCKET = 0xC000


class Inode(NamedTuple):
    number: int
    type: InodeType
    mode: int
    """Permission bits, with set-id and sticky bits."""
    uid: int
    size: int
    links: int
    mtime_ns: int
    ctime_ns: int
    generation: int
    has_extents: bool
    body: bytes
    attribute_block: int
    """0 if there is none."""
    attributes: bytes
    """The part of the inode that may hold extended attributes."""


def parse_inode(number: int, data: bytes) -> Inode | None:
    """The inode, or None if it is not in use. Damaged if it cannot be one."""
    fields = _FIELDS.unpack_from(data)
    (mode, uid, size, _atime, ctime, mtime, _deleted, _gid, links, _blocks, flags, _version) = (
        fields[:12]
    )
    if mode == 0 or links == 0:
        return None
    (body, generation, acl, size_high, _fragment, _blocks_high, acl_high, uid_high) = fields[12:20]
    extra_size, ctime_extra, mtime_extra = fields[23], fields[25], fields[26]
    require(flags & _REFUSED == 0, "an inode has features that our disks do not have")
    require(extra_size <= 128 and extra_size % 4 == 0, "an inode has an impossible size")
    if extra_size < _TIMES_END:
        ctime_extra = mtime_extra = 0
    return Inode(
        number,
        _type_of(mode),
        mode & 0o7777,
        uid | uid_high << 16,
        size | size_high << 32,
        links,
        _nanoseconds(mtime, mtime_extra),
        _nanoseconds(ctime, ctime_extra),
        generation,
        bool(flags & _EXTENTS),
        body,
        acl | acl_high << 32,
        data[128 + extra_size :],
    )


def _type_of(mode: int) -> InodeType:
    try:
        return InodeType(mode & 0xF000)
    except ValueError:
        raise Damaged("an inode has an impossible type") from None


def _nanoseconds(low: int, extra: int) -> int:
    signed = low - (1 << 32) if low >= 1 << 31 else low
    seconds = signed + ((extra & 3) << 32)
    return seconds * 1_000_000_000 + (extra >> _EPOCH_BITS)
