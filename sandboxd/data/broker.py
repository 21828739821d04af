"""The data sources of a daemon: who may use which, their queries, and what is recorded."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import structlog

from sandboxd.data.answers import Columns, End, Rows, error_of, fields_of
from sandboxd.data.frames import Kind, Operation, Request
from sandboxd.data.records import LatestQueries, QueryRecord, shortened
from sandboxd.data.source import Source, WorkerSettings
from sandboxd.data.workers import Workers
from sandboxd.errors import (
    DataSourceNotFound,
    SandboxdError,
    TooManyRequests,
    quoted,
)
from sandboxd.tasks import Tasks

log = structlog.get_logger()

PROOF_SECONDS = 30.0


@dataclass
class SourceState:
    """What is known of a source from its queries."""

    source: Source
    workers: Workers
    is_proved: bool = False
    """Whether a query has ended well since the daemon started."""
    problem: str = ""
    """Why its last query could not reach the database; empty if it did."""
    remarks: Sequence[str] = ()
    """What an operator should know of the rights of its login."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """Queries that ended, by outcome."""
    rows: int = 0
    bytes: int = 0


class Broker:
    """Runs queries. Sessions and callers are checked before by whoever calls `run`, except for
    what the configuration says about users."""

    def __init__(
        self,
        sources: Iterable[Source],
        *,
        settings: Callable[[Source], WorkerSettings] | None = None,
    ) -> None:
        make = settings or (lambda source: WorkerSettings(source=source))
        self._states = {
            source.name: SourceState(source, Workers(make(source))) for source in sources
        }
        self._rates: dict[tuple[str, str], deque[float]] = {}
        self._tasks = Tasks()
        self.latest = LatestQueries()
        self.on_query: Callable[[QueryRecord], None] = lambda record: None

    async def __aenter__(self) -> Broker:
        for name in self._states:
            self._tasks.spawn(self._prove(name), f"data-prove-{name}")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._tasks.cancel("data-prove")
        await self._tasks.finish()
        for state in self._states.values():
            await state.workers.aclose()

    async def wait_until_tried(self) -> None:
        """Return once every source was connected to, or could not be."""
        await self._tasks.finish()

    @property
    def states(self) -> Mapping[str, SourceState]:
        return self._states

    def sources_of(self, user_id: str) -> Sequence[SourceState]:
        """Those that a user may use, sorted by name."""
        found = [state for state in self._states.values() if state.source.admits(user_id)]
        return sorted(found, key=lambda state: state.source.name)

    def get(self, name: str, user_id: str) -> SourceState:
        """DataSourceNotFound if there is none of this name that the user may use."""
        state = self._states.get(name)
        if state is None or not state.source.admits(user_id):
            known = ", ".join(found.source.name for found in self.sources_of(user_id))
            raise DataSourceNotFound(
                f"There is no data source {quoted(name)} for this user; "
                + (f"there are {known}." if known else "an operator can set one up."),
                source=name,
            )
        return state

    def check_usable(self, names: Iterable[str], user_id: str) -> None:
        """DataSourceNotFound unless a user may use all of these."""
        for name in names:
            self.get(name, user_id)

    async def run(
        self, request: Request, *, is_from_inside: bool = False
    ) -> AsyncGenerator[Columns | Rows | End, None]:
        """The parts of the answer, the last of which is End. Leaving cancels the query."""
        state = self.get(request.source, request.user_id)
        query_id = secrets.token_hex(8)
        began, started = time.time(), time.monotonic()
        last: Mapping[str, object] = {"reason": "CANCELLED"}
        try:
            self._count(state.source, request.user_id)
            async with aclosing(self._parts(state, request, query_id)) as parts:
                async for part, fields in parts:
                    last = fields or last
                    if isinstance(part, SandboxdError):
                        raise part
                    yield part
        except SandboxdError as error:
            last = {**last, "reason": error.reason}
            raise
        finally:
            sql, digest = shortened(request.sql)
            params = last.get("params")
            record = QueryRecord(
                query_id=query_id,
                started_at=began,
                user_id=request.user_id,
                session_id=request.session_id,
                is_from_inside=is_from_inside,
                source=request.source,
                operation=request.operation,
                sql=sql,
                sql_sha256=digest,
                kind=str(last.get("kind") or ""),
                params=params if isinstance(params, dict) else {},
                rows=_number(last, "rows"),
                bytes=_number(last, "bytes"),
                changed_rows=_number(last, "changed_rows"),
                seconds=time.monotonic() - started,
                outcome=str(last.get("reason") or "OK"),
                truncated=str(last.get("truncated") or ""),
                sqlstate=str(last.get("sqlstate") or ""),
                rule=str(last.get("rule") or ""),
            )
            self._record(state, record)

    async def _parts(
        self, state: SourceState, request: Request, query_id: str = ""
    ) -> AsyncGenerator[
        tuple[Columns | Rows | End | SandboxdError, Mapping[str, object] | None], None
    ]:
        most = state.source.limits.seconds
        frames = state.workers.run(request, min(request.seconds or most, most))
        async with aclosing(frames) as answer:
            async for kind, payload in answer:
                if kind == Kind.COLUMNS:
                    yield Columns(payload), None
                elif kind == Kind.ROWS:
                    yield Rows(payload), None
                else:
                    fields = fields_of(payload)
                    yield self._last(state, kind, fields, query_id), fields

    def _last(
        self, state: SourceState, kind: Kind, fields: Mapping[str, object], query_id: str
    ) -> End | SandboxdError:
        if kind == Kind.ERROR:
            error = error_of(state.source.name, fields)
            is_reached = error.reason != "DATA_SOURCE_UNAVAILABLE"
            state.problem = "" if is_reached else str(fields.get("message", ""))
            return error
        state.problem, state.is_proved = "", True
        remarks = fields.get("remarks")
        state.remarks = [str(text) for text in remarks] if isinstance(remarks, list) else ()
        return End(
            query_id=query_id,
            rows=_number(fields, "rows"),
            bytes=_number(fields, "bytes"),
            changed_rows=_number(fields, "changed_rows"),
            truncated=str(fields.get("truncated") or ""),
            seconds=float(str(fields.get("seconds") or 0)),
        )

    def _count(self, source: Source, user_id: str) -> None:
        """TooManyRequests beyond the source's rate."""
        most = source.limits.user_queries_per_minute
        now = time.monotonic()
        times = self._rates.setdefault((source.name, user_id), deque(maxlen=most))
        if len(times) == most and now - times[0] < 60:
            wait = 60 - (now - times[0])
            raise TooManyRequests(
                f"A user may send {most} queries a minute to the data source {source.name}; try "
                f"again in {wait:.0f} s.",
                retry_after_seconds=wait,
            )
        times.append(now)
        if len(self._rates) > 10_000:
            self._rates = {key: known for key, known in self._rates.items() if now - known[-1] < 60}

    def _record(self, state: SourceState, record: QueryRecord) -> None:
        state.outcomes[record.outcome] += 1
        state.rows += record.rows
        state.bytes += record.bytes
        self.latest.add(record)
        self.on_query(record)

    async def _prove(self, name: str) -> None:
        """Connect once, so that a source with a wrong login is reported at the start."""
        state = self._states[name]
        request = Request(operation=Operation.TABLES, source=name, max_rows=1)
        try:
            async with asyncio.timeout(PROOF_SECONDS):
                async with aclosing(self._parts(state, request)) as parts:
                    async for part, _ in parts:
                        if isinstance(part, SandboxdError):
                            raise part
        except (SandboxdError, TimeoutError) as error:
            state.problem = state.problem or str(error)
            log.error("data.source_not_usable", source=name, why=state.problem)
        else:
            log.info("data.source_ready", source=name, remarks=list(state.remarks))


def _number(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else 0
