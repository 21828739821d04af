"""Sessions and history of one daemon, in a SQLite file of its state directory."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import aiosqlite
import structlog

from sandboxd.errors import StateNotSaved
from sandboxd.registry.contract import (
    SOLE_OWNER,
    ExecutionFigures,
    ExecutionRecord,
    Fence,
    SessionRecord,
    SessionState,
)
from sandboxd.registry.copies import RecordCopies, tuple_or_none

log = structlog.get_logger()

VERSION = 2
"""Version of the tables, kept in the file. Files of the first releases have 0."""
_SCHEMA = """
PRAGMA journal_mode = WAL;
-- A crash of the process loses nothing; a power cut may lose the newest sessions, whose sandboxes
-- it ends anyway.
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS sessions (
  session_id TEXT PRIMARY KEY,
  user_id TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  state TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  created_at REAL NOT NULL,
  changed_at REAL NOT NULL,
  idle_seconds REAL NOT NULL,
  metadata TEXT NOT NULL,
  end_reason TEXT NOT NULL,
  disk_id TEXT NOT NULL DEFAULT '',
  uid INTEGER NOT NULL DEFAULT 0,
  sandbox_id TEXT NOT NULL DEFAULT '',
  env TEXT NOT NULL DEFAULT '{}',
  project_id TEXT NOT NULL DEFAULT '',
  unmoved_project_id TEXT NOT NULL DEFAULT '',
  environment TEXT NOT NULL DEFAULT 'default',
  project TEXT NOT NULL DEFAULT '',
  packages TEXT NOT NULL DEFAULT '[]',
  env_vars TEXT NOT NULL DEFAULT '{}',
  command_policy TEXT NOT NULL DEFAULT '',
  package_set TEXT NOT NULL DEFAULT '',
  data_sources TEXT NOT NULL DEFAULT '[]',
  auto_snapshot TEXT NOT NULL DEFAULT 'off',
  park_seconds REAL NOT NULL DEFAULT 0,
  parked_number INTEGER NOT NULL DEFAULT 0,
  restored_number INTEGER NOT NULL DEFAULT 0,
  restore_request TEXT NOT NULL DEFAULT '',
  forked_from TEXT NOT NULL DEFAULT '',
  fork_request TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE TABLE IF NOT EXISTS executions (
  place INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL,
  incarnation INTEGER NOT NULL,
  exec_id TEXT NOT NULL,
  command TEXT NOT NULL,
  started_at REAL NOT NULL,
  duration_seconds REAL NOT NULL,
  ending TEXT NOT NULL,
  code INTEGER,
  signal INTEGER,
  hint TEXT NOT NULL,
  stdin_bytes INTEGER NOT NULL,
  stdout_bytes INTEGER NOT NULL,
  stderr_bytes INTEGER NOT NULL,
  stdout_dropped INTEGER NOT NULL,
  stderr_dropped INTEGER NOT NULL,
  cpu_seconds REAL,
  peak_memory_bytes INTEGER,
  peak_processes INTEGER,
  oom_kills INTEGER,
  refused_forks INTEGER,
  context TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX IF NOT EXISTS executions_of_a_session ON executions (session_id, place);
"""
_LATER_COLUMNS = {
    "disk_id": "TEXT NOT NULL DEFAULT ''",
    "uid": "INTEGER NOT NULL DEFAULT 0",
    "sandbox_id": "TEXT NOT NULL DEFAULT ''",
    "env": "TEXT NOT NULL DEFAULT '{}'",
    "project_id": "TEXT NOT NULL DEFAULT ''",
    "unmoved_project_id": "TEXT NOT NULL DEFAULT ''",
    "environment": "TEXT NOT NULL DEFAULT 'default'",
    "project": "TEXT NOT NULL DEFAULT ''",
    "packages": "TEXT NOT NULL DEFAULT '[]'",
    "env_vars": "TEXT NOT NULL DEFAULT '{}'",
    "command_policy": "TEXT NOT NULL DEFAULT ''",
    "package_set": "TEXT NOT NULL DEFAULT ''",
    "data_sources": "TEXT NOT NULL DEFAULT '[]'",
    "auto_snapshot": "TEXT NOT NULL DEFAULT 'off'",
    "park_seconds": "REAL NOT NULL DEFAULT 0",
    "parked_number": "INTEGER NOT NULL DEFAULT 0",
    "restored_number": "INTEGER NOT NULL DEFAULT 0",
    "restore_request": "TEXT NOT NULL DEFAULT ''",
    "forked_from": "TEXT NOT NULL DEFAULT ''",
    "fork_request": "TEXT NOT NULL DEFAULT ''",
    "egress": "TEXT NOT NULL DEFAULT 'null'",
    "epoch": "INTEGER NOT NULL DEFAULT 0",
    "disk_uid": "INTEGER NOT NULL DEFAULT 0",
}
"""Columns that a file of an earlier release may lack."""
_COLUMNS = (
    "session_id, user_id, thread_id, state, incarnation, created_at, changed_at, idle_seconds, "
    "metadata, end_reason, disk_id, uid, sandbox_id, env, project_id, unmoved_project_id, "
    "environment, project, packages, env_vars, command_policy, package_set, data_sources, "
    "auto_snapshot, park_seconds, parked_number, restored_number, restore_request, forked_from, "
    "fork_request, egress, epoch, disk_uid"
)
_PLACES = ", ".join("?" * len(_COLUMNS.split(",")))
_SAVE = f"INSERT OR REPLACE INTO sessions ({_COLUMNS}) VALUES ({_PLACES})"
_EXECUTION_FIELDS = ExecutionRecord._fields[:-1]
"""All but the place, which the database assigns."""
_ENDS = "SELECT ending, count(*) FROM executions GROUP BY ending"
_TOTALS = (
    "SELECT min(started_at), coalesce(sum(ending = 'EXITED' AND code = 0), 0), "
    "coalesce(avg(duration_seconds), 0), coalesce(max(duration_seconds), 0) FROM executions"
)
_RANKED = (
    "SELECT rank, duration_seconds FROM (SELECT duration_seconds, "
    "row_number() OVER (ORDER BY duration_seconds) AS rank FROM executions)"
)
LOCKED_SECONDS = 2.0
"""How long a write waits while another process has locked the file."""
QUEUE_SECONDS = 2 * LOCKED_SECONDS
"""How long a write waits for the writes before it."""


async def _add_missing_columns(connection: aiosqlite.Connection) -> None:
    async with connection.execute("PRAGMA table_info(sessions)") as rows:
        present = {row[1] async for row in rows}
    for name, definition in _LATER_COLUMNS.items():
        if name not in present:
            await connection.execute(f"ALTER TABLE sessions ADD COLUMN {name} {definition}")
    async with connection.execute("PRAGMA table_info(executions)") as rows:
        if "context" not in {row[1] async for row in rows}:
            await connection.execute(
                "ALTER TABLE executions ADD COLUMN context TEXT NOT NULL DEFAULT ''"
            )
    if "disk_uid" in present and "uid" not in present:
        await connection.execute("UPDATE sessions SET uid = disk_uid")


def _create_private(path: Path) -> None:
    """Create a file that only the daemon's user may read: it names users and their threads."""
    if not path.exists():
        path.touch(mode=0o600)


class RegistryUnusable(Exception):
    """The file cannot be used as a registry; the text says why."""


class RegistryTooNew(RegistryUnusable):
    """A newer release has written the file, which stays as it is."""

    def __init__(self, version: int) -> None:
        super().__init__(f"it has version {version}, and this release knows only up to {VERSION}")


class SqliteRegistry:
    """Implements `SessionRegistry` and `HistoryStore`. Use `open`.

    The file has one owner, so every fence is the latest. A damaged file is moved aside, at the
    start and later, and replaced by a new one with the records of the copies. At the start, records
    that a file lacks are restored from them too: it may be empty, missing, or from a backup.
    """

    def __init__(self, path: Path, copies: RecordCopies, connection: aiosqlite.Connection) -> None:
        self._path = path
        self._copies = copies
        self._connection = connection
        self._writing = asyncio.Lock()

    @classmethod
    async def open(cls, path: Path) -> SqliteRegistry:
        """RegistryUnusable if the file cannot be opened, or stays locked for too long."""
        try:
            copies = RecordCopies(path.with_suffix(".copies"))
            try:
                connection = await _connect(path)
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                connection = await _replace_damaged(path, copies, error)
            outdated = await _restore_missing(connection, copies)
        except (OSError, sqlite3.Error) as error:
            raise RegistryUnusable(str(error)) from error
        registry = cls(path, copies, connection)
        if outdated:
            await registry._renew_copies(outdated)
        return registry

    async def _renew_copies(self, session_ids: Collection[str]) -> None:
        """The daemon before was killed after it had written these records, and before their
        copies."""
        for record in await self.load():
            if record.session_id in session_ids:
                self._copies.save(record)

    async def load(self) -> Sequence[SessionRecord]:
        query = f"SELECT {_COLUMNS} FROM sessions ORDER BY created_at, session_id"
        async with self._connection.execute(query) as rows:
            found = [self._record(row) async for row in rows]
        return [record for record in found if record is not None]

    def _record(self, row: sqlite3.Row) -> SessionRecord | None:
        try:
            return SessionRecord(
                session_id=row[0],
                user_id=row[1],
                thread_id=row[2],
                state=SessionState(row[3]),
                incarnation=row[4],
                created_at=row[5],
                changed_at=row[6],
                idle_seconds=row[7],
                metadata=_parsed(row[8]),
                end_reason=row[9],
                disk_id=row[10],
                uid=row[11],
                sandbox_id=row[12],
                env=_parsed(row[13]),
                project_id=row[14],
                unmoved_project_id=row[15],
                environment=row[16],
                project=row[17],
                packages=tuple(_parsed(row[18])),
                env_vars=_parsed(row[19]),
                command_policy=row[20],
                package_set=row[21],
                data_sources=tuple(_parsed(row[22])),
                auto_snapshot=row[23],
                park_seconds=row[24],
                parked_number=row[25],
                restored_number=row[26],
                restore_request=row[27],
                forked_from=row[28],
                fork_request=row[29],
                egress=tuple_or_none(_parsed(row[30])),
                epoch=row[31],
                disk_uid=row[32],
            )
        except ValueError as error:
            log.error("registry.row_unreadable", session_id=row[0], error=str(error))
            return self._copies.find(row[0])

    # --- sessions ---

    async def save(self, record: SessionRecord, *, fence: Fence = SOLE_OWNER) -> None:
        await self._write(_SAVE, [_values(record)])
        self._copies.save(record)

    async def delete(self, session_ids: Collection[str]) -> None:
        for table in ("sessions", "executions"):
            statement = f"DELETE FROM {table} WHERE session_id = ?"
            await self._write(statement, [(session_id,) for session_id in session_ids])
        self._copies.delete(session_ids)

    # --- history ---

    async def add_executions(
        self, records: Sequence[ExecutionRecord], *, per_session: int, in_all: int
    ) -> None:
        # One statement, so one transaction: no other write becomes part of it.
        row = f"({', '.join('?' * len(_EXECUTION_FIELDS))})"
        await self._write(
            f"INSERT INTO executions ({', '.join(_EXECUTION_FIELDS)}) VALUES "
            + ", ".join([row] * len(records)),
            [[value for record in records for value in record[:-1]]],
        )
        await self._write(
            "DELETE FROM executions WHERE session_id = ?1 AND place <= (SELECT place FROM "
            "executions WHERE session_id = ?1 ORDER BY place DESC LIMIT 1 OFFSET ?2)",
            [(session_id, per_session) for session_id in {record.session_id for record in records}],
        )
        await self._write(
            "DELETE FROM executions WHERE place <= (SELECT max(place) FROM executions) - ?",
            [(in_all,)],
        )

    async def executions(
        self, session_id: str, *, size: int, before: int | None
    ) -> list[ExecutionRecord]:
        query = (
            f"SELECT {', '.join(_EXECUTION_FIELDS)}, place FROM executions "
            "WHERE session_id = ? AND place < ? ORDER BY place DESC LIMIT ?"
        )
        last = before if before is not None else 1 << 62
        async with self._connection.execute(query, (session_id, last, size)) as rows:
            return [ExecutionRecord(*row) async for row in rows]

    async def execution_figures(self, quantiles: Sequence[float]) -> ExecutionFigures:
        # It reads the whole table: on a second connection, no save waits for that.
        async with aiosqlite.connect(self._path, timeout=LOCKED_SECONDS) as connection:
            await connection.execute("BEGIN")  # all queries see the same state
            ends = {row[0]: row[1] for row in await connection.execute_fetchall(_ENDS)}
            count = sum(ends.values())
            ranks = {part: max(1, math.ceil(part * count)) for part in quantiles}
            marks = ", ".join("?" * len(ranks))
            ranked = await connection.execute_fetchall(
                f"{_RANKED} WHERE rank IN ({marks})", tuple(ranks.values())
            )
            seconds = {row[0]: float(row[1]) for row in ranked}
            ((first, succeeded, mean, longest),) = await connection.execute_fetchall(_TOTALS)
        return ExecutionFigures(
            first_started_at=first,
            ends=ends,
            succeeded=succeeded,
            mean_seconds=mean,
            longest_seconds=longest,
            quantiles={part: seconds.get(rank, 0.0) for part, rank in ranks.items()},
        )

    # --- the file ---

    async def ping(self) -> None:
        try:
            await self._connection.execute_fetchall("SELECT 1")
        except sqlite3.Error as error:
            log.warning("registry.not_well", error=str(error))

    async def aclose(self) -> None:
        await self._connection.close()

    async def _write(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """StateNotSaved, with nothing changed, if it cannot be written now."""
        try:
            # One at a time: in the queue of the connection, which has no limit, each would wait for
            # a locked file after all those before it have.
            async with asyncio.timeout(QUEUE_SECONDS):
                await self._writing.acquire()
        except TimeoutError as error:
            raise _not_saved() from error
        try:
            await self._write_or_replace_damaged(statement, rows)
        except sqlite3.Error as error:
            log.error("registry.not_written", error=str(error))
            raise _not_saved() from error
        finally:
            self._writing.release()

    async def _write_or_replace_damaged(
        self, statement: str, rows: Sequence[Sequence[object]]
    ) -> None:
        try:
            await self._execute(statement, rows)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            await self._connection.close()
            self._connection = await _replace_damaged(self._path, self._copies, error)
            await self._execute(statement, rows)

    async def _execute(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        if len(rows) == 1:
            await self._connection.execute(statement, rows[0])
        else:
            await self._connection.executemany(statement, rows)


def _parsed(text: str) -> Any:
    """A value of JSON. Most are empty, and a daemon may have thousands of records to read before it
    serves."""
    if text == "{}":
        return {}
    if text == "[]":
        return []
    return None if text == "null" else json.loads(text)


async def _connect(path: Path) -> aiosqlite.Connection:
    _create_private(path)
    connection = await aiosqlite.connect(path, isolation_level=None, timeout=LOCKED_SECONDS)
    try:
        version = await _version(connection)
        await connection.executescript(_SCHEMA)
        await _add_missing_columns(connection)
        if version != VERSION:  # or a start would need room on the disk
            await connection.execute(f"PRAGMA user_version = {VERSION}")
        async with connection.execute("PRAGMA quick_check(1)") as rows:
            verdict = await rows.fetchone()
        if verdict is None or verdict[0] != "ok":
            raise _Damaged(str(verdict))
    except BaseException:
        await connection.close()  # its thread would keep the process alive
        raise
    return connection


async def _version(connection: aiosqlite.Connection) -> int:
    async with connection.execute("PRAGMA user_version") as rows:
        row = await rows.fetchone()
    version = int(row[0]) if row is not None else 0
    if version > VERSION:
        raise RegistryTooNew(version)
    return version


async def _restore_missing(
    connection: aiosqlite.Connection, copies: RecordCopies
) -> Collection[str]:
    """Restore the records of copies that are newer than their rows, or have none. A save writes
    the row first, so the file has lost them. Returns the sessions whose copies are older."""
    try:
        async with connection.execute("SELECT session_id, changed_at FROM sessions") as rows:
            saved_at = {row[0]: row[1] async for row in rows}
        copied = copies.load()
        missing = [
            record
            for record in copied
            if record.changed_at > saved_at.get(record.session_id, -math.inf)
        ]
        if missing:
            await connection.executemany(_SAVE, [_values(record) for record in missing])
    except BaseException:
        await connection.close()
        raise
    if missing:
        log.error("registry.incomplete", sessions_restored=len(missing), sessions=len(saved_at))
    return {
        record.session_id
        for record in copied
        if record.changed_at < saved_at.get(record.session_id, -math.inf)
    }


async def _replace_damaged(
    path: Path, copies: RecordCopies, error: sqlite3.Error
) -> aiosqlite.Connection:
    """Move a damaged file aside and fill a new one with the records of the copies."""
    aside = f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}"
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(path.with_name(aside + suffix))
    connection = await _connect(path)
    records = copies.load()
    await connection.executemany(_SAVE, [_values(record) for record in records])
    log.error("registry.damaged", error=str(error), kept_as=aside, sessions_restored=len(records))
    return connection


class _Damaged(sqlite3.DatabaseError):
    """The file can be read, but SQLite's check of it fails."""


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    codes = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return isinstance(error, _Damaged) or getattr(error, "sqlite_errorcode", 0) & 0xFF in codes


def _not_saved() -> StateNotSaved:
    return StateNotSaved(
        "The daemon cannot write to its registry, so nothing was changed; try again in a few "
        "seconds. If it happens again, an operator should check the daemon's log and the free "
        "space of its disk.",
        retry_after_seconds=2.0,
    )


def _values(record: SessionRecord) -> Sequence[object]:
    return (
        record.session_id,
        record.user_id,
        record.thread_id,
        record.state.value,
        record.incarnation,
        record.created_at,
        record.changed_at,
        record.idle_seconds,
        json.dumps(dict(record.metadata)),
        record.end_reason,
        record.disk_id,
        record.uid,
        record.sandbox_id,
        json.dumps(dict(record.env)),
        record.project_id,
        record.unmoved_project_id,
        record.environment,
        record.project,
        json.dumps(list(record.packages)),
        json.dumps(dict(record.env_vars)),
        record.command_policy,
        record.package_set,
        json.dumps(list(record.data_sources)),
        record.auto_snapshot,
        record.park_seconds,
        record.parked_number,
        record.restored_number,
        record.restore_request,
        record.forked_from,
        record.fork_request,
        json.dumps(record.egress),
        record.epoch,
        record.disk_uid,
    )
