"""The environments of a daemon: their states, their images and what survives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.engine.contract import ImageId
from sandboxd.environments import catalogue
from sandboxd.environments.builder import Builder, BuilderSettings
from sandboxd.environments.catalogue import Environments, State
from sandboxd.environments.definition import (
    SECURE_IMAGE,
    Definition,
    Other,
    Pulled,
    Source,
    default_definition,
    recipe,
)
from sandboxd.environments.environment import Environment
from sandboxd.environments.npm_client import NpmClient
from sandboxd.environments.records import BuildRecords
from sandboxd.errors import (
    EngineFailed,
    EngineUnreachable,
    EnvironmentBuildFailed,
    EnvironmentInUse,
    EnvironmentNotFound,
    EnvironmentNotReady,
    EnvironmentUnavailable,
)
from tests.fakes import settings as settings_for_tests
from tests.fakes.engine import FakeEngine
from tests.fakes.waiting import eventually

OWN = Definition(
    name="own",
    description="Of this test",
    dockerfile=recipe("python3.11"),
    sources=[Source(base=Other(name="default"))],
)
NOWHERE = Definition(
    name="nowhere",
    dockerfile=recipe("python3.12"),
    sources=[Source(base=Pulled(reference="no/image:1"))],
    advice="buy a registry",
)
GIVEN = Definition(name="given", image="given:1")
Start = Callable[[], AsyncIterator[Environments]]


@asynccontextmanager
async def running(
    engine: FakeEngine, directory: Path, given: Definition = GIVEN
) -> AsyncIterator[Environments]:
    known = [default_definition(SECURE_IMAGE), OWN, NOWHERE, given]

    async def read_file(image: ImageId, path: str) -> str:
        return "Package: bash\nStatus: install ok installed\nVersion: 5\n"

    settings = BuilderSettings(directory=directory / "builds", registry_seconds=1.0)
    npm = NpmClient(directory / "npm", "http://127.0.0.1:9")
    environments = Environments(
        {definition.name: definition for definition in known},
        {
            definition.name: settings_for_tests.of_environment(
                definition.name, image=definition.image
            )
            for definition in known
        },
        Builder(engine, known, settings, npm, read_file=read_file),
        BuildRecords(directory / "records"),
        builds_at_once=1,
        build_seconds=10.0,
    )
    async with environments:
        yield environments


@pytest.fixture
async def environments(engine: FakeEngine, tmp_path: Path) -> AsyncIterator[Environments]:
    async with running(engine, tmp_path) as made:
        yield made


async def test_default_comes_first_and_has_an_image(environments: Environments) -> None:
    """It is found by its name; the others have none yet, and say how they get one."""
    await eventually(lambda: environments.get("default").state is State.READY)

    assert [value.name for value in environments.values] == ["default", "given", "nowhere", "own"]
    status = environments.get("own")
    assert (status.state, status.built) == (State.NOT_BUILT, None)
    assert "first use" in status.detail
    assert not environments.is_ready("own")


async def test_built_environment_is_announced_with_its_image(
    environments: Environments, engine: FakeEngine
) -> None:
    """Whoever makes sandboxes learns of it, and the audit log too."""
    ready: list[Environment] = []
    events: list[tuple[str, str]] = []
    environments.on_ready = ready.append
    environments.on_event = lambda action, name, _: events.append((action, name))
    built = await environments.build("own").result()

    assert [(one.name, one.image) for one in ready] == [("own", built.image_id)]
    assert environments.get("own").state is State.READY
    assert environments.get("own").environment.image == built.image_id
    assert events == [("environment.build_started", "own"), ("environment.built", "own")]


async def test_image_is_pinned_by_its_id_across_restarts(
    engine: FakeEngine, tmp_path: Path
) -> None:
    """A tag that is moved to another image changes nothing, and no build is needed."""
    async with running(engine, tmp_path) as environments:
        built = await environments.build("own").result()
    engine.images["elsewhere"] = built.image_id
    engine.images[built.tag] = ImageId("sha256:" + "9" * 64)
    engine.builds.clear()
    async with running(engine, tmp_path) as environments:
        await environments.wait_until_ready("own", wait_seconds=0)

        assert environments.get("own").environment.image == built.image_id
        assert environments.get("own").built == built
    assert engine.builds == []


async def test_record_of_another_definition_does_not_count(
    engine: FakeEngine, tmp_path: Path
) -> None:
    """An operator who names another image in the settings gets that one after a restart."""
    engine.images |= {
        "given:1": ImageId("sha256:" + "1" * 64),
        "given:2": ImageId("sha256:" + "2" * 64),
    }
    for number in (1, 1, 2):
        changed = replace(GIVEN, image=f"given:{number}")
        async with running(engine, tmp_path, changed) as environments:
            await eventually(lambda: environments.is_ready("given"))
            wanted = engine.images[f"given:{number}"]
            assert environments.get("given").environment.image == wanted


async def test_failure_of_the_engine_is_not_remembered(
    environments: Environments, engine: FakeEngine
) -> None:
    """When the engine is back, the next open builds."""
    engine.go_away()
    with pytest.raises(EngineUnreachable):
        await environments.wait_until_ready("own", wait_seconds=5)
    engine.come_back()

    await environments.wait_until_ready("own", wait_seconds=5)


async def test_unreadable_record_is_only_forgotten(engine: FakeEngine, tmp_path: Path) -> None:
    """The environment is then found again by what it is made from."""
    async with running(engine, tmp_path) as environments:
        built = await environments.build("own").result()
    (tmp_path / "records" / "own.json").write_text('{"image_id": 1}')
    engine.builds.clear()
    async with running(engine, tmp_path) as environments:
        assert environments.get("own").state is State.NOT_BUILT
        await environments.wait_until_ready("own", wait_seconds=5)
        assert environments.get("own").environment.image == built.image_id
    assert engine.builds == []


async def test_open_starts_the_build_and_gets_its_progress(
    environments: Environments, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever does not wait is told how far it is; the next one finds the same build."""
    monkeypatch.setattr(catalogue, "QUICK_SECONDS", 0.01)
    engine.gates["build_image.step"] = asyncio.Event()
    step = ""
    async with asyncio.timeout(30):
        while step != "image":  # a busy machine takes a while to get there
            with pytest.raises(EnvironmentNotReady) as caught:
                await environments.wait_until_ready("own", wait_seconds=0)
            assert caught.value.retry_after_seconds
            assert caught.value.metadata["environment"] == "own"
            step = caught.value.metadata["step"]
    assert environments.get("own").state is State.BUILDING
    assert environments.get("own").progress is not None

    waiting = asyncio.ensure_future(environments.wait_until_ready("own", wait_seconds=30))
    await asyncio.sleep(0)
    engine.gates.pop("build_image.step").set()
    await waiting
    assert engine.calls["build_image"] == 1


