"""Messages that are a chunk and nothing else, read and written without protobuf.

Protobuf would copy the bytes twice in each direction, which costs more than everything else that
the daemon does with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sandboxd_proto.v1 import exec_pb2

_LENGTH_DELIMITED = 2
CHUNK_FIELD = 2
"""Field of the chunk in messages that callers stream."""
_LONGEST_VARINT = 5
_OFFSET_FIELD = exec_pb2.OutputChunk.OFFSET_FIELD_NUMBER
_DATA_FIELD = exec_pb2.OutputChunk.DATA_FIELD_NUMBER


class OutputPiece(NamedTuple):
    """A chunk of output, and the field of an event that holds it."""

    field: int
    offset: int
    data: bytes


def chunk_in(data: bytes) -> memoryview | None:
    """The chunk of a message in its usual form; None if the message has to be parsed."""
    if len(data) < 2 or data[0] != CHUNK_FIELD << 3 | _LENGTH_DELIMITED:
        return None
    length = shift = 0
    for position in range(1, min(len(data), 1 + _LONGEST_VARINT)):
        byte = data[position]
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            begin = position + 1
            return memoryview(data)[begin:] if begin + length == len(data) else None
    return None


def with_chunk(field: int, data: bytes) -> bytes:
    """A message with this field and no other."""
    return b"".join((_head(field, len(data)), data))


def with_output(event_field: int, pieces: Iterable[OutputPiece]) -> bytes:
    """A message with these pieces of output, an event each, and nothing else."""
    parts: list[bytes] = []
    for piece in pieces:
        before = _varint(_OFFSET_FIELD << 3) + _varint(piece.offset) if piece.offset else b""
        before += _head(_DATA_FIELD, len(piece.data))
        chunk = _head(piece.field, len(before) + len(piece.data))
        event = _head(event_field, len(chunk) + len(before) + len(piece.data))
        parts += (event + chunk + before, piece.data)
    return b"".join(parts)


def _head(field: int, length: int) -> bytes:
    """The bytes that precede the value of a field."""
    return _varint(field << 3 | _LENGTH_DELIMITED) + _varint(length)


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)
