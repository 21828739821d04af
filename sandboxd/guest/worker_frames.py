"""Frames on the socket between the daemon and a worker: a kind, the payload's length, the payload.

What the kinds are and which payloads they have depends on the worker's purpose.
"""

import struct

HEADER = struct.Struct("!BI")
MAX_PAYLOAD = 1 << 20
"""Largest payload that the daemon accepts."""


def header(kind: int, size: int) -> bytes:
    return HEADER.pack(kind, size)


def frame(kind: int, payload: bytes = b"") -> bytes:
    return HEADER.pack(kind, len(payload)) + payload
