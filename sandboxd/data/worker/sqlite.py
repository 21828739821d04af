"""Queries of an SQLite source: a read-only file, the guard, a deadline that SQLite asks about."""

from __future__ import annotations

import base64
import json
import math
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sandboxd.data.frames import Operation, Request
from sandboxd.data.source import Source
from sandboxd.data.worker import parameters
from sandboxd.data.worker.answer import Answer, Cut
from sandboxd.data.worker.failure import (
    Cancelled,
    QueryFailure,
    failed,
    is_write_repeated,
    not_allowed,
    timed_out,
    unavailable,
)
from sandboxd.data.worker.postgres_schema import SCHEMA_COLUMNS, TABLE_COLUMNS
from sandboxd.data.worker.sqlite_guard import MAX_SQL_BYTES, PROGRESS_STEPS, Guard, connect

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


class SqliteSource:
    """Runs one request at a time."""

    def __init__(
        self, source: Source, *, watch: int, is_cancelled: Callable[[], bool], is_checked: bool
    ) -> None:
        self._source = source
        self._is_cancelled = is_cancelled
        writes = [_bare(name) for name in source.writes]
        tables = [_bare(name) for name in source.tables]
        self._guard = Guard(tables, source.functions, ())
        self._write_guard = Guard(tables, source.functions, writes)
        self._guard.is_open = self._write_guard.is_open = not is_checked
        self._writes = frozenset(writes)
        self._connection: sqlite3.Connection | None = None
        self._deadline = math.inf
        self.remarks: list[str] = []

    def run(self, request: Request, answer: Answer) -> dict[str, object]:
        """Send the answer but its end, whose fields are returned; QueryFailure if it fails."""
        seconds = min(request.seconds or math.inf, self._source.limits.seconds)
        self._deadline = time.monotonic() + seconds
        try:
            if request.operation == Operation.QUERY:
                return self._query(request, answer)
            return self._describe(request, answer)
        except sqlite3.OperationalError as error:
            if str(error) != "interrupted":
                raise _translated(error, self._guard) from error
            if self._is_cancelled():
                raise Cancelled from error
            if not answer.rows:
                raise timed_out(seconds) from error
            answer.cut = Cut.TIME
            return {"kind": "SELECT"}
        except sqlite3.DataError:
            answer.cut = Cut.BYTES  # a value is larger than SQLite may make it
            return {"kind": "SELECT"}
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise _translated(error, self._guard) from error

    def clean(self) -> None:
        """Nothing of a request outlives its connection's rollback."""
        if self._connection is not None and self._connection.in_transaction:
            self._connection.rollback()

    def _query(self, request: Request, answer: Answer) -> dict[str, object]:
        sql = _decoded(request.sql)
        values = parameters.decode(request.params)
        arguments = {name: parameters.for_sqlite(name, value) for name, value in values.items()}
        connection = self._reader()
        self._guard.reset()
        self._guard.learn(connection)
        try:
            self._send(connection.execute(sql, arguments), answer)
        except sqlite3.DatabaseError:
            if self._guard.write_target not in self._writes:
                raise
            if request.is_repeat:
                raise is_write_repeated() from None
            return self._write(sql, arguments, answer)
        return {"kind": "SELECT"}

    def _write(self, sql: str, arguments: dict[str, Any], answer: Answer) -> dict[str, object]:
        guard = self._write_guard
        guard.reset()
        with self._writer() as connection:
            guard.learn(connection)
            with _opened(guard):
                connection.execute("BEGIN IMMEDIATE")
            before = connection.total_changes
            try:
                self._send(connection.execute(sql, arguments), answer)
            except (sqlite3.Error, sqlite3.Warning) as error:
                raise _translated(error, guard) from error
            changed = connection.total_changes - before
            limit = self._source.limits.changed_rows
            if changed > limit:
                raise QueryFailure(
                    "QUERY_LIMIT_REACHED",
                    f"the statement would change {changed} rows, and this source allows {limit}; "
                    "nothing was changed. Change fewer rows at a time",
                    limit="CHANGED_ROWS",
                )
            with _opened(guard):
                connection.execute("COMMIT")
            return {"kind": "WRITE", "changed_rows": changed}

    def _send(self, cursor: sqlite3.Cursor, answer: Answer) -> None:
        names = [column[0] for column in cursor.description or ()]
        if names:
            answer.columns([(name, "any", "") for name in names])
        for row in cursor:
            if not answer.row(f"[{','.join(map(_value, row))}]"):
                break
        cursor.close()

    def _describe(self, request: Request, answer: Answer) -> dict[str, object]:
        connection = self._reader()
        is_schema = request.operation == Operation.SCHEMA
        answer.columns(SCHEMA_COLUMNS if is_schema else TABLE_COLUMNS)
        self._guard.learn(connection)
        with _opened(self._guard):
            found = connection.execute(
                "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') "
                "AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
            ).fetchall()
            for name, kind in found:
                if not self._guard.is_readable(name) or request.table not in (
                    "",
                    name,
                    f"main.{name}",
                ):
                    continue
                fields = ["main", name, kind, None, ""]
                if is_schema:
                    fields.append(_columns(connection, name))
                if not answer.row(_encode(fields)):
                    break
        return {"kind": "DESCRIBE"}

    def _reader(self) -> sqlite3.Connection:
        if self._connection is None:
            try:
                self._connection = connect(self._source.dsn, self._guard, is_writer=False)
            except sqlite3.Error as error:
                raise unavailable("the file of this source cannot be opened; try again") from error
            self._connection.set_progress_handler(self._should_stop, PROGRESS_STEPS)
        return self._connection

    @contextmanager
    def _writer(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = connect(self._source.dsn, self._write_guard, is_writer=True)
        except sqlite3.Error as error:
            raise unavailable("the file of this source cannot be opened; try again") from error
        connection.set_progress_handler(self._should_stop, PROGRESS_STEPS)
        try:
            yield connection
        finally:
            connection.close()  # which rolls back what is not committed

    def _should_stop(self) -> bool:
        return time.monotonic() > self._deadline or self._is_cancelled()


@contextmanager
def _opened(guard: Guard) -> Iterator[None]:
    before, guard.is_open = guard.is_open, True
    try:
        yield
    finally:
        guard.is_open = before


def _columns(connection: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    name = table.replace('"', '""')
    links = {
        row[3]: f"{row[2]}.{row[4] or 'rowid'}"
        for row in connection.execute(f'PRAGMA foreign_key_list("{name}")')
    }
    columns = []
    for _, column, type_, is_required, default, key in connection.execute(
        f'PRAGMA table_info("{name}")'
    ):
        fields = {
            "name": column,
            "type": type_ or "any",
            "nullable": not is_required and not key,
            "primary_key": bool(key),
            "default": default,
            "references": links.get(column),
        }
        columns.append({key: value for key, value in fields.items() if value is not None})
    return columns


def _value(value: Any) -> str:
    """SQLite's columns have no types, so what JSON cannot express is an object."""
    if isinstance(value, bytes):
        return _encode({parameters.BYTES_KEY: base64.b64encode(value).decode()})
    if isinstance(value, float) and not math.isfinite(value):
        return _encode({"$float": str(value)})
    return _encode(value)


def _translated(error: Exception, guard: Guard) -> QueryFailure:
    if guard.refusal is not None:
        rule, word, sentence = guard.refusal
        return not_allowed(rule, sentence, word)
    text = str(error)
    if "one statement" in text:
        return not_allowed("ONE_STATEMENT", "these are several statements; send one at a time")
    if "readonly database" in text or "authoriz" in text or "no such function" in text:
        return not_allowed("KIND", f"{text}; this source is read-only")
    if "did not supply a value" in text or "Binding" in text:
        return parameters.invalid("all", "the statement has a parameter that has no value")
    if "locked" in text or "disk I/O" in text or "unable to open" in text or "malformed" in text:
        return unavailable("the database is busy or cannot be read; try again")
    return failed(text)


def _bare(name: str) -> str:
    return name.removeprefix("main.")


def _decoded(sql: bytes) -> str:
    if len(sql) > MAX_SQL_BYTES:
        raise QueryFailure("INVALID_REQUEST", "sql: the statement is too long", field="sql")
    try:
        return sql.decode()
    except UnicodeDecodeError:
        raise QueryFailure("INVALID_REQUEST", "sql: not valid UTF-8", field="sql") from None