async def test_environment_that_this_host_cannot_build_says_so_again_without_trying(
    environments: Environments, engine: FakeEngine
) -> None:
    """Opens are answered from memory for a while; a build that is asked for tries at once."""
    for _ in range(3):
        with pytest.raises(EnvironmentUnavailable, match="buy a registry"):
            await environments.wait_until_ready("nowhere", wait_seconds=0)
    assert engine.calls["pull_image"] == 1
    status = environments.get("nowhere")
    assert status.state is State.UNAVAILABLE
    assert "no/image:1" in status.detail

    engine.registry["no/image:1"] = ImageId("sha256:" + "7" * 64)
    await environments.build("nowhere").result()
    await environments.wait_until_ready("nowhere", wait_seconds=0)


async def test_failed_build_is_a_state_until_the_next(
    environments: Environments, engine: FakeEngine
) -> None:
    """The reason can be read, and a build that succeeds removes it."""
    engine.failures["build_image.step"] = EngineFailed("The image build failed.")
    with pytest.raises(EnvironmentBuildFailed):
        await environments.build("own").result()
    assert environments.get("own").state is State.FAILED
    engine.failures.clear()
    await environments.build("own").result()

    assert environments.get("own").state is State.READY


async def test_rebuild_replaces_the_image_and_removes_the_name_of_the_old_one(
    environments: Environments, engine: FakeEngine
) -> None:
    """A failed rebuild leaves the image that there is."""
    first = await environments.build("own").result()
    engine.images[SECURE_IMAGE] = ImageId("sha256:" + "8" * 64)
    second = await environments.build("own", rebuild=True).result()
    assert second.image_id != first.image_id
    assert first.tag not in engine.images

    engine.failures["build_image.step"] = EngineFailed("The image build failed.")
    with pytest.raises(EnvironmentBuildFailed):
        await environments.build("own", rebuild=True).result()
    assert environments.get("own").state is State.READY
    assert environments.get("own").environment.image == second.image_id


