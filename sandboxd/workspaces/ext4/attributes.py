"""Extended attributes: in the inode, and in a block of it."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from sandboxd.workspaces.ext4.damage import require
from sandboxd.workspaces.ext4.image import Image
from sandboxd.workspaces.ext4.inode import Inode

_MAGIC = 0xEA020000
_HEADER = struct.Struct("<I")
_BLOCK_HEADER_SIZE = 32
_ENTRY = struct.Struct("<BBHIII")
_USER, _ACCESS_LIST, _DEFAULT_LIST = 1, 2, 3
_LIST_NAMES = {
    _ACCESS_LIST: b"system.posix_acl_access",
    _DEFAULT_LIST: b"system.posix_acl_default",
}
_STORED_LIST_VERSION, _LIST_VERSION = 1, 2
_WITHOUT_ID = 0xFFFFFFFF
_NAMED = (0x02, 0x08)  # entries of access lists that name a user or a group

Attributes = tuple[tuple[bytes, bytes], ...]


def attributes_of(image: Image, inode: Inode) -> Attributes:
    """Attributes that commands can set, by name: those of the user, and access lists."""
    found: list[tuple[bytes, bytes]] = []
    inside = inode.attributes
    if len(inside) >= _HEADER.size and _HEADER.unpack_from(inside) == (_MAGIC,):
        found += _entries(inside, _HEADER.size, _HEADER.size)
    if inode.attribute_block:
        block = image.block(inode.attribute_block)
        require(_HEADER.unpack_from(block) == (_MAGIC,), "an attribute block is damaged")
        found += _entries(block, _BLOCK_HEADER_SIZE, 0)
    return tuple(sorted(found))


def _entries(data: bytes, position: int, base: int) -> Iterator[tuple[bytes, bytes]]:
    """Entries from a position on; their values are relative to `base`."""
    while True:
        require(position + 4 <= len(data), "attributes do not end")
        if data[position : position + 4] == bytes(4):
            return
        require(position + _ENTRY.size <= len(data), "attributes do not end")
        length, kind, offset, other, size, _hash = _ENTRY.unpack_from(data, position)
        start = position + _ENTRY.size
        end = base + offset + size
        fits = start + length <= len(data) and end <= len(data) and other == 0
        require(fits, "an attribute does not fit")
        name, value = data[start : start + length], data[base + offset : end]
        position = start + -(-length // 4) * 4
        if kind == _USER:
            require(b"\0" not in name, "an attribute has an impossible name")
            yield b"user." + name, value
        elif kind in _LIST_NAMES:
            yield _LIST_NAMES[kind], _as_set(value)


def _as_set(stored: bytes) -> bytes:
    """An access list in the form in which programs set it."""
    require(len(stored) >= 4 and stored[:4] == struct.pack("<I", _STORED_LIST_VERSION), "a list")
    entries, position = [struct.pack("<I", _LIST_VERSION)], 4
    while position < len(stored):
        require(position + 4 <= len(stored), "an access list is damaged")
        tag, rights = struct.unpack_from("<HH", stored, position)
        position += 4
        number = _WITHOUT_ID
        if tag in _NAMED:
            require(position + 4 <= len(stored), "an access list is damaged")
            (number,) = struct.unpack_from("<I", stored, position)
            position += 4
        entries.append(struct.pack("<HHI", tag, rights, number))
    return b"".join(entries)
