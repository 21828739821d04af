"""The registry in its SQLite file."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from sandboxd.errors import StateNotSaved
from sandboxd.registry import sqlite
from sandboxd.registry.contract import SessionRecord, SessionState
from sandboxd.registry.copies import RecordCopies
from sandboxd.registry.sqlite import RegistryTooNew, SqliteRegistry
from tests.unit.test_history_store import an_execution
from tests.unit.test_session_registry import a_record


async def test_answered_save_is_there_for_the_next_process(short_dir: Path) -> None:
    """A record outlives the connection, and even one that is not closed."""
    path = short_dir / "kept.sqlite"
    first = await SqliteRegistry.open(path)
    await first.save(a_record())
    second = await SqliteRegistry.open(path)

    assert await second.load() == [a_record()]
    for registry in (first, second):
        await registry.aclose()


async def test_file_of_an_earlier_release_gets_what_it_lacks(short_dir: Path) -> None:
    """Sessions of a file without disks and environments are still there, with no disk and in the
    default environment."""
    path = short_dir / "old.sqlite"
    with closing(sqlite3.connect(path)) as old, old:
        old.execute(
            "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, user_id TEXT NOT NULL, thread_id "
            "TEXT NOT NULL, state TEXT NOT NULL, incarnation INTEGER NOT NULL, created_at REAL NOT "
            "NULL, changed_at REAL NOT NULL, idle_seconds REAL NOT NULL, metadata TEXT NOT NULL, "
            "end_reason TEXT NOT NULL) STRICT"
        )
        old.execute("INSERT INTO sessions VALUES ('s', 'u', 't', 'lost', 1, 1, 1, 1, '{}', 'x')")
    registry = await SqliteRegistry.open(path)
    (record,) = await registry.load()
    await registry.save(replace(record, disk_id="d", uid=7, environment="other"))
    (saved,) = await registry.load()
    await registry.aclose()

    assert (record.session_id, record.disk_id, record.uid) == ("s", "", 0)
    assert record.environment == "default"
    assert (saved.disk_id, saved.uid, saved.environment) == ("d", 7, "other")


async def test_copies_of_an_earlier_release_are_of_the_default_environment(short_dir: Path) -> None:
    """A registry that is made anew from them loses no session."""
    fields = asdict(a_record())
    for later in ("environment", "packages", "env_vars", "command_policy"):
        del fields[later]
    (short_dir / "ses_1.json").write_text(json.dumps(fields))

    assert RecordCopies(short_dir).find("ses_1") == replace(
        a_record(), environment="default", packages=(), env_vars={}, command_policy=""
    )


async def test_copy_is_the_record(short_dir: Path) -> None:
    """Field by field, also where JSON has only lists."""
    copies = RecordCopies(short_dir)
    copies.save(a_record())

    assert copies.load() == [a_record()]


OPEN_AND_END = """
import asyncio, sys
from pathlib import Path
from sandboxd.registry.sqlite import RegistryUnusable, SqliteRegistry
try:
    asyncio.run(SqliteRegistry.open(Path(sys.argv[1])))
except RegistryUnusable as error:
    kept = error
