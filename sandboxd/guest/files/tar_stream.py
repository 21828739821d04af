"""A reader of archives as they arrive: member by member, with no more than a header in memory.

It is not the standard library's, because an archive may be hostile: here every length is bounded
before it is believed, nothing is looked up by name, and nothing is read twice.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from .codec import Failure
from .daemon_connection import Refused

BLOCK = 512
MAX_EXTENDED = 64 << 10
"""Most bytes of an extended header, which adds fields to the next header."""
MAX_NUMBER = 1 << 62
_BUFFER = 256 << 10
_ZEROS = bytes(BLOCK)

FILE_KINDS = (b"0", b"\0", b"7")
HARD_LINK, SYMLINK, DIRECTORY = b"1", b"2", b"5"
SPECIAL_KINDS = (b"3", b"4", b"6")
SPARSE_KIND = b"S"
_KEYS = (b"path", b"linkpath", b"size", b"mtime")
"""Of an extended header, those that are used."""
_SPARSE = b"GNU.sparse."
"""How the keys of a sparse member begin; one stands for all of them."""
_ATTRIBUTE = b"SCHILY.xattr.user."
"""How the keys of extended attributes begin that users can set."""
_MAX_KEPT = 64
"""Records of extended headers that are kept for one member."""
_MAX_DIGITS = 6
"""Of the length of a record in an extended header."""
_PAX, _PAX_GLOBAL, _LONG_NAME, _LONG_LINK, _LABEL = b"x", b"g", b"L", b"K", b"V"


class Member(NamedTuple):
    name: bytes
    kind: bytes
    mode: int
    size: int
    modified_ns: int
    target: bytes
    is_sparse: bool
    attributes: tuple[tuple[bytes, bytes], ...] = ()
    """Extended attributes of the user, each name without `user.`."""


class Source(Protocol):
    """Where an archive comes from."""

    def receive_into(self, buffer: memoryview) -> int:
        """Fill a part of the buffer; returns how much, 0 at the end."""
        ...


class TarStream:
    """The members of an archive. The bytes of each can be copied or skipped."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._buffer = memoryview(bytearray(_BUFFER))
        self._begin = self._end = 0
        self._left = 0
        """Bytes of the current member that were not read yet."""
        self._padding = 0
        self._is_first = True

    def next(self) -> Member | None:
        """Skip the rest of the current member and return the next; None at the end."""
        self.copy(lambda data: None)
        extended: dict[bytes, bytes] = {}
        while True:
            header = self._header()
            if header is None:
                if extended:
                    raise _damaged()
                return None
            kind, size = header[156:157], _number(header[124:136])
            if kind in (_PAX, _LONG_NAME, _LONG_LINK):
                extended |= _extended(kind, self._payload(size))
                if len(extended) > _MAX_KEPT:
                    raise _damaged()
            elif kind == _PAX_GLOBAL:
                self._payload(size)  # about the whole archive, and not needed
            elif kind == _LABEL:
                self._expect(size)
                self.copy(lambda data: None)
            else:
                return self._member(header, kind, size, extended)

    def copy(self, sink: Callable[[memoryview], None]) -> None:
        """Pass the rest of the member's bytes to `sink`."""
        while self._left:
            data = self._some(self._left)
            self._left -= len(data)
            sink(data)
        while self._padding:
            self._padding -= len(self._some(self._padding))

    def finish(self) -> None:
        """Read what follows the end of the archive, which means nothing."""
        while self._source.receive_into(self._buffer):
            pass

    def _member(
        self, header: bytes, kind: bytes, size: int, extended: dict[bytes, bytes]
    ) -> Member:
        name = header[:100].partition(b"\0")[0]
        if header[257:262] == b"ustar" and header[262:263] == b"\0":
            prefix = header[345:500].partition(b"\0")[0]
            name = prefix + b"/" + name if prefix else name
        if b"size" in extended:
            size = _decimal(extended[b"size"])
        modified_ns = _number(header[136:148], may_be_negative=True) * 1_000_000_000
        if b"mtime" in extended:
            modified_ns = _nanoseconds(extended[b"mtime"])
        name = extended.get(b"path", name)
        if kind in FILE_KINDS and name.endswith(b"/"):
            kind = DIRECTORY  # how the oldest archives mark it
        # Links and directories have no bytes, but some writers give them a size.
        has_bytes = kind not in (HARD_LINK, SYMLINK, DIRECTORY, *SPECIAL_KINDS)
        self._expect(size if has_bytes else 0)
        return Member(
            name=name,
            kind=kind,
            mode=_number(header[100:108]) & 0o777,
            size=size if has_bytes else 0,
            modified_ns=modified_ns,
            target=extended.get(b"linkpath", header[157:257].partition(b"\0")[0]),
            is_sparse=_SPARSE in extended or kind == SPARSE_KIND,
            attributes=tuple(
                (key.removeprefix(_ATTRIBUTE), value)
                for key, value in extended.items()
                if key.startswith(_ATTRIBUTE)
            ),
        )

    def _header(self) -> bytes | None:
        """The next header; None at the end, which is a block of zeros or the end of the bytes."""
        header = self._exactly(BLOCK, may_end=not self._is_first)
        if header is None or header == _ZEROS:
            return None
        self._is_first = False
        checksum = _number(header[148:156])
        unsigned = sum(header) - sum(header[148:156]) + 8 * 0x20
        if checksum not in (unsigned, unsigned - 256 * _high_bytes(header)):
            raise _damaged()
        return header

    def _payload(self, size: int) -> bytes:
        if size > MAX_EXTENDED:
            raise _damaged()
        self._expect(size)
        data = bytearray()
        self.copy(lambda piece: data.extend(piece))
        return bytes(data)

    def _expect(self, size: int) -> None:
        self._left, self._padding = size, -size % BLOCK

    def _exactly(self, size: int, *, may_end: bool) -> bytes | None:
        data = bytearray()
        while len(data) < size:
            if self._begin == self._end and not self._fill():
                if may_end and not data:
                    return None
                raise _damaged()
            data += self._some(size - len(data))
        return bytes(data)

    def _some(self, limit: int) -> memoryview:
        """Some of the bytes, at least one; valid until the next call."""
        if self._begin == self._end and not self._fill():
            raise _damaged()
        count = min(limit, self._end - self._begin)
        piece = self._buffer[self._begin : self._begin + count]
        self._begin += count
        return piece

    def _fill(self) -> bool:
        self._begin, self._end = 0, self._source.receive_into(self._buffer)
        return self._end > 0


