"""Data sources from inside of real sandboxes, and what becomes of them when the daemon goes."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sandboxd_client import (
    AsyncSandbox,
    AsyncSandboxClient,
    CommandResult,
    DataSourceNotFoundError,
    StatementNotAllowedError,
)
from tests.data.rig import Database, running_database, sqlite_file
from tests.docker.daemon_process import DaemonProcess, served

USE_CASES = Path(__file__).parents[1] / "data" / "use_cases"
USED = ("analysis", "extraction", "debugging")
"""In the order of the worked examples."""
PASSWORD = "correct-horse-battery"
PRELUDE = """
import ast, asyncio, builtins, inspect, json, sys
from datetime import datetime
sys.path.insert(0, "/.sandboxd")
from guest.code.database import helpers
vars(builtins).update(helpers())
"""
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


class Place:
    """A daemon with data sources, and the database behind them."""

    def __init__(self, daemon: DaemonProcess, database: Database) -> None:
        self.daemon = daemon
        self.database = database
        self.url = f"unix:{daemon.socket}"

    async def open(self, thread: str, *sources: str) -> AsyncSandbox:
        return await AsyncSandbox.open("ada", thread, data_sources=sources, server_url=self.url)

    def audit(self) -> list[dict[str, Any]]:
        lines = [
            json.loads(line)
            for file in sorted((self.daemon.directory / "state" / "audit").glob("*"))
            if file.is_file()
            for line in file.read_text().splitlines()
        ]
        return [line for line in lines if str(line.get("action", "")).startswith("data.")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    directory = tmp_path_factory.mktemp("data")
    with running_database(directory) as database:
        dsns = {name: directory / f"{name}.dsn" for name in ("reader", "writer")}
        for name, file in dsns.items():
            file.write_text(f"{database.as_(name)} password={PASSWORD}\n")
            file.chmod(0o600)
        postgresql = {"engine": "postgresql", "dsn_file": str(dsns["reader"])}
        sources = {
            "app": {**postgresql, "description": "Users and their documents", "seconds": 5},
            "docs": {
                **postgresql,
                "write_dsn_file": str(dsns["writer"]),
                "writes": ["public.documents", "public.events"],
                "changed_rows": 50,
            },
            "lite": {"engine": "sqlite", "path": str(sqlite_file(directory))},
            "private": {**postgresql, "users": ["grace"]},
        }
        daemon = DaemonProcess(SANDBOXD_DATA_SOURCES=json.dumps(sources), POOL_SIZE="3")
        async with served(daemon):
            yield Place(daemon, database)


async def python(sandbox: AsyncSandbox, code: str) -> CommandResult:
    await sandbox.files.write("program.py", PRELUDE + code)
    return await sandbox.commands.run("python3 program.py", timeout=120)


async def test_use_cases_and_worked_examples(place: Place) -> None:
    """Analysis, extraction with its UPDATE, and debugging, as users wrote them and as a session
    lists them: on PostgreSQL, under the strict code policy."""
    async with await place.open("cases", "docs") as sandbox:
        strict = await sandbox.code.create_context("cases", policy="strict")
        examples = (await sandbox.code.functions()).examples
        listed = [one.code for one in examples if "db_query" in one.code]
        written = [(USE_CASES / f"{case}.txt").read_text() for case in USED]
        changed: list[int] = []
        for programs in (written, listed):
            runs = [await sandbox.code.run(one, context=strict, timeout=120) for one in programs]
            assert [run.error for run in runs] == [None] * 3
            analysis, extraction, debugging = (run.result for run in runs)
            assert (analysis["total_activities"], analysis["unique_users"]) == (200, 7)
            assert len(analysis["most_active_users"]) == 7
            assert extraction["processed_documents"] == 20
            first, *_ = found = extraction["extracted_knowledge"]
            assert first["entities"]["emails"] == [f"u{first['document_id']}@example.com"]
            assert first["entities"]["phones"] == ["555-123-4567"]
            changed += [one["document_id"] for one in found]
            assert (debugging["input_count"], debugging["valid_output_count"]) == (5, 3)
            assert debugging["debug_summary"]["levels"]["WARNING"] == 2
    processed = place.database.execute("SELECT id FROM documents WHERE processed ORDER BY id")
    assert [row[0] for row in processed] == sorted(changed)


async def test_functions_of_databases_are_listed(place: Place) -> None:
    """With a data source as they are called; without one with what is missing, and no examples."""
    async with await place.open("listed", "app") as with_data, await place.open("bare") as without:
        there, missing = (await with_data.code.functions(), await without.code.functions())
    assert [one.signature for one in there.functions] == [
        one.signature for one in missing.functions
    ]
    described = {
        one.name: (one.description, other.description)
        for one, other in zip(there.functions, missing.functions, strict=True)
    }
    for name in ("db_query", "db_tables", "db_schema"):
        usable, how = described[name]
        assert "data_sources=[NAME]" not in usable
        assert "data_sources=[NAME]" in how
    assert not [one.title for one in missing.examples if "db_query" in one.code]


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE users SET name = 'x'",
        "UPDATE documents SET title = 'x' WHERE id = 1",
        "UPDATE documents SET processed = (f_definer() = 1) WHERE id = 1",
        "WITH x AS (UPDATE documents SET processed = true RETURNING id) SELECT * FROM x",
        "DELETE FROM documents",
        "INSERT INTO documents (title) VALUES ('x')",
        "UPDATE documents SET processed = true",
    ],
)
async def test_other_changes_are_refused(place: Place, sql: str) -> None:
    """Another table, another column, a definer function, a CTE, and too many rows at once."""
    before = place.database.state()
    async with await place.open("changes", "docs") as sandbox:
        done = await python(
            sandbox,
            f"try:\n    db_query({sql!r})\nexcept DatabaseError as error:\n    print(error.reason)",
        )
    assert done.stdout.strip() in ("STATEMENT_NOT_ALLOWED", "QUERY_LIMIT_REACHED"), done.stderr
    assert place.database.state() == before


async def test_inside_and_outside_get_the_same(place: Place) -> None:
    """Rows, types, tables and schemas by db_query, by the command and by the SDK."""
    sql = "SELECT id, name, created_at FROM users WHERE id = :id"
    async with await place.open("same", "app") as sandbox:
        code = f"""
