"""A service that runs code for agents; tests/seeds runs programs that were written for one."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing

import pytest
import pytest_asyncio

from sandboxd_client import InvalidRequestError
from sandboxd_client.integrations.code_templates import PROCESSOR_KINDS, processor_template
from sandboxd_client.integrations.sandbox_service import SandboxService, get_db_session
from tests.docker.daemon_process import DaemonProcess, running_daemon

pytestmark = pytest.mark.asyncio(loop_scope="session")

ALLOWED = [
    *("import json, datetime, math, random, collections", "import pandas, numpy"),
    *("import re, string", "import requests, aiohttp", "from urllib.parse import quote"),
]
BLOCKED = [
    *("import os", "import sys", "import subprocess", "import socket", "import urllib.request"),
    *("eval('1')", "exec('1')", "compile('1', '', 'eval')", "globals()", "locals()", "vars()"),
]


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
async def service(
    daemon: DaemonProcess, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SandboxService]:
    monkeypatch.setenv("SANDBOXD_URL", f"unix:{daemon.socket}")
    monkeypatch.setenv("SANDBOXD_DATA_SOURCE", "app")
    async with SandboxService(await get_db_session()) as service:
        yield service


@pytest_asyncio.fixture(loop_scope="session")
async def sandbox_id(service: SandboxService) -> str:
    return await service.create_agent_sandbox(user_id=1)


async def test_line_that_fails_is_the_last(service: SandboxService, sandbox_id: str) -> None:
    """Its outcome says so, with the exception."""
    steps = [step async for step in service.debug_code(sandbox_id, "a = 1\nb = a / 0\nc = 2")]

    assert [step["line_number"] for step in steps] == [1, 2]
    assert [step["result"].status for step in steps] == ["completed", "failed"]
    assert "ZeroDivisionError" in steps[-1]["result"].error


async def test_code_that_does_not_begin_is_one_step(
    service: SandboxService, sandbox_id: str
) -> None:
    """Refused, or no Python: the line where it is, with the reason; nothing has run."""
    for code in ("a = 1\nimport os", "a = 1\nif a"):
        (step,) = [step async for step in service.debug_code(sandbox_id, code)]
        assert (step["line_number"], step["line_code"]) == (2, code.partition("\n")[2])
        assert step["result"].status == "failed"
        assert step["state"]["variables"] == {}


async def test_policy_of_new_sandboxes(service: SandboxService, sandbox_id: str) -> None:
    """Modules that compute and fetch, and nothing that evaluates text or leaves the interpreter,
    unless the configuration names another policy."""
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


async def test_state_stays_and_debug_info_comes_along(
    service: SandboxService, sandbox_id: str
) -> None:
    """From one call to the next, with what `debug` and `inspect_var` wrote."""
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


@pytest.mark.parametrize("kind", [*PROCESSOR_KINDS, "my_own"])
async def test_every_template_runs_as_it_is(
    service: SandboxService, sandbox_id: str, kind: str
) -> None:
    """Before anything is changed in it."""
    result = await service.execute_code(sandbox_id, processor_template(kind))
    assert result.status == "completed", result
    assert result.result["processor"] == kind
    assert result.result["failed"] == []


async def test_analysis(service: SandboxService, sandbox_id: str) -> None:
    """Numbers and texts of a table, column by column."""
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


async def test_functions_and_examples(service: SandboxService, sandbox_id: str) -> None:
    """What the daemon lists; each example runs."""
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


async def test_quick_execution(service: SandboxService) -> None:
    """A sandbox for one call, with the database; afterwards it is gone."""
    before = (await service.get_sandbox_statistics())["active_sandboxes"]
    result = await service.quick_execute(7, "__result__ = len(db_query('SELECT * FROM users'))")
    assert (result.status, result.result) == ("completed", 3)
    assert (await service.get_sandbox_statistics())["active_sandboxes"] == before


@pytest.mark.usefixtures("service")
async def test_service_without_a_database() -> None:
    """Queries say which variable is missing, from outside and to code."""
    async with SandboxService() as service:
        sandbox_id = await service.create_agent_sandbox(1)
        with pytest.raises(InvalidRequestError, match="SANDBOXD_DATA_SOURCE"):
            await service.query_database(sandbox_id, "SELECT 1")
        inside = await service.execute_code(sandbox_id, "await db_query('SELECT 1')")
        assert "data_sources=" in str(inside.error)
        await service.cleanup_sandbox(sandbox_id)


async def test_wrong_configuration_is_refused(service: SandboxService) -> None:
    """With the names that there are; nothing is left behind."""
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
