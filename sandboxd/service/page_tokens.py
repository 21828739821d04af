"""Page tokens: the place where the next page of a listing begins, opaque to callers."""

from __future__ import annotations

import math
import struct
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Generic, TypeVar

from sandboxd.errors import InvalidRequest

MAX_TOKEN = 8192
"""Characters of a token. The longest place is a path of 4095 bytes."""

Place = TypeVar("Place")


class PageTokens(Generic[Place]):
    """The tokens of one listing. It refuses those of others, and those of another version."""

    def __init__(
        self, kind: bytes, pack: Callable[[Place], bytes], unpack: Callable[[bytes], Place]
    ) -> None:
        """`kind` names listing and version; `unpack` raises ValueError or struct.error."""
        self._kind = kind
        self._pack = pack
        self._unpack = unpack

    def encode(self, place: Place | None) -> str:
        """The token of the next page; empty if there is none."""
        if place is None:
            return ""
        return urlsafe_b64encode(self._kind + self._pack(place)).decode()

    def decode(self, token: str) -> Place | None:
        """The place in a token; None for the first page."""
        if not token:
            return None
        place = self._place(token) if len(token) <= MAX_TOKEN else None
        # Base64 ignores bits at the end, so that a changed token may decode all the same.
        if place is None or self.encode(place) != token:
            raise InvalidRequest(
                "page_token",
                "not a token of this listing; send the `next_page_token` of the previous page "
                "unchanged, or nothing for the first page",
            )
        return place

    def _place(self, token: str) -> Place | None:
        try:
            data = b64decode(token, altchars=b"-_", validate=True)
            if data.startswith(self._kind):
                return self._unpack(data.removeprefix(self._kind))
        except (ValueError, struct.error):
            pass  # not one of ours
        return None


_TIME = struct.Struct(">d")
_NUMBER = struct.Struct(">q")


def _pack_moment(place: tuple[float, str]) -> bytes:
    time, name = place
    return _TIME.pack(time) + name.encode()


def _unpack_moment(data: bytes) -> tuple[float, str]:
    (time,) = _TIME.unpack(data[: _TIME.size])
    if not math.isfinite(time):
        raise ValueError("not a time")
    return time, data[_TIME.size :].decode()


def _unpack_number(data: bytes) -> int:
    (number,) = _NUMBER.unpack(data)
    return int(number)


SESSIONS = PageTokens[tuple[float, str]](b"s1:", _pack_moment, _unpack_moment)
"""Places: creation time and session id."""
EXECS = PageTokens[tuple[float, str]](b"e1:", _pack_moment, _unpack_moment)
"""Places: start time and exec id."""
EXECUTIONS = PageTokens[int](b"h1:", _NUMBER.pack, _unpack_number)
"""Places: numbers of records in the history."""
SNAPSHOTS = PageTokens[int](b"n1:", _NUMBER.pack, _unpack_number)
"""Places: numbers of snapshots of one session."""
PROJECTS = PageTokens[str](b"p1:", str.encode, bytes.decode)
"""Places: ids of projects of one user."""
PROJECT_FILES = PageTokens[str](b"q1:", str.encode, bytes.decode)
"""Places: keys of names."""
AUDIT = PageTokens[int](b"a1:", _NUMBER.pack, _unpack_number)
"""Places: sequences of lines."""
FILES = PageTokens[bytes](b"f1:", bytes, bytes)
"""Places: paths."""
