"""Programs written for an earlier service of agents run with only their imports changed."""

from __future__ import annotations

import ast
import inspect
import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest
import pytest_asyncio

from sandboxd_client import InvalidRequestError
from sandboxd_client.integrations.code_templates import PROCESSOR_KINDS, processor_template
from sandboxd_client.integrations.sandbox_service import SandboxService
from tests.docker.daemon_process import DaemonProcess, running_daemon

pytestmark = pytest.mark.asyncio(loop_scope="session")

CREATE = """
from sandboxd_client.integrations.sandbox_service import SandboxService
from sandboxd_client.integrations.sandbox_service import get_db_session

# Create sandbox service
db_session = await get_db_session()
service = SandboxService(db_session)

# Create sandbox for user
sandbox_id = await service.create_agent_sandbox(
    user_id=1,
    config={
        'max_execution_time': 30,
        'max_memory_mb': 256,
        'enable_debugging': True
    }
)
"""

DEBUG = '''
# Debug code step by step
debug_code = """
data = [1, 2, 3, 4, 5]
debug('Starting processing', 'INFO')

result = []
for item in data:
    processed = item * 2
    result.append(processed)
    debug(f'Processed item {item} -> {processed}', 'DEBUG')

debug('Processing complete', 'INFO')
__result__ = result
"""

async for debug_step in service.debug_code(sandbox_id, debug_code):
    print(f"Line {debug_step['line_number']}: {debug_step['line_code']}")
    print(f"Result: {debug_step['result'].status}")
    print(f"Variables: {debug_step['state']['variables']}")
'''

EXECUTE = '''
# Simple data processing
code = """
# Get data from database
users = await db_query('SELECT * FROM users LIMIT 10')
debug(f'Retrieved {len(users)} users', 'INFO')

# Process data
processed_users = []
for user in users:
    processed_user = {
        'id': user['id'],
        'name': user.get('name', 'Unknown'),
        'email': user.get('email', ''),
        'domain': user.get('email', '').split('@')[-1] if '@' in user.get('email', '') else 'unknown'
    }
    processed_users.append(processed_user)

# Set result
__result__ = {
    'total_users': len(users),
    'processed_users': processed_users
}
"""

result = await service.execute_code(sandbox_id, code)
print(f"Status: {result.status}")
print(f"Result: {result.result}")
print(f"Debug info: {result.debug_info}")
'''  # noqa: E501

QUERY = """
# Query database
query_result = await service.query_database(
    sandbox_id,
    "SELECT COUNT(*) as user_count FROM users WHERE created_at > :date",
    {"date": "2024-01-01"}
)

# Get database schema
schema = await service.get_database_schema(sandbox_id)
print(f"Available tables: {schema['tables']}")
"""

ERRORS = """
# Always handle errors gracefully
code = "1 / 0"
try:
    result = await service.execute_code(sandbox_id, code)
    if result.status == 'failed':
        print(f"Execution failed: {result.error}")
        print(f"Debug info: {result.debug_info}")
except Exception as e:
    print(f"Service error: {e}")
"""

PROCESSOR = """
# Create processor template
template = await service.create_processor_template(
    sandbox_id,
    "data_processor"
)

# Modify template and test
modified_code = template.replace(
    "# Add your transformation logic here",
    "return {'transformed': True, 'data': data}"
)

# Test the processor
result = await service.execute_code(sandbox_id, modified_code)
"""

STATISTICS = """
stats = await service.get_sandbox_statistics()
print(f"Active sandboxes: {stats['active_sandboxes']}")
print(f"Success rate: {stats['success_rate']:.2f}%")
print(f"Average execution time: {stats['average_execution_time']:.2f}s")
"""

HISTORY = """
history = await service.get_execution_history(sandbox_id)
for execution in history:
    print(f"Execution {execution['execution_id']}: {execution['status']}")
"""

ALLOWED = [
    *("import json, datetime, math, random, collections", "import pandas, numpy"),
    *("import re, string", "import requests, aiohttp", "from urllib.parse import quote"),
]
BLOCKED = [
    *("import os", "import sys", "import subprocess", "import socket", "import urllib.request"),
    *("eval('1')", "exec('1')", "compile('1', '', 'eval')", "globals()", "locals()", "vars()"),
]

CLEANUP = """
# Always clean up when done
await service.cleanup_sandbox(sandbox_id)
"""


