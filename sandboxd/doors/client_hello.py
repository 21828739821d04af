"""The name that a TLS client asks for, read from its first message."""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

MAX_BYTES = 32 << 10
"""Longest first message that is read."""
_RECORD_HEAD = 5
_MAX_RECORD = (16 << 10) + 256
_HANDSHAKE, _CLIENT_HELLO = 22, 1
_SERVER_NAME, _ENCRYPTED_HELLO = 0, 0xFE0D
ALERT_DENIED = bytes([21, 3, 1, 0, 2, 2, 49])
"""A record with the fatal alert access_denied."""


class NotTls(ValueError):
    """The bytes are not the start of a TLS connection; the text says why."""


class Need(Enum):
    """What a decision takes."""

    MORE = auto()


class ClientHello(NamedTuple):
    server_name: str | None
    """As it was sent; None if the client names no host."""
    hides_name: bool
    """Whether it may carry another, encrypted name."""


class _Bytes:
    """Takes bytes from the front; NotTls if there are too few."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise NotTls("its first message is cut short")
        self._at += count
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size))

    def vector(self, size: int) -> bytes:
        """Bytes after their length, which has `size` bytes."""
        return self.take(self.number(size))


def parse_client_hello(data: bytes) -> ClientHello | Need:
    """The first message of a connection from its first bytes; NotTls."""
    message = _handshake_bytes(data)
    if message is Need.MORE:
        return _more(data)
    assert isinstance(message, bytes)
    return _hello(message)


def _more(data: bytes) -> Need:
    if len(data) >= MAX_BYTES:
        raise NotTls("its first message is too long")
    return Need.MORE


def _handshake_bytes(data: bytes) -> bytes | Need:
    """The body of the first handshake message, which may span records."""
    message = bytearray()
    at = 0
    while True:
        head = data[at : at + _RECORD_HEAD]
        if (head and head[0] != _HANDSHAKE) or (len(head) > 1 and head[1] != 3):
            raise NotTls("it does not speak TLS")
        if len(head) < _RECORD_HEAD:
            return Need.MORE
        size = int.from_bytes(head[3:])
        if not 0 < size <= _MAX_RECORD:
            raise NotTls("a record has a wrong length")
        message += data[at + _RECORD_HEAD : at + _RECORD_HEAD + size]
        at += _RECORD_HEAD + size
        if _is_whole(message):
            return bytes(message[4:])
        if at > len(data):
            return Need.MORE


def _is_whole(message: bytearray) -> bool:
    if message and message[0] != _CLIENT_HELLO:
        raise NotTls("it does not begin with a ClientHello")
    if len(message) < 4:
        return False
    needed = 4 + int.from_bytes(message[1:4])
    if needed > MAX_BYTES:
        raise NotTls("its first message is too long")
    if len(message) > needed:
        raise NotTls("more follows its first message")
    return len(message) == needed


def _hello(message: bytes) -> ClientHello:
    fields = _Bytes(message)
    fields.take(2 + 32)  # version, random
    fields.vector(1)  # session id
    fields.vector(2)  # ciphers
    fields.vector(1)  # compression
    if not fields:
        return ClientHello(None, hides_name=False)
    extensions = _Bytes(fields.vector(2))
    if fields:
        raise NotTls("bytes follow the extensions of its first message")
    found: dict[int, bytes] = {}
    while extensions:
        kind, content = extensions.number(2), extensions.vector(2)
        if kind in found:
            raise NotTls("an extension is there twice")
        found[kind] = content
    name = _server_name(found[_SERVER_NAME]) if _SERVER_NAME in found else None
    return ClientHello(name, hides_name=_ENCRYPTED_HELLO in found)


def _server_name(content: bytes) -> str:
    """The one name of the extension: several would leave open which one the server takes."""
    fields = _Bytes(content)
    names = _Bytes(fields.vector(2))
    kind, name = names.number(1), names.vector(2)
    if kind != 0 or names or fields:
        raise NotTls("it names more than one host")
    try:
        return name.decode("ascii")
    except UnicodeDecodeError:
        raise NotTls("the name of the host is not ASCII") from None
