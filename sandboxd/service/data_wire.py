"""Messages of DataService to domain objects and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from sandboxd.data.answers import Columns, End, Rows
from sandboxd.data.broker import SourceState
from sandboxd.data.frames import MAX_SQL_BYTES, Operation, Request
from sandboxd.data.records import QueryRecord
from sandboxd.errors import InvalidRequest
from sandboxd.service import wire
from sandboxd_proto.v1 import data_service_pb2 as pb

MAX_PARAMS_BYTES = 128 << 10
MAX_TABLE_NAME = 256
MAX_SECONDS = 86_400.0
_TRUNCATIONS = {
    "": pb.QUERY_TRUNCATION_UNSPECIFIED,
    "ROWS": pb.QUERY_TRUNCATION_ROWS,
    "BYTES": pb.QUERY_TRUNCATION_BYTES,
    "TIME": pb.QUERY_TRUNCATION_TIME,
}


class NamesSource(Protocol):
    """A request about one data source."""

    @property
    def data_source(self) -> str: ...


# --- requests ---


def source_name(request: NamesSource) -> str:
    return wire.configured_name("data_source", request.data_source)


def query(request: pb.QueryRequest, *, user_id: str) -> Request:
    sql, params = request.sql.encode(), request.params_json.encode()
    if not sql.strip():
        raise wire.missing("sql")
    if len(sql) > MAX_SQL_BYTES:
        raise InvalidRequest("sql", f"must have at most {MAX_SQL_BYTES >> 10} KiB")
    if b"\0" in sql:
        raise InvalidRequest("sql", "must not contain zero bytes")
    if len(params) > MAX_PARAMS_BYTES:
        raise InvalidRequest("params_json", f"must have at most {MAX_PARAMS_BYTES >> 10} KiB")
    return Request(
        source=source_name(request),
        sql=sql,
        params=params,
        max_rows=request.max_rows,
        max_bytes=request.max_bytes,
        seconds=wire.seconds(request, "timeout", low=0.001, high=MAX_SECONDS) or 0.0,
        user_id=user_id,
        session_id=request.session_id,
    )


def schema_request(request: pb.GetSchemaRequest, *, user_id: str) -> Request:
    if len(request.table) > MAX_TABLE_NAME:
        raise InvalidRequest("table", f"must have at most {MAX_TABLE_NAME} characters")
    wants_columns = request.with_columns or bool(request.table)
    return Request(
        operation=Operation.SCHEMA if wants_columns else Operation.TABLES,
        source=source_name(request),
        table=request.table,
        user_id=user_id,
        session_id=request.session_id,
    )


# --- responses ---


def source(state: SourceState, *, for_admin: bool) -> pb.DataSource:
    known, limits = state.source, state.source.limits
    return pb.DataSource(
        name=known.name,
        description=known.description,
        engine=known.engine.value,
        writable_tables=known.writes,
        limits=pb.DataLimits(
            timeout=wire.duration(limits.seconds),
            max_rows=limits.rows,
            max_bytes=limits.bytes,
            max_changed_rows=limits.changed_rows,
        ),
        problem=state.problem,
        remarks=state.remarks if for_admin else (),
        queries=dict(state.outcomes) if for_admin else {},
    )


def part(found: Columns | Rows | End) -> pb.QueryResponse:
    if isinstance(found, Rows):
        return pb.QueryResponse(rows_json=found.json_lines)
    if isinstance(found, Columns):
        return pb.QueryResponse(columns=_columns(found))
    return pb.QueryResponse(
        end=pb.QueryEnd(
            query_id=found.query_id,
            rows=found.rows,
            bytes=found.bytes,
            changed_rows=found.changed_rows,
            truncated=_truncation(found.truncated),
            took=wire.duration(found.seconds),
        )
    )


def _truncation(word: str) -> pb.QueryTruncation.ValueType:
    return _TRUNCATIONS.get(word, pb.QUERY_TRUNCATION_UNSPECIFIED)


def _columns(found: Columns) -> pb.QueryColumns:
    return pb.QueryColumns(
        columns=[
            pb.QueryColumn(name=name, type=kind, database_type=database_type)
            for name, kind, database_type in json.loads(found.json)
        ]
    )


def tables(lines: bytes) -> Iterable[pb.DataTable]:
    """Tables from rows of our own worker."""
    for line in lines.splitlines():
        schema, name, kind, rows, comment, *columns = json.loads(line)
        table = pb.DataTable(schema=schema, name=name, kind=kind, comment=comment)
        if rows is not None:
            table.rows_estimate = max(0, rows)
        table.columns.extend(map(_column, columns[0] if columns else ()))
        yield table


def _column(fields: Mapping[str, Any]) -> pb.DataColumn:
    return pb.DataColumn(
        name=fields["name"],
        type=fields["type"],
        nullable=fields.get("nullable", False),
        default_expression=fields.get("default", ""),
        generated=fields.get("generated", False),
        primary_key=fields.get("primary_key", False),
        unique=fields.get("unique", False),
        references=fields.get("references", ""),
        comment=fields.get("comment", ""),
    )


def query_info(record: QueryRecord) -> pb.QueryInfo:
    return pb.QueryInfo(
        query_id=record.query_id,
        start_time=wire.timestamp(record.started_at),
        session_id=record.session_id,
        from_inside=record.is_from_inside,
        data_source=record.source,
        sql=record.sql,
        rows=record.rows,
        bytes=record.bytes,
        changed_rows=record.changed_rows,
        took=wire.duration(record.seconds),
        outcome=record.outcome,
        truncated=_truncation(record.truncated),
    )
