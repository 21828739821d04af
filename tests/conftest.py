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
from sandboxd.daemon import composition
from sandboxd.daemon.composition import Daemon, running
from sandboxd.environments.environment import Environment
from sandboxd.isolation.uids import UidRange
from sandboxd.pool.pool import WarmPool
from sandboxd.pool.pools import Pools
from sandboxd.registry.contract import SessionRegistry
from sandboxd.registry.sqlite import SqliteRegistry
from sandboxd.sandboxes.guest_install import install_guest
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.kept_files import KeptFilesStore
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.sessions.preparation import Preparation
from sandboxd.sessions.sessions import Sessions
from tests.directories import quick_directory
from tests.fakes import settings as settings_for_tests
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.settings import NEVER
from tests.scale import examples
from tests.service.client import Api

pytest_plugins = (
    "tests.daemon_logs",
    "tests.figures",
    "tests.long_tests",
    "tests.second_run",
    "tests.side_by_side",
    "tests.times",
)
collect_ignore = ["vendors"]  # unless it is named: `./scripts/test --vendors` runs it

# A shared machine is slow at times, which is no failure.
hypothesis.settings.register_profile("sandboxd", deadline=None, max_examples=examples(50))
hypothesis.settings.load_profile("sandboxd")


EXEC_SETTINGS = {"max_running", "max_running_in_all", "max_ended", "policy"}
"""Settings of sessions that are about their execs."""


@pytest.fixture(scope="session", autouse=True)
def plain_logs() -> None:
    """Tracebacks in the log without the values of variables, which take long to draw."""
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, plain])


@pytest.fixture(scope="session", autouse=True)
def guest_installed_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Daemons in this process share the guest's program: to compile it is most of their start."""
    shared = install_guest(tmp_path_factory.mktemp("guest"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composition, "install_guest", lambda _: shared)
        yield


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose path leaves room for the name of a unix socket."""
    directory = Path(tempfile.mkdtemp(prefix="sbx-", dir=quick_directory()))
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
def environment() -> Environment:
    return settings_for_tests.of_environment()


@pytest.fixture
def maker(
    guests: FakeGuests, engine: FakeEngine, sandbox_settings: SandboxSettings, uids: UidRange
) -> SandboxMaker:
    return guests.maker(engine, sandbox_settings, Host(uids=uids))


@pytest.fixture
def pools_of() -> dict[WarmPool, Pools]:
    """The pools that were started, by the pool of their default environment."""
    return {}


@pytest.fixture
async def start_pools(
    maker: SandboxMaker, environment: Environment, pools_of: dict[WarmPool, Pools]
) -> AsyncIterator[Callable[..., Awaitable[Pools]]]:
    """Starts the pools of the default environment and of others, and a sweep; settings may be
    replaced by name."""
    async with AsyncExitStack() as stack:

        async def start(
            *others: Environment, sweep_seconds: float = NEVER, **settings: Any
        ) -> Pools:
            asked = settings_for_tests.of_pool(**settings)
            pools = Pools(maker, [environment, *others], asked, sweep_seconds=sweep_seconds)
            pools_of[pools.default] = pools
            return await stack.enter_async_context(pools)

        yield start


@pytest.fixture
async def start_pool(
    start_pools: Callable[..., Awaitable[Pools]],
) -> Callable[..., Awaitable[WarmPool]]:
    """Starts the pool of the default environment, and a sweep; settings may be replaced by name."""

    async def start(**settings: Any) -> WarmPool:
        return (await start_pools(**settings)).default

    return start


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
async def kept_files(maker: SandboxMaker) -> AsyncIterator[KeptFilesStore]:
    yield maker.kept_files
    await maker.kept_files.aclose()


@pytest.fixture
async def start_sessions(
    start_pool: Callable[..., Awaitable[WarmPool]],
    pools_of: dict[WarmPool, Pools],
    kept_files: KeptFilesStore,
    registry: SessionRegistry,
    short_dir: Path,
) -> AsyncIterator[Callable[..., Awaitable[Sessions]]]:
    """Starts sessions over a pool of their own, or over the one given."""
    async with AsyncExitStack() as stack:

        async def start(
            *,
            pool: WarmPool | None = None,
            kept_in: SessionRegistry = registry,
            preparation: Preparation | None = None,
            **settings: Any,
        ) -> Sessions:
            exec_settings = {name: settings.pop(name) for name in EXEC_SETTINGS & settings.keys()}
            asked = settings_for_tests.of_sessions(**settings)
            shared = settings_for_tests.of_execs(short_dir, **exec_settings)
            pools = pools_of[pool or await start_pool()]
            sessions = Sessions(pools, kept_files, kept_in, asked, shared, preparation=preparation)
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
