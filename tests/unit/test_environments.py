"""Two environments on one instance: what belongs to which, and what sessions get."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
from pydantic import ValidationError

from sandboxd.config import Config
from sandboxd.daemon import settings
from sandboxd.engine.contract import ContainerSpec, ImageId
from sandboxd.environments.environment import DEFAULT_ENVIRONMENT, Environment, PackageKind
from sandboxd.errors import EnvironmentNotFound, FileTooLarge, ImageNotFound
from sandboxd.files import FilePath, UploadSpec
from sandboxd.isolation.uids import UidRange
from sandboxd.pool.pools import Pools
from sandboxd.registry.contract import SessionRecord, SessionRegistry, SessionState
from sandboxd.sandboxes.container import GUEST_MEMORY
from sandboxd.sandboxes.host import Host
from sandboxd.sandboxes.kept_files import KeptFilesStore
from sandboxd.sandboxes.maker import SandboxMaker
from sandboxd.sandboxes.settings import SandboxSettings
from sandboxd.service import session_wire
from sandboxd.sessions.session import Outcome, Session
from sandboxd.sessions.sessions import Sessions
from sandboxd.workspaces.disks import Disks
from tests.fakes import settings as settings_for_tests
from tests.fakes.disks import FakeDisks
from tests.fakes.engine import FakeEngine
from tests.fakes.guest import FakeGuests
from tests.fakes.settings import MIB, NEVER
from tests.fakes.waiting import eventually

SMALL_IMAGE = "small:latest"


@pytest.fixture
def small(engine: FakeEngine) -> Environment:
    engine.images[SMALL_IMAGE] = ImageId("sha256:" + "5" * 64)
    return settings_for_tests.of_environment(
        "small",
        image=SMALL_IMAGE,
        memory_bytes=32 * MIB,
        max_processes=8,
        max_file_bytes=1000,
        workspace_bytes=MIB // 2,
        workspace_files=7,
    )


@pytest.fixture
def disks() -> FakeDisks:
    return FakeDisks()


@pytest.fixture
def maker(
    guests: FakeGuests,
    engine: FakeEngine,
    sandbox_settings: SandboxSettings,
    uids: UidRange,
    disks: FakeDisks,
) -> SandboxMaker:
    return guests.maker(engine, sandbox_settings, Host(uids=uids, disks=cast(Disks, disks)))


@pytest.fixture
async def pools(
    maker: SandboxMaker, environment: Environment, small: Environment
) -> AsyncIterator[Pools]:
    settings = settings_for_tests.of_pool(target=4, maximum=8, minimum=2)
    async with Pools(maker, [environment, small], settings, sweep_seconds=NEVER) as pools:
        pools.destroy(await pools.get("small").acquire())
        await eventually(lambda: [one.warm for one in pools.figures] == [3, 1])
        yield pools


@pytest.fixture
async def sessions(
    pools: Pools, kept_files: KeptFilesStore, registry: SessionRegistry, short_dir: Path
) -> AsyncIterator[Sessions]:
    """There is a lost session of thread `t` in the environment `small`, and one of thread `gone` in
    an environment that this daemon does not have."""
    for thread_id, environment in (("t", "small"), ("gone", "removed")):
        await registry.save(lost_record(thread_id, environment))
    settings = settings_for_tests.of_sessions()
    shared = settings_for_tests.of_execs(short_dir)
    async with Sessions(pools, kept_files, registry, settings, shared) as sessions:
        yield sessions


def lost_record(thread_id: str, environment: str) -> SessionRecord:
    return SessionRecord(
        session_id=f"ses_{thread_id}",
        user_id="u",
        thread_id=thread_id,
        state=SessionState.LOST,
        incarnation=1,
        created_at=1.0,
        changed_at=time.time(),
        idle_seconds=NEVER,
        environment=environment,
    )


async def no_chunks() -> AsyncIterator[bytes]:
    for chunk in ():
        yield chunk


async def opened(sessions: Sessions, thread_id: str) -> tuple[Session, Outcome]:
    return await sessions.open("u", thread_id)


def spec_of(session: Session, engine: FakeEngine) -> ContainerSpec:
    assert session.sandbox is not None
    return engine.specs[session.sandbox.container_id]


def test_record_without_an_environment_is_of_the_default_one() -> None:
    """Registries of earlier releases name none."""
    assert SessionRecord.environment == DEFAULT_ENVIRONMENT


async def test_sweep_spares_the_sandboxes_of_every_environment(
    pools: Pools,
    maker: SandboxMaker,
    engine: FakeEngine,
    disks: FakeDisks,
    sandbox_settings: SandboxSettings,
) -> None:
    """Containers, links and disks of all pools stay, and what is nobody's goes."""
    containers, disk_ids = set(engine.live), set(disks.owners)
    links = set(sandbox_settings.links_dir.iterdir())
    example = next(iter(engine.specs.values()))
    await engine.create(ContainerSpec(**{**vars(example), "name": "sandboxd-test-left"}))
    (sandbox_settings.links_dir / "left").mkdir()

    assert await maker.sweep() == 1
    assert (engine.live, set(disks.owners)) == (containers, disk_ids)
    assert set(sandbox_settings.links_dir.iterdir()) == links
    assert (len(containers), len(links), len(disk_ids)) == (4, 4, 4)


