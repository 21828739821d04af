"""Packages of sessions: which set each has, from its open to its end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from sandboxd.engine.contract import ImageId
from sandboxd.environments.environment import Environment, PackageKind
from sandboxd.errors import EnvironmentMismatch, InvalidRequest, PackagesNotReady
from sandboxd.isolation.attachment import Attachment, Possibility, Way
from sandboxd.isolation.uids import UidRange
from sandboxd.packages.build import Builder
from sandboxd.packages.lock import Archive, Lock
from sandboxd.packages.package_sets import PackageSets, PackageSetSettings
from sandboxd.packages.packages import Packages
from sandboxd.packages.store import PackageSet, PackageStore
from sandboxd.packages.target import Target
from sandboxd.packages.tree import TreeSize
from sandboxd.pool.pools import Pools
from sandboxd.registry.contract import SessionRegistry, SessionState
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.kept_files import KeptFilesStore
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.sessions.opening import EnvironmentConfig
from sandboxd.sessions.preparation import Preparation
from sandboxd.sessions.session import Outcome, Session
from sandboxd.sessions.sessions import Sessions
from tests.fakes import settings as settings_for_tests
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests, FakeProcess
from tests.fakes.settings import NEVER
from tests.unit.test_sessions import opened

StartSessions = Callable[..., Awaitable[Sessions]]
PLACE = "/usr/local/lib/python3.11/dist-packages"
TARGET = Target(PackageKind.PYTHON, "3.11", "x86_64-manylinux_2_36", PLACE)
NUMPY = EnvironmentConfig(("numpy",))


class ReadyPackages(Packages):
    """Sets that are there; nothing is built."""

    def __init__(self, directory: Path) -> None:
        self.store = PackageStore(directory)
        self.store.open()
        settings = PackageSetSettings(
            build_seconds=1.0,
            total_bytes=1 << 30,
            keep_seconds=0.0,
            fresh_seconds=1.0,
            builds_per_user_and_hour=1,
        )
        self.sets = PackageSets(settings, self.store, cast(Builder, None))
        self.target = TARGET
        self.of_request: dict[str, PackageSet] = {}

    def add(self, name: str, version: str) -> PackageSet:
        made = self.store.new_path()
        made.mkdir()
        lock = Lock([Archive(name, version, "https://x", "sha256:" + "ab" * 32)])
        added = self.store.add(lock.key(TARGET), made, TARGET, lock, TreeSize(1, 1))
        self.of_request[name] = added
        return added

    async def find(
        self, environment: Environment, texts: tuple[str, ...], *, key: str, user_id: str
    ) -> PackageSet:
        known = self.sets.get(key)
        if known is not None:
            return known
        (text,) = texts
        if text not in self.of_request:
            raise PackagesNotReady(text, step="resolve", fraction=0.0, retry_after_seconds=1.0)
        return self.of_request[text]


@pytest.fixture
def maker(
    guests: FakeGuests, engine: FakeEngine, sandbox_settings: SandboxSettings, uids: UidRange
) -> SandboxMaker:
    host = Host(uids=uids, attaching=Possibility(Way.ATTACHED))
    return guests.maker(engine, sandbox_settings, host)


@pytest.fixture
def packages(tmp_path: Path) -> ReadyPackages:
    return ReadyPackages(tmp_path / "packages")


@pytest.fixture
async def sessions(start_sessions: StartSessions, packages: ReadyPackages) -> Sessions:
    preparation = Preparation()
    preparation.packages = packages
    return await start_sessions(preparation=preparation)


def attached_to(session: Session) -> list[Attachment]:
    assert session.sandbox is not None
    return cast(FakeProcess, session.sandbox.process).attached


async def test_set_is_attached_before_the_session_is_there(
    sessions: Sessions, packages: ReadyPackages
) -> None:
    added = packages.add("numpy", "1.0")

    session, _ = await opened(sessions, environment_config=NUMPY)

    assert attached_to(session) == [Attachment(packages.store.path(added.key), PLACE)]
    assert session.record.packages == ("numpy",)
    assert session.record.package_set == added.key


async def test_session_without_packages_has_nothing_attached(sessions: Sessions) -> None:
    session, _ = await opened(sessions)

    assert attached_to(session) == []
    assert session.record.package_set == ""


async def test_session_keeps_its_set_through_reset_and_loss(
    sessions: Sessions, packages: ReadyPackages
) -> None:
    """Also when the same request means newer versions by now."""
    old = packages.add("numpy", "1.0")
    session, _ = await opened(sessions, environment_config=NUMPY)
    packages.add("numpy", "2.0")

    reset = await sessions.reset(session.id)
    assert attached_to(reset) == [Attachment(packages.store.path(old.key), PLACE)]

    assert reset.sandbox is not None
    reset.sandbox.cut_off("test")
    recreated, outcome = await opened(sessions)
    assert outcome == Outcome.RECREATED
    assert recreated.record.package_set == old.key
    assert attached_to(recreated) == [Attachment(packages.store.path(old.key), PLACE)]


async def test_session_whose_set_is_gone_gets_the_one_for_its_request(
    sessions: Sessions, packages: ReadyPackages
) -> None:
    old = packages.add("numpy", "1.0")
    session, _ = await opened(sessions, environment_config=NUMPY)
    new = packages.add("numpy", "2.0")
    packages.store.remove(old.key)

    reset = await sessions.reset(session.id)

    assert reset.record.package_set == new.key


async def test_ended_session_may_come_back_with_other_packages(
    sessions: Sessions, packages: ReadyPackages
) -> None:
    packages.add("numpy", "1.0")
    other = packages.add("pandas", "1.0")
    session, _ = await opened(sessions, environment_config=NUMPY)
    assert session.sandbox is not None
    session.sandbox.cut_off("test")

    again, _ = await opened(sessions, environment_config=EnvironmentConfig(("pandas",)))

    assert again.record.package_set == other.key


async def test_set_of_a_session_is_in_use_until_it_ends(
    sessions: Sessions, packages: ReadyPackages
) -> None:
    """Also while it is lost: it may come back."""
    added = packages.add("numpy", "1.0")
    session, _ = await opened(sessions, environment_config=NUMPY)

    assert added.key in packages.sets.in_use
    assert session.sandbox is not None
    session.sandbox.cut_off("test")
    assert sessions.get(session.id).record.state == SessionState.LOST
    assert added.key in packages.sets.in_use

    sessions.close(session.id)
    assert added.key not in packages.sets.in_use


async def test_open_session_is_not_given_other_packages(
    sessions: Sessions, packages: ReadyPackages
) -> None:
    packages.add("numpy", "1.0")
    session, _ = await opened(sessions, environment_config=NUMPY)

    with pytest.raises(EnvironmentMismatch, match="packages"):
        await opened(sessions, environment_config=EnvironmentConfig(("pandas",)))

    same, outcome = await opened(sessions, environment_config=NUMPY)
    assert (same, outcome) == (session, Outcome.ATTACHED)


async def test_set_that_is_not_there_takes_no_sandbox(
    sessions: Sessions, engine: FakeEngine
) -> None:
    with pytest.raises(PackagesNotReady):
        await opened(sessions, environment_config=EnvironmentConfig(("scipy",)))

    assert sessions.active_count == 0


async def test_daemon_without_packages_says_so(start_sessions: StartSessions) -> None:
    sessions = await start_sessions()

    with pytest.raises(InvalidRequest, match="cannot add packages"):
        await opened(sessions, environment_config=NUMPY)


# --- kinds of packages ---

NODE_IMAGE = "node:latest"


@pytest.fixture
async def two_kinds(
    maker: SandboxMaker,
    engine: FakeEngine,
    environment: Environment,
    packages: ReadyPackages,
    kept_files: KeptFilesStore,
    registry: SessionRegistry,
    short_dir: Path,
) -> AsyncIterator[Sessions]:
    """Sessions in the default environment, and in `node` with packages of npm."""
    engine.images[NODE_IMAGE] = ImageId("sha256:" + "7" * 64)
    node = settings_for_tests.of_environment("node", image=NODE_IMAGE, packages=PackageKind.NPM)
    settings = settings_for_tests.of_pool()
    asked = settings_for_tests.of_sessions()
    shared = settings_for_tests.of_execs(short_dir)
    preparation = Preparation()
    preparation.packages = packages
    async with (
        Pools(maker, [environment, node], settings, sweep_seconds=NEVER) as pools,
        Sessions(pools, kept_files, registry, asked, shared, preparation=preparation) as sessions,
    ):
        yield sessions


async def test_environment_decides_what_a_request_means(
    two_kinds: Sessions, packages: ReadyPackages
) -> None:
    """What is no package of one kind may be one of the other, and the same request in another form
    is the same."""
    packages.add("zod@^3", "3.0.0")
    config = EnvironmentConfig(("zod@ ^3",))
    session, _ = await opened(two_kinds, environment="node", environment_config=config)

    assert session.record.packages == ("zod@^3",)
    assert (await opened(two_kinds, environment_config=config))[0] is session
    with pytest.raises(InvalidRequest, match="uvicorn"):  # the examples are of Python
        await opened(two_kinds, "other", environment_config=config)


async def test_packages_of_another_kind_are_not_taken_along(
    two_kinds: Sessions, packages: ReadyPackages
) -> None:
    """An ended session comes back in another environment without them, in the same with them."""
    packages.add("numpy", "1.0")
    for environment, expected in (("default", ("numpy",)), ("node", ())):
        session, _ = await opened(two_kinds, environment, environment_config=NUMPY)
        assert session.sandbox is not None
        session.sandbox.cut_off("test")

        again, outcome = await opened(two_kinds, environment, environment=environment)

        assert outcome == Outcome.RECREATED
        assert again.record.packages == expected
