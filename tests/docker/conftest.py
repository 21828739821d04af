"""One daemon for the tests that do not need one of their own."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiodocker
import pytest
import pytest_asyncio

from sandboxd.config import Config
from sandboxd.daemon.building import LocalBuilds
from sandboxd.environments.environment import PackageKind
from sandboxd_proto.v1 import session_service_pb2
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon

ROOT = Path(__file__).parents[2]
BUILD_SECONDS = 500.0


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_daemon() -> AsyncIterator[DaemonProcess]:
    async with running_daemon(POOL_SIZE="3") as daemon:
        yield daemon


@pytest.fixture
async def api(shared_daemon: DaemonProcess) -> AsyncIterator[Api]:
    async with shared_daemon.api() as api:
        yield api


@pytest.fixture
async def session_id(api: Api, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A session of its own for the test, closed afterwards."""
    opened = await api.sessions.OpenSession(
        session_service_pb2.OpenSessionRequest(
            user_id="tests", thread_id=request.node.nodeid[-200:]
        )
    )
    yield opened.session.session_id
    await api.sessions.CloseSession(
        session_service_pb2.CloseSessionRequest(session_id=opened.session.session_id)
    )


def until_built_by_others(environment: str) -> None:
    """scripts/test builds environments while tests run."""
    lock = ROOT / ".cache" / f"building-{environment}.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("a") as file:
        command = ["flock", "--timeout", str(BUILD_SECONDS), str(file.fileno())]
        subprocess.run(command, pass_fds=[file.fileno()], check=True)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def node(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Mapping[str, Any]]:
    """For tests with packages of npm: the environment node20, built, and one client for all."""
    directory = tmp_path_factory.mktemp("node")
    await asyncio.to_thread(until_built_by_others, "node20")
    async with LocalBuilds(Config(state_dir=directory)) as builds:
        build = builds.start("node20", rebuild=False)
        assert await build.wait(BUILD_SECONDS)
        built = await build.result()
    environment = {"name": "node20", "image": built.image_id, "packages": PackageKind.NPM}
    yield {"environment": environment, "npm_dir": directory / "npm"}
    await asyncio.to_thread(shutil.rmtree, directory)


@pytest.fixture
async def docker() -> AsyncIterator[aiodocker.Docker]:
    """The engine itself, to do what an outsider does."""
    async with aiodocker.Docker() as client:
        yield client
