"""The registry of one daemon, in a SQLite file of its state directory."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from pathlib import Path

import aiosqlite

from sandboxd.registry.contract import SessionRecord, SessionState

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
        await self._connection.executemany(
            "DELETE FROM sessions WHERE session_id = ?", [(one,) for one in session_ids]
        )

    async def aclose(self) -> None:
        await self._connection.close()
