"""Queries of a PostgreSQL source: check, read-only transaction, caps, rollback."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from psycopg import pq
from psycopg.pq.abc import PGresult

from sandboxd.data.frames import Operation, Request
from sandboxd.data.source import Limits, Source
from sandboxd.data.worker import catalogue, grammar, parameters, postgres_schema, rule
from sandboxd.data.worker.answer import Answer, Cut
from sandboxd.data.worker.binder import MAX_NAMES, Bound, bind
from sandboxd.data.worker.failure import (
    Cancelled,
    QueryFailure,
    failed,
    is_write_repeated,
    not_allowed,
    timed_out,
    unavailable,
)
from sandboxd.data.worker.postgres_types import Parameter
from sandboxd.data.worker.postgres_wire import (
    Connection,
    ConnectionLost,
    DatabaseError,
    RowTooLarge,
)
from sandboxd.data.worker.values import Formatter, Types

CATALOGUE_SECONDS = 60.0
"""How long what the database said about its functions is used."""
MAX_REMEMBERED = 256
"""Statements whose check is remembered."""
_SETTINGS = (
    b"SELECT set_config('statement_timeout', $1, true), set_config('application_name', $2, true), "
    b"set_config('sandboxd.user_id', $3, true), set_config('sandboxd.session_id', $4, true)"
)
_CHECK_CONNECTION = b", set_config('client_connection_check_interval', '1000', true)"
"""So that a statement does not outlive a worker that was killed."""
_CANCELLED = "57014"
_ENDED = ("57P01", "57P02", "57P03", "57P05", "25P03", "08")
"""SQLSTATEs of a server that stops or starts, or that gave up the connection."""


class _Checked(NamedTuple):
    bound: Bound
    statement: rule.Statement


class PostgresSource:
    """Runs one request at a time. `watch` is the descriptor on which the daemon cancels."""

    def __init__(
        self, source: Source, *, watch: int, is_cancelled: Callable[[], bool], is_checked: bool
    ) -> None:
        if is_checked:
            grammar.load()
        self._source = source
        self._watch = watch
        self._is_cancelled = is_cancelled
        self._is_checked = is_checked
        self._reader: Connection | None = None
        self._writer: Connection | None = None
        self._used: Connection | None = None
        """The connection that has to be cleaned."""
        self._permits = rule.Permits()
        self._permits_read_at = 0.0
        self._types = Types([])
        self._checked: OrderedDict[str, _Checked] = OrderedDict()
        self.remarks: list[str] = []

    def run(self, request: Request, answer: Answer) -> dict[str, object]:
        """Send the answer but its end, whose fields are returned; QueryFailure if it fails."""
        try:
            if request.operation == Operation.QUERY:
                return self._query(request, answer)
            return self._describe(request, answer)
        except ConnectionLost as error:
            raise unavailable(f"{error}; try again") from error
        except rule.Refused as error:
            raise not_allowed(error.rule, str(error), error.word) from error
        except grammar.NotSql as error:
            raise failed(str(error), sqlstate="42601", position=error.position) from error

    def clean(self) -> None:
        """Leave no trace of the last request on its connection, or close it."""
        connection, self._used = self._used, None
        if connection is None:
            return
        try:
            self._clean(connection)
        except (ConnectionLost, DatabaseError, RowTooLarge):
            connection.close()
        if time.monotonic() - self._permits_read_at > CATALOGUE_SECONDS:
            self._refresh()

    def _clean(self, connection: Connection) -> None:
        for statement in (b"ROLLBACK", b"DISCARD ALL"):
            connection.send(statement)
            connection.sync()
        for _ in range(2):
            connection.finish_statement()
            connection.finish_sync()
        if not connection.is_idle:
            connection.close()

    def _refresh(self) -> None:
        try:
            if self._reader is not None and self._reader.is_open:
                self._read_catalogue(self._reader)
        except (ConnectionLost, DatabaseError):
            self._reader = None

    def _query(self, request: Request, answer: Answer) -> dict[str, object]:
        sql = _decoded(request.sql)
        reader = self._connected_reader()
        bound, statement = self._check(sql)
        values = parameters.pick(bound.names, parameters.decode(request.params))
        pairs = zip(bound.names, values, strict=True)
        arguments = [parameters.for_postgres(name, value) for name, value in pairs]
        if statement.is_write:
            if request.is_repeat:
                raise is_write_repeated()
            return self._write(bound.sql, arguments, request, answer)
        self._execute(reader, "READ ONLY", bound.sql.encode(), arguments, request, answer)
        return {"kind": statement.kind}

    def _check(self, sql: str) -> _Checked:
        found = self._checked.get(sql)
        if found is None:
            bound = bind(sql)
            if len(bound.names) > MAX_NAMES:
                raise parameters.invalid("all", f"a statement has at most {MAX_NAMES} parameters")
            found = _Checked(bound, self._judge(bound.sql))
            self._checked[sql] = found
            if len(self._checked) > MAX_REMEMBERED:
                self._checked.popitem(last=False)
        return found

    def _judge(self, sql: str) -> rule.Statement:
        return rule.check(sql, self._permits) if self._is_checked else rule.Statement("SELECT")

    def _describe(self, request: Request, answer: Answer) -> dict[str, object]:
        reader = self._connected_reader()
        source = self._source
        lists = [
            parameters.for_postgres("", list(names)) for names in (source.schemas, source.tables)
        ]
        if request.operation == Operation.TABLES:
            sql, columns = postgres_schema.TABLES, postgres_schema.TABLE_COLUMNS
        elif request.table:
            sql, columns = postgres_schema.ONE_SCHEMA, postgres_schema.SCHEMA_COLUMNS
            lists.append(Parameter(request.table.encode()))
        else:
            sql, columns = postgres_schema.ALL_SCHEMAS, postgres_schema.SCHEMA_COLUMNS
        answer.columns(columns)
        self._execute(
            reader, "READ ONLY", sql.encode(), lists, request, answer, has_whole_rows=True
        )
        return {"kind": "DESCRIBE"}

    def _write(
        self, sql: str, arguments: Sequence[Parameter], request: Request, answer: Answer
    ) -> dict[str, object]:
        connection = self._connected_writer()
        changed = self._execute(connection, "READ WRITE", sql.encode(), arguments, request, answer)
        limit = self._source.limits.changed_rows
        if changed > limit:
            raise QueryFailure(
                "QUERY_LIMIT_REACHED",
                f"the statement would change {changed} rows, and this source allows {limit}; "
                "nothing was changed. Change fewer rows at a time",
                limit="CHANGED_ROWS",
            )
        self._commit(connection)
        return {"kind": "WRITE", "changed_rows": changed}

    def _commit(self, connection: Connection) -> None:
        try:
            connection.send(b"COMMIT")
            connection.sync()
            connection.finish_statement()
            connection.finish_sync()
        except DatabaseError as error:
            raise failed(str(error), sqlstate=error.sqlstate) from error
        except ConnectionLost as error:
            raise is_write_repeated() from error

    def _execute(
        self,
        connection: Connection,
        access: str,
        sql: bytes,
        arguments: Sequence[Parameter],
        request: Request,
        answer: Answer,
        *,
        has_whole_rows: bool = False,
    ) -> int:
        """Run a statement in a transaction and send its rows; return the number of changed ones."""
        self._used = connection
        limits = self._source.limits
        seconds = min(request.seconds or limits.seconds, limits.seconds)
        connection.send(f"BEGIN TRANSACTION {access}".encode())
        check = _CHECK_CONNECTION if connection.notices_loss else b""
        connection.send(_SETTINGS + check, _settings(seconds, request))
        connection.send(sql, arguments)
        connection.sync()
        connection.watch(self._watch, lambda: self._interrupted(connection))
        try:
            connection.finish_statement()
            connection.finish_statement()
            connection.stream()
            return self._rows(connection, answer, has_whole_rows=has_whole_rows)
        except DatabaseError as error:
            self._judge_error(error, seconds, answer)
            return 0
        except RowTooLarge:
            connection.close()
            answer.cut = Cut.BYTES
            return 0
        finally:
            connection.unwatch()
            if connection.is_open:
                connection.finish_sync()

    def _interrupted(self, connection: Connection) -> None:
        if self._is_cancelled():
            connection.unwatch()
            connection.cancel()

    def _rows(self, connection: Connection, answer: Answer, *, has_whole_rows: bool) -> int:
        """Send rows until a limit is reached; then the server is asked to stop."""
        changed, is_begun = 0, has_whole_rows
        formatters: list[Formatter] | None = None
        try:
            for result in connection.results():
                if result.status == pq.ExecStatus.COMMAND_OK or result.command_tuples:
                    changed = result.command_tuples or 0
                if not is_begun:
                    formatters, is_begun = self._begin(result, answer), True
                if answer.cut is None and not _send_rows(result, formatters, answer):
                    connection.cancel()
        except DatabaseError:
            if answer.cut is None or self._is_cancelled():
                raise
        return changed

    def _begin(self, result: PGresult, answer: Answer) -> list[Formatter]:
        types = [self._types.get(result.ftype(column)) for column in range(result.nfields)]
        names = [(result.fname(column) or b"").decode() for column in range(result.nfields)]
        answer.columns(
            [(name, kind.name, kind.database_name) for name, kind in zip(names, types, strict=True)]
        )
        return [kind.format for kind in types]

    def _judge_error(self, error: DatabaseError, seconds: float, answer: Answer) -> None:
        """Return if the error only ends the answer early."""
        if error.sqlstate == _CANCELLED:
            if self._is_cancelled():
                raise Cancelled
            if not answer.rows:
                raise timed_out(seconds)
            answer.cut = Cut.TIME
            return
        if error.sqlstate == "42501":
            raise not_allowed("GRANT", f"{error}; the login of this source has no right to it")
        if error.sqlstate == "25006":
            raise not_allowed("KIND", f"{error}; this source is read-only")
        if error.sqlstate.startswith(_ENDED):
            raise ConnectionLost("the database ended the connection")
        raise failed(str(error), sqlstate=error.sqlstate, position=error.position)

    # --- connections ---

    def _connected_reader(self) -> Connection:
        if not _is_usable(self._reader):
            self._reader = self._connect(self._source.dsn, is_writer=False)
            self._read_catalogue(self._reader)
        assert self._reader is not None
        return self._reader

    def _connected_writer(self) -> Connection:
        if not _is_usable(self._writer):
            self._writer = self._connect(self._source.write_dsn, is_writer=True)
        assert self._writer is not None
        return self._writer

    def _connect(self, dsn: str, *, is_writer: bool) -> Connection:
        connection = Connection(dsn, _options(self._source, is_writer=is_writer))
        facts = catalogue.LoginFacts.read(connection.read(catalogue.LOGIN)[0])
        if facts.problem:
            connection.close()
            raise QueryFailure(
                "DATA_SOURCE_UNAVAILABLE",
                f"this source is not used, because {facts.problem}; an operator has to give it a "
                "login that can only do what the source is for",
                refused="login",
            )
        if not is_writer:
            self.remarks = facts.remarks(is_writer=is_writer)
        return connection

    def _read_catalogue(self, connection: Connection) -> None:
        source = self._source
        self._types = Types(connection.read(catalogue.TYPES))
        self._permits = rule.Permits(
            schemas=tuple(source.schemas),
            tables=frozenset(map(_qualified, source.tables)),
            writes=frozenset(map(_qualified, source.writes)),
            functions=catalogue.callable_functions(
                connection.read(catalogue.FUNCTIONS), frozenset(source.functions)
            ),
            refused_operators=_first_column(connection.read(catalogue.OPERATORS)),
            row_functions=_first_column(connection.read(catalogue.ROW_FUNCTIONS))
            - frozenset(source.functions),
        )
        self._permits_read_at = time.monotonic()
        self._checked.clear()


def _is_usable(connection: Connection | None) -> bool:
    if connection is None or not connection.is_open:
        return False
    if connection.has_news:
        connection.close()
        return False
    return True


def _send_rows(result: PGresult, formatters: Sequence[Formatter] | None, answer: Answer) -> bool:
    """False at the first row that does not fit. Without formatters a row is JSON already."""
    get = result.get_value
    if formatters is None:
        return all(answer.row((get(row, 0) or b"").decode()) for row in range(result.ntuples))
    columns = list(enumerate(formatters))
    for row in range(result.ntuples):
        cells = [
            "null" if (value := get(row, column)) is None else write(value)
            for column, write in columns
        ]
        if not answer.row(f"[{','.join(cells)}]"):
            return False
    return True


def _settings(seconds: float, request: Request) -> list[Parameter]:
    name = f"sandboxd:{request.session_id}" if request.session_id else "sandboxd"
    values = (str(max(1, int(seconds * 1000))), name, request.user_id, request.session_id)
    return [Parameter(value.encode()) for value in values]


def _options(source: Source, *, is_writer: bool) -> str:
    """Settings of the connection, which DISCARD ALL returns to."""
    limits: Limits = source.limits
    path = ",".join(f'"{schema}"' for schema in source.schemas).replace(" ", "\\ ")
    milliseconds = int(limits.seconds * 1000)
    values = {
        "default_transaction_read_only": "off" if is_writer else "on",
        "statement_timeout": milliseconds,
        "idle_in_transaction_session_timeout": milliseconds + 5000,
        "search_path": path,
        "intervalstyle": "iso_8601",
        "datestyle": "ISO",
        "bytea_output": "hex",
        "extra_float_digits": 1,
    }
    return " ".join(f"-c {name}={value}" for name, value in values.items())


def _qualified(name: str) -> str:
    return name if "." in name else f"public.{name}"


def _first_column(rows: Sequence[Sequence[str | None]]) -> frozenset[str]:
    return frozenset(row[0] for row in rows if row[0])


def _decoded(sql: bytes) -> str:
    try:
        return sql.decode()
    except UnicodeDecodeError:
        raise QueryFailure("INVALID_REQUEST", "sql: not valid UTF-8", field="sql") from None
