"""`db_query` and its companions: queries of data sources, sent through the daemon's data door.

Code contexts have them as builtins, and the command `sandboxd-sql` uses them. A call runs when it
is made and returns its rows; what it returns can also be awaited, so that `await db_query(...)`
and `db_query(...)` mean the same.

Standard library only, for Python 3.9 and later, and no other module of ours: it is loaded into the
Python of any image.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import os
import socket
import struct
import threading
import time
import uuid
from collections.abc import Callable, Generator
from typing import Any

ADDRESS = "\0sandboxd-data"
VARIABLE = "SANDBOXD_DATA_DOOR"
"""Set for commands of sessions that have data sources."""
NO_SOURCE = (
    "This session has no data source. Open it with data_sources=[NAME]; a client's "
    "data.sources(USER) lists those that the operator has configured for a user."
)
RECONNECT_SECONDS = 60.0
"""How long a daemon may be gone, such as while it is restarted."""
MAX_FRAME = 1 << 20
_HEADER = struct.Struct("!BI")
_REQUEST, _COLUMNS, _ROWS, _END, _ERROR = 1, 10, 11, 12, 13
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0


class DatabaseError(Exception):
    """A query did not end well. `reason` is a word such as STATEMENT_NOT_ALLOWED, and `details`
    has what else is known, such as the SQLSTATE of the database."""

    def __init__(self, reason: str, message: str, details: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.details = details or {}

    def __reduce__(self) -> Any:
        return type(self), (self.reason, str(self), self.details)


class Rows(list[Any]):
    """The rows of an answer, each a dictionary by column. `truncated` is ROWS, BYTES or TIME if
    there are more than a limit allows, and empty if these are all."""

    columns: list[str]
    truncated = ""
    changed_rows = 0
    query_id = ""

    def __await__(self) -> Generator[None, None, Rows]:
        return self
        yield  # a generator that has nothing to wait for


class Schema(dict[str, Any]):
    """A table with its columns; its text is short, for a prompt."""

    def __await__(self) -> Generator[None, None, Schema]:
        return self
        yield

    def __str__(self) -> str:
        columns = ", ".join(_column_text(column) for column in self.get("columns", ()))
        prefix = "" if self["schema"] in ("public", "main") else f"{self['schema']}."
        rows = "" if self.get("rows") is None else f" ~{self['rows']:,} rows"
        comment = f": {self['comment']}" if self.get("comment") else ""
        return f"{prefix}{self['name']}({columns}){rows}{comment}"


def _column_text(column: dict[str, Any]) -> str:
    words = [column["name"], column["type"]]
    if column.get("primary_key"):
        words.append("pk")
    elif not column.get("nullable"):
        words.append("not null")
    if column.get("references"):
        words.append(f"-> {column['references']}")
    return " ".join(words)


def db_query(
    sql: str,
    params: dict[str, Any] | None = None,
    *,
    source: str = "",
    timeout: float | None = None,
    max_rows: int | None = None,
) -> Rows:
    """Run one statement with parameters as `:name`, and return its rows."""
    header = {"source": source, "seconds": timeout or 0, "max_rows": max_rows or 0}
    body = sql.encode() + b"\0" + (_encode_params(params) if params else b"")
    return _ask(header, body)


def db_tables(source: str = "") -> Rows:
    """The tables that can be read: schema, name, kind, estimated rows, comment."""
    return _ask({"operation": "tables", "source": source})


def db_schema(table: str, source: str = "") -> Schema:
    """A table and its columns. Its text, `str(db_schema("users"))`, is one line for a prompt."""
    found = _ask({"operation": "schema", "source": source, "table": table})
    if not found:
        raise DatabaseError(
            "TABLE_NOT_FOUND", f"There is no table {table!r} that can be read; see db_tables()."
        )
    return Schema(found[0])


def db_sources() -> Rows:
    """The data sources of this session: name, description, engine, tables that can be changed."""
    return _ask({"operation": "sources"})


def has_door() -> bool:
    """Whether the session has data sources, also while no daemon serves them."""
    if VARIABLE in os.environ:
        return True
    try:
        return bool(_link.connected())
    except _Broken:
        return False


def helpers() -> dict[str, Callable[..., Any]]:
    """What code gets as builtins."""
    return {
        "db_query": db_query,
        "db_tables": db_tables,
        "db_schema": db_schema,
        "db_sources": db_sources,
        "DatabaseError": DatabaseError,
    }


# --- the door ---


class _Broken(Exception):
    """The connection ended. `was_sent` says whether the daemon may have the request."""

    def __init__(self, was_sent: bool) -> None:
        super().__init__()
        self.was_sent = was_sent


class _Link(threading.local):
    """The connection of this thread and process."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._pid = 0

    def ask(self, payload: bytes) -> _Answer:
        connection = self.connected()
        try:
            self._send(connection, payload)
            answer = _Answer()
            while not answer.is_complete:
                answer.take(*self._receive(connection))
            return answer
        except BaseException:
            self.close()  # the daemon then cancels the query
            raise

    def _send(self, connection: socket.socket, payload: bytes) -> None:
        try:
            connection.sendall(_HEADER.pack(_REQUEST, len(payload)) + payload)
        except OSError:
            raise _Broken(was_sent=False) from None

    def _receive(self, connection: socket.socket) -> tuple[int, bytes]:
        kind, size = _HEADER.unpack(self._read(connection, _HEADER.size))
        if size > MAX_FRAME:
            raise DatabaseError("INTERNAL", "The daemon sent a frame that is too long.")
        return kind, self._read(connection, size)

    def _read(self, connection: socket.socket, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = connection.recv(size - len(data))
            except OSError:
                part = b""
            if not part:
                raise _Broken(was_sent=True)
            data += part
        return bytes(data)

    def connected(self) -> socket.socket:
        if self._socket is not None and (self._pid != os.getpid() or _is_ended(self._socket)):
            self.close()
        if self._socket is None:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                made.connect(ADDRESS)
            except OSError:
                made.close()
                raise _Broken(was_sent=False) from None
            self._socket, self._pid = made, os.getpid()
        return self._socket

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def _is_ended(connection: socket.socket) -> bool:
    """Whether the other end is gone; otherwise a write would be taken for one that may have run."""
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


class _Answer:
    """The answer to one request, as it arrives."""

    def __init__(self) -> None:
        self.is_complete = False
        self._columns: list[Any] = []
        self._lines = bytearray()
        self._end: dict[str, Any] = {}

    def take(self, kind: int, payload: bytes) -> None:
        if kind == _ROWS:
            self._lines += payload
        elif kind == _COLUMNS:
            self._columns = json.loads(payload)
        elif kind == _END:
            self._end, self.is_complete = json.loads(payload), True
        elif kind == _ERROR:
            fields = json.loads(payload)
            reason, message = fields.pop("reason", ""), fields.pop("message", "It failed.")
            raise DatabaseError(reason, message, fields)

    def rows(self) -> Rows:
        names = _unique([column[0] for column in self._columns])
        decoders = [_decoder(column[1]) for column in self._columns]
        rows = Rows()
        for line in self._lines.split(b"\n")[:-1]:
            values = json.loads(line)
            rows.append({n: d(v) for n, d, v in zip(names, decoders, values)})  # noqa: B905
        rows.columns = names
        rows.truncated = self._end.get("truncated") or ""
        rows.changed_rows = self._end.get("changed_rows") or 0
        rows.query_id = self._end.get("query_id") or ""
        return rows


_link = _Link()


def _ask(header: dict[str, Any], body: bytes = b"\0") -> Rows:
    """Send a request, and again if the daemon goes away meanwhile. A change that may have been made
    is not made again: the daemon refuses it, because it is marked as a repetition."""
    deadline = time.monotonic() + RECONNECT_SECONDS
    pause = _FIRST_PAUSE
    fields = {name: value for name, value in header.items() if value}
    while True:
        try:
            return _link.ask(json.dumps(fields).encode() + b"\n" + body).rows()
        except _Broken as broken:
            if broken.was_sent:
                fields["is_repeat"] = True
            if time.monotonic() > deadline:
                raise _gone(is_unknown=bool(fields.get("is_repeat"))) from None
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _gone(*, is_unknown: bool) -> DatabaseError:
    ending = "; a change may have been made or not" if is_unknown else ""
    return DatabaseError(
        "DATA_SOURCE_UNAVAILABLE",
        "The data door does not answer. A session has one if it was opened with data sources, and "
        f"loses it if a command takes its name{ending}.",
    )


# --- values ---


def _encode_params(params: dict[str, Any]) -> bytes:
    return json.dumps(params, default=_plain).encode()


def _plain(value: Any) -> Any:
    """A value that JSON has no type for."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(bytes(value)).decode()}
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, datetime.timedelta):
        return f"{value.total_seconds()} seconds"
    if isinstance(value, (set, frozenset)):
        return list(value)
    if hasattr(value, "item"):  # numbers of NumPy
        return value.item()
    if isinstance(value, (decimal.Decimal, uuid.UUID)):
        return str(value)
    raise TypeError(f"a parameter cannot be of type {type(value).__name__}")


def _unique(names: list[str]) -> list[str]:
    """Columns of the same name get a number: id, id_2."""
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
        if value is None:
            return None
        try:
            return convert(value)
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
    "decimal": _or_text(decimal.Decimal),
    "uuid": _or_text(uuid.UUID),
    "date": _or_text(datetime.date.fromisoformat),
    "time": _or_text(datetime.time.fromisoformat),
    "timestamp": _or_text(lambda text: datetime.datetime.fromisoformat(_six_digits(text))),
    "bytes": _or_text(base64.b64decode),
    "any": _any,
}


def _six_digits(text: str) -> str:
    """Before 3.11, Python reads fractions of three or six digits only."""
    date, dot, rest = text.partition(".")
    if not dot:
        return text
    digits = len(rest) - len(rest.lstrip("0123456789"))
    return f"{date}.{rest[:digits]:0<6.6}{rest[digits:]}"


def _decoder(kind: str) -> Callable[[Any], Any]:
    if not kind.startswith("list of "):
        return _DECODERS.get(kind, _same)
    inner = _decoder(kind[len("list of ") :])

    def decode(value: Any) -> Any:
        return [decode(item) for item in value] if isinstance(value, list) else inner(value)

    return decode
