"""Values of parameters, from JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sandboxd.data.worker.failure import QueryFailure
from sandboxd.data.worker.postgres_types import BOOL, FLOAT8, INT4, INT8, NUMERIC, Parameter

BYTES_KEY = "$bytes"
"""JSON has no bytes: they are an object with this key and base64."""
MAX_DEPTH = 20
MAX_LOGGED, MAX_LOGGED_VALUE = 50, 200


def invalid(name: str, problem: str) -> QueryFailure:
    return QueryFailure("INVALID_REQUEST", f"params: {name}: {problem}", field="params")


def decode(payload: bytes) -> Mapping[str, Any]:
    """The values by name."""
    if not payload:
        return {}
    try:
        values = json.loads(payload)
    except (ValueError, RecursionError):
        raise invalid("all", "this is not valid JSON") from None
    if not isinstance(values, dict):
        raise invalid("all", "give an object with the values by name")
    return values


def pick(names: Sequence[str], values: Mapping[str, Any]) -> list[Any]:
    """The values of these names; every name has to have one."""
    missing = [name for name in names if name not in values]
    if missing:
        raise invalid(missing[0], f"the statement has :{missing[0]}, but there is no value for it")
    return [values[name] for name in names]


def for_postgres(name: str, value: Any) -> Parameter:
    if value is None:
        return Parameter(None)
    if isinstance(value, bool):
        return Parameter(b"true" if value else b"false", BOOL)
    if isinstance(value, int):
        return Parameter(str(value).encode(), _integer_type(value))
    if isinstance(value, float):
        return Parameter(repr(value).encode(), FLOAT8)
    if isinstance(value, str):
        return Parameter(_text(name, value))
    if isinstance(value, list):
        return Parameter(_text(name, _array(name, value, 0)))
    if (found := _bytes(name, value)) is not None:
        return Parameter(b"\\x" + found.hex().encode())
    return Parameter(_text(name, json.dumps(value)))


def for_sqlite(name: str, value: Any) -> Any:
    if isinstance(value, dict) and (found := _bytes(name, value)) is not None:
        return found
    if isinstance(value, list | dict):
        return json.dumps(value)
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise invalid(name, "SQLite has no integers of more than 64 bits; send a text")
    return value


def describe(payload: bytes, *, with_values: bool) -> dict[str, str]:
    """Names and kinds of the values, or the values shortened, for the log."""
    try:
        values = list(decode(payload).items())[:MAX_LOGGED]
    except QueryFailure:
        return {}
    return {
        name[:64]: repr(value)[:MAX_LOGGED_VALUE] if with_values else type(value).__name__
        for name, value in values
    }


def _integer_type(value: int) -> int:
    if -(2**31) <= value < 2**31:
        return INT4
    return INT8 if -(2**63) <= value < 2**63 else NUMERIC


def _text(name: str, value: str) -> bytes:
    if "\0" in value:
        raise invalid(name, "a text in PostgreSQL has no zero characters")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise invalid(name, "this is not valid Unicode") from None


def _bytes(name: str, value: Mapping[str, Any]) -> bytes | None:
    if value.keys() != {BYTES_KEY}:
        return None
    try:
        return base64.b64decode(value[BYTES_KEY], validate=True)
    except (ValueError, TypeError):
        raise invalid(name, "this is not valid base64") from None


def _array(name: str, items: list[Any], depth: int) -> str:
    if depth > MAX_DEPTH:
        raise invalid(name, "this list nests too deeply")
    return "{" + ",".join(_element(name, item, depth) for item in items) + "}"


def _element(name: str, item: Any, depth: int) -> str:
    if item is None:
        return "NULL"
    if isinstance(item, list):
        return _array(name, item, depth + 1)
    if isinstance(item, bool):
        return "t" if item else "f"
    if isinstance(item, int | float):
        return repr(item)
    text = item if isinstance(item, str) else json.dumps(item)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
