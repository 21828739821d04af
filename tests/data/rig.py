"""A database as operators have it, with a reader and a writer, and a broker on it."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psycopg

from sandboxd.data.answers import Columns, End, Rows
from sandboxd.data.broker import Broker
from sandboxd.data.frames import Request
from sandboxd.data.source import Engine, Limits, Source, WorkerSettings
from tests.integrations.postgres_cluster import running_cluster

TABLES = """
CREATE TABLE users (
  id serial PRIMARY KEY, name text NOT NULL, email text, salary int,
  created_at timestamptz DEFAULT now()
);
INSERT INTO users (name, email, salary)
  SELECT 'user ' || i, 'u' || i || '@example.com', i FROM generate_series(1, 1000) i;
CREATE TABLE documents (
  id serial PRIMARY KEY, title text, content text, processed bool NOT NULL DEFAULT false,
  owner_id int REFERENCES users (id)
);
COMMENT ON TABLE documents IS 'What users wrote';
INSERT INTO documents (title, content, owner_id)
  SELECT 'title ' || i, 'Write to u' || i || '@example.com or call 555-123-4567', i
  FROM generate_series(1, 100) i;
CREATE TABLE secrets (token text);
INSERT INTO secrets VALUES ('the-secret-token');
CREATE SEQUENCE seq1;
CREATE FUNCTION f_write() RETURNS int LANGUAGE sql AS
  $$INSERT INTO documents (title) VALUES ('f_write') RETURNING id$$;
CREATE FUNCTION f_definer() RETURNS int LANGUAGE sql SECURITY DEFINER AS
  $$INSERT INTO documents (title) VALUES ('f_definer') RETURNING id$$;
CREATE FUNCTION f_rw_definer() RETURNS int LANGUAGE plpgsql SECURITY DEFINER AS
  $$BEGIN
    PERFORM set_config('transaction_read_only', 'off', false);
    INSERT INTO documents (title) VALUES ('f_rw_definer');
    RETURN 1;
  END$$;
CREATE FUNCTION row_write(users) RETURNS int LANGUAGE sql SECURITY DEFINER AS
  $$INSERT INTO documents (title) VALUES ('row_write') RETURNING id$$;
CREATE TABLE user_activities (user_id int, action text, timestamp timestamptz DEFAULT now());
INSERT INTO user_activities (user_id, action)
  SELECT i % 7, (ARRAY['login', 'search', 'logout'])[i % 3 + 1] FROM generate_series(1, 200) i;
