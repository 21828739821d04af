"""Builds the images of environments."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sandboxd.engine.contract import Engine, ImageId
from sandboxd.environments import layers
from sandboxd.environments.bases import Base, Bases, base_tag, key_of, origin
from sandboxd.environments.definition import (
    SECURE_IMAGE,
    Debian,
    Definition,
    Other,
    Pulled,
    Source,
)
from sandboxd.environments.engine_builds import DOCKERFILE, EngineBuilds
from sandboxd.environments.environment import DEFAULT_ENVIRONMENT
from sandboxd.environments.images import (
    MADE_HERE,
    BuiltImage,
    debian_packages,
    described,
    details_label,
)
from sandboxd.environments.layers import Layer
from sandboxd.environments.npm_client import NpmClient
from sandboxd.environments.parts import Package, SourceUnavailable
from sandboxd.environments.progress import Progress
from sandboxd.errors import (
    EngineUnreachable,
    EnvironmentBuildFailed,
    EnvironmentUnavailable,
    SandboxdError,
)

STEPS: Mapping[str, float] = {"base": 0.3, "tools": 0.3, "files": 0.15, "image": 0.2, "check": 0.05}
"""Steps of a build, and the share of its time that each usually takes."""
DEBIAN_STATUS = "/var/lib/dpkg/status"
"""File of an image that lists its Debian packages."""
MAX_PACKAGES = 2000
_DEFAULT_TAG = "sandboxd/secure:"


@dataclass(frozen=True, kw_only=True)
class BuilderSettings:
    directory: Path
    """Where files for builds are collected; what is there at the start is left over."""
    registry_seconds: float
    """How long a registry may take to begin to answer."""


class Builder:
    """Builds images. What is there already, made from the same, is not built again."""

    def __init__(
        self,
        engine: Engine,
        definitions: Sequence[Definition],
        settings: BuilderSettings,
        npm: NpmClient,
        *,
        read_file: Callable[[ImageId, str], Awaitable[str]],
    ) -> None:
        """`read_file`: reads a file of an image; empty if the image has none."""
        self._engine = engine
        self._read_file = read_file
        self._definitions = {definition.name: definition for definition in definitions}
        self._npm = npm
        self._builds = EngineBuilds(
            engine, settings.directory, registry_seconds=settings.registry_seconds
        )
        self._bases = Bases(engine, self._builds)

    def clean_up(self) -> None:
        """Delete what a killed process left."""
        self._builds.clean_up()

    async def find(self, definition: Definition) -> BuiltImage | None:
        """The image of an environment that has a name from the settings, if the engine has it."""
        info = await self._builds.find(definition.image) if definition.image else None
        if info is None:
            return None
        suites = [one.base.suite for one in definition.sources if isinstance(one.base, Debian)]
        if not suites:
            return described(info, source="image")
        base = await self._builds.find(base_tag(suites[0]))
        return described(info, source=origin(base, suites[0]))

    async def list_packages(self, built: BuiltImage) -> BuiltImage:
        """An image with all packages that it has; those of Debian are read from it."""
        if built.is_listed:
            return built
        found = debian_packages(await self._read_file(built.image_id, DEBIAN_STATUS))
        packages = tuple(sorted({*built.packages, *found})[:MAX_PACKAGES])
        return replace(built, packages=packages, is_listed=True)

    async def name_default(self, built: BuiltImage) -> None:
        """Give the image of the default environment the name that daemons look for."""
        await self._engine.tag_image(built.image_id, tag=SECURE_IMAGE)

    async def remove(self, built: BuiltImage) -> None:
        """Remove the name of an image, and the image unless something uses it."""
        if built.tag:
            await self._engine.remove_image(built.tag)

    async def prune(self) -> None:
        """Remove images that lost their name to a newer one, unless something uses them."""
        await self._engine.prune_images(MADE_HERE)

    async def build(
        self, definition: Definition, progress: Progress, *, rebuild: bool = False
    ) -> BuiltImage:
        """Build the image of an environment, or find it.

        EnvironmentUnavailable if none of its sources can be used here, EnvironmentBuildFailed if a
        step fails, EngineUnreachable.
        """
        try:
            if definition.dockerfile is None:
                return await self._pull(definition, progress, rebuild=rebuild)
            return await self._build(definition, definition.dockerfile, progress, rebuild=rebuild)
        except SourceUnavailable as error:
            advice = f" To change that, {definition.advice}." if definition.advice else ""
            raise EnvironmentUnavailable(definition.name, f"{error}.{advice}") from error
        except (EngineUnreachable, EnvironmentUnavailable, EnvironmentBuildFailed):
            raise
        except SandboxdError as error:
            raise EnvironmentBuildFailed(definition.name, error.message) from error
        except OSError as error:
            why = f"a file could not be read or written ({error.strerror})."
            raise EnvironmentBuildFailed(definition.name, why) from error

    async def _pull(
        self, definition: Definition, progress: Progress, *, rebuild: bool
    ) -> BuiltImage:
        found = None if rebuild else await self.find(definition)
        if found is not None:
            return found
        progress.begin("base", f"asking a registry for {definition.image}")
        return described(await self._builds.pull(definition.image, progress), source="image")

    async def _build(
        self, definition: Definition, dockerfile: Path, progress: Progress, *, rebuild: bool
    ) -> BuiltImage:
        began, skipped = time.monotonic(), []
        for source in definition.sources:
            try:
                fingerprint = " ".join([await layers.fingerprint(one) for one in source.layers])
                base = await self._base(source, progress, rebuild=rebuild)
                break
            except SourceUnavailable as error:
                skipped.append(str(error))
        else:
            raise SourceUnavailable("; ".join(skipped))
        if source.layers and not isinstance(source.base, Pulled):
            base = replace(base, source=layers.source_name(source.layers[0]))
        base = replace(base, skipped=[*skipped, *base.skipped])
        text = await asyncio.to_thread(dockerfile.read_text)
        tag = _tag(definition, key_of(text, base.image.id, fingerprint))
        info, seconds = None if rebuild else await self._builds.find(tag), 0.0
        if info is None:
            await self._make(dockerfile, source.layers, base, tag, progress, use_cache=not rebuild)
            info, seconds = await self._builds.expect(tag), time.monotonic() - began
        progress.begin("check", "looking at the image")
        built = replace(described(info, source=base.source), tag=tag, seconds=seconds)
        return await self.list_packages(built)

    async def _make(
        self,
        dockerfile: Path,
        made_of: Sequence[Layer],
        base: Base,
        tag: str,
        progress: Progress,
        *,
        use_cache: bool,
    ) -> None:
        """Build the environment's own Dockerfile on its base, with the files of its layers."""
        async with self._builds.context() as context:
            for name in layers.DIRECTORIES.values():  # those of layers that it has not are empty
                (context / name).mkdir()
            packages = base.packages
            for layer in made_of:
                progress.begin("files", "collecting files")
                directory = context / layers.DIRECTORIES[type(layer)]
                packages = [*packages, *await self._fill(layer, directory, progress)]
            shutil.copy(dockerfile, context / DOCKERFILE)
            progress.begin("image", f"building {tag}")
            # Sandboxes inherit labels. Those of the default environment need none.
            details = details_label(base.source, base.skipped, packages)
            await self._builds.build(
                context,
                tag=tag,
                args={"BASE": base.image.id},
                labels={} if tag.startswith(_DEFAULT_TAG) else {**MADE_HERE, **details},
                progress=progress,
                use_cache=use_cache,
            )

    async def _fill(self, layer: Layer, directory: Path, progress: Progress) -> Sequence[Package]:
        loop = asyncio.get_running_loop()

        def report(part: float, detail: str) -> None:  # from a thread
            loop.call_soon_threadsafe(progress.advance, part, detail)

        return await layers.fill(layer, directory, report, npm=self._npm)

    async def _base(self, source: Source, progress: Progress, *, rebuild: bool) -> Base:
        """The image that an environment's own Dockerfile begins with."""
        match source.base:
            case Debian(suite=suite):
                base = await self._bases.debian(suite, progress, rebuild=rebuild)
            case Pulled(reference=reference):
                base = await self._bases.pulled(reference, progress, rebuild=rebuild)
            case Other(name=name):
                base = await self._other(self._definitions[name], progress)
        for stage in source.stages:
            base = await self._bases.with_stage(base, stage, progress, rebuild=rebuild)
        return base

    async def _other(self, definition: Definition, progress: Progress) -> Base:
        """The image of another environment, which is built only if it has none."""
        info = await self._builds.find(definition.image) if definition.image else None
        if info is not None:
            return Base(image=info, source="environment")
        built = await self.build(definition, progress.part_of("base"))
        own = [package for package in built.packages if package.kind != "debian"]
        info = await self._builds.expect(built.image_id)
        return Base(image=info, source="environment", packages=own)


def _tag(definition: Definition, key: str) -> str:
    if definition.name == DEFAULT_ENVIRONMENT:
        return f"{_DEFAULT_TAG}{key}"
    return f"sandboxd/environment:{definition.name}-{key}"