def _high_bytes(header: bytes) -> int:
    """Number of bytes over 127: some old programs summed signed bytes."""
    return len((header[:148] + header[156:]).translate(None, bytes(range(128))))


def _damaged() -> Refused:
    return Refused(Failure.BAD_ARCHIVE)


def _number(field: bytes, *, may_be_negative: bool = False) -> int:
    """A number in octal digits, or in binary where those are too few."""
    if field[0] in (0x80, 0xFF):
        value = int.from_bytes(field[1:], "big")
        if field[0] == 0xFF:
            value -= 1 << 8 * (len(field) - 1)
    else:
        digits = field.partition(b"\0")[0].strip()
        if not all(0x30 <= digit <= 0x37 for digit in digits):
            raise _damaged()
        value = int(digits or b"0", 8)
    if abs(value) > MAX_NUMBER or (value < 0 and not may_be_negative):
        raise _damaged()
    return value


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise _damaged()
    return int(text)


def _nanoseconds(text: bytes) -> int:
    sign, digits = (-1, text[1:]) if text.startswith(b"-") else (1, text)
    whole, _, fraction = digits.partition(b".")
    if not whole.isdigit() or len(whole) > 18 or (fraction and not fraction.isdigit()):
        raise _damaged()
    return sign * (int(whole) * 1_000_000_000 + int(fraction[:9].ljust(9, b"0")))


def _extended(kind: bytes, payload: bytes) -> dict[bytes, bytes]:
    if kind == _LONG_NAME:
        return {b"path": payload.partition(b"\0")[0]}
    if kind == _LONG_LINK:
        return {b"linkpath": payload.partition(b"\0")[0]}
    records: dict[bytes, bytes] = {}
    position, end = 0, len(payload.rstrip(b"\0"))
    while position < end:
        space = payload.find(b" ", position, position + _MAX_DIGITS + 1)
        length = payload[position:space]
        if space < 0 or not length.isdigit():
            raise _damaged()
        record = payload[space + 1 : position + int(length)]
        position += int(length)
        key, equals, value = record.partition(b"=")
        if position > end or not equals or not value.endswith(b"\n"):
            raise _damaged()
        # Others are not kept: an archive may have any number of them before a member.
        if key in _KEYS or key.startswith(_ATTRIBUTE):
            records[key] = value[:-1]
        elif key.startswith(_SPARSE):
            records[_SPARSE] = b""
    return records