async def main():
    awaited = await db_query({sql!r}, {{"id": 7}})
    plain = db_query({sql!r}, {{"id": 7}})
    assert awaited == plain, (awaited, plain)
    assert plain[0]["created_at"].tzinfo is not None
    print(json.dumps(plain, default=str))
    print(json.dumps([table["name"] for table in await db_tables()]))
    print(db_schema("documents"))
asyncio.run(main())
"""
        done = await python(sandbox, code)
        assert done.exit_code == 0, done.stderr
        rows, tables, schema = done.stdout.splitlines()
        outside = await sandbox.data.query(sql, {"id": 7})
        assert json.loads(rows) == json.loads(json.dumps(outside, default=str))
        assert json.loads(tables) == [table.name for table in await sandbox.data.tables()]
        assert schema.startswith("documents(id integer pk, title text")
        assert "-> users.id" in schema
        assert schema.endswith("What users wrote")
        shell = await sandbox.commands.run(
            f'sandboxd-sql --format json --param id=7 "{sql}" && sandboxd-sql --tables'
        )
        assert '"name": "user 7"' in shell.stdout
        assert "documents" in shell.stdout
        refused = await sandbox.commands.run("sandboxd-sql 'DROP TABLE users'")
        assert (refused.exit_code, "not allowed" in refused.stderr) == (1, True)


async def test_a_session_has_what_it_asked_for(place: Place) -> None:
    """Without data sources there is no door; with one, the other cannot be used, until it is
    added; sources of other users do not exist."""
    async with await place.open("none") as sandbox:
        found = await sandbox.commands.run("grep -c sandboxd-data /proc/net/unix")
        assert found.stdout.strip() == "0"
        at_once = await sandbox.commands.run("sandboxd-sql 'SELECT 1'", timeout=20)
        assert (at_once.exit_code, "data_sources=" in at_once.stderr) == (1, True)
    async with await place.open("some", "app") as sandbox:
        assert (await sandbox.commands.run("echo $SANDBOXD_DATA_DOOR")).stdout == "1\n"
        ask = (
            "try:\n    print(db_query('SELECT 1 AS x', source='lite'))\n"
            "except DatabaseError as error:\n    print(error.reason)"
        )
        assert (await python(sandbox, ask)).stdout.strip() == "DATA_SOURCE_NOT_FOUND"
        with pytest.raises(DataSourceNotFoundError):
            await sandbox.data.query("SELECT 1", source="lite")
        async with await place.open("some", "lite") as again:
            assert again.info.data_sources == ["app", "lite"]
            assert (await python(again, ask)).stdout.strip() == "[{'x': 1}]"
    with pytest.raises(DataSourceNotFoundError, match="app, docs, lite"):
        await place.open("foreign", "private")


async def test_queries_go_on_after_a_kill_of_the_daemon(place: Place) -> None:
    """Reads are repeated; a change is made once, or its outcome is reported as unknown."""
    async with await place.open("killed", "docs") as sandbox:
        place.database.execute("TRUNCATE events")
        program = (
            PRELUDE
            + """
import os, time
made, unknown = 0, 0
number = 0
while not os.path.exists("stop"):
    number += 1
    assert db_query("SELECT :n AS n", {"n": number})[0]["n"] == number
    try:
        db_query("INSERT INTO events VALUES (:n)", {"n": number})
        made += 1
    except DatabaseError as error:
        assert error.reason == "QUERY_OUTCOME_UNKNOWN", error
        unknown += 1
    time.sleep(0.01)
