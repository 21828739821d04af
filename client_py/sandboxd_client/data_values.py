"""Values of databases as Python has them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from sandboxd_client.data_results import QueryRows
from sandboxd_client.results import seconds_of
from sandboxd_proto.v1 import data_service_pb2 as pb

_TRUNCATED = {
    pb.QUERY_TRUNCATION_ROWS: "rows",
    pb.QUERY_TRUNCATION_BYTES: "bytes",
    pb.QUERY_TRUNCATION_TIME: "time",
}


def rows_of(columns: Sequence[pb.QueryColumn], lines: bytes, end: pb.QueryEnd) -> QueryRows:
    names = _unique([column.name for column in columns])
    decoders = [_decoder(column.type) for column in columns]
    rows = QueryRows(
        {
            name: decode(value)
            for name, decode, value in zip(names, decoders, json.loads(line), strict=True)
        }
        for line in lines.split(b"\n")[:-1]
    )
    rows.columns = names
    rows.types = tuple(column.type for column in columns)
    rows.truncated = _TRUNCATED.get(end.truncated, "")
    rows.changed_rows = end.changed_rows
    rows.query_id = end.query_id
    rows.seconds = seconds_of(end.took)
    return rows


def params_json(params: dict[str, Any]) -> str:
    return json.dumps(params, default=_plain)


def _plain(value: Any) -> Any:
    """A value that JSON has no type for."""
    if isinstance(value, bytes | bytearray | memoryview):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, set | frozenset):
        return list(value)
    raise TypeError(f"a parameter cannot be of type {type(value).__name__}")


def _unique(names: Sequence[str]) -> Sequence[str]:
    made: list[str] = []
    for name in names:
        unique, number = name, 1
        while unique in made:
            number += 1
            unique = f"{name}_{number}"
        made.append(unique)
    return made


def _same(value: Any) -> Any:
    return value


def _or_text(convert: Callable[[str], Any]) -> Callable[[Any], Any]:
    """Python has no value for some, such as the date `infinity`; these stay texts."""

    def decode(value: Any) -> Any:
        try:
            return None if value is None else convert(value)
        except (ValueError, ArithmeticError):
            return value

    return decode


def _any(value: Any) -> Any:
    if isinstance(value, dict) and "$bytes" in value:
        return base64.b64decode(value["$bytes"])
    if isinstance(value, dict) and "$float" in value:
        return float(value["$float"])
    return value


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "float": _or_text(float),
    "decimal": _or_text(Decimal),
    "uuid": _or_text(UUID),
    "date": _or_text(date.fromisoformat),
    "time": _or_text(time.fromisoformat),
    "timestamp": _or_text(datetime.fromisoformat),
    "bytes": _or_text(base64.b64decode),
    "any": _any,
}


def _decoder(kind: str) -> Callable[[Any], Any]:
    element = kind.removeprefix("list of ")
    if element == kind:
        return _DECODERS.get(kind, _same)
    inner = _decoder(element)

    def decode(value: Any) -> Any:
        return [decode(item) for item in value] if isinstance(value, list) else inner(value)

    return decode
