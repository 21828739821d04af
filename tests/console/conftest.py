"""A browser and a daemon with a console, shared by the tests of a module."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

from sandboxd.access import Caller, Scope
from sandboxd.access.token_file import hash_of, line, new_token
from tests.console.tab import Tab, opened_tab
from tests.data.rig import sqlite_file
from tests.docker.daemon_process import DaemonProcess, running_daemon
from tests.ports import free_port

FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    "--host-resolver-rules=MAP rebound.test 127.0.0.1",
]
DOCKERFILE = """ARG BASE
FROM $BASE
USER root
RUN echo {} > /etc/greeting
RUN sleep 1
RUN sleep 2
"""
"""Different each time, or the engine would have it from its cache."""
BROKEN = """ARG BASE
FROM $BASE
RUN echo it lacks a part; exit 7
"""
SQLITE_TABLES = ["users", "documents", "watched"]
CALLERS = {
    "ops": Caller(name="ops", scope=Scope.ADMIN),
    "ada": Caller(name="ada", scope=Scope.USER, user_id="ada"),
    "board": Caller(name="board", scope=Scope.READ_ONLY),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def daemon(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[DaemonProcess]:
    """With a data source, and environments that are not built."""
    directory = tmp_path_factory.mktemp("daemon")
    environments = {}
    recipes = {"greeting": DOCKERFILE.format(secrets.token_hex(8)), "broken": BROKEN}
    for name, recipe in recipes.items():
        dockerfile = directory / name
        dockerfile.write_text(recipe)
        environments[name] = {"description": f"The {name} one", "dockerfile": str(dockerfile)}
    source = {"engine": "sqlite", "path": str(sqlite_file(directory)), "tables": SQLITE_TABLES}
    async with running_daemon(
        SANDBOXD_CONSOLE_PORT=str(free_port()),
        POOL_SIZE="3",
        SANDBOXD_GRACE_SECONDS="60",
        SANDBOXD_ENVIRONMENTS=json.dumps(environments),
        SANDBOXD_DATA_SOURCES=json.dumps({"lite": source}),
    ) as daemon:
        yield daemon


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tokens(tmp_path_factory: object) -> dict[str, str]:
    return {who: new_token() for who in CALLERS}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(
    tokens: dict[str, str], tmp_path_factory: object
) -> AsyncIterator[tuple[DaemonProcess, Path]]:
    """A daemon that asks for tokens, and its token file."""
    path = Path(tmp_path_factory.mktemp("tokens")) / "tokens"  # type: ignore[attr-defined]
    path.write_text(
        "\n".join(line(caller, hash_of(tokens[who])) for who, caller in CALLERS.items())
    )
    async with running_daemon(
        SANDBOXD_CONSOLE_PORT=str(free_port()),
        SANDBOXD_TOKENS_FILE=str(path),
        POOL_SIZE="1",
        SANDBOXD_COMMAND_POLICY="strict",
    ) as daemon:
        yield daemon, path


@pytest_asyncio.fixture(loop_scope="module")
async def tab(browser: Browser, daemon: DaemonProcess) -> AsyncIterator[Tab]:
    """A tab that is logged in as the host. No test may leave an error in its console."""
    async with opened_tab(browser, daemon) as tab:
        await tab.log_in()
        yield tab
        assert tab.complaints == [], await tab.violations()
        await tab.close_sessions()


@pytest_asyncio.fixture(loop_scope="module")
async def patient() -> AsyncIterator[None]:
    async with asyncio.timeout(240):
        yield
