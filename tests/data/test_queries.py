"""What queries return, how they are cut, cancelled and shared, and what faults cost."""

from __future__ import annotations

import asyncio
import inspect
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandboxd.code.functions import functions
from sandboxd.data.answers import Rows
from sandboxd.data.frames import Request
from sandboxd.data.records import QueryRecord
from sandboxd.data.source import Limits, Source
from sandboxd.errors import SandboxdError
from sandboxd.guest.code import database as inside
from sandboxd_client import data_values as outside
from sandboxd_proto.v1 import data_service_pb2 as pb
from tests.data.rig import LIMITS, Database, ask, broker_of, sqlite_file, sqlite_source

WAIT_SECONDS = 30.0
ONE = replace(LIMITS, connections=1, user_connections=1, seconds=60.0)
"""One worker, so that a test knows which."""
UNAVAILABLE = "DATA_SOURCE_UNAVAILABLE"

TYPES = [
    ("1::int2", "int", 1, 1),
    ("9007199254740993::int8", "int", 9007199254740993, 9007199254740993),
    ("true", "bool", True, True),
    ("1.50::numeric", "decimal", "1.50", "Decimal('1.50')"),
    ("'NaN'::numeric", "decimal", "NaN", "Decimal('NaN')"),
    ("0.1::float8", "float", 0.1, 0.1),
    ("'NaN'::float8", "float", "NaN", math.nan),
    ("'-Infinity'::float4", "float", "-Infinity", -math.inf),
    ("'a\"b\n\u00e9'::text", "text", 'a"b\n\u00e9', 'a"b\n\u00e9'),
    (
        "'0b9c5a3e-8c1f-4d8c-9f57-0d9a3f3f7a11'::uuid",
        "uuid",
        "0b9c5a3e-8c1f-4d8c-9f57-0d9a3f3f7a11",
        "UUID('0b9c5a3e-8c1f-4d8c-9f57-0d9a3f3f7a11')",
    ),
    ("'{\"a\": [1, null]}'::jsonb", "json", {"a": [1, None]}, {"a": [1, None]}),
    ("'{\n\"a\" : 1}'::json", "json", {"a": 1}, {"a": 1}),
    ("date '2024-02-29'", "date", "2024-02-29", "datetime.date(2024, 2, 29)"),
    ("'infinity'::date", "date", "infinity", "infinity"),
    ("'0044-03-15 BC'::date", "date", "0044-03-15 BC", "0044-03-15 BC"),
    (
        "timestamptz '2024-01-01 12:00:00.5+00'",
        "timestamp",
        "2024-01-01T12:00:00.5+00:00",
        "datetime.datetime(2024, 1, 1, 12, 0, 0, 500000, tzinfo=datetime.timezone.utc)",
    ),
    (
        "timestamp '2024-01-01 12:00:00'",
        "timestamp",
        "2024-01-01T12:00:00",
        "datetime.datetime(2024, 1, 1, 12, 0)",
    ),
    ("'infinity'::timestamptz", "timestamp", "infinity", "infinity"),
    ("time '12:30:01'", "time", "12:30:01", "datetime.time(12, 30, 1)"),
    ("interval '1 month'", "interval", "P1M", "P1M"),
    ("'\\xdeadbeef'::bytea", "bytes", "3q2+7w==", b"\xde\xad\xbe\xef"),
    ("ARRAY[1, NULL, 3]", "list of int", [1, None, 3], [1, None, 3]),
    ("ARRAY[['a', 'b,c'], ['\"', NULL]]", "list of text", [["a", "b,c"], ['"', None]],
     [["a", "b,c"], ['"', None]]),
    ("'[2:3]={x,NULL}'::text[]", "list of text", ["x", None], ["x", None]),
    ("ARRAY[1.5]::numeric[]", "list of decimal", ["1.5"], "[Decimal('1.5')]"),
    ("'{}'::int[]", "list of int", [], []),
    ("NULL::int", "int", None, None),
    ("'10.0.0.0/8'::inet", "text", "10.0.0.0/8", "10.0.0.0/8"),
    ("'[1,5)'::int4range", "text", "[1,5)", "[1,5)"),
    ("B'101'", "text", "101", "101"),
    ("point(1, 2)", "text", "(1,2)", "(1,2)"),
]  # fmt: skip
SLOW = "SELECT count(*) FROM users a, users b, users c, users d"
"""Does not end by itself, and writes no temporary files that would have to be deleted."""


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float) and math.isnan(wanted):
        return isinstance(found, float) and math.isnan(found)
    is_text = isinstance(wanted, str) and not isinstance(found, str)
    return bool(repr(found) == wanted if is_text else found == wanted)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not await asyncio.to_thread(condition):
            await asyncio.sleep(0.02)


