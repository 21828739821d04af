"""Parts of a daemon over a fake engine, each cleaned up after its test."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import structlog

from sandboxd.config import Config
from sandboxd.daemon import Daemon, running
from sandboxd.isolation.host import Host
from sandboxd.isolation.uids import UidRange
from sandboxd.pool import WarmPool
from sandboxd.registry.contract import Registry
from sandboxd.registry.sqlite import SqliteRegistry
from sandboxd.sandbox import SandboxMaker, SandboxSettings
from sandboxd.sessions import Sessions
from tests.fakes import settings as settings_for_tests
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.service.client import Api

# A shared machine is slow at times, which is no failure.
hypothesis.settings.register_profile("sandboxd", deadline=None)
hypothesis.settings.load_profile("sandboxd")


SHELF_SETTINGS = {"max_running", "max_running_in_all", "memory_seconds_of_execs", "max_ended"}
"""Settings of sessions that are about their execs."""


@pytest.fixture(scope="session", autouse=True)
def plain_logs() -> None:
    """Tracebacks in the log without the values of variables, which take long to draw."""
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, plain])


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
    return settings_for_tests.of_sandboxes(short_dir)


@pytest.fixture
def maker(
    guests: FakeGuests, engine: FakeEngine, sandbox_settings: SandboxSettings, uids: UidRange
) -> SandboxMaker:
    return guests.maker(engine, sandbox_settings, Host(uids=uids))


@pytest.fixture
async def start_pool(maker: SandboxMaker) -> AsyncIterator[Callable[..., Awaitable[WarmPool]]]:
    """Starts a pool; settings may be replaced by name."""
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> WarmPool:
            pool = WarmPool(maker, settings_for_tests.of_pool(**settings))
            return await stack.enter_async_context(pool)

        yield start


@pytest.fixture
async def registry(short_dir: Path) -> AsyncIterator[SqliteRegistry]:
    registry = await SqliteRegistry.open(short_dir / "registry.sqlite")
    yield registry
    await registry.aclose()


@pytest.fixture(scope="session", autouse=True)
def _signals_as_in_a_terminal() -> None:
    """However the tests were started, by nohup or in the background say, commands that they start
    ignore no signal. The tests still do: a handler that does nothing is not inherited."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture
async def start_sessions(
    start_pool: Callable[..., Awaitable[WarmPool]], registry: Registry, short_dir: Path
) -> AsyncIterator[Callable[..., Awaitable[Sessions]]]:
    """Starts sessions over a pool of their own, or over the one given."""
    async with AsyncExitStack() as stack:

        async def start(
            *, pool: WarmPool | None = None, kept_in: Registry = registry, **settings: Any
        ) -> Sessions:
            shelves = {name: settings.pop(name) for name in SHELF_SETTINGS & settings.keys()}
            asked = settings_for_tests.of_sessions(**settings)
            house = settings_for_tests.of_execs(short_dir, **shelves)
            sessions = Sessions(pool or await start_pool(), kept_in, asked, house)
            return await stack.enter_async_context(sessions)

        yield start


@pytest.fixture
def config(short_dir: Path) -> Config:
    return settings_for_tests.of_daemon(short_dir)


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
