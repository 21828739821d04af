"""What queries of data sources return, and values of databases as Python has them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from sandboxd_client.results import iso, seconds_of
from sandboxd_proto.v1 import data_service_pb2 as pb

_TRUNCATED = {
    pb.QUERY_TRUNCATION_ROWS: "rows",
    pb.QUERY_TRUNCATION_BYTES: "bytes",
    pb.QUERY_TRUNCATION_TIME: "time",
}


class QueryRows(list[dict[str, Any]]):
    """The rows of an answer, each a dictionary by column; columns of the same name get a number."""

    def __init__(self, rows: Iterable[dict[str, Any]] = ()) -> None:
        super().__init__(rows)
        self.columns: Sequence[str] = ()
        """Names of the columns."""
        self.types: Sequence[str] = ()
        """Their types: int, float, decimal, bool, text, uuid, json, timestamp, date, time,
        interval, bytes, any, or `list of` one of them."""
        self.truncated = ""
        """`rows`, `bytes` or `time` if a limit cut the answer off; empty if it is complete."""
        self.changed_rows = 0
        """Rows that the statement changed."""
        self.query_id = ""
        """Names the query in the audit log."""
        self.seconds = 0.0
        """Time in the database."""


@dataclass(frozen=True, kw_only=True)
class DataSourceInfo:
    """A database that can be queried."""

    name: str
    description: str
    engine: str
    """`postgresql` or `sqlite`."""
    writable_tables: Sequence[str]
    """Tables that accept INSERT, UPDATE and DELETE."""
    max_rows: int
    max_bytes: int
    timeout: float
    """Seconds that a query may take."""
    problem: str
    """Why it cannot be used now; empty if it can."""
    remarks: Sequence[str]
    """For admins: what an operator should know of its login."""

    @classmethod
    def of(cls, source: pb.DataSource) -> DataSourceInfo:
        return cls(
            name=source.name,
            description=source.description,
            engine=source.engine,
            writable_tables=tuple(source.writable_tables),
            max_rows=source.limits.max_rows,
            max_bytes=source.limits.max_bytes,
            timeout=seconds_of(source.limits.timeout),
            problem=source.problem,
            remarks=tuple(source.remarks),
        )


@dataclass(frozen=True, kw_only=True)
class ColumnInfo:
    """A column of a table."""

    name: str
    type: str
    """In the words of the database."""
    nullable: bool
    primary_key: bool
    references: str
    """Column that it refers to, as `table.column`; empty if it refers to none."""
    comment: str


@dataclass(frozen=True, kw_only=True)
class TableInfo:
    """A table or view that can be read."""

    schema: str
    name: str
    kind: str
    """`table`, `view` or `foreign`."""
    rows_estimate: int | None
    comment: str
    columns: Sequence[ColumnInfo] = field(default=())

    @classmethod
    def of(cls, table: pb.DataTable) -> TableInfo:
        return cls(
            schema=table.schema,
            name=table.name,
            kind=table.kind,
            rows_estimate=table.rows_estimate if table.HasField("rows_estimate") else None,
            comment=table.comment,
            columns=tuple(
                ColumnInfo(
                    name=column.name,
                    type=column.type,
                    nullable=column.nullable,
                    primary_key=column.primary_key,
                    references=column.references,
                    comment=column.comment,
                )
                for column in table.columns
            ),
        )


@dataclass(frozen=True, kw_only=True)
class QueryInfo:
    """A query that has ended."""

    query_id: str
    started_at: str
    """ISO 8601 time."""
    session_id: str
    from_inside: bool
    """Whether code or a command inside of the sandbox sent it."""
    source: str
    sql: str
    rows: int
    changed_rows: int
    seconds: float
    outcome: str
    """OK, CANCELLED, or the reason of the error."""

    @classmethod
    def of(cls, info: pb.QueryInfo) -> QueryInfo:
        return cls(
            query_id=info.query_id,
            started_at=iso(info.start_time),
            session_id=info.session_id,
            from_inside=info.from_inside,
            source=info.data_source,
            sql=info.sql,
            rows=info.rows,
            changed_rows=info.changed_rows,
            seconds=seconds_of(info.took),
            outcome=info.outcome,
        )


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
