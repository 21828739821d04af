"""The data door against clients that do not keep to the rules."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.data import door as data_door
from sandboxd.data.broker import Broker
from sandboxd.data.door import NAME, DataDoor
from sandboxd.data.frames import HEADER, MAX_REQUEST_BYTES, Kind, Request, frame
from sandboxd.data.records import QueryRecord
from sandboxd.doors import door as doors
from sandboxd.doors import relay
from sandboxd.doors.door import Abstract, OpenDoor
from sandboxd.guest.code import database as inside
from sandboxd.guest.code import sql_command
from tests.data.rig import LIMITS, broker_of, sqlite_file, sqlite_source

ENDLESS = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r) SELECT count(*) FROM r"


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def ask(self, sql: str, **fields: object) -> None:
        request = Request(sql=sql.encode(), **fields)  # type: ignore[arg-type]
        self.send(frame(Kind.REQUEST, request.encode()))

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The kind and the fields of the last frame, and the rows before it."""
        rows = b""
        async with asyncio.timeout(30):
            while True:
                kind, size = HEADER.unpack(await self.reader.readexactly(HEADER.size))
                payload = await self.reader.readexactly(size)
                if kind in (Kind.END, Kind.ERROR):
                    return kind, json.loads(payload), rows
                rows += payload if kind == Kind.ROWS else b""


class Door:
    def __init__(self, broker: Broker, path: Path) -> None:
        self.broker = broker
        self.path = path
        self.records: list[QueryRecord] = []
        broker.on_query = self.records.append

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        reader, writer = await asyncio.open_unix_connection(self.path)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Door]:
    path = sqlite_file(tmp_path)
    limits = replace(LIMITS, seconds=60.0)
    sources = [sqlite_source(path, limits=limits), sqlite_source(path, name="other")]
    async with broker_of(*sources) as broker:
        served = DataDoor(broker, user_id="ada", session_id="ses_1", sources=lambda: ("lite",))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "door"))
        listener.listen()
        listener.setblocking(False)
        opened = OpenDoor(doors.Door(name="data", address=Abstract(NAME), serve=served.serve))
        await opened.start(listener)
        yield Door(broker, tmp_path / "door")
        opened.close()
        async with asyncio.timeout(30):
            while opened.connections:
                await asyncio.sleep(0.01)


async def test_queries_one_after_the_other(door: Door) -> None:
    """On one connection, with errors in between; the session is who it is, whatever is sent."""
    async with door.client() as client:
        for sql, outcome in (("SELECT 1", Kind.END), ("DROP TABLE users", Kind.ERROR)) * 2:
            client.ask(sql, user_id="root", session_id="another")
            kind, fields, rows = await client.answer()
            assert kind == outcome, fields
            assert rows == (b"[1]\n" if kind == Kind.END else b"")
    assert {(record.user_id, record.session_id) for record in door.records} == {("ada", "ses_1")}
    assert all(record.is_from_inside for record in door.records)


async def test_a_source_that_was_not_asked_for(door: Door) -> None:
    """Exists for the user, and not for this session."""
    async with door.client() as client:
        client.ask("SELECT 1", source="other")
        _, fields, _ = await client.answer()
        assert fields["reason"] == "DATA_SOURCE_NOT_FOUND"
        client.ask("", operation="sources")
        _, _, rows = await client.answer()
        assert json.loads(rows)[0] == "lite"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n" * 10,
        HEADER.pack(Kind.REQUEST, MAX_REQUEST_BYTES + 1),
        HEADER.pack(Kind.SETTINGS, 4) + b"null",
        HEADER.pack(Kind.READY, 0),
        os.urandom(4096).replace(bytes([Kind.REQUEST]), b"\xff"),
    ],
    ids=["http", "long", "settings", "ready", "random"],
)
async def test_what_is_no_request_ends_the_connection(door: Door, data: bytes) -> None:
    """With an error, or without a word; the next connection works."""
    async with door.client() as client:
        client.send(data)
        client.writer.write_eof()
        async with asyncio.timeout(30):
            await client.reader.read()
    async with door.client() as client:
        client.ask("SELECT 1")
        assert (await client.answer())[0] == Kind.END


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\n",
        b"[]\n\0",
        b"{" * 4000 + b"\n\0",
        b'{"max_rows": -1}\nSELECT 1\0',
        b'{"max_rows": true}\nSELECT 1\0',
        b'{"seconds": 1e999}\nSELECT 1\0',
        b'{"operation": "settings"}\n\0',
        b'{"source": ["lite"]}\nSELECT 1\0',
        b"{}\nSELECT \xff\0",
        b"{}\nSELECT :a\0[1]",
        b"{}\nSELECT :a\0" + b"[" * 100_000,
        b"{}\nSELECT :a\0{}",
        b"{}\n" + b"x" * 70_000 + b"\0",
    ],
)
async def test_a_bad_request_is_answered(door: Door, payload: bytes) -> None:
    """With an error of the API, and the connection goes on."""
    async with door.client() as client:
        client.send(frame(Kind.REQUEST, payload))
        kind, fields, _ = await client.answer()
        assert kind == Kind.ERROR
        assert fields["reason"] in ("INVALID_REQUEST", "QUERY_FAILED")
        client.ask("SELECT 1")
        assert (await client.answer())[0] == Kind.END