def running(database: Database) -> int:
    """Statements of the reader that run in the database."""
    found = database.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE usename = 'reader' AND state <> 'idle'"
    )
    return int(found[0][0])


async def test_types(database: Database) -> None:
    """Each arrives as the page says, on the wire, in the sandbox and in the SDK."""
    async with broker_of(database.source) as broker:
        for sql, kind, wire, value in TYPES:
            answer = await ask(broker, f"SELECT {sql} AS x")
            assert answer.columns[0][1] == kind, sql
            assert answer.value == wire, sql
            assert same(inside._decoder(kind)(wire), value), sql
            line = json.dumps([wire]).encode() + b"\n"
            (row,) = outside.rows_of([pb.QueryColumn(name="x", type=kind)], line, pb.QueryEnd())
            assert same(row["x"], value), sql


async def test_parameters(database: Database) -> None:
    """Values arrive as they are, untyped texts as what they are compared with, and never as SQL."""
    async with broker_of(database.source) as broker:
        hostile = "'; DROP TABLE users; --"
        answer = await ask(broker, "SELECT :a, :b::int, ':c', :a", {"a": hostile, "b": 5})
        assert answer.rows == [[hostile, 5, ":c", hostile]]
        rows = (
            await ask(broker, "SELECT id FROM users WHERE id = ANY(:ids)", {"ids": [3, 4]})
        ).rows
        assert rows == [[3], [4]]
        since = {"day": "2020-01-01"}
        assert (
            await ask(broker, "SELECT count(*) FROM users WHERE created_at > :day", since)
        ).value
        exact = {"n": 2**53 + 1, "b": {"$bytes": "AP8="}, "none": None}
        answer = await ask(broker, "SELECT :n::int8, :b::bytea, :none::text", exact)
        assert answer.rows == [[2**53 + 1, "AP8=", None]]
        with pytest.raises(SandboxdError, match=":missing"):
            await ask(broker, "SELECT :missing", {"other": 1})


async def test_cuts_are_told(database: Database) -> None:
    """Rows, bytes and time: the answer says which limit ended it, and has what fits."""
    async with broker_of(database.source) as broker:
        rows = await ask(broker, "SELECT * FROM generate_series(1, 100000)")
        assert (rows.end.truncated, rows.end.rows, len(rows.rows)) == ("ROWS", 1000, 1000)
        few = await ask(broker, "SELECT id FROM users", max_rows=10)
        assert (few.end.truncated, few.end.rows) == ("ROWS", 10)
        exact = await ask(broker, "SELECT id FROM users LIMIT 10", max_rows=10)
        assert (exact.end.truncated, exact.end.rows) == ("", 10)
        large = await ask(broker, "SELECT repeat('x', 300000) FROM generate_series(1, 10)")
        assert (large.end.truncated, large.end.rows) == ("BYTES", 3)
        with pytest.raises(SandboxdError) as timed_out:
            await ask(broker, SLOW, seconds=0.3)
        assert timed_out.value.reason == "QUERY_TIMED_OUT"
    slowly = (
        "SELECT i FROM generate_series(1, 1000000) i "
        "WHERE (SELECT count(*) FROM generate_series(1, 2000) x WHERE x > i) >= 0"
    )
    many = replace(database.source, limits=replace(LIMITS, rows=10_000_000))
    async with broker_of(many) as broker:
        slow = await ask(broker, slowly)
        assert slow.end.truncated == "TIME"
        assert slow.end.rows == len(slow.rows) > 0


