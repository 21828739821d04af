"""The registry in its SQLite file."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.errors import StateNotSaved
from sandboxd.registry import sqlite
from sandboxd.registry.contract import ExecutionRecord, SessionRecord, SessionState
from sandboxd.registry.sqlite import SqliteRegistry

ODD_TEXT = "a'b\"c; DROP TABLE sessions; -- \u00e9\u4e2d\U0001f600"


def a_record(number: int = 1, state: SessionState = SessionState.ACTIVE) -> SessionRecord:
    return SessionRecord(
        session_id=f"ses_{number}",
        user_id=ODD_TEXT,
        thread_id=f"thread {number}",
        state=state,
        incarnation=number,
        created_at=1000.25 + number,
        changed_at=2000.5,
        idle_seconds=60.125,
        metadata={"key": ODD_TEXT, "empty": ""},
        end_reason="it ended" if state != SessionState.ACTIVE else "",
        project_id=f"project {number}" if state == SessionState.ACTIVE else "",
        unmoved_project_id=f"another {number}" if state == SessionState.ACTIVE else "",
    )


@pytest.mark.parametrize("state", SessionState)
async def test_record_comes_back_as_it_was_saved(
    state: SessionState, registry: SqliteRegistry
) -> None:
    """Every field survives, whatever characters it holds."""
    record = a_record(state=state)
    await registry.save(record)

    assert await registry.load() == [record]


async def test_answered_save_is_there_for_the_next_process(short_dir: Path) -> None:
    """A record outlives the connection, and even one that is not closed."""
    path = short_dir / "kept.sqlite"
    first = await SqliteRegistry.open(path)
    await first.save(a_record())
    second = await SqliteRegistry.open(path)

    assert await second.load() == [a_record()]
    for one in (first, second):
        await one.aclose()


async def test_later_save_replaces_an_earlier_one(registry: SqliteRegistry) -> None:
    """There is one record per session, the newest."""
    await registry.save(a_record())
    await registry.save(a_record(state=SessionState.CLOSED))

    assert [record.state for record in await registry.load()] == [SessionState.CLOSED]


async def test_load_is_in_order_of_creation(registry: SqliteRegistry) -> None:
    """Sessions come back oldest first."""
    for number in (3, 1, 2):
        await registry.save(a_record(number))

    assert [record.incarnation for record in await registry.load()] == [1, 2, 3]


async def test_forget_removes_what_is_named_and_nothing_else(registry: SqliteRegistry) -> None:
    """Unknown ids are no error, and injection is no deletion."""
    for number in (1, 2, 3):
        await registry.save(a_record(number))
    await registry.forget(["ses_1", "ses_unknown", "' OR '1'='1"])
    await registry.forget([])

    assert [record.session_id for record in await registry.load()] == ["ses_2", "ses_3"]


async def test_many_saves_at_once_are_all_kept(registry: SqliteRegistry) -> None:
    """Racing callers do not lose each other's records."""
    await asyncio.gather(*(registry.save(a_record(number)) for number in range(100)))

    assert len(await registry.load()) == 100


async def test_file_of_an_earlier_release_gets_what_it_lacks(short_dir: Path) -> None:
    """Sessions of a file without disks are still there, with none."""
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
    await registry.save(replace(record, disk_id="d", uid=7))
    (saved,) = await registry.load()
    await registry.aclose()

    assert (record.session_id, record.disk_id, record.uid) == ("s", "", 0)
    assert (saved.disk_id, saved.uid) == ("d", 7)


