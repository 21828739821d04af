"""What a reader of a stream gets, and what it cannot get."""

from __future__ import annotations

from typing import NamedTuple


class Piece(NamedTuple):
    """Bytes of a stream from `offset` on."""

    offset: int
    data: bytes
    skipped: int
    """Bytes that were dropped between the offset asked for and `offset`."""
    newlines_before: int | None = None
    """How many lines ended before `offset`; told where something was skipped."""


class Gap(NamedTuple):
    """What is missing of a stream; a size of 0 means nothing."""

    at: int
    size: int
