"""The index of projects: which files they have, in a SQLite file.

Not safe to use from two threads at once; its owner has a lock.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from sandboxd.projects.records import Project, ProjectFile, ProjectKey, Usage

log = structlog.get_logger()

VERSION = 1
"""Version of the tables, kept in the file."""
LOCKED_SECONDS = 2.0
_SCHEMA = """
CREATE TABLE IF NOT EXISTS projects (
  place INTEGER PRIMARY KEY,
  user_id TEXT NOT NULL,
  project_id TEXT NOT NULL,
  directory TEXT NOT NULL UNIQUE,
  created_at REAL NOT NULL,
  files INTEGER NOT NULL DEFAULT 0,
  size INTEGER NOT NULL DEFAULT 0,
  UNIQUE (user_id, project_id)
) STRICT;
CREATE TABLE IF NOT EXISTS files (
  project INTEGER NOT NULL REFERENCES projects (place),
  key TEXT NOT NULL,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  size INTEGER NOT NULL,
  mime_type TEXT NOT NULL,
  created_at REAL NOT NULL,
  PRIMARY KEY (project, key)
) STRICT;
CREATE INDEX IF NOT EXISTS files_by_digest ON files (digest);
CREATE TRIGGER IF NOT EXISTS file_added AFTER INSERT ON files BEGIN
  UPDATE projects SET files = files + 1, size = size + new.size WHERE place = new.project;
END;
CREATE TRIGGER IF NOT EXISTS file_deleted AFTER DELETE ON files BEGIN
  UPDATE projects SET files = files - 1, size = size - old.size WHERE place = old.project;
END;
"""
_PROJECT = "user_id, project_id, directory, created_at, files, size"
_FILE = "name, digest, size, mime_type, created_at"
_OF_PROJECT = "(SELECT place FROM projects WHERE user_id = ? AND project_id = ?)"


class IndexTooNew(Exception):
    """A newer release has written the file, which stays as it is."""


class Index:
    """Rows about projects and files. Every method may raise sqlite3.Error."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> Index:
        """A damaged file is moved aside, and a new one begun."""
        if not path.exists():
            path.touch(mode=0o600)  # it names users and their files
        try:
            return cls(_connect(path))
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise
            aside = f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}"
            for suffix in ("", "-wal", "-shm"):
                part = path.with_name(path.name + suffix)
                if part.exists():
                    part.rename(path.with_name(aside + suffix))
            log.error("projects.index_damaged", error=str(error), kept_as=aside)
        path.touch(mode=0o600)
        return cls(_connect(path))

    def close(self) -> None:
        self._connection.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes in the block, or none."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    # --- projects ---

    def projects(self) -> Sequence[Project]:
        rows = self._connection.execute(f"SELECT {_PROJECT} FROM projects")
        return [_project(row) for row in rows]

    def project(self, key: ProjectKey) -> Project | None:
        query = f"SELECT {_PROJECT} FROM projects WHERE user_id = ? AND project_id = ?"
        row = self._connection.execute(query, key).fetchone()
        return _project(row) if row else None

    def page_of_projects(self, user_id: str, after: str, size: int) -> Sequence[Project]:
        query = (
            f"SELECT {_PROJECT} FROM projects WHERE user_id = ? AND project_id > ? "
            "ORDER BY project_id LIMIT ?"
        )
        return [_project(row) for row in self._connection.execute(query, (user_id, after, size))]

    def add_project(self, project: Project) -> None:
        self._connection.execute(
            "INSERT INTO projects (user_id, project_id, directory, created_at) VALUES (?, ?, ?, ?)",
            (*project.key, project.directory, project.created_at),
        )

    def delete_project(self, key: ProjectKey) -> None:
        self._connection.execute(f"DELETE FROM files WHERE project = {_OF_PROJECT}", key)
        self._connection.execute("DELETE FROM projects WHERE user_id = ? AND project_id = ?", key)

    def usage(self, user_id: str) -> Usage:
        projects, files, size = self._connection.execute(
            "SELECT count(*), coalesce(sum(files), 0), coalesce(sum(size), 0) FROM projects "
            "WHERE user_id = ?",
            (user_id,),
        ).fetchone()
        return Usage(projects, files, size, stored=0)

    def stored_bytes(self, user_id: str) -> int:
        """Bytes of all content that the files of a user have, each once."""
        (size,) = self._connection.execute(
            "SELECT coalesce(sum(size), 0) FROM (SELECT DISTINCT digest, files.size FROM files "
            "JOIN projects ON project = place WHERE user_id = ?)",
            (user_id,),
        ).fetchone()
        return int(size)

    # --- files ---

    def file(self, key: ProjectKey, file_key: str) -> ProjectFile | None:
        query = f"SELECT {_FILE} FROM files WHERE project = {_OF_PROJECT} AND key = ?"
        row = self._connection.execute(query, (*key, file_key)).fetchone()
        return ProjectFile(*row) if row else None

    def files(self, key: ProjectKey, after: str = "", size: int = -1) -> Sequence[ProjectFile]:
        """Files in the order of their keys, from after this one; all with a size of -1."""
        query = (
            f"SELECT {_FILE} FROM files WHERE project = {_OF_PROJECT} AND key > ? "
            "ORDER BY key LIMIT ?"
        )
        return [ProjectFile(*row) for row in self._connection.execute(query, (*key, after, size))]

    def put_file(self, key: ProjectKey, file_key: str, file: ProjectFile) -> None:
        """Add it, in place of one with this key."""
        self.delete_file(key, file_key)
        self._connection.execute(
            f"INSERT INTO files (project, key, {_FILE}) VALUES ({_OF_PROJECT}, ?, ?, ?, ?, ?, ?)",
            (*key, file_key, *file),
        )

    def delete_file(self, key: ProjectKey, file_key: str) -> None:
        self._connection.execute(
            f"DELETE FROM files WHERE project = {_OF_PROJECT} AND key = ?", (*key, file_key)
        )

    def names_digest(self, user_id: str, digest: str) -> bool:
        """Whether a file of the user has this content."""
        row = self._connection.execute(
            "SELECT 1 FROM files JOIN projects ON project = place WHERE digest = ? AND user_id = ? "
            "LIMIT 1",
            (digest, user_id),
        ).fetchone()
        return row is not None

    def digests(self, user_id: str) -> set[str]:
        rows = self._connection.execute(
            "SELECT DISTINCT digest FROM files JOIN projects ON project = place WHERE user_id = ?",
            (user_id,),
        )
        return {row[0] for row in rows}


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        path, timeout=LOCKED_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        # One process uses the file, so no memory has to be shared, which would need a file too.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise IndexTooNew(f"it has version {version}, and this release knows up to {VERSION}")
        connection.execute("PRAGMA journal_mode = WAL")
        # An acknowledged upload survives a power cut.
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(_SCHEMA)
        if version != VERSION:
            connection.execute(f"PRAGMA user_version = {VERSION}")
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            error = sqlite3.DatabaseError(verdict)
            error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise error
    except BaseException:
        connection.close()
        raise
    return connection


def _project(row: Sequence[object]) -> Project:
    user_id, project_id, directory, created_at, files, size = row
    return Project(
        key=ProjectKey(str(user_id), str(project_id)),
        directory=str(directory),
        created_at=created_at,  # type: ignore[arg-type]  # the table is strict
        files=files,  # type: ignore[arg-type]
        size=size,  # type: ignore[arg-type]
    )
