"""One daemon for the tests that do not need one of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiodocker
import pytest
import pytest_asyncio

from sandboxd_proto.v1 import session_service_pb2
from tests.docker.daemon_process import Api, DaemonProcess, running_daemon


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


@pytest.fixture
async def docker() -> AsyncIterator[aiodocker.Docker]:
    """The engine itself, to do what an outsider does."""
    async with aiodocker.Docker() as client:
        yield client