async def test_a_huge_value_costs_a_process_not_the_daemon(database: Database) -> None:
    """The daemon does not grow, other queries are answered, and the source works afterwards."""
    source = replace(database.source, limits=replace(LIMITS, seconds=30.0))
    async with broker_of(source) as broker:
        await ask(broker, "SELECT 1")
        before = _resident()
        huge = asyncio.ensure_future(ask(broker, "SELECT repeat('x', 500000000)"))
        while not huge.done():
            assert (await ask(broker, "SELECT 1", user_id="grace")).value == 1
            await asyncio.sleep(0.05)
        answer = huge.result()
        assert (answer.end.truncated, answer.rows) == ("BYTES", [])
        assert _resident() - before < 50 << 20
        assert (await ask(broker, "SELECT 1")).value == 1


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_who_leaves_cancels_in_the_database(database: Database) -> None:
    """The statement ends there, and the same worker serves the next query."""
    source = replace(database.source, limits=ONE)
    async with broker_of(source) as broker:
        await ask(broker, "SELECT 1")
        workers = broker.states["app"].workers
        pids = workers.pids
        query = asyncio.ensure_future(ask(broker, SLOW))
        await until(lambda: running(database) == 1)
        query.cancel()
        await asyncio.wait([query])
        await until(lambda: running(database) == 0)
        await until(lambda: workers.turns.used == 0)
        assert (await ask(broker, "SELECT 1")).value == 1
        assert workers.pids == pids
        async with aclosing(
            broker.run(
                Request(source="app", user_id="ada", sql=b"SELECT * FROM generate_series(1, 900)")
            )
        ) as parts:
            async for part in parts:
                if isinstance(part, Rows):
                    break
        await until(lambda: workers.turns.used == 0)
        assert next(iter(broker.latest.find())).outcome == "CANCELLED"


async def test_a_killed_worker_is_reported_and_replaced(database: Database) -> None:
    """Its caller learns it, its statement ends, and the next query has another worker."""
    source = replace(database.source, limits=ONE)
    async with broker_of(source) as broker:
        await ask(broker, "SELECT 1")
        (pid,) = broker.states["app"].workers.pids
        query = asyncio.ensure_future(ask(broker, SLOW))
        await until(lambda: running(database) == 1)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(SandboxdError) as lost:
            await query
        assert lost.value.reason == "DATA_SOURCE_UNAVAILABLE"
        await until(lambda: running(database) == 0)
        assert (await ask(broker, "SELECT 1")).value == 1
        assert broker.states["app"].workers.pids != [pid]


async def test_a_worker_that_hangs_is_killed(tmp_path: Path) -> None:
    """A stopped process stands for a function that cannot be interrupted."""
    source = sqlite_source(sqlite_file(tmp_path), limits=replace(ONE, seconds=0.5))
    async with broker_of(source) as broker:
        await ask(broker, "SELECT 1")
        (pid,) = broker.states["lite"].workers.pids
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(SandboxdError) as late:
            await ask(broker, "SELECT 1")
        assert late.value.reason == "QUERY_TIMED_OUT"
        assert (await ask(broker, "SELECT 1")).value == 1
        await until(lambda: not os.path.exists(f"/proc/{pid}"))


async def test_connections_that_the_database_ended(database: Database) -> None:
    """As after its restart: the next query works, or says once that it is unavailable."""
    async with broker_of(database.source) as broker:
        await ask(broker, "SELECT 1")
        for _ in range(3):
            database.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'reader'"
            )
            first = await asyncio.gather(ask(broker, "SELECT 1"), return_exceptions=True)
            assert getattr(first[0], "reason", UNAVAILABLE) == UNAVAILABLE
            assert (await ask(broker, "SELECT 1")).value == 1


