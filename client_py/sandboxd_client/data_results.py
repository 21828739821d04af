"""What queries of data sources return."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from sandboxd_client.records import Record, record
from sandboxd_client.results import iso, seconds_of

if TYPE_CHECKING:
    from sandboxd_proto.v1 import data_service_pb2 as pb


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


@record(frozen=True, kw_only=True)
class DataSourceInfo(Record):
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


@record(frozen=True, kw_only=True)
class ColumnInfo(Record):
    """A column of a table."""

    name: str
    type: str
    """In the words of the database."""
    nullable: bool
    primary_key: bool
    references: str
    """Column that it refers to, as `table.column`; empty if it refers to none."""
    comment: str


@record(frozen=True, kw_only=True)
class TableInfo(Record):
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


@record(frozen=True, kw_only=True)
class QueryInfo(Record):
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