class Program:
    """Snippets that share their names, as a page shows one after the other."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"print": self._print}
        self.printed: list[str] = []

    def _print(self, *words: object) -> None:
        self.printed.append(" ".join(map(str, words)))

    async def run(self, snippet: str) -> list[str]:
        """What it printed."""
        self.printed.clear()
        code = compile(snippet, "snippet", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        answer = eval(code, self.names)
        if inspect.iscoroutine(answer):
            await answer
        return list(self.printed)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DaemonProcess]:
    """With a database of users."""
    path = tmp_path_factory.mktemp("data") / "app.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE users (id INTEGER, name TEXT, email TEXT, created_at TEXT)")
        rows = [(n, f"user {n}", f"user{n}@example.org", f"2024-0{n}-01") for n in (1, 2, 3)]
        database.executemany("INSERT INTO users VALUES (?, ?, ?, ?)", rows)
        database.commit()
    sources = {"app": {"engine": "sqlite", "path": str(path)}}
    async with running_daemon(POOL_SIZE="2", SANDBOXD_DATA_SOURCES=json.dumps(sources)) as daemon:
        yield daemon


@pytest_asyncio.fixture(loop_scope="session")
async def program(daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Program]:
    """After its first snippet."""
    monkeypatch.setenv("SANDBOXD_URL", f"unix:{daemon.socket}")
    monkeypatch.setenv("SANDBOXD_DATA_SOURCE", "app")
    program = Program()
    await program.run(CREATE)
    yield program
    await program.names["service"].aclose()


async def test_debugging_line_by_line(program: Program) -> None:
    """Each line with its outcome, and the variables after it."""
    printed = await program.run(DEBUG)

    lines = [line for line in printed if line.startswith("Line ")]
    assert lines[0] == "Line 2: data = [1, 2, 3, 4, 5]"
    assert lines[-1] == "Line 12: __result__ = result"
    assert lines.count("Line 7: processed = item * 2") == 5
    assert {line for line in printed if line.startswith("Result")} == {"Result: completed"}
    shown = [line for line in printed if line.startswith("Variables")]
    assert "'data': '[1, 2, 3, 4, 5]'" in shown[0]
    assert "'result': '[2, 4, 6, 8, 10]'" in shown[-1]


async def test_line_that_fails_is_the_last(program: Program) -> None:
    """Its outcome says so, with the exception."""
    service, sandbox_id = program.names["service"], program.names["sandbox_id"]
    steps = [step async for step in service.debug_code(sandbox_id, "a = 1\nb = a / 0\nc = 2")]

    assert [step["line_number"] for step in steps] == [1, 2]
    assert [step["result"].status for step in steps] == ["completed", "failed"]
    assert "ZeroDivisionError" in steps[-1]["result"].error


async def test_code_that_does_not_begin_is_one_step(program: Program) -> None:
    """Refused, or no Python: the line where it is, with the reason; nothing has run."""
    service, sandbox_id = program.names["service"], program.names["sandbox_id"]
    for code in ("a = 1\nimport os", "a = 1\nif a"):
        (step,) = [step async for step in service.debug_code(sandbox_id, code)]
        assert (step["line_number"], step["line_code"]) == (2, code.partition("\n")[2])
        assert step["result"].status == "failed"
        assert step["state"]["variables"] == {}


async def test_policy_of_new_sandboxes(program: Program) -> None:
    """Modules that compute and fetch, and nothing that evaluates text or leaves the interpreter,
    unless the configuration names another policy."""
    service, sandbox_id = program.names["service"], program.names["sandbox_id"]
    sandbox = await service._sandbox(sandbox_id)
    for line in ALLOWED:
        assert (await sandbox.code.check(line)).allowed, line
    for line in BLOCKED:
        assert not (await sandbox.code.check(line)).allowed, line
    refused = await service.execute_code(sandbox_id, "x = 1\nimport os")
    assert refused.status == "failed"
    assert "the module `os` is not allowed by the policy `strict`" in refused.error
    assert (await service.quick_execute(7, "import os")).status == "failed"
    free = await service.create_agent_sandbox(1, {"policy": "open"})
    assert (await service.execute_code(free, "import os\nos.getpid()")).status == "completed"
    await service.cleanup_sandbox(free)


async def test_code_queries_the_database(program: Program) -> None:
    """The first program of the page, and the queries from outside."""
    printed = await program.run(EXECUTE)
    assert printed[0] == "Status: completed", program.names["result"]
    assert program.names["result"].result["total_users"] == 3
    assert program.names["result"].result["processed_users"][0]["domain"] == "example.org"
    printed = await program.run(QUERY)
    assert program.names["query_result"] == [{"user_count": 2}]
    assert printed == ["Available tables: ['users']"]


async def test_error_is_an_outcome(program: Program) -> None:
    """Not an exception of the service."""
    printed = await program.run(ERRORS)
    assert printed[0] == "Execution failed: ZeroDivisionError: division by zero"
    assert printed[1].startswith("Debug info: {")


async def test_state_stays_and_debug_info_comes_along(program: Program) -> None:
    """From one call to the next, with what `debug` and `inspect_var` wrote."""
    service, sandbox_id = program.names["service"], program.names["sandbox_id"]
    await service.execute_code(sandbox_id, "x = 20")
    result = await service.execute_code(
        sandbox_id, "debug('begun', 'INFO')\ninspect_var('x', x)\n__result__ = x * 2"
    )
    assert (result.status, result.result, result["result"]) == ("completed", 40, 40)
    assert result.debug_info["logs"][0]["message"] == "begun"
    assert result.debug_info["variables"]["x"] == {"type": "int", "value": "20"}
    state = await service.get_sandbox_state(sandbox_id)
    assert state["variables"]["x"] == "20"
    assert (await service.get_sandbox_status(sandbox_id))["status"] == "active"


async def test_processor_template(program: Program) -> None:
    """With the replaced line it runs and returns what that returns."""
    await program.run(PROCESSOR)
    result = program.names["result"]
    assert result.status == "completed", result
    assert result.result["processed"][0] == {"transformed": True, "data": {"id": 1, "value": 10}}


@pytest.mark.parametrize("kind", [*PROCESSOR_KINDS, "my_own"])
async def test_every_template_runs_as_it_is(program: Program, kind: str) -> None:
    """Before anything is changed in it."""
    service, sandbox_id = program.names["service"], program.names["sandbox_id"]
    result = await service.execute_code(sandbox_id, processor_template(kind))
    assert result.status == "completed", result
    assert result.result["processor"] == kind
    assert result.result["failed"] == []


async def test_analysis(program: Program) -> None:
    """Numbers and texts of a table, column by column."""
    service, sandbox_id = program.names["service"], program.names["sandbox_id"]
    rows = [{"city": "Oslo", "sold": 3}, {"city": "Oslo", "sold": 5}, {"city": None, "sold": 4}]
    result = await service.analyze_data(sandbox_id, rows)
    assert result.status == "completed", result
    found = result.result["columns"]
    assert (found["sold"]["mean"], found["sold"]["max"]) == (4, 5)
    assert (found["city"]["missing"], found["city"]["most_common"]) == (1, [["Oslo", 2]])
    with pytest.raises(InvalidRequestError, match="give one of them"):
        await service.analyze_data(sandbox_id)
    with pytest.raises(InvalidRequestError, match="write a larger table"):
        await service.analyze_data(sandbox_id, [{"x": "y" * 300_000}])


async def test_functions_and_examples(program: Program) -> None:
    """What the daemon lists; each example runs."""
    service, sandbox_id = program.names["service"], program.names["sandbox_id"]
    found = await service.get_available_functions(sandbox_id)
    names = {function["name"] for function in found["functions"]}
    assert {"debug", "inspect_var", "db_query", "db_tables", "db_schema"} <= names
    examples = await service.get_code_examples(sandbox_id)
    assert examples
    for example in examples:
        if "db_" in example["code"]:
            continue  # they need tables that are in the database of tests/docker/test_data.py
        result = await service.execute_code(sandbox_id, example["code"])
        assert result.status == "completed", (example["title"], result)


async def test_history_statistics_and_cleanup(program: Program) -> None:
    """What ran, in percent and seconds; afterwards the sandbox is gone."""
    service, sandbox_id = program.names["service"], program.names["sandbox_id"]
    await service.execute_code(sandbox_id, "1")
    await service.execute_code(sandbox_id, "1 / 0")
    printed = await program.run(HISTORY)
    assert [line.rpartition(": ")[2] for line in printed] == ["failed", "completed"]
    printed = await program.run(STATISTICS)
    assert int(printed[0].rpartition(" ")[2]) >= 1
    assert printed[1].endswith("%")
    await program.run(CLEANUP)
    assert (await service.get_sandbox_status(sandbox_id))["status"] == "closed"


async def test_quick_execution(program: Program) -> None:
    """A sandbox for one call, with the database; afterwards it is gone."""
    service = program.names["service"]
    before = (await service.get_sandbox_statistics())["active_sandboxes"]
    result = await service.quick_execute(7, "__result__ = len(db_query('SELECT * FROM users'))")
    assert (result.status, result.result) == ("completed", 3)
    assert (await service.get_sandbox_statistics())["active_sandboxes"] == before


async def test_service_without_a_database(program: Program) -> None:
    """Queries say which variable is missing, from outside and to code."""
    async with SandboxService() as service:
        sandbox_id = await service.create_agent_sandbox(1)
        with pytest.raises(InvalidRequestError, match="SANDBOXD_DATA_SOURCE"):
            await service.query_database(sandbox_id, "SELECT 1")
        inside = await service.execute_code(sandbox_id, "await db_query('SELECT 1')")
        assert "data_sources=" in str(inside.error)
        await service.cleanup_sandbox(sandbox_id)


async def test_wrong_configuration_is_refused(program: Program) -> None:
    """With the names that there are; nothing is left behind."""
    service: SandboxService = program.names["service"]
    for config in ({"memory": 1}, {"max_memory_mb": 0}, {"max_threads": "many"}):
        with pytest.raises(InvalidRequestError, match="config"):
            await service.create_agent_sandbox(1, config)
    with pytest.raises(InvalidRequestError):
        await service.create_agent_sandbox(2, {"policy": "no-such-policy"})
    with pytest.raises(InvalidRequestError, match=r"268435456.*SANDBOXD_CODE_MEMORY"):
        await service.create_agent_sandbox(2, {"max_memory_mb": 512})
    off = await service.create_agent_sandbox(1, {"enable_debugging": False})
    with pytest.raises(InvalidRequestError, match="enable_debugging"):
        async for _ in service.debug_code(off, "x = 1"):
            pass
    await service.cleanup_sandbox(off)