"""


async def test_file_that_cannot_be_opened_does_not_keep_the_process_alive(short_dir: Path) -> None:
    """After a failed open no thread is left that the end of the process would wait for."""
    path = short_dir / "broken.sqlite"
    path.mkdir()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", OPEN_AND_END, path)
    try:
        assert await asyncio.wait_for(process.wait(), 5.0) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_deleting_a_session_deletes_its_executions(registry: SqliteRegistry) -> None:
    """The history of a session is deleted with it, and with no other."""
    for session_id in ("ses_1", "ses_2"):
        await registry.add_executions([an_execution(1, session_id)], per_session=5, in_all=9)
    await registry.delete(["ses_1"])

    assert await registry.executions("ses_1", size=9, before=None) == []
    assert len(await registry.executions("ses_2", size=9, before=None)) == 1


def damage(path: Path, how: str) -> None:
    if how == "no database":
        path.write_bytes(b"this is not a database, but long enough to look like one" * 200)
    elif how == "cut off":
        os.truncate(path, 5000)
    else:
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(os.urandom(8192))


def without_files(number: int) -> SessionRecord:
    closed = a_record(number, SessionState.CLOSED)
    return replace(closed, project_id="", unmoved_project_id="")


def moved_aside(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.damaged-*"))


@pytest.mark.parametrize("how", ["no database", "cut off", "pages overwritten"])
async def test_damaged_file_is_moved_aside_and_made_anew_from_the_copies(
    how: str, short_dir: Path
) -> None:
    """What sandboxes and disks depend on is there again, and the damaged file is kept."""
    path = short_dir / "registry.sqlite"
    first = await SqliteRegistry.open(path)
    active = [a_record(number) for number in range(1, 40)]
    kept = replace(a_record(40, SessionState.LOST), disk_id="d", uid=7)
    for record in (*active, kept, without_files(41), without_files(1)):
        await first.save(record)
    await first.aclose()
    damage(path, how)

    second = await SqliteRegistry.open(path)
    found = await second.load()
    await second.save(a_record(50))
    await second.aclose()

    assert found == [*active[1:], kept]
    (aside,) = moved_aside(short_dir)
    assert aside.stat().st_size > 0


def lose(path: Path, how: str) -> None:
    if how == "removed":
        path.unlink()
    elif how == "emptied":
        path.write_bytes(b"")
    else:
        with closing(sqlite3.connect(path)) as other:
            statement = "DROP TABLE sessions" if how == "no table" else "DELETE FROM sessions"
            other.execute(statement)
            other.commit()


@pytest.mark.parametrize("how", ["removed", "emptied", "no table", "no rows"])
async def test_file_without_sessions_gets_those_of_the_copies(how: str, short_dir: Path) -> None:
    """A file that is empty although there are copies has lost its content."""
    path = short_dir / "registry.sqlite"
    first = await SqliteRegistry.open(path)
    for number in (1, 2):
        await first.save(a_record(number))
    await first.aclose()
    lose(path, how)

    second = await SqliteRegistry.open(path)
    found = await second.load()
    await second.aclose()

    assert found == [a_record(1), a_record(2)]


async def test_file_from_a_backup_gets_what_is_newer_in_the_copies(short_dir: Path) -> None:
    """Records that it lacks and later incarnations are restored; what it has newer stays."""
    path = short_dir / "registry.sqlite"
    first = await SqliteRegistry.open(path)
    await first.save(a_record(1))
    await first.aclose()
    backup = path.read_bytes()
    second = await SqliteRegistry.open(path)
    later = replace(a_record(1), incarnation=2, changed_at=a_record(1).changed_at + 1)
    for record in (later, a_record(2)):
        await second.save(record)
    await second.aclose()
    path.write_bytes(backup)

    third = await SqliteRegistry.open(path)
    ended = replace(later, state=SessionState.LOST, changed_at=later.changed_at + 1)
    await third._write(sqlite._SAVE, [sqlite._values(ended)])  # as if killed before the copy
    assert await third.load() == [ended, a_record(2)]
    await third.aclose()
    fourth = await SqliteRegistry.open(path)
    assert await fourth.load() == [ended, a_record(2)]
    await fourth.aclose()


async def test_copy_that_a_killed_daemon_left_is_renewed(short_dir: Path) -> None:
    """One of a session that is over does not stay for ever, nor does one that is half written."""
    path = short_dir / "registry.sqlite"
    first = await SqliteRegistry.open(path)
    await first.save(a_record(1))
    await first.save(a_record(2))
    no_files = {"disk_id": "", "project_id": "", "parked_number": 0}
    later = a_record(1).changed_at + 1
    over = replace(a_record(1), state=SessionState.CLOSED, changed_at=later, **no_files)
    await first._write(sqlite._SAVE, [sqlite._values(over)])  # as if killed before the copy
    await first.aclose()
    copies = path.with_suffix(".copies")
    (copies / "ses_x.part").write_text("{")

    second = await SqliteRegistry.open(path)
    assert await second.load() == [over, a_record(2)]
    await second.aclose()
    assert [file.name for file in copies.iterdir()] == [f"{a_record(2).session_id}.json"]


async def test_file_of_a_newer_release_is_refused_and_left_alone(short_dir: Path) -> None:
    """It may hold what this release would lose; the versions are in the message."""
    path = short_dir / "registry.sqlite"
    first = await SqliteRegistry.open(path)
    await first.save(a_record(1))
    await first.aclose()
    with closing(sqlite3.connect(path)) as other:
        (version,) = other.execute("PRAGMA user_version").fetchone()
        other.execute(f"PRAGMA user_version = {sqlite.VERSION + 1}")
    before = path.read_bytes()

    with pytest.raises(RegistryTooNew, match=f"version {sqlite.VERSION + 1}"):
        await SqliteRegistry.open(path)
    assert version == sqlite.VERSION
    assert path.read_bytes() == before
    assert not moved_aside(short_dir)


async def test_file_damaged_while_it_is_open_is_made_anew(short_dir: Path) -> None:
    """The save that finds the damage succeeds, and so did every save before it."""
    path = short_dir / "registry.sqlite"
    registry = await SqliteRegistry.open(path)
    for number in range(1, 60):
        await registry.save(a_record(number))
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(size - 4096))
    with closing(sqlite3.connect(path)) as other:  # makes the first connection read it again
        other.execute("PRAGMA user_version = 7")

    await registry.save(a_record(60))
    found = await registry.load()
    await registry.aclose()

    assert found == [a_record(number) for number in range(1, 61)]
    assert moved_aside(short_dir)


async def test_file_that_is_locked_fails_saves_in_time(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of many saves soon ends with an error, and later saves work again."""
    monkeypatch.setattr(sqlite, "LOCKED_SECONDS", 0.1)
    monkeypatch.setattr(sqlite, "QUEUE_SECONDS", 0.2)
    path = short_dir / "registry.sqlite"
    registry = await SqliteRegistry.open(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(5.0):
            saves = [registry.save(a_record(number)) for number in range(1, 21)]
            errors = await asyncio.gather(*saves, return_exceptions=True)
            await registry.ping()
    assert [type(error) for error in errors] == [StateNotSaved] * 20
    assert await registry.load() == []

    await registry.save(a_record())
    assert await registry.load() == [a_record()]
    await registry.aclose()
