"""The data door of one session: queries from inside of its sandbox."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace

from sandboxd.data.answers import Columns, End, Rows
from sandboxd.data.broker import Broker
from sandboxd.data.frames import (
    HEADER,
    MAX_REQUEST_BYTES,
    Kind,
    Operation,
    Request,
    decode_request,
    frame,
)
from sandboxd.errors import DataSourceNotFound, InvalidRequest, SandboxdError, quoted

NAME = "sandboxd-data"
"""The abstract name inside of the sandbox."""
VARIABLE = "SANDBOXD_DATA_DOOR"
"""By it `sandboxd-sql` knows a session whose daemon is being restarted from one without a door."""
MAX_CONNECTIONS = 8
WATCH_SECONDS = 0.02
"""How long a query runs before it is watched whether the sandbox still wants it."""
REQUEST_SECONDS = 30.0
"""How long the rest of a request may take once it has begun."""
WRITE_BYTES = 32 << 10
READ_SECONDS = 60.0
"""How long the sandbox may take to read a part of an answer."""
SOURCE_COLUMNS = (
    ("name", "text", ""),
    ("description", "text", ""),
    ("engine", "text", ""),
    ("writes", "json", ""),
)


class DataDoor:
    """Serves the connections of one session. A connection has one query at a time."""

    def __init__(
        self,
        broker: Broker,
        *,
        user_id: str,
        session_id: str,
        sources: Callable[[], Sequence[str]],
    ) -> None:
        """With the names of the sources that the session may use now."""
        self._broker = broker
        self._user_id = user_id
        self._session_id = session_id
        self._sources = sources

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        headers = _Headers(reader)
        try:
            while True:
                kind, size = HEADER.unpack(await headers.next())
                if kind == Kind.CANCEL and not size:  # of a query that had ended
                    continue
                if kind != Kind.REQUEST or size > MAX_REQUEST_BYTES:
                    _write_error(writer, InvalidRequest("request", "it is unknown or too long"))
                    return
                async with asyncio.timeout(REQUEST_SECONDS):
                    payload = await reader.readexactly(size)
                if not await self._answer(payload, headers, writer):
                    return
                await _drain(writer)
        except (EOFError, TimeoutError, OSError):
            return
        finally:
            await headers.aclose()

    async def _answer(
        self, payload: bytes, headers: _Headers, writer: asyncio.StreamWriter
    ) -> bool:
        """False if the connection is of no more use."""
        is_sent = asyncio.Event()
        with headers.watched(unless=is_sent) as watch:
            try:
                await self._send(payload, writer, is_sent)
            except asyncio.CancelledError:
                if not watch.ended_by_header():
                    raise
                if watch.header is None:
                    return False
                # Nothing but a cancel may arrive before the answer ends.
                _write_error(writer, _cancelled())
                return watch.header[0] == Kind.CANCEL
        return True

    async def _send(
        self, payload: bytes, writer: asyncio.StreamWriter, is_sent: asyncio.Event
    ) -> None:
        """Set the event with the last part: then the next request may arrive at any time."""
        try:
            request = self._checked(decode_request(payload))
            if request.operation == Operation.SOURCES:
                self._write_sources(writer)
                return
            await self._send_parts(request, writer, is_sent)
        except SandboxdError as error:
            _write_error(writer, error)

    async def _send_parts(
        self, request: Request, writer: asyncio.StreamWriter, is_sent: asyncio.Event
    ) -> None:
        """A short answer is one write."""
        pending: list[bytes] = []
        async with aclosing(self._broker.run(request, is_from_inside=True)) as parts:
            async for part in parts:
                pending.append(_encoded(part))
                if isinstance(part, End) or sum(map(len, pending)) >= WRITE_BYTES:
                    if isinstance(part, End):
                        is_sent.set()
                    writer.write(b"".join(pending))
                    pending.clear()
                    await _drain(writer)

    def _checked(self, request: Request) -> Request:
        """What the sandbox says of user and session is replaced by what is so."""
        allowed = self._sources()
        source = request.source or (allowed[0] if len(allowed) == 1 else "")
        if request.operation != Operation.SOURCES and source not in allowed:
            known = ", ".join(allowed)
            raise DataSourceNotFound(
                f"This session has no data source {quoted(source)}; it has {known}. Others have to "
                "be asked for when it is opened."
                if source
                else f"Name the data source: this session has {known}.",
                source=source,
            )
        return replace(request, source=source, user_id=self._user_id, session_id=self._session_id)

    def _write_sources(self, writer: asyncio.StreamWriter) -> None:
        allowed = self._sources()
        known = [
            state.source
            for state in self._broker.sources_of(self._user_id)
            if state.source.name in allowed
        ]
        rows = [
            [source.name, source.description, source.engine.value, list(source.writes)]
            for source in known
        ]
        lines = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
        writer.write(_encoded(Columns(json.dumps(SOURCE_COLUMNS).encode())))
        writer.write(_encoded(Rows(lines)))
        end = _encoded(
            End(
                query_id="",
                rows=len(rows),
                bytes=len(lines),
                changed_rows=0,
                truncated="",
                seconds=0,
            ),
        )
        writer.write(end)


async def _drain(writer: asyncio.StreamWriter) -> None:
    """Wait for a sandbox that reads slowly; one that reads costs nothing."""
    if writer.transport.get_write_buffer_size() > WRITE_BYTES:
        async with asyncio.timeout(READ_SECONDS):
            await writer.drain()


def _encoded(part: Columns | Rows | End) -> bytes:
    if isinstance(part, Rows):
        return frame(Kind.ROWS, part.json_lines)
    if isinstance(part, Columns):
        return frame(Kind.COLUMNS, part.json)
    fields = {
        "query_id": part.query_id,
        "rows": part.rows,
        "changed_rows": part.changed_rows,
        "truncated": part.truncated,
    }
    return frame(Kind.END, json.dumps(fields).encode())


def _write_error(writer: asyncio.StreamWriter, error: SandboxdError) -> None:
    fields = {**error.metadata, "reason": error.reason, "message": error.message}
    writer.write(frame(Kind.ERROR, json.dumps(fields).encode()))


def _cancelled() -> SandboxdError:
    return InvalidRequest("request", "the query was cancelled")


class _Headers:
    """Headers of requests on one connection. While a query runs the next one is waited for, so that
    a sandbox that leaves meanwhile cancels its query; but not at once, as most queries end soon."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._ahead: asyncio.Task[bytes] | None = None

    async def next(self) -> bytes:
        if self._ahead is None:
            return await self._reader.readexactly(HEADER.size)
        ahead, self._ahead = self._ahead, None
        return await ahead

    @contextmanager
    def watched(self, *, unless: asyncio.Event) -> Iterator[_Watch]:
        """Cancel the current task when a header arrives, or the end, unless the event is set."""
        watch = _Watch(unless)

        def look() -> None:
            self._ahead = asyncio.ensure_future(self._reader.readexactly(HEADER.size))
            self._ahead.add_done_callback(watch.on_header)

        timer = asyncio.get_running_loop().call_later(WATCH_SECONDS, look)
        try:
            yield watch
        finally:
            timer.cancel()
            if self._ahead is not None:
                self._ahead.remove_done_callback(watch.on_header)

    async def aclose(self) -> None:
        """End what waits, and leave nothing of it behind."""
        if self._ahead is not None:
            self._ahead.cancel()
            await asyncio.wait([self._ahead])
            if not self._ahead.cancelled():
                self._ahead.exception()


class _Watch:
    """Ends a task by the header of the next request."""

    def __init__(self, unless: asyncio.Event) -> None:
        self._unless = unless
        self._task = asyncio.current_task()
        self._has_cancelled = False
        self.header: bytes | None = None
        """None if the connection ended instead."""

    def on_header(self, arrived: asyncio.Future[bytes]) -> None:
        if self._unless.is_set() or self._task is None or arrived.cancelled():
            return
        self.header = None if arrived.exception() is not None else arrived.result()
        self._has_cancelled = True
        self._task.cancel()

    def ended_by_header(self) -> bool:
        """Whether the task was cancelled by this, and by nothing else. Takes it back."""
        if not self._has_cancelled or self._task is None:
            return False
        self._has_cancelled = False
        return self._task.uncancel() == 0