print(json.dumps([number, made, unknown]))
"""
        )
        await sandbox.files.write("loop.py", program)
        handle = await sandbox.commands.run("python3 loop.py", background=True, timeout=280)
        for _ in range(2):
            count = place.database.execute("SELECT count(*) FROM events")[0][0]
            while place.database.execute("SELECT count(*) FROM events")[0][0] < count + 5:
                await asyncio.sleep(0.05)
            await place.daemon.signal(signal.SIGKILL)
            await place.daemon.start()
        await sandbox.files.write("stop", "")
        done = await handle.wait()
        assert done.exit_code == 0, done.stderr
        number, made, unknown = json.loads(done.stdout)
    stored = [row[0] for row in place.database.execute("SELECT n FROM events ORDER BY n")]
    assert len(set(stored)) == len(stored)
    assert made <= len(stored) <= made + unknown
    assert number == made + unknown
    assert unknown <= 2


async def test_credentials_are_nowhere(place: Place) -> None:
    """Neither in the sandbox, nor in answers, errors, listings, logs, settings or process lists."""
    host = place.database.admin.split()[0].removeprefix("host=")
    async with await place.open("spy", "app") as sandbox:
        found = await sandbox.commands.run(
            f"grep -rsl -e {PASSWORD} -e {host} /workspace /.sandboxd /etc /tmp "
            "/proc/[0-9]*/environ /proc/[0-9]*/cmdline | grep -v '/proc/self' | head",
            timeout=60,
        )
        mentioned = [line for line in found.stdout.splitlines() if "cmdline" not in line]
        assert mentioned == []
        with pytest.raises(StatementNotAllowedError) as refused:
            await sandbox.data.query("SELECT * FROM secrets")
        async with AsyncSandboxClient(server_url=place.url) as client:
            listed = await client.data.sources("ada")
    seen = f"{refused.value} {refused.value.metadata} {listed}"
    shown = await asyncio.create_subprocess_exec(
        *(place.daemon.program[0], "-m", "sandboxd", "config", "show"),
        env=place.daemon.environment,
        stdout=asyncio.subprocess.PIPE,
    )
    seen += (await shown.communicate())[0].decode()
    seen += place.daemon.log.read_text() + json.dumps(place.audit())
    seen += _command_lines()
    assert PASSWORD not in seen
    assert "user=reader" not in seen


def _command_lines() -> str:
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(file.read_bytes().decode(errors="replace"))
        except OSError:
            pass  # it ended meanwhile
    return "\n".join(line for line in lines if "sandboxd.data.worker" in line)


async def test_every_query_is_in_the_audit_log(place: Place) -> None:
    """Who, session, source, statement, rows and time; refused ones too; no values."""
    async with await place.open("audited", "app") as sandbox:
        session = sandbox.session_id
        await sandbox.data.query("SELECT id FROM users WHERE name = :who", {"who": "user 5"})
        with pytest.raises(StatementNotAllowedError):
            await sandbox.data.query("SELECT pg_sleep(1)")
        await python(sandbox, "db_query('SELECT 1')")
        async with AsyncSandboxClient(server_url=place.url) as client:
            queries = [q for q in await client.data.queries("ada") if q.session_id == session]
        assert [q.outcome for q in queries] == ["OK", "STATEMENT_NOT_ALLOWED", "OK"]

        def entries() -> list[dict[str, Any]]:
            return [entry for entry in place.audit() if entry.get("session") == session]

        async with asyncio.timeout(20):
            while len(entries()) < 3:
                await asyncio.sleep(0.05)
    first, second, third = entries()
    assert (first["user"], first["source"], first["rows"]) == ("ada", "app", 1)
    assert first["statement"] == "SELECT id FROM users WHERE name = :who"
    assert first["params"] == {"who": "str"}
    assert "user 5" not in json.dumps(first)
    assert first["seconds"] > 0
    assert (second["outcome"], second["rule"]) == ("STATEMENT_NOT_ALLOWED", "FUNCTION")
    assert third["who"] == "sandbox"


async def test_code_contexts_have_the_helpers(place: Place) -> None:
    """In a session with data sources they are builtins, awaited or not, and its policy allows it;
    in one without they say how to get one."""
    async with await place.open("context", "docs") as sandbox:
        run = await sandbox.code.run(
            "rows = await db_query('SELECT id FROM users WHERE id = :id', {'id': 3})\n"
            "[rows == db_query('SELECT 3 AS id'), rows[0]['id'], str(db_schema('events'))]",
            timeout=60,
        )
        assert run.error is None, run.error
        assert run.result == [True, 3, "events(n integer)"]
        case = (USE_CASES / "debugging.txt").read_text()
        run = await sandbox.code.run(case, timeout=60)
        assert run.error is None, run.error
        assert run.result["valid_output_count"] == 3
    async with await place.open("plain-context") as sandbox:
        run = await sandbox.code.run("db_query('SELECT 1')", timeout=60)
        assert run.error is not None
        assert "data_sources=" in run.error.message