async def test_sweep_runs_once_for_all_pools(pools: Pools, engine: FakeEngine) -> None:
    """A second environment does not ask the engine more often."""
    await eventually(lambda: engine.calls["list_containers"] > 0)

    assert engine.calls["list_containers"] == 1


async def test_pool_destroys_only_its_own_sandboxes(pools: Pools, engine: FakeEngine) -> None:
    """A sandbox goes back to the pool it came from."""
    sandbox = await pools.get("small").acquire()
    pools.destroy(sandbox)

    await eventually(lambda: sandbox.container_id not in engine.live)
    assert [figures.in_use for figures in pools.figures] == [0, 0]
    assert [figures.environment for figures in pools.figures] == ["default", "small"]


async def test_image_of_one_environment_that_is_removed_does_not_concern_the_other(
    pools: Pools,
    maker: SandboxMaker,
    engine: FakeEngine,
    environment: Environment,
    small: Environment,
) -> None:
    """Each environment has the image it was first started with, until that is gone."""
    before = maker.image_id(environment)
    del engine.images[SMALL_IMAGE]
    with pytest.raises(ImageNotFound, match=SMALL_IMAGE):
        await maker.make(small)

    assert maker.image_id(small) is None
    assert maker.image_id(environment) == before
    await maker.destroy(await maker.make(environment))


async def test_unknown_environment_is_refused_with_those_there_are(pools: Pools) -> None:
    """The caller learns what it can ask for instead."""
    with pytest.raises(EnvironmentNotFound, match=r"no environment 'large'; it has default, small"):
        pools.get("large")


async def test_new_session_is_in_the_default_environment(
    sessions: Sessions, engine: FakeEngine, environment: Environment
) -> None:
    """Its record says so, for the next daemon."""
    session, _ = await opened(sessions, "new")

    assert session.environment == environment
    assert session.record.environment == DEFAULT_ENVIRONMENT
    assert spec_of(session, engine).memory_bytes == environment.memory_bytes + GUEST_MEMORY


async def test_recreated_and_reset_sessions_get_the_environment_of_their_record(
    sessions: Sessions,
    registry: SessionRegistry,
    engine: FakeEngine,
    disks: FakeDisks,
    small: Environment,
) -> None:
    """Image, limits and size of the disk are those of the session's environment, every time."""
    session, outcome = await opened(sessions, "t")
    again = await sessions.reset(session.id)

    assert outcome == Outcome.RECREATED
    for incarnation in (session, again):
        assert (incarnation.environment, incarnation.record.environment) == (small, "small")
        disk = disks.sizes[incarnation.record.disk_id]
        assert (disk.size_bytes, disk.max_files) == (MIB // 2, 7)
    spec = spec_of(again, engine)
    assert (spec.image, spec.max_file_bytes) == (engine.images[SMALL_IMAGE], 1000)
    saved = {record.thread_id: record.environment for record in await registry.load()}
    assert saved["t"] == "small"


async def test_session_reports_the_limits_of_its_environment(
    sessions: Sessions, config: Config
) -> None:
    """Whatever the daemon's settings are for others."""
    session, _ = await opened(sessions, "t")
    limits = session_wire.describe(session, config).limits

    assert (limits.memory_bytes, limits.max_processes) == (32 * MIB, 8)
    assert (limits.workspace_bytes, limits.workspace_files) == (MIB // 2, 7)
    assert limits.max_file_bytes == 1000


async def test_files_of_a_session_have_the_limits_of_its_environment(sessions: Sessions) -> None:
    """A file that fits into another environment is refused here, with the limit."""
    session, _ = await opened(sessions, "t")
    assert session.files is not None

    with pytest.raises(FileTooLarge, match="1000"):
        await session.files.files.upload(UploadSpec(path=FilePath((b"x",)), size=1001), no_chunks())


async def test_session_of_an_environment_that_is_gone_is_remembered_but_not_opened(
    sessions: Sessions, config: Config
) -> None:
    """It is listed without limits, and its open says which environment is missing."""
    session = sessions.get("ses_gone")
    assert not session_wire.describe(session, config).HasField("limits")

    with pytest.raises(EnvironmentNotFound, match="no environment 'removed'"):
        await opened(sessions, "gone")


def test_settings_decide_which_packages_an_environment_has() -> None:
    """A built-in one keeps its kind when something else of it is changed."""
    tables = {
        "web": {"image": "web:1", "packages": "npm"},
        "plain": {"image": "plain:1"},
        "node20": {"min_warm": 1},
        "data": {"packages": "npm"},
    }
    config = Config.model_validate({"environments": tables})
    definitions = settings.definitions(config)

    kinds = {
        name: settings.environment(config, definitions[name]).packages
        for name in (*tables, "default")
    }
    assert kinds == {
        "web": PackageKind.NPM,
        "plain": PackageKind.PYTHON,
        "node20": PackageKind.NPM,
        "data": PackageKind.NPM,
        "default": PackageKind.PYTHON,
    }
    with pytest.raises(ValidationError):
        Config.model_validate({"environments": {"web": {"packages": "cargo"}}})
