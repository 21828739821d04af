"""Builds of environments in a process that is not a daemon."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from types import TracebackType
from typing import Self

from sandboxd.config import Config
from sandboxd.daemon import settings
from sandboxd.engine.contract import ImageId
from sandboxd.engine.docker import DockerEngine, EngineTimeouts
from sandboxd.environments.builder import STEPS, Builder
from sandboxd.environments.builds import Build, Builds
from sandboxd.environments.environment import DEFAULT_ENVIRONMENT
from sandboxd.environments.images import BuiltImage
from sandboxd.environments.progress import Progress
from sandboxd.errors import EnvironmentNotFound
from sandboxd.tasks import run_to_end

LABEL = "sandboxd.look"
"""Label of a container that exists only to read a file of an image."""


class LocalBuilds:
    """Builds with the engine of this host. What it builds, a daemon finds when it needs it."""

    def __init__(self, config: Config) -> None:
        self._definitions = settings.definitions(config)
        self._engine = DockerEngine(url=config.docker_url, timeouts=EngineTimeouts())
        directory = config.state_dir / f"builds-{os.getpid()}"
        self._builder = Builder(
            self._engine,
            list(self._definitions.values()),
            replace(settings.builder_settings(config), directory=directory),
            settings.npm_client(config),
            read_file=self._read_file,
        )
        self._builds: Builds[BuiltImage] = Builds(
            at_once=1,
            seconds=config.environment_build_seconds,
            steps=lambda: Progress(STEPS),
            on_failed=lambda *_: None,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._builds.aclose()
        self._builder.clean_up()
        await self._engine.aclose()

    def start(self, name: str, *, rebuild: bool) -> Build[BuiltImage]:
        definition = self._definitions.get(name)
        if definition is None:
            raise EnvironmentNotFound(name, sorted(self._definitions))

        async def work(progress: Progress) -> BuiltImage:
            built = await self._builder.build(definition, progress, rebuild=rebuild)
            if name == DEFAULT_ENVIRONMENT and definition.dockerfile is not None:
                await self._builder.name_default(built)
            return built

        return self._builds.start(name, work)

    async def _read_file(self, image: ImageId, path: str) -> str:
        reading = self._engine.read_file(
            image, path, name=f"sandboxd-look-{secrets.token_hex(8)}", labels={LABEL: ""}
        )
        return (await run_to_end(reading)).decode(errors="replace")
