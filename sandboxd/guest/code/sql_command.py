"""The command `sandboxd-sql`: queries of data sources from a shell."""

from __future__ import annotations

import argparse
import csv
import datetime
import decimal
import json
import sys
import uuid
from typing import Any

from .database import (
    NO_SOURCE,
    DatabaseError,
    Rows,
    db_query,
    db_schema,
    db_sources,
    db_tables,
    has_door,
)

MAX_WIDTH = 60
"""Characters of a cell in a table."""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        if not has_door():
            raise DatabaseError("DATA_SOURCE_NOT_FOUND", NO_SOURCE)
        if options.schema:
            sys.stdout.write(f"{db_schema(options.schema, options.source)}\n")
            return 0
        rows = _rows(options)
        _write(rows, options.format)
    except DatabaseError as error:
        sys.stderr.write(f"sandboxd-sql: {error}\n")
        return 1
    except BrokenPipeError:
        return 0
    if rows.truncated:
        sys.stderr.write(
            f"sandboxd-sql: there are more rows than the limit of {rows.truncated.lower()}\n"
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="sandboxd-sql", description="Runs a statement on a data source of this session."
    )
    parser.add_argument("sql", nargs="?", help="one statement; without it, standard input")
    parser.add_argument(
        "--source", default="", help="name of the data source, if there are several"
    )
    parser.add_argument(
        "--param", action="append", default=[], metavar="NAME=VALUE", help="value of :NAME"
    )
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table")
    parser.add_argument("--max-rows", type=int, default=None)
    parser.add_argument("--timeout", type=float, default=None, help="seconds")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--tables", action="store_true", help="list the tables")
    shown.add_argument("--schema", metavar="TABLE", help="describe a table")
    shown.add_argument("--sources", action="store_true", help="list the data sources")
    return parser


def _rows(options: argparse.Namespace) -> Rows:
    if options.sources:
        return db_sources()
    if options.tables:
        return db_tables(options.source)
    sql = sys.stdin.read() if options.sql in (None, "-") else options.sql
    return db_query(
        sql,
        _params(options.param),
        source=options.source,
        timeout=options.timeout,
        max_rows=options.max_rows,
    )


def _params(texts: list[str]) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise DatabaseError("INVALID_REQUEST", f"--param {text}: write NAME=VALUE")
        params[name] = value
    return params


def _write(rows: Rows, form: str) -> None:
    if form == "json":
        sys.stdout.write(json.dumps(rows, default=_text, ensure_ascii=False, indent=1) + "\n")
    elif form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(rows.columns)
        writer.writerows([_cell(value) for value in row.values()] for row in rows)
    elif rows.columns:
        _write_table(rows)
    else:
        sys.stdout.write(f"{rows.changed_rows} rows changed\n")


def _write_table(rows: Rows) -> None:
    lines = [rows.columns]
    for row in rows:
        lines.append([_short(_cell(value)) for value in row.values()])
    widths = [max(map(len, column)) for column in zip(*lines)]  # noqa: B905
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths)]  # noqa: B905
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=_text, ensure_ascii=False)
    return value if isinstance(value, str) else str(_text(value))


def _short(text: str) -> str:
    line = text.replace("\n", "\\n")
    return line if len(line) <= MAX_WIDTH else line[: MAX_WIDTH - 3] + "..."


def _text(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    return value
