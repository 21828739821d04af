"""Every hostile statement against a real database: how it ends, and that nothing is left of it."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandboxd.data.broker import Broker
from sandboxd.data.source import Limits
from sandboxd.errors import SandboxdError
from tests.data.rig import LIMITS, Database, ask, broker_of, sqlite_file, sqlite_source

CASES = json.loads((Path(__file__).parent / "hostile_statements.json").read_text())
RULES = {
    "refused: more than one statement": {"ONE_STATEMENT"},
    "refused: kind of statement": {"KIND"},
    "refused: function": {"FUNCTION"},
    "refused: relation": {"RELATION", "GRANT"},
    "refused: grants of the database": {"GRANT", "FUNCTION"},
    "refused": {"ONE_STATEMENT", "KIND", "FUNCTION", "RELATION", "GRANT"},
}
CONNECTION = (
    "SELECT current_setting('statement_timeout'), current_setting('transaction_read_only'), "
    "current_setting('search_path'), current_setting('role'), current_user, session_user"
)
LEFT_ON_CONNECTION = (
    "SELECT (SELECT count(*) FROM pg_prepared_statements) "
    "+ (SELECT count(*) FROM pg_cursors WHERE name <> '') "
    "+ (SELECT count(*) FROM pg_listening_channels()) "
    "+ (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')"
)


def statements(engine: str) -> list[Any]:
    return [
        pytest.param(case, id=case["id"]) for case in CASES if case["engine"].startswith(engine)
    ]


async def outcome(broker: Broker, sql: str) -> str:
    """How a statement ended: `allowed`, `cut`, the rule that refused it, or the error."""
    try:
        answer = await ask(broker, sql)
    except SandboxdError as error:
        if error.reason == "QUERY_TIMED_OUT":
            return "cut"
        rule = error.metadata.get("rule") or error.metadata.get("limit")
        return rule or f"{error.reason} {error.metadata.get('sqlstate')}"
    return "cut" if answer.end.truncated else "allowed"


def expected(case: Mapping[str, str]) -> set[str]:
    words = case["expected"].split(" (")[0]
    if words.startswith("cut"):
        # The server, or the worker, may also be the first to run out of memory.
        return {"cut", "QUERY_FAILED 54000", "QUERY_FAILED 53200", "MEMORY"}
    if words == "refused, or nothing to do":
        return {"allowed", *RULES["refused"]}
    return {"allowed"} if words == "allowed" else RULES[words]


def prepared(case: Mapping[str, str], database: Database) -> str:
    owner = database.admin.split()[0].removeprefix("host=")
    return (
        case["sql"]
        .replace("{dir}", str(database.directory))
        .replace("host=127.0.0.1 {owner_dsn}", f"host={owner} user=tests")
        .replace("dbname=app", "dbname=postgres")
    )


def test_all_statements_are_here() -> None:
    """None was lost on the way."""
    assert len(CASES) == 155
    assert len({case["id"] for case in CASES}) == 155


async def test_postgresql(database: Database) -> None:
    """Each ends as expected; the database, the server's files and the connection are as before."""
    before = database.state()
    wrong = []
    async with broker_of(database.source) as broker:
        connection = (await ask(broker, CONNECTION)).rows
        for case in (parameter.values[0] for parameter in statements("postgresql")):
            found = await outcome(broker, prepared(case, database))
            after = (await ask(broker, CONNECTION)).rows
            if found not in expected(case) or after != connection:
                wrong.append((case["id"], case["sql"], found, case["expected"], after))
    assert wrong == []
    assert database.state() == before


async def test_postgresql_without_the_check(database: Database) -> None:
    """The login, the transaction, the protocol and the rollback hold alone: nothing is written,
    no file is made, no program runs, no role changes, and nothing stays on the connection."""
    source = database.source
    quick = Limits(seconds=0.4, rows=1000, bytes=1_000_000)
    source = type(source)(**{**vars(source), "limits": quick})
    before = database.state()
    wrong = []
    async with broker_of(source, is_checked=False) as broker:
        connection = (await ask(broker, CONNECTION)).rows
        for case in (parameter.values[0] for parameter in statements("postgresql")):
            await outcome(broker, prepared(case, database))
            after = (await ask(broker, CONNECTION)).rows
            left = (await ask(broker, LEFT_ON_CONNECTION)).value
            if after != connection or left:
                wrong.append((case["id"], case["sql"], after, left))
    assert wrong == []
    assert database.state() == before