async def test_who_leaves_frees_the_worker(door: Door) -> None:
    """Whether it closes, sends a cancel, or sends a second request too early."""
    turns = door.broker.states["lite"].workers.turns
    for way in ("close", "cancel", "pipeline"):
        async with door.client() as client:
            client.ask(ENDLESS)
            async with asyncio.timeout(30):
                while not turns.used:
                    await asyncio.sleep(0.01)
            if way == "cancel":
                client.send(frame(Kind.CANCEL))
                assert (await client.answer())[0] == Kind.ERROR
                client.ask("SELECT 1")
                assert (await client.answer())[0] == Kind.END
            elif way == "pipeline":
                client.ask("SELECT 1")
                assert (await client.answer())[0] == Kind.ERROR
        async with asyncio.timeout(30):
            while turns.used:
                await asyncio.sleep(0.01)
    assert [record.outcome for record in door.records if record.sql == ENDLESS] == ["CANCELLED"] * 3


async def test_the_client_of_sandboxes(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocking calls, as code in a sandbox makes them: rows, duplicate names, bytes, errors."""
    monkeypatch.setattr(inside, "ADDRESS", str(door.path))

    def work() -> None:
        rows = inside.db_query("SELECT 1 AS a, 2 AS a, x'00ff' AS b")
        assert rows == [{"a": 1, "a_2": 2, "b": b"\x00\xff"}]
        assert rows.columns == ["a", "a_2", "b"]
        assert [table["name"] for table in inside.db_tables()] == ["documents", "users", "watched"]
        schema = inside.db_schema("users")
        assert inside.has_door()
        assert str(schema) == "users(id INTEGER pk, name TEXT)"
        with pytest.raises(
            inside.DatabaseError, match="users: this source is read-only"
        ) as refused:
            inside.db_query("DELETE FROM users")
        assert (refused.value.reason, refused.value.details["rule"]) == (
            *("STATEMENT_NOT_ALLOWED", "KIND"),
        )
        with pytest.raises(inside.DatabaseError, match="no table"):
            inside.db_schema("secrets")
        with pytest.raises(TypeError):
            inside.db_query("SELECT :a", {"a": object()})
        inside._link.close()

    await asyncio.to_thread(work)


async def test_the_command_without_a_door(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says at once what is missing; it waits only for a daemon that is being restarted."""
    monkeypatch.setattr(inside, "ADDRESS", str(tmp_path / "missing"))
    monkeypatch.setattr(inside, "RECONNECT_SECONDS", 0.0)
    monkeypatch.delenv(data_door.VARIABLE, raising=False)
    assert sql_command.main(["SELECT 1"]) == 1
    assert "data_sources=" in capsys.readouterr().err

    monkeypatch.setenv(data_door.VARIABLE, "1")
    assert sql_command.main(["SELECT 1"]) == 1
    assert "does not answer" in capsys.readouterr().err


async def test_a_client_that_does_not_read_its_errors_is_ended(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are not piled up in the daemon's memory."""
    monkeypatch.setattr(data_door, "READ_SECONDS", 0.2)
    monkeypatch.setattr(relay, "FINISH_SECONDS", 0.2)
    async with door.client() as client:
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(100_000):
                client.ask("SELECT 1", source="x" * 100)
                await client.writer.drain()
