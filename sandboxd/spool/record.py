"""The first page of a spool file, which records what its size does not show."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

MAGIC = b"sandboxd spool 1"
HEADER_BYTES = 4096
MAX_LENGTH = 1 << 62
MIN_RING = 1024
"""Bytes of a ring; a smaller one has no part that may be overwritten."""
_SLOTS = (512, 1024)
"""Positions that are written in turn: if a write is cut short, the record before it is whole."""
_FIELDS = struct.Struct("<8Q")
_SUM = struct.Struct("<I")
SLOT_BYTES = _FIELDS.size + _SUM.size


class Record(NamedTuple):
    """Positions of a stream's bytes in its file when it had `length`; see KeptStream."""

    head: int
    base: int
    ring: int
    tail: int
    tail_newlines: int
    length: int
    newlines: int

    @property
    def is_sound(self) -> bool:
        return (
            self.head <= self.base <= self.tail <= self.length <= MAX_LENGTH
            and self.tail_newlines <= self.newlines <= self.length
            and (not self.ring or self.ring >= max(MIN_RING, self.length - self.tail))
        )


def slot_position(sequence: int) -> int:
    return _SLOTS[sequence % len(_SLOTS)]


def encode_slot(sequence: int, record: Record) -> bytes:
    fields = _FIELDS.pack(sequence, *record)
    return fields + _SUM.pack(zlib.crc32(fields))


def encode_page(sequence: int, record: Record) -> bytes:
    page = bytearray(HEADER_BYTES)
    page[: len(MAGIC)] = MAGIC
    position = slot_position(sequence)
    page[position : position + SLOT_BYTES] = encode_slot(sequence, record)
    return bytes(page)


def decode_page(page: bytes) -> tuple[int, Record] | None:
    """The sequence number and the record written last; None if this is not such a page."""
    if len(page) < HEADER_BYTES or not page.startswith(MAGIC):
        return None
    found: list[tuple[int, Record]] = []
    for position in _SLOTS:
        fields = page[position : position + _FIELDS.size]
        (checksum,) = _SUM.unpack_from(page, position + _FIELDS.size)
        sequence, *values = _FIELDS.unpack(fields)
        record = Record(*values)
        if zlib.crc32(fields) == checksum and slot_position(sequence) == position:
            found.append((sequence, record))
    return max((slot for slot in found if slot[1].is_sound), default=None)
