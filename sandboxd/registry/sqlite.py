"""The registry of one daemon, in a SQLite file of its state directory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path

import aiosqlite

from sandboxd.registry.contract import ExecutionRecord, SessionRecord, SessionState

_SCHEMA = """
PRAGMA journal_mode = WAL;
-- A crash of the process loses nothing; a power cut may lose the newest sessions, whose sandboxes
-- it has ended anyway.
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
  unmoved_project_id TEXT NOT NULL DEFAULT ''
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
  refused_forks INTEGER
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
}
"""What a file of an earlier release may lack."""
_COLUMNS = (
    "session_id, user_id, thread_id, state, incarnation, created_at, changed_at, idle_seconds, "
    "metadata, end_reason, disk_id, uid, sandbox_id, env, project_id, unmoved_project_id"
)


_PLACES = ", ".join("?" * len(_COLUMNS.split(",")))
_EXECUTION_FIELDS = ExecutionRecord._fields[:-1]
"""All but the place, which the database gives."""


async def _add_missing_columns(connection: aiosqlite.Connection) -> None:
    async with connection.execute("PRAGMA table_info(sessions)") as rows:
        present = {row[1] async for row in rows}
    for name, definition in _LATER_COLUMNS.items():
        if name not in present:
            await connection.execute(f"ALTER TABLE sessions ADD COLUMN {name} {definition}")
    if "disk_uid" in present and "uid" not in present:
        await connection.execute("UPDATE sessions SET uid = disk_uid")


def _create_private(path: Path) -> None:
    """Who talks to whom is nobody else's business."""
    path.touch(mode=0o600)


class RegistryUnusable(Exception):
    """The file cannot be used as a registry; the text says why."""


class SqliteRegistry:
    """Implements `Registry`. Use `open`."""

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, path: Path) -> SqliteRegistry:
        """RegistryUnusable if the file is damaged or not ours."""
        _create_private(path)
        connection = await aiosqlite.connect(path, isolation_level=None)
        try:
            await connection.executescript(_SCHEMA)
            await _add_missing_columns(connection)
        except BaseException as error:
            await connection.close()  # its thread would keep the process alive
            if isinstance(error, sqlite3.Error):
                raise RegistryUnusable(str(error)) from error
            raise
        return cls(connection)

    async def load(self) -> Sequence[SessionRecord]:
        query = f"SELECT {_COLUMNS} FROM sessions ORDER BY created_at, session_id"
        async with self._connection.execute(query) as rows:
            return [
                SessionRecord(
                    session_id=row[0],
                    user_id=row[1],
                    thread_id=row[2],
                    state=SessionState(row[3]),
                    incarnation=row[4],
                    created_at=row[5],
                    changed_at=row[6],
                    idle_seconds=row[7],
                    metadata=json.loads(row[8]),
                    end_reason=row[9],
                    disk_id=row[10],
                    uid=row[11],
                    sandbox_id=row[12],
                    env=json.loads(row[13]),
                    project_id=row[14],
                    unmoved_project_id=row[15],
                )
                async for row in rows
            ]

    async def save(self, record: SessionRecord) -> None:
        await self._connection.execute(
            f"INSERT OR REPLACE INTO sessions ({_COLUMNS}) VALUES ({_PLACES})",
            (
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
            ),
        )

    async def forget(self, session_ids: Collection[str]) -> None:
        for table in ("sessions", "executions"):
            await self._connection.executemany(
                f"DELETE FROM {table} WHERE session_id = ?", [(one,) for one in session_ids]
            )

    async def add_executions(
        self, records: Sequence[ExecutionRecord], *, per_session: int, in_all: int
    ) -> None:
        # One statement, so one transaction: nobody else's save waits in it for its end.
        row = f"({', '.join('?' * len(_EXECUTION_FIELDS))})"
        await self._connection.execute(
            f"INSERT INTO executions ({', '.join(_EXECUTION_FIELDS)}) VALUES "
            + ", ".join([row] * len(records)),
            [value for record in records for value in record[:-1]],
        )
        for session_id in {record.session_id for record in records}:
            await self._connection.execute(
                "DELETE FROM executions WHERE session_id = ?1 AND place <= (SELECT place FROM "
                "executions WHERE session_id = ?1 ORDER BY place DESC LIMIT 1 OFFSET ?2)",
                (session_id, per_session),
            )
        await self._connection.execute(
            "DELETE FROM executions WHERE place <= (SELECT max(place) FROM executions) - ?",
            (in_all,),
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

    async def aclose(self) -> None:
        await self._connection.close()
