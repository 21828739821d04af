"""The frames of a worker for files, which does one operation.

The daemon begins with a REQUEST, as JSON with paths as surrogateescape text; what it has to send
follows after a READY, as DATA and an END. The worker answers in fixed binary forms: results, in the
order of its operation, then DONE or FAILED. The daemon ends an operation early by closing the
socket.

Each DATA of a worker is CHUNK bytes long, except the last: many tiny frames would cost the daemon
more than their bytes.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from ..worker_frames import MAX_PAYLOAD, frame

CHUNK = MAX_PAYLOAD
MAX_REQUEST = 1 << 18
"""Three paths of the largest size fit, although JSON takes six characters for some bytes; so do
two with the longest patterns."""
MAX_DATA = 4 << 20
"""Largest payload that a worker accepts."""
MAX_PATH = 4095
MAX_LINE = 4096
"""Most bytes of a line that a search returns."""
BATCH_BYTES = 64 << 10
"""Approximate size of a batch of entries in one frame."""

_ENTRY = struct.Struct("!BHQqHH")
_FAILED = struct.Struct("!BQQH")
_DONE = struct.Struct("!6Q")
_FOUND = struct.Struct("!QHH")
_LEFT_OUT = struct.Struct("!BH")
_CHANGE = struct.Struct("!BBHH")
_OVERFLOW = struct.Struct("!B")

Payload = bytes | bytearray | memoryview


class Kind(IntEnum):
    REQUEST = 1  # daemon: JSON
    DATA = 2  # both: bytes
    END = 3  # daemon: no more bytes
    READY = 4  # worker: the bytes may come, or what was asked for has begun
    ENTRIES = 5  # worker: one or more entries
    FOUND = 6  # worker: line number, path, line
    LEFT_OUT = 7  # worker: members of an archive that were left out, and why
    CHANGES = 8  # worker: whether some were lost, and changes
    FAILED = 9  # worker: failure, two figures, field
    DONE = 10  # worker: six figures


class Failure(IntEnum):
    NOT_FOUND = 1
    EXISTS = 2
    NOT_A_FILE = 3
    NOT_A_DIRECTORY = 4
    NOT_EMPTY = 5
    OUTSIDE = 6
    PROTECTED = 7
    NOT_PERMITTED = 8
    TOO_LARGE = 9  # the limit, the size
    FULL = 10  # bytes free, files free
    CHANGED = 11
    TEXT_NOT_FOUND = 12  # number of occurrences
    BAD_ARCHIVE = 13
    BAD_PATTERN = 14
    BAD_LINE = 15  # number of lines in the file
    NAME_TOO_LONG = 16
    BELOW_ITSELF = 17
    IN_PROJECT = 18  # a link leads there
    BROKEN = 19  # anything else
    READ_ONLY = 20  # the filesystem
    HIDDEN = 21  # it belongs to the guest
    OTHER_FILESYSTEM = 22  # an entry cannot be moved there
    UNSUPPORTED = 23  # the kernel refuses it there, whatever the permissions are


class Why(IntEnum):
    """Why a member of an archive was left out."""

    OUTSIDE = 1
    SPECIAL = 2
    EXISTS = 3
    NO_SUCH_TARGET = 4
    UNKNOWN_KIND = 5
    NAME_TOO_LONG = 6
    NOT_A_DIRECTORY = 7
    NOT_PERMITTED = 8
    TOO_LARGE = 9
    CHANGED = 10
    PROTECTED = 11
    NO_NAME = 12
    SPARSE = 13
    TOO_DEEP = 14
    TOO_MANY_LINKS = 15


class Malformed(Exception):
    """The other end sent what cannot be."""


class Entry(NamedTuple):
    path: bytes
    type: int
    mode: int
    size: int
    modified_ns: int
    target: bytes


class Failed(NamedTuple):
    failure: Failure
    first: int
    second: int
    field: bytes
    """Field of the request that it is about, if that is not `path`. Earlier guests sent where links
    led."""


class Found(NamedTuple):
    line_number: int
    path: bytes
    line: bytes


class LeftOut(NamedTuple):
    why: Why
    name: bytes


class Change(NamedTuple):
    kind: int
    is_directory: bool
    path: bytes
    old_path: bytes


def encode_entry(entry: Entry) -> bytes:
    """One of several that make up the payload of ENTRIES."""
    head = _ENTRY.pack(
        entry.type,
        entry.mode,
        entry.size,
        entry.modified_ns,
        len(entry.path),
        len(entry.target),
    )
    return head + entry.path + entry.target


def encode_failed(failed: Failed) -> bytes:
    head = _FAILED.pack(failed.failure, failed.first, failed.second, len(failed.field))
    return frame(Kind.FAILED, head + failed.field)


def encode_done(*figures: int) -> bytes:
    return frame(Kind.DONE, _DONE.pack(*figures, *(0 for _ in range(6 - len(figures)))))


def encode_found(found: Found) -> bytes:
    head = _FOUND.pack(found.line_number, len(found.path), len(found.line))
    return frame(Kind.FOUND, head + found.path + found.line)


def encode_left_out(left_out: LeftOut) -> bytes:
    """One of several that make up the payload of LEFT_OUT."""
    name = left_out.name[:MAX_PATH]
    return _LEFT_OUT.pack(left_out.why, len(name)) + name


def encode_change(change: Change) -> bytes:
    """One of several that follow the overflow in the payload of CHANGES."""
    head = _CHANGE.pack(change.kind, change.is_directory, len(change.path), len(change.old_path))
    return head + change.path + change.old_path


def encode_changes(*, overflow: bool, changes: bytes) -> bytes:
    return frame(Kind.CHANGES, _OVERFLOW.pack(overflow) + changes)


def decode_entries(payload: Payload) -> Iterator[Entry]:
    payload = bytes(payload)
    position, end, head, unpack = 0, len(payload), _ENTRY.size, _ENTRY.unpack_from
    while position < end:
        if end - position < head:
            raise Malformed("a truncated payload")
        kind, mode, size, modified_ns, path_size, target_size = unpack(payload, position)
        if not 1 <= kind <= 6 or mode > 0o7777 or path_size > MAX_PATH or target_size > MAX_PATH:
            raise Malformed("an impossible entry")
        begin = position + head
        middle = begin + path_size
        position = middle + target_size
        if position > end:
            raise Malformed("a truncated payload")
        path, target = payload[begin:middle], payload[middle:position]
        yield Entry(path, kind, mode, size, modified_ns, target)


def decode_failed(payload: Payload) -> Failed:
    failure, first, second, size = _unpack(_FAILED, payload, 0)
    if not 1 <= failure <= len(Failure) or len(payload) != _FAILED.size + size:
        raise Malformed("an impossible failure")
    return Failed(Failure(failure), first, second, bytes(payload[_FAILED.size :]))


def decode_done(payload: Payload) -> tuple[int, ...]:
    if len(payload) != _DONE.size:
        raise Malformed("an impossible end")
    return _DONE.unpack(payload)


def decode_found(payload: Payload) -> Found:
    number, path_size, line_size = _unpack(_FOUND, payload, 0)
    if path_size > MAX_PATH or line_size > MAX_LINE:
        raise Malformed("an impossible match")
    if len(payload) != _FOUND.size + path_size + line_size:
        raise Malformed("an impossible match")
    return Found(number, *_cut(payload, _FOUND.size, path_size, line_size))


def decode_left_out(payload: Payload) -> Iterator[LeftOut]:
    position = 0
    while position < len(payload):
        why, size = _unpack(_LEFT_OUT, payload, position)
        if not 1 <= why <= len(Why) or size > MAX_PATH:
            raise Malformed("an impossible reason")
        position += _LEFT_OUT.size
        (name,) = _cut(payload, position, size)
        position += size
        yield LeftOut(Why(why), name)


def decode_changes(payload: Payload) -> tuple[bool, list[Change]]:
    (overflow,) = _unpack(_OVERFLOW, payload, 0)
    position, changes = _OVERFLOW.size, []
    while position < len(payload):
        kind, is_directory, path_size, old_size = _unpack(_CHANGE, payload, position)
        if not 1 <= kind <= 4 or max(path_size, old_size) > MAX_PATH:
            raise Malformed("an impossible change")
        position += _CHANGE.size
        path, old_path = _cut(payload, position, path_size, old_size)
        position += path_size + old_size
        changes.append(Change(kind, bool(is_directory), path, old_path))
    return bool(overflow), changes


def _unpack(layout: struct.Struct, payload: Payload, position: int) -> tuple[int, ...]:
    if len(payload) - position < layout.size:
        raise Malformed("a truncated payload")
    return layout.unpack_from(payload, position)


def _cut(payload: Payload, position: int, *sizes: int) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(bytes(payload[position : position + size]))
        if len(pieces[-1]) != size:
            raise Malformed("a truncated payload")
        position += size
    return pieces
