"""The environments of a daemon: which there are, which have an image, and their builds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

import structlog

from sandboxd.environments.builder import STEPS, Builder
from sandboxd.environments.builds import Build, Builds
from sandboxd.environments.definition import Definition
from sandboxd.environments.environment import DEFAULT_ENVIRONMENT, Environment
from sandboxd.environments.images import BuiltImage
from sandboxd.environments.progress import Progress, Snapshot
from sandboxd.environments.records import BuildRecords
from sandboxd.errors import (
    EnvironmentBuildFailed,
    EnvironmentInUse,
    EnvironmentNotFound,
    EnvironmentNotReady,
    EnvironmentUnavailable,
    SandboxdError,
)
from sandboxd.tasks import Tasks

log = structlog.get_logger()

QUICK_SECONDS = 1.0
"""How long an open waits in any case: a build that finds everything ready takes less."""
FAILED_SECONDS = 300.0
"""How long a failed build is not tried again by opens."""
LOOK_AGAIN_SECONDS = 10.0
"""Pause before the engine is asked again which images it has, if it did not answer."""


class State(Enum):
    """Whether sessions can be opened in an environment."""

    NOT_BUILT = auto()
    BUILDING = auto()
    READY = auto()
    FAILED = auto()
    UNAVAILABLE = auto()


@dataclass(frozen=True, kw_only=True)
class Status:
    """An environment as it is now."""

    environment: Environment
    definition: Definition
    state: State
    detail: str
    """Why it has no image, and what would help."""
    built: BuiltImage | None
    session_count: int
    progress: Snapshot | None
    """Progress of the build that runs."""


@dataclass(frozen=True)
class _Failure:
    error: SandboxdError
    at: float


class Environments:
    """All environments. What is built is kept in records, and sessions are opened on it."""

    def __init__(
        self,
        definitions: Mapping[str, Definition],
        environments: Mapping[str, Environment],
        builder: Builder,
        records: BuildRecords,
        *,
        builds_at_once: int,
        build_seconds: float,
    ) -> None:
        """With a definition and an environment, whose image is not known yet, for each name."""
        self._definitions = definitions
        self._environments = dict(environments)
        self._builder = builder
        self._records = records
        self._built: dict[str, BuiltImage] = {}
        self._failures: dict[str, _Failure] = {}
        self._builds: Builds[BuiltImage] = Builds(
            at_once=builds_at_once,
            seconds=build_seconds,
            steps=lambda: Progress(STEPS),
            on_failed=self._on_failed,
        )
        self._tasks = Tasks()
        self.on_ready: Callable[[Environment], None] = lambda _: None
        """Is called with an environment that has a new image."""
        self.on_withdrawn: Callable[[str], None] = lambda _: None
        """Is called with the name of an environment that no longer has an image."""
        self.on_event: Callable[[str, str, str], None] = lambda *_: None
        """Is called with an action, the name of its environment and a detail, for the audit log."""
        self.session_count: Callable[[str], int] = lambda _: 0
        """Returns the number of open sessions in an environment."""
        made_from = {
            name: definition.made_from
            for name, definition in definitions.items()
            if name != DEFAULT_ENVIRONMENT
        }
        for name, built in records.load(made_from).items():
            self._built[name] = built
            self._environments[name] = replace(self._environments[name], image=built.image_id)

    async def __aenter__(self) -> Environments:
        self._builder.clean_up()
        self._tasks.spawn(self._find_images(), "environments-find")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._builds.aclose()
        self._tasks.cancel("")
        await self._tasks.finish()

    # --- look ---

    @property
    def values(self) -> Sequence[Environment]:
        """Every environment, the default first, the others by name."""
        names = sorted(self._environments, key=lambda name: (name != DEFAULT_ENVIRONMENT, name))
        return [self._environments[name] for name in names]

    def is_ready(self, name: str) -> bool:
        """Whether it has an image. The default one counts as ready: its pool reports if not."""
        return name in self._built or name == DEFAULT_ENVIRONMENT

    def list(self) -> Sequence[Status]:
        return [self.get(environment.name) for environment in self.values]

    def get(self, name: str) -> Status:
        definition = self._definition(name)
        state, detail = self._state(name)
        build = self._builds.get(name)
        return Status(
            environment=self._environments[name],
            definition=definition,
            state=state,
            detail=detail,
            built=self._built.get(name),
            session_count=self.session_count(name),
            progress=build.progress.now if build else None,
        )

    async def get_with_packages(self, name: str) -> Status:
        """The same as `get`, with all packages of its image."""
        self._definition(name)
        if (built := self._built.get(name)) is not None and not built.is_listed:
            listed = await self._builder.list_packages(built)
            if self._built.get(name) is built:
                self._built[name] = listed
        return self.get(name)

    def _definition(self, name: str) -> Definition:
        definition = self._definitions.get(name)
        if definition is None:
            raise EnvironmentNotFound(name, [value.name for value in self.values])
        return definition

    def _state(self, name: str) -> tuple[State, str]:
        if self._builds.get(name) is not None:
            return State.BUILDING, ""
        if name in self._built:
            return State.READY, ""
        failure = self._failures.get(name)
        if failure is None:
            return State.NOT_BUILT, "It is built at its first use, or when it is asked for."
        is_unavailable = isinstance(failure.error, EnvironmentUnavailable)
        return State.UNAVAILABLE if is_unavailable else State.FAILED, failure.error.message

    # --- build ---

    def build(self, name: str, *, rebuild: bool = False) -> Build[BuiltImage]:
        """Start to build it, or join the build that is under way."""
        definition = self._definition(name)

        async def work(progress: Progress) -> BuiltImage:
            built = await self._builder.build(definition, progress, rebuild=rebuild)
            await self._use(name, built)
            self.on_event("environment.built", name, built.image_id)
            return built

        is_new = self._builds.get(name) is None
        build = self._builds.start(name, work)
        if is_new:
            self.on_event("environment.build_started", name, "")
        return build

    def _on_failed(self, name: str, error: SandboxdError) -> None:
        if isinstance(error, EnvironmentUnavailable | EnvironmentBuildFailed):
            self._failures[name] = _Failure(error, time.monotonic())
        self.on_event("environment.build_failed", name, error.message)

    async def _use(self, name: str, built: BuiltImage) -> None:
        """Open sessions on this image from here on."""
        before = self._built.get(name)
        definition = self._definitions[name]
        if name != DEFAULT_ENVIRONMENT:
            self._records.save(name, built, made_from=definition.made_from)
        elif definition.dockerfile is not None:
            await self._builder.name_default(built)
        self._failures.pop(name, None)
        self._built[name] = built
        self._environments[name] = replace(self._environments[name], image=built.image_id)
        self.on_ready(self._environments[name])
        if before is not None and before.image_id != built.image_id:
            await self._remove_superseded(before, by=built)

    async def _remove_superseded(self, built: BuiltImage, *, by: BuiltImage) -> None:
        """Remove a replaced image. One that sandboxes still use is removed after the next build."""
        try:
            if built.tag != by.tag:
                await self._builder.remove(built)
            await self._builder.prune()
        except SandboxdError as error:
            log.warning("environment.image_not_removed", tag=built.tag, error=str(error))

    async def wait_until_ready(self, name: str, *, wait_seconds: float) -> None:
        """Return once it has an image, which is built if there is none.

        EnvironmentNotReady, with the progress, if that takes longer; the build goes on.
        """
        self._definition(name)
        if self.is_ready(name):
            return
        failure = self._failures.get(name)
        is_recent = failure is not None and time.monotonic() - failure.at < FAILED_SECONDS
        if failure is not None and is_recent and self._builds.get(name) is None:
            raise failure.error.with_traceback(None)
        build = self.build(name)
        if not await build.wait(max(QUICK_SECONDS, wait_seconds)):
            now = build.progress.now
            raise EnvironmentNotReady(name, step=now.step, fraction=now.fraction)
        await build.result()

    def on_image_missing(self, name: str) -> None:
        """The engine no longer has the image of an environment; the next use builds it again."""
        if name != DEFAULT_ENVIRONMENT and self._built.pop(name, None) is not None:
            log.warning("environment.image_gone", environment=name)
            self._records.delete(name)
            self.on_withdrawn(name)

    async def delete(self, name: str) -> None:
        """Cancel its build and remove its image. EnvironmentInUse for the default one."""
        self._definition(name)
        if name == DEFAULT_ENVIRONMENT:
            raise EnvironmentInUse(name, "sessions that ask for no other are opened in it")
        if count := self.session_count(name):
            raise EnvironmentInUse(name, f"{count} sessions are open in it; close them first")
        await self._builds.cancel(name)
        self._failures.pop(name, None)
        built = self._built.pop(name, None)
        if built is None:
            return
        self._records.delete(name)
        self.on_withdrawn(name)
        self.on_event("environment.deleted", name, built.image_id)
        await self._builder.remove(built)

    # --- images that are there ---

    async def _find_images(self) -> None:
        """Look for images that are used as they are, as soon as the engine answers."""
        wanted = [definition for definition in self._definitions.values() if definition.image]
        while True:
            try:
                for definition in wanted:
                    await self._find_image(definition)
                return
            except SandboxdError as error:
                log.info("environments.engine_silent", error=str(error))
            await asyncio.sleep(LOOK_AGAIN_SECONDS)

    async def _find_image(self, definition: Definition) -> None:
        name = definition.name
        if name in self._built or (built := await self._builder.find(definition)) is None:
            return
        self._built[name] = built
        if name != DEFAULT_ENVIRONMENT:  # its sandboxes are made from the name that was configured
            self._records.save(name, built, made_from=definition.made_from)
            self._environments[name] = replace(self._environments[name], image=built.image_id)
            self.on_ready(self._environments[name])