async def test_sqlite(tmp_path: Path) -> None:
    """Each ends as expected; the file is as before, and there is no other."""
    path = sqlite_file(tmp_path)
    before = path.read_bytes()
    wrong = []
    async with broker_of(sqlite_source(path)) as broker:
        for case in (parameter.values[0] for parameter in statements("sqlite")):
            found = await outcome(broker, case["sql"].replace("{dir}", str(tmp_path)))
            if found not in expected(case):
                wrong.append((case["id"], case["sql"], found, case["expected"]))
    assert wrong == []
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == [path.name]


async def test_a_query_that_needs_too_much_memory(tmp_path: Path) -> None:
    """It is ended and says so; the source is not to blame, and answers the next query."""
    source = sqlite_source(sqlite_file(tmp_path), limits=replace(LIMITS, seconds=120.0))
    async with broker_of(source) as broker:
        huge = "SELECT a.* FROM users a, users b, users c ORDER BY a.name, b.name, c.name"
        for _ in range(3):
            assert await outcome(broker, huge) == "MEMORY"
            assert await outcome(broker, "SELECT * FROM users LIMIT 2") == "allowed"
            assert broker.states["lite"].problem == ""


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT u.row_write FROM users u",
        "SELECT (u).row_write FROM users u",
        "SELECT row_write(u) FROM users u",
        "SELECT * FROM (WITH pg_stat_activity AS (SELECT 1) SELECT * FROM pg_stat_activity) x, "
        "pg_stat_activity",
        "WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a",
        "SELECT * FROM pg_catalog.pg_authid",
        "SELECT * FROM other.users",
        "SELECT public.f_definer()",
        "VALUES ((SELECT f_definer()))",
        "SELECT 1 FROM users ORDER BY f_definer()",
        "SELECT 1 LIMIT (SELECT f_definer())",
        "TABLE pg_shadow",
        "EXPLAIN ANALYZE SELECT f_definer()",
        "SELECT * FROM users TABLESAMPLE f_definer(1)",
        "SELECT inet_server_addr()",
        "SELECT query FROM pg_stat_get_activity(NULL)",
        pytest.param("SELECT " + "+".join(["1"] * 20000), id="deep"),
    ],
)
async def test_further_statements_are_refused(database: Database, sql: str) -> None:
    """Calls that are not written as calls, names that are no longer what they seem, depth."""
    before = database.state()
    async with broker_of(database.source) as broker:
        found = await outcome(broker, sql)
    assert found in {*RULES["refused"], "DEPTH", "QUERY_FAILED 42P01", "QUERY_FAILED 54001"}
    assert database.state() == before


async def test_statements_of_analysts_pass(database: Database) -> None:
    """What is harmless is not refused: users would switch such a check off."""
    source = database.source
    statements = [
        "SELECT date_trunc('day', created_at) d, count(*), avg(salary)::numeric(10, 2), "
        "percentile_cont(0.5) WITHIN GROUP (ORDER BY salary) FROM users GROUP BY d ORDER BY d",
        "SELECT name, rank() OVER (PARTITION BY salary % 3 ORDER BY id) FROM users LIMIT 5",
        "WITH RECURSIVE t(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 9) TABLE t",
        "SELECT u.name, d.title FROM users u LEFT JOIN LATERAL (SELECT title FROM documents "
        "WHERE owner_id = u.id ORDER BY id LIMIT 1) d ON true LIMIT 3",
        "SELECT jsonb_agg(jsonb_build_object('n', name)) FROM users WHERE id < 3",
        "SELECT string_agg(upper(name), ', ' ORDER BY id) FILTER (WHERE id < 4) FROM users",
        "SELECT regexp_replace(email, '@.*', ''), split_part(email, '@', 2) FROM users LIMIT 1",
        "SELECT to_char(now(), 'YYYY'), age(now(), created_at), extract(year FROM now()) "
        "FROM users LIMIT 1",
        "SELECT table_name FROM information_schema.tables LIMIT 1",
        "SELECT attname FROM pg_attribute WHERE attrelid = 'users'::regclass",
        "SELECT width_bucket(salary, 0, 1000, 10), count(*) FROM users GROUP BY 1",
        "SELECT random(), gen_random_uuid(), clock_timestamp(), pg_relation_size('users')",
        "SELECT to_tsvector('english', content) @@ plainto_tsquery('call') FROM documents LIMIT 1",
        "SELECT " + "+".join(["1"] * 200),
        "EXPLAIN (FORMAT JSON) SELECT * FROM users WHERE id = 1",
    ]
    async with broker_of(source) as broker:
        found = {sql: await outcome(broker, sql) for sql in statements}
    assert found == dict.fromkeys(statements, "allowed")


