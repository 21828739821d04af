"""Lines of the audit log, each with the hash of the one before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

GENESIS = "0" * 64
"""The previous hash of the first line."""
MAX_LINE = 64 * 1024
_MARK = b',"hash":"'
_END = b'"}\n'
_TAIL = len(_MARK) + 64 + len(_END)


class Head(NamedTuple):
    """The end of a chain: sequence and hash of its last line."""

    sequence: int
    hash: str


START = Head(0, GENESIS)


class BrokenLine(Exception):
    """A line was changed after it was written; the text says what is wrong."""


def encode(head: Head, at: float, fields: Mapping[str, Any]) -> tuple[bytes, Head]:
    """The next line after `head`, and the new head."""
    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    entry = {"seq": head.sequence + 1, "time": moment, **fields, "prev": head.hash}
    # ASCII only, so that it contains no other line separator and no lone surrogate.
    covered = json.dumps(entry, separators=(",", ":")).encode()[:-1]
    digest = hashlib.sha256(covered).hexdigest()
    return covered + _MARK + digest.encode() + _END, Head(head.sequence + 1, digest)


def decode(line: bytes) -> tuple[dict[str, Any], Head]:
    """The entry of a line, and the head after it; BrokenLine if its hash does not match."""
    covered, tail = line[:-_TAIL], line[-_TAIL:]
    if not (tail.startswith(_MARK) and tail.endswith(_END)):
        raise BrokenLine("it is not complete")
    digest = hashlib.sha256(covered).hexdigest()
    if tail[len(_MARK) : -len(_END)] != digest.encode():
        raise BrokenLine("its hash is not that of its content")
    try:
        entry = json.loads(covered + b"}")
        return entry, Head(int(entry["seq"]), digest)
    except (ValueError, KeyError, TypeError):
        raise BrokenLine("it is not a valid entry") from None
