"""What statements of SQLite may do: the authorizer, which SQLite asks for each part of a statement
when it compiles it, and the limits of a connection."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

MAX_SQL_BYTES = 64 << 10
MAX_VALUE_BYTES = 10_000_000
PROGRESS_STEPS = 10_000
_PRAGMAS = frozenset({"table_info", "table_xinfo", "foreign_key_list", "index_list"})
_SCHEMA_TABLES = frozenset({"sqlite_master", "sqlite_schema"})
_FUNCTIONS = frozenset(
    re.findall(
        r"\S+",
        """
    abs avg ceil ceiling changes char coalesce concat concat_ws cos acos asin atan atan2 sin tan
    count cume_dist current_date current_time current_timestamp date datetime degrees dense_rank
    exp first_value floor glob group_concat hex ifnull iif instr json json_array json_array_length
    json_each json_error_position json_extract json_group_array json_group_object json_insert
    json_object json_patch json_pretty json_quote json_remove json_replace json_set json_tree
    json_type json_valid julianday lag last_value lead length like likelihood likely ln log log10
    log2 lower ltrim max min mod nth_value ntile nullif octet_length percent_rank pi pow power quote
    radians random rank regexp replace round row_number rtrim sign sqlite_version sqrt strftime
    string_agg substr substring sum time timediff total trim trunc typeof unhex unicode unixepoch
    unlikely upper -> ->>
    """,
    )
)
"""Functions that statements may call. printf, format, randomblob and zeroblob are not among them:
they make large values without asking whether time is up."""
_TABLE_FUNCTIONS = frozenset({"json_each", "json_tree"})
_HARMLESS = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE})
_WRITES = {
    sqlite3.SQLITE_INSERT: "INSERT",
    sqlite3.SQLITE_UPDATE: "UPDATE",
    sqlite3.SQLITE_DELETE: "DELETE",
}
_NAMES = {
    code: name.removeprefix("SQLITE_")
    for name, code in vars(sqlite3).items()
    if name.startswith(
        ("SQLITE_CREATE", "SQLITE_DROP", "SQLITE_ALTER", "SQLITE_ATTACH", "SQLITE_DETACH")
    )
    or name in ("SQLITE_PRAGMA", "SQLITE_TRANSACTION", "SQLITE_SAVEPOINT", "SQLITE_ANALYZE")
    or name in ("SQLITE_REINDEX", "SQLITE_FUNCTION", "SQLITE_READ")
}


class Guard:
    """The authorizer of one connection. `refusal` is the first thing that it refused."""

    def __init__(
        self, tables: Sequence[str], functions: Sequence[str], writes: Sequence[str]
    ) -> None:
        self._tables = frozenset(tables)
        self._functions = _FUNCTIONS | frozenset(functions)
        self._writes = frozenset(writes)
        self._existing: frozenset[str] = frozenset()
        self._modules: frozenset[str] = frozenset()
        self.is_open = False
        """Whether it lets everything pass, for statements of ours."""
        self.refusal: tuple[str, str, str] | None = None
        """Its rule, word and sentence."""
        self.write_target = ""
        """A table that the refused statement wants to change."""

    def learn(self, connection: sqlite3.Connection) -> None:
        """Read which tables there are: any other name is that of a query in the statement."""
        before, self.is_open = self.is_open, True
        try:
            self._existing = _names(connection, "SELECT name FROM main.sqlite_master")
            self._modules = self._modules or _names(connection, "PRAGMA module_list")
        finally:
            self.is_open = before

    def reset(self) -> None:
        self.refusal = None
        self.write_target = ""

    def __call__(
        self,
        action: int,
        first: str | None,
        second: str | None,
        database: str | None,
        _: str | None,
    ) -> int:
        if self.is_open or action in _HARMLESS or self._allows(action, first or "", second or ""):
            return sqlite3.SQLITE_OK
        if self.refusal is None:
            self.refusal = self._explain(action, first or "", second or "")
            if action in _WRITES:
                self.write_target = first or ""
        return sqlite3.SQLITE_DENY

    def _allows(self, action: int, first: str, second: str) -> bool:
        if action == sqlite3.SQLITE_READ:
            return self.is_readable(first)
        if action == sqlite3.SQLITE_FUNCTION:
            return second.lower() in self._functions
        if action == sqlite3.SQLITE_PRAGMA:
            return first in _PRAGMAS
        if action in _WRITES:
            return first in self._writes
        return False

    def is_readable(self, table: str) -> bool:
        if table in _SCHEMA_TABLES:
            return True
        if table.startswith("pragma_"):
            return table.removeprefix("pragma_") in _PRAGMAS
        if table in self._existing:
            return not self._tables or table in self._tables
        if table in self._modules or table.startswith("sqlite_"):
            return table in _TABLE_FUNCTIONS
        return True

    def _explain(self, action: int, first: str, second: str) -> tuple[str, str, str]:
        if action == sqlite3.SQLITE_READ:
            return "RELATION", first, f"this source has no table {first}"
        if action == sqlite3.SQLITE_FUNCTION:
            advice = "an operator can add it to `functions` of this source"
            return (
                "FUNCTION",
                second,
                f"{second} is not a function that statements may call; {advice}",
            )
        if action in _WRITES:
            known = ", ".join(sorted(self._writes))
            may = f"this source accepts changes of {known}" if known else "this source is read-only"
            return "KIND", first, f"{_WRITES[action]} is not allowed on {first}: {may}"
        word = _NAMES.get(action, "this").replace("_", " ")
        return "KIND", word, f"{word} is not allowed; this source runs SELECT, VALUES and EXPLAIN"


def connect(path: str, guard: Guard, *, is_writer: bool) -> sqlite3.Connection:
    """A connection on which the guard is asked; sqlite3.Error if there is no such file."""
    mode = "rw" if is_writer else "ro"
    address = f"file:{quote(str(Path(path).absolute()))}?mode={mode}"
    connection = sqlite3.connect(
        address, uri=True, isolation_level=None, cached_statements=0, timeout=2
    )
    pragmas = ["trusted_schema=0", "cell_size_check=1", "temp_store=2", "mmap_size=0"]
    if not is_writer:
        pragmas.append("query_only=1")
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}")
    _limit(connection)
    connection.set_authorizer(guard)
    return connection


def _names(connection: sqlite3.Connection, sql: str) -> frozenset[str]:
    return frozenset(row[0] for row in connection.execute(sql))


def _limit(connection: sqlite3.Connection) -> None:
    limits = {
        sqlite3.SQLITE_LIMIT_LENGTH: MAX_VALUE_BYTES,
        sqlite3.SQLITE_LIMIT_SQL_LENGTH: MAX_SQL_BYTES,
        sqlite3.SQLITE_LIMIT_ATTACHED: 0,
        sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
        sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
        sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
        sqlite3.SQLITE_LIMIT_VDBE_OP: 250_000,
        sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 10,
        sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
    }
    for limit, value in limits.items():
        connection.setlimit(limit, value)
