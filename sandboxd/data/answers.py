"""The parts of an answer, as the daemon understands them, and errors of workers as ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sandboxd.errors import (
    DataSourceUnavailable,
    InvalidRequest,
    QueryFailed,
    QueryLimitReached,
    QueryOutcomeUnknown,
    QueryTimedOut,
    SandboxdError,
    StatementNotAllowed,
)


@dataclass(frozen=True)
class Columns:
    """Names and types: a JSON array of [name, type, type of the database]."""

    json: bytes


@dataclass(frozen=True)
class Rows:
    """A part of the rows, each of which is an array in JSON and a newline; it may end anywhere."""

    json_lines: bytes


@dataclass(frozen=True, kw_only=True)
class End:
    """The query ended well."""

    query_id: str
    rows: int
    bytes: int
    changed_rows: int
    truncated: str
    """ROWS, BYTES or TIME if a limit ended the answer early; empty if it is whole."""
    seconds: float


def fields_of(payload: bytes) -> dict[str, Any]:
    """The last frame of a worker. A worker that sends nonsense is not trusted with anything."""
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def error_of(source: str, fields: Mapping[str, Any]) -> SandboxdError:
    """The error that a worker reported."""
    reason, message = str(fields.get("reason", "")), str(fields.get("message", "it failed"))
    message = f"{message[:1].upper()}{message[1:]}."
    details = {
        name: str(fields[name])
        for name in ("rule", "word", "sqlstate", "position", "limit")
        if fields.get(name)
    }
    if reason == "INVALID_REQUEST":
        field, _, problem = str(fields.get("message")).partition(": ")
        return InvalidRequest(field, problem)
    if reason == "DATA_SOURCE_UNAVAILABLE":
        return DataSourceUnavailable(
            f"The data source {source} is not available: {fields.get('message')}.",
            retry_after_seconds=1.0,
        )
    kinds: Mapping[str, type[SandboxdError]] = {
        kind.reason: kind
        for kind in (StatementNotAllowed, QueryTimedOut, QueryLimitReached, QueryOutcomeUnknown)
    }
    error = kinds.get(reason, QueryFailed)(message)
    error.metadata.update(details)
    return error