async def test_deleted_environment_can_be_built_again(
    environments: Environments, engine: FakeEngine
) -> None:
    """Image and record go, and deleting twice is fine."""
    withdrawn: list[str] = []
    environments.on_withdrawn = withdrawn.append
    built = await environments.build("own").result()
    await environments.delete("own")
    await environments.delete("own")

    assert built.tag not in engine.images
    assert (environments.get("own").state, withdrawn) == (State.NOT_BUILT, ["own"])
    await environments.wait_until_ready("own", wait_seconds=5)


async def test_delete_ends_the_build(environments: Environments, engine: FakeEngine) -> None:
    """Nobody else can: a caller that leaves does not."""
    engine.gates["build_image.step"] = asyncio.Event()
    build = environments.build("own")
    result = asyncio.ensure_future(build.result())
    await engine.wait_until(lambda: engine.calls["build_image"] == 1)
    await environments.delete("own")

    with pytest.raises(EnvironmentBuildFailed, match="cancelled"):
        await result
    assert environments.get("own").state is State.NOT_BUILT


async def test_environment_that_is_used_cannot_be_deleted(environments: Environments) -> None:
    """Neither the default one nor one with open sessions."""
    with pytest.raises(EnvironmentInUse, match="no other"):
        await environments.delete("default")
    environments.session_count = lambda name: 2 if name == "own" else 0
    with pytest.raises(EnvironmentInUse, match="2 sessions"):
        await environments.delete("own")


async def test_image_that_is_gone_is_built_again(
    environments: Environments, engine: FakeEngine
) -> None:
    """An operator may remove images; the next use notices."""
    await environments.build("own").result()
    environments.on_image_missing("own")
    environments.on_image_missing("default")

    assert not environments.is_ready("own")
    assert environments.is_ready("default")
    await environments.wait_until_ready("own", wait_seconds=5)


async def test_image_of_the_operator_is_ready_without_a_build(
    engine: FakeEngine, tmp_path: Path
) -> None:
    """It is found at the start, as soon as the engine answers."""
    engine.images["given:1"] = ImageId("sha256:" + "6" * 64)
    async with running(engine, tmp_path) as environments:
        await eventually(lambda: environments.is_ready("given"))
        assert environments.get("given").environment.image == engine.images["given:1"]


async def test_packages_are_listed_with_their_versions(environments: Environments) -> None:
    """Of every image, also of one that was not built here."""
    await eventually(lambda: environments.get("default").state is State.READY)
    status = await environments.get_with_packages("default")

    assert status.built is not None
    assert [tuple(package) for package in status.built.packages] == [("debian", "bash", "5")]


@pytest.mark.parametrize("name", ["", "..", "Own", "own/../default", "own\n", "a" * 1000])
async def test_unknown_name_is_refused_everywhere(name: str, environments: Environments) -> None:
    """With the names there are; nothing is built and no file is touched."""
    for work in (
        environments.wait_until_ready(name, wait_seconds=0),
        environments.delete(name),
        environments.get_with_packages(name),
    ):
        with pytest.raises(EnvironmentNotFound, match="default, given, nowhere, own"):
            await work
    with pytest.raises(EnvironmentNotFound):
        environments.build(name)
