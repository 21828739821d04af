"""The data sources of the configuration, and the doors that lead to them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from weakref import WeakValueDictionary

from sandboxd.config import Config, DataSourceTable
from sandboxd.daemon.instance import StartRefused
from sandboxd.data.broker import Broker
from sandboxd.data.door import MAX_CONNECTIONS, NAME, VARIABLE, DataDoor
from sandboxd.data.source import Engine, Limits, Source
from sandboxd.doors.door import Abstract, Door
from sandboxd.registry.contract import SessionRecord
from sandboxd.sessions.journal import Journal

MAX_DSN_BYTES = 16 << 10
_READABLE_BY_OTHERS = 0o004


async def open_broker(config: Config, journal: Journal, stack: AsyncExitStack) -> Broker:
    """StartRefused if a connection string cannot be read."""
    sources = [_source(name, table) for name, table in config.data_sources.items()]
    broker = Broker(sources)
    broker.on_query = journal.on_query
    return await stack.enter_async_context(broker)


class _Sources:
    """The data sources that a session has now. Its doors hold it."""

    def __init__(self) -> None:
        self.names: Sequence[str] = ()


class DataDoors:
    """Gives a data door to sessions that asked for data sources."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._sources: WeakValueDictionary[str, _Sources] = WeakValueDictionary()
        """Of sessions with doors, by session id."""

    def check_usable(self, data_sources: Sequence[str], user_id: str) -> None:
        self._broker.check_usable(data_sources, user_id)

    def doors_of(self, record: SessionRecord) -> Sequence[Door]:
        # An open door goes on with the sources that were added to its session.
        sources = self._sources.get(record.session_id) or _Sources()
        sources.names = record.data_sources
        if not record.data_sources:
            return ()
        self._sources[record.session_id] = sources
        door = DataDoor(
            self._broker,
            user_id=record.user_id,
            session_id=record.session_id,
            sources=lambda: sources.names,
        )
        return [
            Door(
                name="data",
                address=Abstract(NAME),
                serve=door.serve,
                max_connections=MAX_CONNECTIONS,
                env={VARIABLE: "1"},
            )
        ]


def _source(name: str, table: DataSourceTable) -> Source:
    return Source(
        name=name,
        engine=Engine(table.engine),
        dsn=str(table.path) if table.path else _dsn(name, table.dsn_file, table.dsn_env),
        write_dsn=_dsn(name, table.write_dsn_file, table.write_dsn_env) if table.writes else "",
        description=table.description,
        users=tuple(table.users),
        schemas=tuple(table.schemas),
        tables=tuple(table.tables),
        functions=tuple(table.functions),
        writes=tuple(table.writes),
        log_values=table.log_values,
        limits=Limits(
            seconds=table.seconds,
            rows=table.rows,
            bytes=table.bytes,
            changed_rows=table.changed_rows,
            connections=table.connections,
            user_connections=table.user_connections,
            queued=table.queued,
            user_queries_per_minute=table.user_queries_per_minute,
        ),
    )


def _dsn(name: str, file: Path | None, variable: str) -> str:
    """A connection string; empty for an SQLite source, which has a second one only in name."""
    if file is not None:
        return _read(name, file)
    if not variable:
        return ""
    try:
        return os.environ[variable]
    except KeyError:
        raise StartRefused(
            f"the data source {name} has its connection string in the variable {variable}, which "
            "is not set"
        ) from None


def _read(name: str, file: Path) -> str:
    try:
        mode = file.stat().st_mode
        text = file.read_text()[:MAX_DSN_BYTES].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartRefused(f"the data source {name}: cannot read {file} ({error})") from error
    if mode & _READABLE_BY_OTHERS:
        raise StartRefused(
            f"the data source {name}: everyone can read {file}, which contains a password; "
            f"chmod 600 {file}"
        )
    return text
