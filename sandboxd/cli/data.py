"""`sandboxd data`: list data sources and their tables, and query them."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import click

from sandboxd.cli import table
from sandboxd.cli.failure import USAGE, Failure, call
from sandboxd.cli.target import Target, json_option, target_options
from sandboxd_client import DataSourceInfo, QueryInfo, QueryRows, TableInfo

SOURCES = ("SOURCE", "ENGINE", "ROWS", "SECONDS", "WRITES", "STATE", "DESCRIPTION")
TABLES = ("TABLE", "KIND", "ROWS", "COMMENT")
COLUMNS = ("COLUMN", "TYPE", "NULL", "KEY", "REFERENCES", "COMMENT")
QUERIES = ("TIME", "SOURCE", "OUTCOME", "ROWS", "SECONDS", "STATEMENT")


@click.group("data")
def command() -> None:
    """List data sources and their tables, and query them.

    USER/SOURCE is a data source and the user on whose behalf it is asked, such as ada/archive;
    `sandboxd data sources USER` lists them.
    """


@command.command("sources")
@click.argument("user")
@target_options
@json_option
def sources(user: str, target: Target, as_json: bool) -> None:
    """List the data sources that a USER may query."""

    async def work() -> Sequence[DataSourceInfo]:
        async with target.client() as client:
            return await client.data.sources(user)

    found = call(work())
    if as_json:
        table.show_document([asdict(source) for source in found])
        return
    table.show(
        SOURCES,
        [
            (
                source.name,
                source.engine,
                source.max_rows,
                f"{source.timeout:g}",
                ", ".join(source.writable_tables) or "-",
                source.problem or "ok",
                source.description,
            )
            for source in found
        ],
    )
    for source in found:
        for remark in source.remarks:
            click.echo(f"{source.name}: {remark}", err=True)


@command.command("tables")
@click.argument("source", metavar="USER/SOURCE")
@target_options
@json_option
def tables(source: str, target: Target, as_json: bool) -> None:
    """List the tables of a data source.

    USER/SOURCE is a data source and the user on whose behalf it is asked, such as ada/archive.
    """

    async def work() -> Sequence[TableInfo]:
        async with target.client() as client:
            return await client.data.tables(*user_and_source(source))

    found = call(work())
    if as_json:
        table.show_document([asdict(one) for one in found])
    else:
        rows = [(f"{one.schema}.{one.name}", one.kind, _rows(one), one.comment) for one in found]
        table.show(TABLES, rows)


@command.command("schema")
@click.argument("source", metavar="USER/SOURCE")
@click.argument("table_name", metavar="TABLE")
@target_options
@json_option
def schema(source: str, table_name: str, target: Target, as_json: bool) -> None:
    """Print the columns of a TABLE of a data source, such as ada/archive."""

    async def work() -> Sequence[TableInfo]:
        async with target.client() as client:
            return await client.data.schema(*user_and_source(source), table_name)

    found = call(work())
    if not found:
        raise Failure(f"{source} has no table {table_name} that can be read")
    if as_json:
        table.show_document([asdict(one) for one in found])
        return
    for one in found:
        rows = [
            (
                column.name,
                column.type,
                "yes" if column.nullable else "no",
                "pk" if column.primary_key else "",
                column.references,
                column.comment,
            )
            for column in one.columns
        ]
        table.show(COLUMNS, rows)


@command.command("query")
@click.argument("source", metavar="USER/SOURCE")
@click.argument("sql")
@click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Value of :NAME.")
@click.option("--max-rows", type=click.IntRange(1), help="Most rows to return.")
@click.option("--timeout", type=click.FloatRange(0.001), help="Seconds that it may take.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@target_options
@json_option
def query(
    source: str,
    sql: str,
    params: Sequence[str],
    max_rows: int | None,
    timeout: float | None,
    as_csv: bool,
    target: Target,
    as_json: bool,
) -> None:
    """Run one SQL statement on a data source; `-` reads it from standard input.

    USER/SOURCE is a data source and the user on whose behalf it is asked:

    \b
        sandboxd data query ada/archive "SELECT count(*) FROM users"
    """
    statement = sys.stdin.read() if sql == "-" else sql
    values = dict(map(_value, params))

    async def work() -> QueryRows:
        async with target.client() as client:
            return await client.data.query(
                *user_and_source(source), statement, values, max_rows=max_rows, timeout=timeout
            )

    _show(call(work()), as_json=as_json, as_csv=as_csv)


@command.command("log")
@click.argument("user")
@target_options
@json_option
def log(user: str, target: Target, as_json: bool) -> None:
    """List the latest queries of a USER since the daemon started."""

    async def work() -> Sequence[QueryInfo]:
        async with target.client() as client:
            return await client.data.queries(user)

    found = call(work())
    if as_json:
        table.show_document([asdict(one) for one in found])
        return
    table.show(
        QUERIES,
        [
            (one.started_at, one.source, one.outcome, one.rows, f"{one.seconds:.3f}", one.sql)
            for one in found
        ],
    )


def user_and_source(text: str) -> tuple[str, str]:
    user, slash, name = text.partition("/")
    if not (user and slash and name):
        raise Failure(f"{text!r} is not a valid data source: use USER/SOURCE", USAGE)
    return user, name


def _value(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise Failure(f"--param {text}: write NAME=VALUE", USAGE)
    return name, value


def _show(rows: QueryRows, *, as_json: bool, as_csv: bool) -> None:
    if as_json:
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False, default=_text))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(rows.columns)
        writer.writerows(map(_cells, rows))
    elif rows.columns:
        table.show(rows.columns, map(_cells, rows))
    if rows.truncated:
        click.echo(f"there are more rows than the limit of {rows.truncated}", err=True)
    if rows.changed_rows:
        click.echo(f"{rows.changed_rows} rows changed", err=True)


def _cells(row: Mapping[str, Any]) -> list[str]:
    return ["" if value is None else _cell(value) for value in row.values()]


def _cell(value: Any) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False, default=_text)
    return _text(value)


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def _rows(found: TableInfo) -> str:
    return "" if found.rows_estimate is None else f"~{found.rows_estimate}"
