"""Parts of a daemon over a fake engine, each cleaned up after its test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from sandboxd.config import Config
from sandboxd.daemon import Daemon, running
from sandboxd.isolation.uids import UidRange
from sandboxd.pool import PoolSettings, WarmPool
from sandboxd.registry.contract import Registry
from sandboxd.registry.sqlite import SqliteRegistry
from sandboxd.sandbox import SandboxMaker, SandboxSettings
from sandboxd.sessions import Sessions, SessionSettings
from tests.fakes.engine import DEFAULT_IMAGE, FakeEngine
from tests.fakes.guest import FakeGuests
from tests.service.client import Api

# A shared machine is slow at times, which is no failure.
hypothesis.settings.register_profile("sandboxd", deadline=None)
hypothesis.settings.load_profile("sandboxd")

MIB = 1 << 20


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose path leaves room for the name of a unix socket."""
    directory = Path(tempfile.mkdtemp(prefix="sbx-", dir="/tmp"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def guests(engine: FakeEngine) -> AsyncIterator[FakeGuests]:
    guests = FakeGuests(engine)
    yield guests
    await guests.aclose()


@pytest.fixture
def uids() -> UidRange:
    return UidRange(start=200_000, count=64)


@pytest.fixture
def sandbox_settings(short_dir: Path) -> SandboxSettings:
    return SandboxSettings(
        instance="test",
        image=DEFAULT_IMAGE,
        runtime=None,
        network_mode="none",
        runtime_dir=short_dir,
        guest_dir=short_dir,
        links_dir=short_dir / "links",
        workspace_dir="/workspace",
        workspace_bytes=MIB,
        workspace_files=16,
        memory_bytes=64 * MIB,
        cpu_quota_us=0,
        max_processes=16,
        max_open_files=64,
    )


@pytest.fixture
def maker(
    guests: FakeGuests, engine: FakeEngine, sandbox_settings: SandboxSettings, uids: UidRange
) -> SandboxMaker:
    return guests.maker(engine, sandbox_settings, uids)


@pytest.fixture
async def start_pool(maker: SandboxMaker) -> AsyncIterator[Callable[..., Awaitable[WarmPool]]]:
    """Starts a pool; settings that are not named are generous."""
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> WarmPool:
            generous = {"target": 0, "maximum": 32, "concurrency": 4, "wait_seconds": 5.0}
            never = {"health_seconds": 3600.0, "sweep_seconds": 3600.0}
            pool = WarmPool(maker, PoolSettings(**{**generous, **never, **settings}))
            return await stack.enter_async_context(pool)

        yield start


@pytest.fixture
async def registry(short_dir: Path) -> AsyncIterator[SqliteRegistry]:
    registry = await SqliteRegistry.open(short_dir / "registry.sqlite")
    yield registry
    await registry.aclose()


@pytest.fixture
async def start_sessions(
    start_pool: Callable[..., Awaitable[WarmPool]], registry: Registry
) -> AsyncIterator[Callable[..., Awaitable[Sessions]]]:
    """Starts sessions over a pool of their own, or over the one given."""
    async with AsyncExitStack() as stack:

        async def start(
            *, pool: WarmPool | None = None, kept_in: Registry = registry, **settings: Any
        ) -> Sessions:
            patient = {"idle_seconds": 3600.0, "memory_seconds": 3600.0, "max_running_execs": 4}
            sessions = Sessions(
                pool or await start_pool(), kept_in, SessionSettings(**{**patient, **settings})
            )
            return await stack.enter_async_context(sessions)

        yield start


@pytest.fixture
def config(short_dir: Path) -> Config:
    """A small daemon on a unix socket, with directories of its own."""
    runtime = short_dir / "runtime" / "bin"
    runtime.mkdir(parents=True)
    (runtime / "python3.11").touch()
    return Config(
        host="",
        state_dir=short_dir / "state",
        run_dir=short_dir / "run",
        guest_runtime=runtime.parent,
        pool_size=1,
        min_pool_size=0,
        max_pool_size=4,
        drain_seconds=0.0,
    )


@pytest.fixture
async def start_daemon(
    config: Config, engine: FakeEngine, guests: FakeGuests
) -> AsyncIterator[Callable[..., Awaitable[Daemon]]]:
    """Starts a daemon over the fake engine; settings may be replaced by name."""
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> Daemon:
            asked = config.model_copy(update=settings)
            return await stack.enter_async_context(
                running(asked, engine=engine, maker=guests.maker)
            )

        yield start


@pytest.fixture
async def daemon(start_daemon: Callable[..., Awaitable[Daemon]]) -> Daemon:
    return await start_daemon()


@pytest.fixture
async def api(daemon: Daemon) -> AsyncIterator[Api]:
    async with Api(daemon.config.api_socket) as api:
        yield api
