"""Where the image of an environment comes from, and what is not built again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxd.engine.contract import ImageId
from sandboxd.environments import bases as bases_module
from sandboxd.environments import builder as builder_module
from sandboxd.environments.builder import STEPS, Builder, BuilderSettings
from sandboxd.environments.definition import (
    BUILT_IN,
    SECURE_IMAGE,
    Debian,
    Definition,
    HostPython,
    Other,
    Pulled,
    Source,
    default_definition,
    recipe,
)
from sandboxd.environments.npm_client import NpmClient
from sandboxd.environments.progress import Progress
from sandboxd.errors import EngineFailed, EnvironmentBuildFailed, EnvironmentUnavailable
from tests.fakes.engine import FakeEngine

BASE = ImageId("sha256:" + "b" * 64)
NEVER_BUILT = HostPython(version="9.99")
STATUS = (
    "Package: bash\nStatus: install ok installed\nVersion: 5.2\n\nPackage: x\nStatus: deinstall\n"
)


@pytest.fixture
async def builder(engine: FakeEngine, tmp_path: Path) -> AsyncIterator[Builder]:
    """A builder on an engine that has the default image and no registry."""
    yield make_builder(engine, tmp_path)
    assert list((tmp_path / "builds").glob("*")) == [], "no files of a build stay"


def make_builder(engine: FakeEngine, directory: Path, *definitions: Definition) -> Builder:
    async def read_file(image: ImageId, path: str) -> str:
        assert path == builder_module.DEBIAN_STATUS
        return STATUS

    built_in = [named(definition.name) for definition in BUILT_IN]
    known = [default_definition(SECURE_IMAGE), *built_in, *definitions]
    settings = BuilderSettings(directory=directory / "builds", registry_seconds=1.0)
    npm = NpmClient(directory / "npm", "http://127.0.0.1:9")
    return Builder(engine, known, settings, npm, read_file=read_file)


def named(name: str) -> Definition:
    """A built-in one without its layers, which come from indexes of packages."""
    found = next(definition for definition in BUILT_IN if definition.name == name)
    return replace(found, sources=[replace(source, layers=()) for source in found.sources])


def progress() -> Progress:
    return Progress(STEPS)


def built_from(engine: FakeEngine, prefix: str) -> str:
    """The base that the image of this name was built on."""
    return next(args["BASE"] for tag, args in engine.builds if tag.startswith(prefix))


async def test_environment_is_built_on_the_default_image_with_its_tools(
    builder: Builder, engine: FakeEngine
) -> None:
    """Stage by stage, and what is known of the result is returned."""
    built = await builder.build(named("python3.11"), progress())

    tools, own = engine.builds
    assert tools[0].startswith("sandboxd/tools:")
    assert tools[1]["BASE"] == engine.images[SECURE_IMAGE]
    assert own[0] == built.tag
    assert own[1]["BASE"] == engine.images[tools[0]]
    assert (built.image_id, built.source) == (engine.images[built.tag], "environment")
    assert [tuple(package) for package in built.packages] == [("debian", "bash", "5.2")]
    assert built.seconds > 0


async def test_nothing_is_built_twice_from_the_same(builder: Builder, engine: FakeEngine) -> None:
    """A second build finds the image, with what the first one knew of it."""
    first = await builder.build(named("python3.11"), progress())
    count = len(engine.builds)
    second = await builder.build(named("python3.11"), progress())

    assert len(engine.builds) == count
    assert second == replace(first, seconds=0.0)


async def test_rebuild_builds_every_stage_again(builder: Builder, engine: FakeEngine) -> None:
    """But not the image of the environment that it is based on."""
    await builder.build(named("python3.11"), progress())
    before = dict(engine.images)
    await builder.build(named("python3.11"), progress(), rebuild=True)

    assert [tag.partition(":")[0] for tag, _ in engine.builds] == [
        *("sandboxd/tools", "sandboxd/environment") * 2
    ]
    assert engine.images[SECURE_IMAGE] == before[SECURE_IMAGE]


async def test_changed_dockerfile_or_base_is_another_image(
    engine: FakeEngine, tmp_path: Path
) -> None:
    """The tag has a hash of what the image is made from."""
    dockerfile = tmp_path / "own.Dockerfile"
    dockerfile.write_text("FROM a")
    own = Definition(
        name="own", dockerfile=dockerfile, sources=[Source(base=Other(name="default"))]
    )
    builder = make_builder(engine, tmp_path, own)
    first = await builder.build(own, progress())
    dockerfile.write_text("FROM b")
    second = await builder.build(own, progress())
    engine.images[SECURE_IMAGE] = BASE
    third = await builder.build(own, progress())

    assert len({first.tag, second.tag, third.tag}) == 3


async def test_registry_that_answers_is_preferred(builder: Builder, engine: FakeEngine) -> None:
    """The base is pulled, and the status says so."""
    engine.registry["debian:trixie-slim"] = BASE
    built = await builder.build(named("python3.13"), progress())

    assert (built.source, list(built.skipped)) == ("registry", [])
    assert engine.images["sandboxd/base:trixie"] == BASE
    assert built_from(engine, "sandboxd/secure:") == BASE


async def test_without_a_registry_debian_is_made_from_its_packages(
    builder: Builder, engine: FakeEngine
) -> None:
    """In a Debian that the engine has, and the status says why."""
    engine.images["sandboxd/base:bookworm"] = BASE
    built = await builder.build(named("python3.13"), progress())

    assert built.source == "debian"
    (why,) = built.skipped
    assert "debian:trixie-slim" in why
    made = next(args for tag, args in engine.builds if tag == "sandboxd/base:trixie")
    assert (made["BASE"], made["SUITE"]) == (BASE, "trixie")
    assert engine.calls["prune_images"] == 1


async def test_base_that_is_there_is_used_without_asking(
    builder: Builder, engine: FakeEngine
) -> None:
    """Where it came from is seen by its names."""
    engine.images["sandboxd/base:trixie"] = BASE
    built = await builder.build(named("python3.13"), progress())
    assert (built.source, engine.calls["pull_image"]) == ("debian", 0)

    engine.images["debian:trixie-slim"] = BASE
    again = await builder.build(named("python3.13"), progress(), rebuild=False)
    assert again.image_id == built.image_id


async def test_next_source_is_tried_and_the_first_is_named(
    engine: FakeEngine, tmp_path: Path
) -> None:
    """A source that cannot be used is skipped, with its reason."""
    own = Definition(
        name="own",
        dockerfile=recipe("python3.11"),
        sources=[
            Source(base=Pulled(reference="some/image:1")),
            Source(base=Other(name="default"), layers=[NEVER_BUILT]),
            Source(base=Other(name="default")),
        ],
    )
    built = await make_builder(engine, tmp_path, own).build(own, progress())

    assert built.source == "environment"
    assert [len(built.skipped), *map(str, built.skipped)] == [
        2,
        "no registry that the engine reaches has some/image:1",
        "the daemon's host has no Python 9.99",
    ]


async def test_environment_without_a_usable_source_says_why_and_what_would_help(
    engine: FakeEngine, tmp_path: Path
) -> None:
    """All reasons and the advice are in the error, and nothing was built."""
    own = replace(
        named("python3.12"),
        sources=[
            Source(base=Pulled(reference="python:3.12-slim-bookworm")),
            Source(base=Other(name="default"), layers=[NEVER_BUILT]),
        ],
    )
    with pytest.raises(EnvironmentUnavailable) as caught:
        await make_builder(engine, tmp_path, own).build(own, progress())

    for part in ("python:3.12-slim-bookworm", "has no Python 9.99", "install Python 3.12"):
        assert part in caught.value.message
    assert engine.builds == []


async def test_first_debian_needs_mmdebstrap_on_the_host(
    engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a registry, without any Debian image and without the tool there is no way."""
    monkeypatch.setattr(bases_module.shutil, "which", lambda _: None)
    own = default_definition(SECURE_IMAGE)
    with pytest.raises(EnvironmentUnavailable, match="mmdebstrap"):
        await make_builder(engine, tmp_path).build(own, progress())


