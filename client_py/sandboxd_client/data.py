"""Queries of data sources: databases that the daemon knows and the sandbox has no network to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from sandboxd_client.arguments import checked
from sandboxd_client.connection import Connection
from sandboxd_client.data_results import (
    DataSourceInfo,
    QueryInfo,
    QueryRows,
    TableInfo,
)
from sandboxd_client.data_values import params_json, rows_of
from sandboxd_client.errors import InvalidRequestError
from sandboxd_client.methods.data import GET_SCHEMA, LIST_DATA_SOURCES, LIST_QUERIES, QUERY
from sandboxd_client.session import SessionHold, duration
from sandboxd_proto.v1 import data_service_pb2 as pb

EXTRA_SECONDS = 30.0
"""What a call may take beyond the time of its query: the wait for a connection."""
MAX_QUERY_SECONDS = 3600.0


@checked
class AsyncData:
    """Data sources: databases that the operator has configured. Statements only read, except on
    tables that a source names; the credentials stay in the daemon.

    Example:
        for source in await client.data.sources("ada"):
            print(source.name, source.description)
        rows = await client.data.query("ada", "shop", "SELECT * FROM orders LIMIT 5")
        print(len(rows), rows.truncated)
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect

    async def sources(self, user_id: str) -> Sequence[DataSourceInfo]:
        """The data sources that a user may query, sorted by name.

        Example:
            print([source.name for source in await client.data.sources("ada")])
        """
        request = pb.ListDataSourcesRequest(user_id=user_id)
        connection = await self._connect()
        found = await connection.call(LIST_DATA_SOURCES, request)
        return [DataSourceInfo.of(source) for source in found.data_sources]

    async def query(
        self,
        user_id: str,
        source: str,
        sql: str,
        params: Mapping[str, Any] | None = None,
        *,
        max_rows: int | None = None,
        timeout: float | None = None,
    ) -> QueryRows:
        """Run one statement with parameters as `:name`, and return its rows.

        Example:
            rows = await client.data.query("ada", "shop", "SELECT name FROM orders")
            print(rows[0]["name"])
        """
        request = pb.QueryRequest(user_id=user_id, data_source=source, sql=sql)
        return await run_query(await self._connect(), request, params, max_rows, timeout)

    async def tables(self, user_id: str, source: str) -> Sequence[TableInfo]:
        """The tables of a source that can be read, without their columns.

        Example:
            print([table.name for table in await client.data.tables("ada", "shop")])
        """
        request = pb.GetSchemaRequest(user_id=user_id, data_source=source)
        return await tables_of(await self._connect(), request)

    async def schema(self, user_id: str, source: str, table: str = "") -> Sequence[TableInfo]:
        """Tables with their columns: one, or all of them.

        Example:
            (orders,) = await client.data.schema("ada", "shop", "orders")
            print([column.name for column in orders.columns])
        """
        request = pb.GetSchemaRequest(
            user_id=user_id, data_source=source, table=table, with_columns=True
        )
        return await tables_of(await self._connect(), request)

    async def queries(self, user_id: str, limit: int = 100) -> Sequence[QueryInfo]:
        """The latest queries of a user, newest first, since the daemon started.

        Example:
            for query in await client.data.queries("ada"):
                print(query.started_at, query.source, query.outcome)
        """
        request = pb.ListQueriesRequest(user_id=user_id, page_size=limit)
        connection = await self._connect()
        found = await connection.call(LIST_QUERIES, request)
        return [QueryInfo.of(query) for query in found.queries]


@checked
class AsyncSandboxData:
    """Data sources of a sandbox that was opened with `data_sources`. Code in it has the same as
    `db_query`, and shells as `sandboxd-sql`.

    Example:
        rows = await sandbox.data.query("SELECT count(*) AS n FROM orders")
        print(rows[0]["n"])
    """

    def __init__(self, hold: SessionHold) -> None:
        self._hold = hold

    async def query(
        self,
        sql: str,
        params: Mapping[str, Any] | None = None,
        *,
        source: str = "",
        max_rows: int | None = None,
        timeout: float | None = None,
    ) -> QueryRows:
        """Run one statement with parameters as `:name`; `source` is needed if there are several.

        Example:
            rows = await sandbox.data.query("SELECT * FROM orders WHERE id = :id", {"id": 1})
            print(rows.columns, rows[0])
        """
        request = pb.QueryRequest(
            session_id=self._hold.id, data_source=self._source(source), sql=sql
        )
        return await run_query(self._hold.connection, request, params, max_rows, timeout)

    async def tables(self, source: str = "") -> Sequence[TableInfo]:
        """The tables that can be read, without their columns.

        Example:
            print([table.name for table in await sandbox.data.tables()])
        """
        request = pb.GetSchemaRequest(session_id=self._hold.id, data_source=self._source(source))
        return await tables_of(self._hold.connection, request)

    async def schema(self, table: str = "", source: str = "") -> Sequence[TableInfo]:
        """Tables with their columns: one, or all of them.

        Example:
            (orders,) = await sandbox.data.schema("orders")
            print([column.type for column in orders.columns])
        """
        request = pb.GetSchemaRequest(
            session_id=self._hold.id,
            data_source=self._source(source),
            table=table,
            with_columns=True,
        )
        return await tables_of(self._hold.connection, request)

    def _source(self, source: str) -> str:
        known = self._hold.info.data_sources
        if source or len(known) == 1:
            return source or known[0]
        raise InvalidRequestError(
            f"name the source: this sandbox has {', '.join(known)}"
            if known
            else "this sandbox was opened without data_sources"
        )


async def run_query(
    connection: Connection,
    request: pb.QueryRequest,
    params: Mapping[str, Any] | None,
    max_rows: int | None,
    timeout: float | None,
) -> QueryRows:
    """Send a query, once: it may change something."""
    if params:
        request.params_json = params_json(dict(params))
    if max_rows is not None:
        request.max_rows = max_rows
    if timeout is not None:
        request.timeout.CopyFrom(duration(timeout))
    patience = (timeout or MAX_QUERY_SECONDS) + EXTRA_SECONDS
    columns: Sequence[pb.QueryColumn] = ()
    lines, end = bytearray(), pb.QueryEnd()
    responses = connection.stream(QUERY, request, timeout=patience)
    async with aclosing(responses):
        async for response in responses:
            match response.WhichOneof("part"):
                case "columns":
                    columns = response.columns.columns
                case "rows_json":
                    lines += response.rows_json
                case "end":
                    end = response.end
    return rows_of(columns, bytes(lines), end)


async def tables_of(connection: Connection, request: pb.GetSchemaRequest) -> Sequence[TableInfo]:
    found = await connection.call(GET_SCHEMA, request, timeout=MAX_QUERY_SECONDS)
    return [TableInfo.of(table) for table in found.tables]