async def test_a_database_that_is_not_there(database: Database) -> None:
    """The error says so, without host and login; listing the source says it too."""
    broken = replace(
        database.source, dsn="host=/nowhere-at-all user=someone password=hunter2 dbname=app"
    )
    async with broker_of(broken) as broker:
        with pytest.raises(SandboxdError) as error:
            await ask(broker, "SELECT 1")
        shown = f"{error.value} {error.value.metadata} {broker.states['app']}"
        assert error.value.reason == "DATA_SOURCE_UNAVAILABLE"
    for secret in ("nowhere", "someone", "hunter2"):
        assert secret not in shown


async def test_users_take_turns(database: Database) -> None:
    """Of fifty queries of one user and one of another, the other one is among the first."""
    limits = replace(LIMITS, connections=1, user_connections=1, queued=200, seconds=30.0)
    async with broker_of(replace(database.source, limits=limits)) as broker:
        order: list[str] = []

        async def query(user_id: str) -> None:
            await ask(broker, "SELECT count(*) FROM generate_series(1, 20000)", user_id=user_id)
            order.append(user_id)

        many = [asyncio.ensure_future(query("ada")) for _ in range(50)]
        turns = broker.states["app"].workers.turns
        await until(lambda: turns.waiting >= 40)
        behind = len(order)
        await query("grace")
        await asyncio.gather(*many)
    assert order.index("grace") <= behind + 3


async def test_bounds_of_the_queue(database: Database) -> None:
    """What does not fit is refused at once; one user cannot fill the queue."""
    limits = replace(LIMITS, connections=1, user_connections=1, queued=4, seconds=30.0)
    async with broker_of(replace(database.source, limits=limits)) as broker:
        queries = [asyncio.ensure_future(ask(broker, "SELECT 1")) for _ in range(20)]
        done = await asyncio.gather(*queries, return_exceptions=True)
        refused = [one for one in done if isinstance(one, SandboxdError)]
        assert {error.reason for error in refused} == {"QUERIES_BUSY"}
        assert 0 < len(done) - len(refused) <= 4


async def test_the_rate_of_a_user_is_bounded(database: Database) -> None:
    """And that of another user is not touched."""
    limits = replace(LIMITS, user_queries_per_minute=3)
    async with broker_of(replace(database.source, limits=limits)) as broker:
        for _ in range(3):
            await ask(broker, "SELECT 1")
        with pytest.raises(SandboxdError) as refused:
            await ask(broker, "SELECT 1")
        assert refused.value.reason == "TOO_MANY_REQUESTS"
        assert refused.value.retry_after_seconds
        assert (await ask(broker, "SELECT 1", user_id="grace")).value == 1


async def test_writes_are_made_once(database: Database) -> None:
    """With RETURNING and the number of changed rows; a repetition is refused, a read repeats."""
    async with broker_of(database.writable) as broker:
        database.execute("TRUNCATE events")
        made = await ask(broker, "INSERT INTO events VALUES (:n) RETURNING n", {"n": 7})
        assert (made.rows, made.end.changed_rows) == ([[7]], 1)
        with pytest.raises(SandboxdError) as repeated:
            await ask(broker, "INSERT INTO events VALUES (:n)", {"n": 7}, is_repeat=True)
        assert repeated.value.reason == "QUERY_OUTCOME_UNKNOWN"
        assert (await ask(broker, "SELECT n FROM events", is_repeat=True)).rows == [[7]]
        with pytest.raises(SandboxdError) as many:
            await ask(broker, "INSERT INTO events SELECT generate_series(1, 21)")
        assert many.value.reason == "QUERY_LIMIT_REACHED"
    assert database.execute("SELECT count(*) FROM events") == [(1,)]


