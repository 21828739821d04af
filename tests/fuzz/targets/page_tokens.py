"""Page tokens that callers send."""

from __future__ import annotations

from collections.abc import Hashable
from random import Random
from typing import Any

from sandboxd.errors import InvalidRequest
from sandboxd.service.page_tokens import (
    EXECS,
    EXECUTIONS,
    FILES,
    PROJECT_FILES,
    PROJECTS,
    SESSIONS,
    PageTokens,
)
from tests.fuzz.target import Target, stateless

LISTINGS: tuple[PageTokens[Any], ...] = (
    *(SESSIONS, EXECS, EXECUTIONS),
    *(FILES, PROJECTS, PROJECT_FILES),
)
PLACES: tuple[Any, ...] = ((1.5, "session"), (1e9, "\u00e9"), 7, b"a/\xff", "project", "name")


async def decode(data: bytes) -> Hashable:
    """Each listing takes only what it has issued: what it takes, it would issue again."""
    token = data.decode(errors="surrogateescape")
    taken = []
    for number, listing in enumerate(LISTINGS):
        try:
            place = listing.decode(token)
        except InvalidRequest:
            continue
        assert listing.encode(place) == token
        taken.append(number)
    return tuple(taken), len(token) > 8192


def padded(data: bytes, random: Random) -> bytes:
    """The same as base64 might have written it."""
    kept = bytes(byte for byte in data if chr(byte).isalnum() or byte in b"-_")
    return kept + b"=" * (-len(kept) % 4)


PAGE_TOKENS = Target(
    name="page-tokens",
    open=stateless(decode),
    seeds=[listing.encode(place).encode() for listing, place in zip(LISTINGS, PLACES, strict=True)],
    words=[b"czE6", b"ZTE6", b"aDE6", b"ZjE6", b"cDE6", b"cTE6", b"=", b"=="],
    repair=padded,
    max_bytes=12 << 10,
)
