"""Examples run: those of every docstring, sync and async, and the programs in examples/."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import re
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import pytest_asyncio

import sandboxd_client
from sandboxd_client import AsyncSandbox, AsyncSandboxClient, Sandbox, SandboxClient, sync
from tests.docker.daemon_process import DaemonProcess, running_daemon
from tests.ports import free_port

ROOT = Path(__file__).parents[2]


def needs_a_daemon_alone(program: Path) -> bool:
    """Whether it imports nothing but this package and what Python has; others need a model too."""
    nodes = list(ast.walk(ast.parse(program.read_text())))
    names = [one.name for node in nodes if isinstance(node, ast.Import) for one in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.split(".")[0] for name in names} <= {"sandboxd_client", *sys.stdlib_module_names}


PROGRAMS = sorted(filter(needs_a_daemon_alone, (ROOT / "examples").glob("*.py")))

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def daemon() -> AsyncIterator[DaemonProcess]:
    """As it is by default, with its strict policy, and with a data source."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "shop.sqlite"
        with closing(sqlite3.connect(path)) as shop:
            shop.executescript(
                "CREATE TABLE orders (id INT, name); INSERT INTO orders VALUES (1, 'x')"
            )
        sources = json.dumps({"shop": {"engine": "sqlite", "path": str(path)}})
        async with running_daemon(
            POOL_SIZE="3",
            SANDBOXD_COMMAND_POLICY="strict",
            SANDBOXD_DATA_SOURCES=sources,
            SANDBOXD_CONSOLE_PORT=str(free_port()),
        ) as daemon:
            yield daemon


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def async_names(daemon: DaemonProcess) -> AsyncIterator[dict[str, Any]]:
    """What async examples may use: the package, a sandbox and a client."""
    url = f"unix:{daemon.socket}"
    async with (
        await AsyncSandbox.create(server_url=url, data_sources=["shop"]) as sandbox,
        AsyncSandboxClient(server_url=url) as client,
    ):
        yield {**vars(sandboxd_client), "sandbox": sandbox, "client": client}


@pytest.fixture(scope="module")
def sync_names(daemon: DaemonProcess) -> Iterator[dict[str, Any]]:
    """The same for sync ones."""
    url = f"unix:{daemon.socket}"
    with (
        Sandbox.create(server_url=url, data_sources=["shop"]) as sandbox,
        SandboxClient(server_url=url) as client,
    ):
        yield {**vars(sandboxd_client), "sandbox": sandbox, "client": client}


@pytest.fixture
def place(daemon: DaemonProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that examples send, and a daemon found by the environment."""
    monkeypatch.setenv("SANDBOXD_URL", f"unix:{daemon.socket}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.csv").write_text("a,b\n1,2\n")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "main.py").write_text("print('hello')\n")
    with tarfile.open(tmp_path / "project.tar", "w") as archive:
        archive.add(tmp_path / "project", arcname=".")
    return tmp_path


def documented(module: ModuleType, *, is_async: bool) -> Iterator[Any]:
    """The example of each public class and method."""
    for name, kind in vars(module).items():
        if not inspect.isclass(kind) or kind.__module__ != module.__name__:
            continue
        members = [(name, kind)]
        members += [
            (f"{name}.{one}", getattr(value, "__func__", value))
            for one, value in vars(kind).items()
            if not one.startswith("_") and not isinstance(value, property)
        ]
        for full_name, member in members:
            doc = inspect.getdoc(member) or ""
            _, marker, example = doc.partition("Example:\n")
            if inspect.isfunction(member) or marker or is_face(name, is_async=is_async):
                yield pytest.param(textwrap.dedent(example), id=full_name)


def is_face(name: str, *, is_async: bool) -> bool:
    return name in sandboxd_client.__all__ and name.startswith("Async") == is_async


SYNC = list(documented(sync, is_async=False))
ASYNC = [
    example
    for name in (
        *("command_stream", "command_handle", "commands", "terminals", "files", "data"),
        *("code_stream", "step_stream", "code_handle", "debugger", "code"),
    )
    for example in documented(getattr(sandboxd_client, name), is_async=True)
    if str(example.id).startswith("Async")
]
ASYNC += documented(sandboxd_client.sandbox, is_async=True)
ASYNC += documented(sandboxd_client.client, is_async=True)


@pytest.mark.parametrize("example", SYNC)
async def test_sync_example_runs(example: str, place: Path, sync_names: dict[str, Any]) -> None:
    """Every class and method has one, and it does what it shows."""
    assert example.strip()

    def work() -> None:
        sync_names["client"].get_or_create_session("ada", "examples")
        exec(compile(example, "example", "exec"), dict(sync_names))

    await asyncio.to_thread(work)


@pytest.mark.parametrize("example", ASYNC)
async def test_async_example_runs(example: str, place: Path, async_names: dict[str, Any]) -> None:
    """The same for the async face."""
    assert example.strip()
    await async_names["client"].get_or_create_session("ada", "examples-async")
    code = compile(example, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    answer = eval(code, dict(async_names))
    if inspect.iscoroutine(answer):
        await answer


async def test_page_shows_what_runs() -> None:
    """Every piece of Python on the SDK's page is one of the examples, as it stands in the code."""
    page = (ROOT / "docs" / "sdk.md").read_text()
    shown = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    assert len(shown) > len(SYNC) / 2

    for example in shown:
        compile(example, "docs/sdk.md", "exec")
    assert {str(one.values[0]).strip() for one in SYNC} <= {one.strip() for one in shown}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
async def test_program_runs(program: Path, place: Path) -> None:
    """From the command line, with a daemon that the environment names."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "error", program],
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout
