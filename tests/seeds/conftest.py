"""For all documents: one daemon, one daemon in this process, and the database that they query."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sandboxd_client import SandboxClient
from tests.data.rig import Database, running_database
from tests.docker.daemon_process import RUNTIME, DaemonProcess, first_uid, running_daemon
from tests.ports import free_port
from tests.seeds.document import Document, blocks, settings_of

Documents = Callable[..., Document]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On one worker, or every worker would have these daemons."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.xdist_group("seeds"))


@pytest.fixture(scope="package")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with running_database(tmp_path_factory.mktemp("database")) as database:
        yield database


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def daemon(
    database: Database, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DaemonProcess]:
    """As it is by default, on TCP, with a source whose documents may be changed."""
    directory = tmp_path_factory.mktemp("dsn")
    for name in ("reader", "writer"):
        (directory / name).write_text(database.as_(name))
        (directory / name).chmod(0o600)
    source = {
        "engine": "postgresql",
        "dsn_file": str(directory / "reader"),
        "write_dsn_file": str(directory / "writer"),
        "writes": ["public.documents"],
    }
    async with running_daemon(
        HOST="127.0.0.1",
        PORT=str(free_port()),
        SANDBOXD_COMMAND_POLICY="strict",
        SANDBOXD_DATA_SOURCES=json.dumps({"app": source}),
    ) as daemon:
        yield daemon


def local_settings(directory: Path) -> dict[str, str]:
    """The environment of a program with a daemon in it: the settings of document 001, which are
    those of a service on several machines, but with less of the host than they ask for."""
    return {
        **settings_of(blocks("001")[9].text),
        "SANDBOXD_STATE_DIR": str(directory / "state"),
        "SANDBOXD_RUN_DIR": str(directory / "run"),
        "SANDBOXD_GUEST_RUNTIME": str(RUNTIME),
        "SANDBOXD_UID_START": str(first_uid()),
        "POOL_SIZE": "2",
        "MIN_POOL_SIZE": "0",
        "MAX_WORKSPACE_SIZE_MB": "64",
    }


@pytest.fixture(scope="package")
def local_mode() -> Iterator[None]:
    """A daemon in this process, for every client with mode="local"."""
    with tempfile.TemporaryDirectory(prefix="sbx-") as directory, contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in local_settings(Path(directory)).items():
                patch.setenv(name, value)
            client = stack.enter_context(SandboxClient(mode="local"))
            client.server_status()
        yield


@pytest.fixture
def closed_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Closes the clients that a document leaves open."""
    made: list[SandboxClient] = []
    create = SandboxClient.__init__

    def create_and_remember(client: SandboxClient, *arguments: Any, **named: Any) -> None:
        create(client, *arguments, **named)
        made.append(client)

    monkeypatch.setattr(SandboxClient, "__init__", create_and_remember)
    yield
    for client in made:
        client.close()


@pytest.fixture
def document(
    daemon: DaemonProcess,
    closed_clients: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Documents]:
    """Opens a document: its servers are the daemon, its files on the host are in tmp_path, and the
    programs run in an empty directory."""
    servers = ("localhost:5000", "localhost:8000", "sandbox-server:8000")
    replaced = dict.fromkeys(servers, f"127.0.0.1:{daemon.environment['PORT']}")
    replaced["/local/"] = f"{tmp_path}/"
    opened: list[Document] = []

    def open_document(number: str, **names: Any) -> Document:
        opened.append(Document(number, replaced, **names))
        return opened[-1]

    directory = tmp_path / "current"
    directory.mkdir()
    monkeypatch.chdir(directory)
    monkeypatch.setattr("sys.path", [*sys.path])
    yield open_document
    for one in opened:
        one.close()