async def test_policies_of_rows_know_the_user(database: Database) -> None:
    """Row-level security can compare with the user that the daemon says it is."""
    database.execute(
        "CREATE TABLE notes (owner text, note text); INSERT INTO notes VALUES ('ada', 'a'), "
        "('grace', 'g'); ALTER TABLE notes ENABLE ROW LEVEL SECURITY; GRANT SELECT ON notes TO "
        "reader; CREATE POLICY own ON notes USING (owner = current_setting('sandboxd.user_id'))"
    )
    try:
        async with broker_of(database.source) as broker:
            for user, note in (("ada", "a"), ("grace", "g"), ("ada", "a")):
                assert (await ask(broker, "SELECT note FROM notes", user_id=user)).rows == [[note]]
    finally:
        database.execute("DROP TABLE notes")


async def test_without_the_grammar_nothing_runs(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A worker that cannot check does not start."""
    (tmp_path / "postgast").mkdir()
    (tmp_path / "postgast" / "__init__.py").write_text("")
    monkeypatch.setattr("sandboxd.data.worker_process.PYTHONPATH", str(tmp_path))
    async with broker_of(database.source) as broker:
        with pytest.raises(SandboxdError, match="libpg_query") as refused:
            await ask(broker, "SELECT 1")
    assert refused.value.reason == "DATA_SOURCE_UNAVAILABLE"


async def test_records(database: Database) -> None:
    """Each query is recorded once, values only if the source is configured so."""
    for log_values, shown in ((False, "str"), (True, "'ada'")):
        records: list[QueryRecord] = []
        source: Source = replace(database.source, log_values=log_values)
        async with broker_of(source) as broker:
            broker.on_query = records.append
            await ask(broker, "SELECT :who", {"who": "ada"}, session_id="ses_1")
            with pytest.raises(SandboxdError):
                await ask(broker, "SELECT 1/0")
        first, second = records
        assert (first.outcome, first.rows, first.params) == ("OK", 1, {"who": shown})
        assert (first.user_id, first.session_id, first.source) == ("ada", "ses_1", "app")
        assert (second.outcome, second.sqlstate) == ("QUERY_FAILED", "22012")


async def test_nothing_is_left_of_a_closed_broker(database: Database) -> None:
    """Neither processes nor connections."""
    async with broker_of(database.source) as broker:
        await asyncio.gather(*(ask(broker, "SELECT 1", user_id=f"u{i}") for i in range(4)))
        pids = broker.states["app"].workers.pids
        assert pids
    await until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids))
    await until(
        lambda: database.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE usename = 'reader'"
        ) == [(0,)]
    )  # fmt: skip


def test_listed_functions_are_those_of_the_client_inside() -> None:
    """Names and parameters that a session lists are what its code can call."""
    listed = {one.name: one.signature.partition(" -> ")[0] for one in functions(has_data=True)}
    for name, function in inside.helpers().items():
        if inspect.isfunction(function):
            found = inspect.signature(function)
            plain = [one.replace(annotation=one.empty) for one in found.parameters.values()]
            bare = found.replace(parameters=plain, return_annotation=found.empty)
            assert listed[name] == f"{name}{bare}"


def test_the_client_inside_runs_on_old_pythons() -> None:
    """It has no syntax and no import that Python 3.9 lacks."""
    source = Path(inside.__file__).read_text()
    compile(source, "database.py", "exec", flags=0, dont_inherit=True)
    done = subprocess.run(
        [sys.executable, "-IS", "-c", "import sys; exec(sys.stdin.read())"],
        input=source,
        text=True,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    import ast

    ast.parse(source, feature_version=(3, 9))


async def test_limits_have_no_surprise(database: Database) -> None:
    """A request may lower the limits of a source, and not raise them."""
    async with broker_of(database.source) as broker:
        started = time.monotonic()
        with pytest.raises(SandboxdError):
            await ask(broker, SLOW, seconds=3600.0)
        assert time.monotonic() - started < WAIT_SECONDS
        many = await ask(broker, "SELECT * FROM generate_series(1, 5000)", max_rows=4000)
        assert many.end.rows == Limits(rows=1000).rows
