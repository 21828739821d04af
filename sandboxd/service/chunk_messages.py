"""Messages that are a chunk and nothing else, read and written without protobuf.

It would copy the bytes twice on their way in and twice on their way out, which is more than all the
rest that happens to them here.
"""

from __future__ import annotations

_LENGTH_DELIMITED = 2
_CHUNK_FIELD = 2
"""Of the messages that callers stream."""
_LONGEST_VARINT = 5


def chunk_in(data: bytes) -> memoryview | None:
    """The chunk, if the message is one as every client writes it; otherwise it has to be parsed."""
    if len(data) < 2 or data[0] != _CHUNK_FIELD << 3 | _LENGTH_DELIMITED:
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
    head = bytearray([field << 3 | _LENGTH_DELIMITED])
    length = len(data)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return b"".join((head, data))
