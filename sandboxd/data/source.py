"""A data source: a database under a name, with what may be done in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

ANYONE = "*"


class Engine(StrEnum):
    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds of queries."""

    seconds: float = 10.0
    rows: int = 10_000
    bytes: int = 10_000_000
    changed_rows: int = 1_000
    """Rows that one statement may change."""
    connections: int = 4
    user_connections: int = 2
    """How many of the connections one user can have at the same time."""
    queued: int = 64
    """Queries that wait for a connection; more are refused."""
    user_queries_per_minute: int = 6_000


@dataclass(frozen=True, kw_only=True)
class Source:
    """A database that sessions can query. The connection strings stay in the daemon and its
    workers: they are not part of what is printed."""

    name: str
    engine: Engine
    dsn: str = field(repr=False)
    """Connection string of PostgreSQL, or path of an SQLite file."""
    write_dsn: str = field(default="", repr=False)
    description: str = ""
    users: Sequence[str] = (ANYONE,)
    schemas: Sequence[str] = ("public",)
    tables: Sequence[str] = ()
    functions: Sequence[str] = ()
    writes: Sequence[str] = ()
    log_values: bool = False
    limits: Limits = field(default_factory=Limits)

    def admits(self, user_id: str) -> bool:
        return ANYONE in self.users or user_id in self.users


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What a worker gets to know of its source."""

    source: Source
    memory_bytes: int = 400 << 20
    """Address space that a worker may have beyond what it starts with."""
    is_checked: bool = True
    """Only tests switch the check off, to see what the database holds without it."""

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, payload: bytes) -> WorkerSettings:
        fields: dict[str, Any] = json.loads(payload)
        source = fields.pop("source")
        limits = Limits(**source.pop("limits"))
        engine = Engine(source.pop("engine"))
        return cls(source=Source(engine=engine, limits=limits, **source), **fields)