async def test_a_superuser_is_refused(database: Database) -> None:
    """Such a login is not used at all, whatever the statement; the source says why."""
    source = database.source
    strong = type(source)(**{**vars(source), "dsn": database.admin})
    async with broker_of(strong) as broker:
        with pytest.raises(SandboxdError, match="superuser") as refused:
            await ask(broker, "SELECT 1")
        assert "superuser" in broker.states["app"].problem
    assert refused.value.reason == "DATA_SOURCE_UNAVAILABLE"


@pytest.mark.parametrize("role", ["pg_execute_server_program", "pg_read_server_files"])
async def test_a_member_of_a_strong_role_is_refused(database: Database, role: str) -> None:
    """Files and programs of the server are no data."""
    database.execute(f"CREATE ROLE strong LOGIN IN ROLE {role}")
    try:
        source = database.source
        strong = type(source)(**{**vars(source), "dsn": database.as_("strong")})
        async with broker_of(strong) as broker:
            with pytest.raises(SandboxdError, match=role):
                await ask(broker, "SELECT 1")
    finally:
        database.execute("DROP ROLE strong")


async def test_sqlite_triggers_are_seen(tmp_path: Path) -> None:
    """A change of a listed table whose trigger writes elsewhere is refused; one without runs."""
    path = sqlite_file(tmp_path)
    source = sqlite_source(path, writes=("watched", "documents"))
    async with broker_of(source) as broker:
        assert await outcome(broker, "UPDATE watched SET x = 2") == "KIND"
        changed = await ask(broker, "UPDATE documents SET processed = 1 WHERE id = :id", {"id": 3})
    assert changed.end.changed_rows == 1
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT x FROM watched").fetchall() == [(1,)]
        assert connection.execute("SELECT count(*) FROM log").fetchall() == [(0,)]
        assert connection.execute("SELECT sum(processed) FROM documents").fetchall() == [(1,)]


async def test_limits_are_those_of_the_rig() -> None:
    """Or the cuts above would take long."""
    assert LIMITS.seconds <= 2


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM dbstat",
        "SELECT * FROM sqlite_dbpage",
        "SELECT * FROM sqlite_temp_master",
        "SELECT * FROM pragma_compile_options",
        "WITH x AS (SELECT token FROM secrets) SELECT * FROM x",
        "SELECT (SELECT token FROM secrets)",
        "SELECT 1 FROM users WHERE EXISTS (SELECT 1 FROM secrets WHERE token LIKE 't%')",
        "SELECT * FROM users UNION SELECT 1, token FROM secrets",
        "EXPLAIN SELECT token FROM secrets",
        "PRAGMA trusted_schema=1",
        "SELECT sqlite_compileoption_get(1)",
    ],
)
async def test_further_statements_of_sqlite_are_refused(tmp_path: Path, sql: str) -> None:
    """Tables that are not listed cannot be read anywhere in a statement, nor can SQLite's own."""
    path = sqlite_file(tmp_path)
    async with broker_of(sqlite_source(path)) as broker:
        found = await outcome(broker, sql)
    assert found in {*RULES["refused"], "QUERY_FAILED None"}
