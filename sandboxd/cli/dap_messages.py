"""Messages of the Debug Adapter Protocol: a header with a length, then JSON."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]

MAX_HEADER_BYTES = 4096
MAX_BODY_BYTES = 8 << 20
_END = b"\r\n\r\n"


class InvalidMessage(Exception):
    """The bytes are not a message of the protocol."""


class Decoder:
    """Messages from bytes that arrive in pieces."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now."""
        self._data += data
        found = []
        while (message := self._next()) is not None:
            found.append(message)
        return found

    def _next(self) -> Message | None:
        end = self._data.find(_END)
        if end > MAX_HEADER_BYTES or (end < 0 and len(self._data) > MAX_HEADER_BYTES):
            raise InvalidMessage("the header is too long")
        if end < 0:
            return None
        size = _length(bytes(self._data[:end]))
        begin = end + len(_END)
        if len(self._data) < begin + size:
            return None
        body = bytes(self._data[begin : begin + size])
        del self._data[: begin + size]
        return _parsed(body)


def encoded(message: Message) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def _length(header: bytes) -> int:
    for line in header.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            text = value.strip()
            if text.isdigit() and len(text) < 10 and int(text) <= MAX_BODY_BYTES:
                return int(text)
            raise InvalidMessage(f"the length of a message is at most {MAX_BODY_BYTES} bytes")
    raise InvalidMessage("the header has no Content-Length")


def _parsed(body: bytes) -> Message:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InvalidMessage("the body is not JSON") from error
    if not isinstance(message, dict):
        raise InvalidMessage("the body is not an object")
    return message