OPEN_AND_END = """
import asyncio, sys
from pathlib import Path
from sandboxd.registry.sqlite import RegistryUnusable, SqliteRegistry
try:
    asyncio.run(SqliteRegistry.open(Path(sys.argv[1])))
except RegistryUnusable as error:
    told = error
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


def an_execution(number: int, session_id: str = "ses_1") -> ExecutionRecord:
    return ExecutionRecord(
        session_id=session_id,
        incarnation=2,
        exec_id=f"exe_{number}",
        command=ODD_TEXT,
        started_at=1000.5 + number,
        duration_seconds=0.25,
        ending="EXITED",
        code=number,
        signal=None,
        hint="",
        stdin_bytes=1,
        stdout_bytes=1 << 40,
        stderr_bytes=3,
        stdout_dropped=4,
        stderr_dropped=5,
        cpu_seconds=None if number % 2 else 0.125,
        peak_memory_bytes=6,
        peak_processes=7,
        oom_kills=8,
        refused_forks=9,
    )


async def test_executions_come_back_newest_first_and_bounded(registry: SqliteRegistry) -> None:
    """Every field survives; of each session the newest stay, and of all together."""
    for begin in range(0, 12, 4):
        batch = [an_execution(number) for number in range(begin, begin + 4)]
        await registry.add_executions(batch, per_session=5, in_all=100)
    await registry.add_executions([an_execution(99, "ses_2")], per_session=5, in_all=100)

    found = await registry.executions("ses_1", size=100, before=None)
    assert [one._replace(place=0) for one in found] == [an_execution(n) for n in range(11, 6, -1)]
    page = await registry.executions("ses_1", size=2, before=found[1].place)
    assert page == found[2:4]

    await registry.add_executions([an_execution(100, "ses_2")], per_session=5, in_all=2)
    assert await registry.executions("ses_1", size=100, before=None) == []
    assert len(await registry.executions("ses_2", size=100, before=None)) == 2


async def test_executions_are_told_in_numbers(registry: SqliteRegistry) -> None:
    """Ends, success and durations of all that are kept, whichever session they are of."""
    took = [
        an_execution(number, f"ses_{number % 2}")._replace(duration_seconds=number / 10)
        for number in range(1, 101)
    ]
    took[0] = took[0]._replace(code=0)
    took[1] = took[1]._replace(code=0, ending="TIMED_OUT")
    await registry.add_executions(took, per_session=100, in_all=100)

    figures = await registry.execution_figures([0.5, 0.99])
    assert (figures.first_started_at, figures.total) == (1001.5, 100)
    assert figures.ends == {"EXITED": 99, "TIMED_OUT": 1}
    assert (figures.succeeded, figures.success_rate) == (1, 0.01)
    assert figures.quantiles == {0.5: 5.0, 0.99: 9.9}
    assert (figures.mean_seconds, figures.longest_seconds) == (pytest.approx(5.05), 10.0)


async def test_no_executions_are_told_as_none(registry: SqliteRegistry) -> None:
    """A history without commands has figures too."""
    figures = await registry.execution_figures([0.5])
    assert (figures.first_started_at, figures.total, figures.success_rate) == (None, 0, 1.0)
    assert (figures.quantiles, figures.mean_seconds) == ({0.5: 0.0}, 0.0)


async def test_forgetting_a_session_forgets_its_executions(registry: SqliteRegistry) -> None:
    """The history goes with the session it is about, and with no other."""
    for session_id in ("ses_1", "ses_2"):
        await registry.add_executions([an_execution(1, session_id)], per_session=5, in_all=9)
    await registry.forget(["ses_1"])

    assert await registry.executions("ses_1", size=9, before=None) == []
    assert len(await registry.executions("ses_2", size=9, before=None)) == 1


def damage(path: Path, how: str) -> None:
    if how == "no database":
        path.write_bytes(b"this is no database, but it is long enough to look at" * 200)
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


async def test_file_damaged_while_it_is_open_is_made_anew(short_dir: Path) -> None:
    """The save that finds the damage is done all the same, with all that was saved before."""
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


async def test_file_that_someone_has_locked_is_told_in_time(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every one of many saves ends soon with an error of its own, and all work afterwards."""
    monkeypatch.setattr(sqlite, "LOCKED_SECONDS", 0.1)
    monkeypatch.setattr(sqlite, "QUEUE_SECONDS", 0.2)
    path = short_dir / "registry.sqlite"
    registry = await SqliteRegistry.open(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(5.0):
            saves = [registry.save(a_record(number)) for number in range(1, 21)]
            told = await asyncio.gather(*saves, return_exceptions=True)
            await registry.ping()
    assert [type(one) for one in told] == [StateNotSaved] * 20
    assert await registry.load() == []

    await registry.save(a_record())
    assert await registry.load() == [a_record()]
    await registry.aclose()
