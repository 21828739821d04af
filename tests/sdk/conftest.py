"""Four ways to use the SDK, on real sandboxes; each daemon serves all tests."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.docker.daemon_process import RUNTIME, DaemonProcess, first_uid, running_daemon
from tests.sdk.faces import Face

WAYS = ("local-async", "local-sync", "remote-async", "remote-sync")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Each way stays on one worker, or every worker would have daemons for all of them."""
    for item in items:
        if isinstance(item, pytest.Function) and "face" in item.fixturenames:
            item.add_marker(pytest.mark.xdist_group(item.callspec.params["face"]))


@asynccontextmanager
async def local_settings() -> AsyncIterator[dict[str, Any]]:
    """Settings of a daemon in this process with directories of its own."""
    directory = Path(tempfile.mkdtemp(prefix="sbx-"))
    yield {
        "state_dir": directory / "state",
        "run_dir": directory / "run",
        "guest_runtime": RUNTIME,
        "sandbox_uid_start": first_uid(),
        "pool_size": 2,
        "max_workspace_mb": 64,
        "command_policy": "open",
    }
    await asyncio.to_thread(shutil.rmtree, directory)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def sdk_daemon() -> AsyncIterator[DaemonProcess]:
    """A daemon in a process of its own."""
    async with running_daemon(POOL_SIZE="2") as daemon:
        yield daemon


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=WAYS)
async def face(request: pytest.FixtureRequest, sdk_daemon: DaemonProcess) -> AsyncIterator[Face]:
    """One way after the other."""
    where, _, kind = request.param.partition("-")
    if where == "remote":
        yield Face(request.param, kind == "sync", {"server_url": f"unix:{sdk_daemon.socket}"})
        return
    async with local_settings() as settings:
        face = Face(request.param, kind == "sync", {"mode": "local", "local_settings": settings})
        # Held open, or the daemon would end with the client of each test.
        async with face.client() as holder:
            await holder.server_status()
            yield face


@pytest.fixture
def thread(request: pytest.FixtureRequest) -> str:
    """A conversation of the test's own."""
    return str(request.node.nodeid)[-200:]
