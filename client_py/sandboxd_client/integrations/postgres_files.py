"""A virtual file system in PostgreSQL; needs the extra `postgres`."""

from __future__ import annotations

import hashlib
from types import TracebackType
from typing import Any

from psycopg import AsyncConnection, Error, sql
from psycopg_pool import AsyncConnectionPool

from sandboxd_client.integrations.virtual_files import VirtualFileError

MAX_FILE_BYTES = 100 << 20
"""Size of the largest file that a workspace accepts."""


class PostgresStore:
    """Files of many owners in one table.

    Connections are opened on demand, at most `max_connections`. `setup` creates the table if it
    does not exist.

    Example:
        async with PostgresStore("postgresql:///agents") as store:
            await store.setup()
            bash = AsyncBashTool(files=lambda conversation: store.files(conversation.user_id))
    """

    def __init__(
        self,
        conninfo: str,
        *,
        table: str = "agent_files",
        max_connections: int = 4,
        connect_timeout: float = 10.0,
        statement_timeout: float = 30.0,
    ) -> None:
        self._table = sql.Identifier(*table.split("."))
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
            conninfo,
            kwargs={
                "connect_timeout": max(1, round(connect_timeout)),
                "options": f"-c statement_timeout={round(statement_timeout * 1000)}",
                "autocommit": True,
            },
            min_size=0,
            max_size=max_connections,
            timeout=connect_timeout,
            open=False,
            name="sandboxd files",
        )

    async def __aenter__(self) -> PostgresStore:
        await self._pool.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._pool.close()

    async def setup(self) -> None:
        """Create the table if it does not exist."""
        await self._run(
            "CREATE TABLE IF NOT EXISTS {table} ("
            " owner text NOT NULL, path text NOT NULL, content bytea NOT NULL,"
            " sha256 text NOT NULL, modified timestamptz NOT NULL DEFAULT now(),"
            " PRIMARY KEY (owner, path))"
        )

    def files(self, owner: str) -> PostgresFiles:
        """The file system of one owner, for example a user; it sees no other owner's files."""
        return PostgresFiles(self, owner)

    async def _run(self, query: str, *values: object) -> list[Any]:
        statement = sql.SQL(query).format(table=self._table)
        try:
            async with self._pool.connection() as connection:
                cursor = await connection.execute(statement, values, binary=True)
                return await cursor.fetchall() if cursor.description is not None else []
        except Error as error:
            raise VirtualFileError(
                "The database of the virtual file system does not answer as expected; try again "
                "later."
            ) from error


class PostgresFiles:
    """The files of one owner; see PostgresStore.

    Example:
        await store.files("ada").write("/data-exports/receipts.json", b"[]")
    """

    def __init__(self, store: PostgresStore, owner: str) -> None:
        self._store = store
        self._owner = owner

    async def read(self, path: str) -> bytes:
        """The content of a file; FileNotFoundError if there is none."""
        return bytes(await self._field("content", path))

    async def digest(self, path: str) -> str:
        """SHA-256 of a file in hexadecimal, without reading it."""
        return str(await self._field("sha256", path))

    async def write(self, path: str, data: bytes) -> None:
        """Create or replace a file."""
        if len(data) > MAX_FILE_BYTES:
            raise VirtualFileError(f"{path} has more than {MAX_FILE_BYTES} bytes.")
        await self._store._run(
            "INSERT INTO {table} (owner, path, content, sha256) VALUES (%s, %s, %s, %s)"
            " ON CONFLICT (owner, path) DO UPDATE SET"
            " content = excluded.content, sha256 = excluded.sha256, modified = now()",
            self._owner,
            path,
            data,
            hashlib.sha256(data).hexdigest(),
        )

    async def list(self) -> list[str]:
        """All paths, sorted."""
        query = 'SELECT path FROM {table} WHERE owner = %s ORDER BY path COLLATE "C"'
        return [path for (path,) in await self._store._run(query, self._owner)]

    async def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        query = "DELETE FROM {table} WHERE owner = %s AND path = %s"
        await self._store._run(query, self._owner, path)

    async def _field(self, name: str, path: str) -> Any:
        query = f"SELECT {name} FROM {{table}} WHERE owner = %s AND path = %s"
        rows = await self._store._run(query, self._owner, path)
        if not rows:
            raise FileNotFoundError(path)
        return rows[0][0]