INSERT INTO user_activities VALUES (99, 'login', now() - INTERVAL '8 days');
CREATE TABLE pipeline_input (id int, content text);
INSERT INTO pipeline_input VALUES (1, 'a'), (2, 'bb'), (3, NULL), (4, ''), (5, 'eeeee'), (6, 'f');
CREATE TABLE events (n int);
CREATE EXTENSION dblink;
CREATE ROLE reader LOGIN;
CREATE ROLE writer LOGIN;
GRANT SELECT ON users, documents, user_activities, pipeline_input, events TO reader, writer;
GRANT INSERT ON events TO writer;
GRANT UPDATE (processed) ON documents TO writer;
"""
STATE = {
    "tables": "SELECT json_agg(x::text ORDER BY x::text) FROM "
    "(SELECT oid::regclass, relkind, relacl FROM pg_class "
    "WHERE relnamespace = 'public'::regnamespace OR relpersistence = 't') x",
    "users": "SELECT count(*)::text || md5(string_agg(u::text, ',' ORDER BY id)) FROM users u",
    "documents": "SELECT count(*) || md5(string_agg(d::text, ',' ORDER BY id)) FROM documents d",
    "secrets": "SELECT string_agg(token, ',') FROM secrets",
    "sequence": "SELECT last_value::text || is_called FROM seq1",
    "large objects": "SELECT count(*)::text FROM pg_largeobject_metadata",
    "roles": "SELECT string_agg(r::text, ',' ORDER BY rolname) FROM pg_roles r",
    "advisory locks": "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory'",
    "left transactions": "SELECT count(*)::text FROM pg_stat_activity "
    "WHERE usename IN ('reader', 'writer') AND state NOT IN ('idle', 'active')",
    "settings": "SELECT count(*)::text FROM pg_db_role_setting",
}
LIMITS = Limits(seconds=2.0, rows=1000, bytes=1_000_000, changed_rows=20, user_connections=4)


@dataclass
class Database:
    """A PostgreSQL server with the tables above."""

    admin: str
    """Connection string of a superuser."""
    directory: Path
    """Where statements try to leave files; the server may write there."""
    source: Source = field(init=False)

    def __post_init__(self) -> None:
        self.source = Source(
            name="app",
            engine=Engine.POSTGRESQL,
            dsn=self.as_("reader"),
            description="Users and their documents",
            limits=LIMITS,
        )

    def as_(self, role: str) -> str:
        return self.admin.replace("user=tests", f"user={role}")

    @property
    def writable(self) -> Source:
        return replace(
            self.source,
            name="docs",
            write_dsn=self.as_("writer"),
            writes=("public.documents", "public.events"),
        )

    def execute(self, sql: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.admin, autocommit=True) as connection:
            cursor = connection.execute(sql)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    def state(self) -> dict[str, Any]:
        """What another connection sees."""
        with psycopg.connect(self.admin, autocommit=True) as connection:
            found = {
                name: connection.execute(sql).fetchone()  # type: ignore[arg-type]
                for name, sql in STATE.items()
            }
        return {**found, "files": sorted(os.listdir(self.directory))}


@contextmanager
def running_database(directory: Path) -> Iterator[Database]:
    with running_cluster() as admin:
        Path(admin.split()[0].removeprefix("host=")).chmod(0o711)  # workers run as nobody
        directory.chmod(0o777)
        database = Database(admin, directory)
        database.execute(TABLES)
        yield database


def sqlite_file(directory: Path) -> Path:
    path = directory / "app.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """
            CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT);
            CREATE TABLE documents (id INTEGER PRIMARY KEY, title TEXT, processed INT DEFAULT 0);
            CREATE TABLE log (entry TEXT);
            CREATE TABLE watched (id INTEGER PRIMARY KEY, x INT);
            CREATE TRIGGER w AFTER UPDATE ON watched BEGIN INSERT INTO log VALUES ('w'); END;
            CREATE TABLE secrets (token TEXT);
            INSERT INTO secrets VALUES ('the-secret-token');
            INSERT INTO watched VALUES (1, 1);
            """
        )
        connection.executemany(
            "INSERT INTO users (name) VALUES (?)", [(f"user {i}",) for i in range(1000)]
        )
        connection.executemany(
            "INSERT INTO documents (title) VALUES (?)", [(f"title {i}",) for i in range(50)]
        )
    connection.close()
    return path


def sqlite_source(path: Path, **changes: Any) -> Source:
    source = Source(
        name="lite",
        engine=Engine.SQLITE,
        dsn=str(path),
        tables=("users", "documents", "watched"),
        limits=LIMITS,
    )
    return replace(source, **changes)


@dataclass
class Answer:
    """A whole answer."""

    columns: list[tuple[str, str, str]]
    rows: list[list[Any]]
    end: End

    @property
    def value(self) -> Any:
        assert len(self.rows) == 1
        return self.rows[0][0]


@asynccontextmanager
async def broker_of(*sources: Source, is_checked: bool = True) -> AsyncIterator[Broker]:
    def settings(source: Source) -> WorkerSettings:
        return WorkerSettings(source=source, is_checked=is_checked)

    async with Broker(sources, settings=settings) as broker:
        await broker.wait_until_tried()
        yield broker


async def ask(
    broker: Broker, sql: str, params: Mapping[str, Any] | None = None, **fields: Any
) -> Answer:
    fields.setdefault("source", next(iter(broker.states)))
    fields.setdefault("user_id", "ada")
    request = Request(
        sql=sql.encode(), params=json.dumps(params).encode() if params else b"", **fields
    )
    columns, data, end = [], bytearray(), None
    async with aclosing(broker.run(request)) as parts:
        async for part in parts:
            match part:
                case Columns():
                    columns = json.loads(part.json)
                case Rows():
                    data += part.json_lines
                case End():
                    end = part
    assert end is not None
    return Answer(columns, [json.loads(line) for line in data.split(b"\n")[:-1]], end)