async def test_failed_step_is_reported_with_its_text(builder: Builder, engine: FakeEngine) -> None:
    """What the engine says about the step reaches the caller."""
    engine.failures["build_image.step"] = EngineFailed("The image build failed at 'RUN x': no.")
    with pytest.raises(EnvironmentBuildFailed, match="failed at 'RUN x'"):
        await builder.build(named("python3.11"), progress())


async def test_cancelled_build_leaves_no_files(
    builder: Builder, engine: FakeEngine, tmp_path: Path
) -> None:
    """Wherever it is cancelled; the fixture looks at the directory."""
    for turns in range(40):
        building = asyncio.ensure_future(builder.build(named("python3.11"), progress()))
        for _ in range(turns):
            await asyncio.sleep(0)
        building.cancel()
        await asyncio.wait([building])
        engine.images = {SECURE_IMAGE: engine.images[SECURE_IMAGE]}


async def test_image_of_the_operator_is_used_as_it_is(builder: Builder, engine: FakeEngine) -> None:
    """It is pulled if the engine does not have it, and otherwise only looked at."""
    own = Definition(name="own", image="registry.example/own:1")
    assert await builder.find(own) is None
    with pytest.raises(EnvironmentUnavailable, match=r"registry\.example/own:1"):
        await builder.build(own, progress())
    engine.registry[own.image] = BASE
    built = await builder.build(own, progress())

    assert (built.image_id, built.source, built.tag) == (BASE, "image", "")
    assert engine.builds == []


async def test_progress_of_a_build_never_goes_back(builder: Builder, engine: FakeEngine) -> None:
    """Also where another environment is built first."""
    seen = []

    class Seen(Progress):
        def _show(self, fraction: float, detail: str) -> None:
            super()._show(fraction, detail)
            seen.append(self.now)

    definition = Definition(
        name="own",
        dockerfile=recipe("data"),
        sources=[Source(base=Other(name="python3.11"))],
    )
    await builder.build(definition, Seen(STEPS))

    fractions = [snapshot.fraction for snapshot in seen]
    assert fractions == sorted(fractions)
    numbers = [snapshot.step_number for snapshot in seen]
    assert numbers == sorted(numbers)
    assert seen[-1].step == "check"


def test_recipes_of_all_built_in_environments_are_there() -> None:
    """Each is a Dockerfile in the folder `environments`, and so is every stage and lock file."""
    for definition in [default_definition(SECURE_IMAGE), *BUILT_IN]:
        assert definition.dockerfile is not None
        assert "ARG BASE" in definition.dockerfile.read_text()
        for source in definition.sources:
            assert all(recipe(stage).is_file() for stage in source.stages)
            assert isinstance(source.base, Debian | Pulled | Other)
            for layer in source.layers:
                lock = getattr(layer, "lock", None)
                assert lock is None or lock.is_file()
