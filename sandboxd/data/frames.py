"""Frames of a query, on the way from a sandbox to the daemon, to a worker, and back.

A request has a header of one line, the statement, a zero byte and the parameters. The daemon reads
the header and passes the rest on: what nests is only read by the worker.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from sandboxd.errors import InvalidRequest
from sandboxd.guest.worker_frames import HEADER, frame

__all__ = ["HEADER", "Kind", "Operation", "Request", "frame", "object_of"]

MAX_HEADER_BYTES = 4096
MAX_SQL_BYTES = 64 << 10
MAX_REQUEST_BYTES = 256 << 10
MAX_FRAME_BYTES = 256 << 10
"""Largest payload of an answer."""
MAX_ROWS = 10_000_000
_BODY = ("sql", "params")


class Kind(IntEnum):
    """What a frame is."""

    SETTINGS = 0
    """To a worker: its source."""
    REQUEST = 1
    CANCEL = 2
    """To a worker: stop the query that runs."""
    COLUMNS = 10
    """Names and types, once, before the rows."""
    ROWS = 11
    """A part of the rows: each is an array in JSON with a newline; a part may end anywhere."""
    END = 12
    """The query ended well; this is the last frame of the answer."""
    ERROR = 13
    """The query failed; this is the last frame of the answer."""
    LAST_ERROR = 15
    """The same, from a worker that ends then."""
    READY = 14
    """From a worker: it can take the next request."""


class Operation:
    """What is asked for."""

    QUERY = "query"
    TABLES = "tables"
    SCHEMA = "schema"
    SOURCES = "sources"
    """Only the daemon answers this."""
    ALL = frozenset({QUERY, TABLES, SCHEMA, SOURCES})


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request. Limits of 0 are those of the source."""

    operation: str = Operation.QUERY
    source: str = ""
    sql: bytes = b""
    params: bytes = b""
    """A JSON object with the values by name; empty means none."""
    table: str = ""
    """The table to describe; empty means all."""
    max_rows: int = 0
    max_bytes: int = 0
    seconds: float = 0.0
    is_repeat: bool = False
    """Whether it was sent before and may have run: then only a read may run."""
    user_id: str = ""
    session_id: str = ""

    def encode(self) -> bytes:
        fields = vars(self).items()
        header = {key: value for key, value in fields if value and key not in _BODY}
        return b"%b\n%b\0%b" % (json.dumps(header).encode(), self.sql, self.params)


def decode_request(payload: bytes) -> Request:
    """InvalidRequest unless every field has its type and is within its bounds."""
    end_of_header = payload.find(b"\n", 0, MAX_HEADER_BYTES)
    if end_of_header < 0:
        raise InvalidRequest("request", "the header is missing or too long")
    header = object_of(payload[:end_of_header], "request")
    sql, _, params = payload[end_of_header + 1 :].partition(b"\0")
    if len(sql) > MAX_SQL_BYTES:
        raise InvalidRequest("sql", f"a statement has at most {MAX_SQL_BYTES >> 10} KiB")
    operation = _text(header, "operation") or Operation.QUERY
    if operation not in Operation.ALL:
        raise InvalidRequest("operation", "the daemon does not know this operation")
    return Request(
        operation=operation,
        source=_text(header, "source"),
        sql=sql,
        params=params,
        table=_text(header, "table"),
        max_rows=int(_number(header, "max_rows", MAX_ROWS)),
        max_bytes=int(_number(header, "max_bytes", 1 << 40)),
        seconds=_number(header, "seconds", 86_400),
        is_repeat=header.get("is_repeat") is True,
        user_id=_text(header, "user_id"),
        session_id=_text(header, "session_id"),
    )


def object_of(payload: bytes, field: str) -> dict[str, Any]:
    """A JSON object; InvalidRequest if it is none."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        raise InvalidRequest(field, "this is not valid JSON") from None
    if not isinstance(value, dict):
        raise InvalidRequest(field, "this is not a JSON object")
    return value


def _text(header: dict[str, Any], name: str) -> str:
    value = header.get(name, "")
    if not isinstance(value, str) or len(value) > 1024:
        raise InvalidRequest(name, "must be a text of at most 1024 characters")
    return value


def _number(header: dict[str, Any], name: str, most: float) -> float:
    value = header.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise InvalidRequest(name, f"must be a number between 0 and {most:.0f}")
    return value
