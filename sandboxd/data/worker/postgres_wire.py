"""One connection to PostgreSQL. Everything is sent by the extended protocol, in which a message is
one statement: with the simple one a text could contain many."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Sequence

import psycopg
from psycopg import pq
from psycopg.pq.abc import PGresult

from sandboxd.data.worker.postgres_types import Parameter

CHUNK_ROWS = 500
CONNECT_SECONDS = 5
CANCEL_AGAIN_MILLISECONDS = 100
_ERRORS = frozenset(
    {pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE, pq.ExecStatus.PIPELINE_ABORTED}
)


class ConnectionLost(Exception):
    """The database does not answer, or cannot be reached. The text names no host and no user."""


class RowTooLarge(Exception):
    """A row did not fit into the memory of this process. The connection cannot be used again."""


class DatabaseError(Exception):
    """PostgreSQL reported an error."""

    def __init__(self, result: PGresult) -> None:
        super().__init__(_field(result, pq.DiagnosticField.MESSAGE_PRIMARY) or "the query failed")
        self.sqlstate = _field(result, pq.DiagnosticField.SQLSTATE)
        self.position = int(_field(result, pq.DiagnosticField.STATEMENT_POSITION) or 0)
        self.hint = _field(result, pq.DiagnosticField.MESSAGE_HINT)


class Connection:
    """A connection whose statements can be interrupted while they are waited for."""

    def __init__(self, conninfo: str, options: str) -> None:
        full = pq.Conninfo.parse(conninfo.encode())
        given = {option.keyword: option.val for option in full if option.val is not None}
        given.setdefault(b"connect_timeout", str(CONNECT_SECONDS).encode())
        given[b"options"] = given.get(b"options", b"") + b" " + options.encode()
        given[b"client_encoding"] = b"UTF8"
        given[b"application_name"] = b"sandboxd"
        text = b" ".join(b"%b='%b'" % (key, _escaped(value)) for key, value in given.items())
        self._conn = pq.PGconn.connect(text)
        if self._conn.status != pq.ConnStatus.OK:
            message = self._conn.error_message.decode(errors="replace")
            self._conn.finish()
            raise ConnectionLost(_connect_problem(message))
        self._conn.nonblocking = 1
        self._conn.enter_pipeline_mode()
        self._poll = select.poll()
        self._poll.register(self._conn.socket, select.POLLIN)
        self._interrupt: Callable[[], None] | None = None
        self._interrupt_fd = -1
        self._is_cancelling = False

    def close(self) -> None:
        self._conn.finish()

    @property
    def is_open(self) -> bool:
        return self._conn.status == pq.ConnStatus.OK

    @property
    def notices_loss(self) -> bool:
        """Whether the server can look for a lost connection while a statement runs."""
        return self._conn.server_version >= 140_000

    @property
    def is_idle(self) -> bool:
        return self._conn.transaction_status == pq.TransactionStatus.IDLE

    @property
    def has_news(self) -> bool:
        """Whether the server sent something without being asked, which is how it says goodbye."""
        return bool(self._poll.poll(0))

    def watch(self, fd: int, on_readable: Callable[[], None]) -> None:
        """While statements are waited for, call this as soon as the descriptor is readable."""
        self._interrupt, self._interrupt_fd = on_readable, fd
        self._poll.register(fd, select.POLLIN)

    def unwatch(self) -> None:
        if self._interrupt is not None:
            self._poll.unregister(self._interrupt_fd)
            self._interrupt = None

    def send(self, sql: bytes, parameters: Sequence[Parameter] = ()) -> None:
        """Queue a statement. `sync` marks the end of statements of which one failure skips the
        rest."""
        try:
            self._conn.send_query_params(
                sql,
                [parameter.value for parameter in parameters],
                param_types=[parameter.type for parameter in parameters],
            )
        except psycopg.Error as error:
            raise _lost(error) from error

    def sync(self) -> None:
        try:
            self._conn.pipeline_sync()
        except psycopg.Error as error:
            raise _lost(error) from error

    def finish_statement(self) -> None:
        """Read the results of a statement whose rows nobody needs."""
        for _ in self.results():
            pass

    def finish_sync(self) -> None:
        result = self._next()
        self._is_cancelling = False
        if result is None or result.status != pq.ExecStatus.PIPELINE_SYNC:
            raise ConnectionLost("the database answered out of order")

    def read(self, sql: str) -> list[list[str | None]]:
        """All rows of a statement of ours, as texts."""
        self.send(sql.encode())
        self.sync()
        rows: list[list[str | None]] = []
        try:
            for result in self.results():
                rows += _texts(result)
        finally:
            self.finish_sync()
        return rows

    def stream(self) -> None:
        """Have the rows of the next statement in chunks."""
        self._conn.set_chunked_rows_mode(CHUNK_ROWS)

    def results(self) -> Iterator[PGresult]:
        """The results of one statement; DatabaseError, after the last of them, if it failed."""
        failed: PGresult | None = None
        while (result := self._next()) is not None:
            if result.status in _ERRORS:
                failed = failed or result
            elif result.status == pq.ExecStatus.PIPELINE_SYNC:
                raise ConnectionLost("the database answered out of order")
            else:
                yield result
        if failed is not None:
            raise self._error(failed)

    def _error(self, failed: PGresult) -> Exception:
        """What libpq itself reports has no SQLSTATE."""
        error = DatabaseError(failed)
        if not error.sqlstate and failed.status != pq.ExecStatus.PIPELINE_ABORTED:
            return _lost(failed.error_message.decode(errors="replace"))
        return error if self.is_open else ConnectionLost("the database ended the connection")

    def _next(self) -> PGresult | None:
        try:
            while self._conn.flush():
                self._wait(select.POLLIN | select.POLLOUT)
                self._conn.consume_input()
            while self._conn.is_busy():
                self._wait(select.POLLIN)
                self._conn.consume_input()
            return self._conn.get_result()
        except psycopg.Error as error:
            raise _lost(error) from error

    def _wait(self, events: int) -> None:
        self._poll.modify(self._conn.socket, events)
        ready = self._poll.poll(CANCEL_AGAIN_MILLISECONDS if self._is_cancelling else None)
        if not ready:
            self.cancel()
        for fd, _ in ready:
            if fd == self._interrupt_fd and self._interrupt is not None:
                self._interrupt()

    def cancel(self) -> None:
        """Ask the server to stop the statement that runs. It ignores this between two statements,
        so it is asked again while it is waited for."""
        self._is_cancelling = True
        handle = self._conn.cancel_conn()
        try:
            handle.blocking()
        except psycopg.Error:  # it may have ended meanwhile; its timeout ends it otherwise
            pass
        finally:
            handle.finish()


def _texts(result: PGresult) -> list[list[str | None]]:
    return [
        [
            None if (value := result.get_value(row, column)) is None else value.decode()
            for column in range(result.nfields)
        ]
        for row in range(result.ntuples)
    ]


def _field(result: PGresult, field: pq.DiagnosticField) -> str:
    value = result.error_field(field)
    return value.decode(errors="replace") if value else ""


def _escaped(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b"'", b"\\'")


def _connect_problem(message: str) -> str:
    """What libpq says names host and user; this does not."""
    known = {
        "authentication": "the database refused the login",
        "does not exist": "the database or the login does not exist",
        "too many": "the database has too many connections",
        "remaining connection slots": "the database has too many connections",
        "starting up": "the database is starting",
        "shutting down": "the database is stopping",
        "refused": "the database does not listen",
        "No such file": "the database does not listen",
        "timeout": "the database does not answer",
    }
    return next(
        (text for word, text in known.items() if word in message),
        "the database cannot be reached",
    )


def _lost(error: object) -> Exception:
    if "memory" in str(error):
        return RowTooLarge()
    return ConnectionLost("the connection to the database was lost")
