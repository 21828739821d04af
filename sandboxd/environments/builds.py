"""Builds that run or wait. A build belongs to the daemon, not to the caller who asked for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import Context
from typing import Generic, TypeVar

import structlog

from sandboxd.environments.progress import Progress, Snapshot
from sandboxd.errors import Draining, EnvironmentBuildFailed, EnvironmentBuildsBusy, SandboxdError

log = structlog.get_logger()

MAX_WAITING = 16
"""Builds that may wait for others to end."""
REPORT_SECONDS = 2.0
"""How often a follower gets the progress, even if nothing has changed."""

T = TypeVar("T")


class Build(Generic[T]):
    """A build with its progress. Any number of callers may follow it, and leave again."""

    def __init__(self, name: str, progress: Progress) -> None:
        self.name = name
        self.progress = progress
        self.task: asyncio.Task[T] | None = None

    async def result(self) -> T:
        """Wait for its end; its error if it failed, Draining if the daemon stops."""
        assert self.task is not None
        # A caller that gives up must not end it, and it is cancelled only from outside.
        await asyncio.wait([self.task])
        if self.task.cancelled():
            raise EnvironmentBuildFailed(self.name, "it was cancelled; try again.")
        return self.task.result()

    async def follow(self) -> AsyncIterator[Snapshot]:
        """Its progress, at once and at every change, until it has ended."""
        assert self.task is not None
        while not self.task.done():
            yield self.progress.now
            await self.progress.changed(REPORT_SECONDS)

    async def wait(self, seconds: float) -> bool:
        """Wait for its end, but not longer than this; whether it has ended."""
        assert self.task is not None
        done, _ = await asyncio.wait([self.task], timeout=seconds)
        return bool(done)


class Builds(Generic[T]):
    """Runs a few builds at once. Those of the same name are the same build."""

    def __init__(
        self,
        *,
        at_once: int,
        seconds: float,
        steps: Callable[[], Progress],
        on_failed: Callable[[str, SandboxdError], None],
    ) -> None:
        self._on_failed = on_failed
        self._limit = at_once
        self._seconds = seconds
        self._new_progress = steps
        self._slots = asyncio.Semaphore(at_once)
        self._running: dict[str, Build[T]] = {}
        self._is_closed = False

    def get(self, name: str) -> Build[T] | None:
        return self._running.get(name)

    def start(self, name: str, work: Callable[[Progress], Awaitable[T]]) -> Build[T]:
        """The build of this name, which may be under way already."""
        if self._is_closed:
            raise Draining
        if (running := self._running.get(name)) is not None:
            return running
        if len(self._running) >= self._limit + MAX_WAITING:
            raise EnvironmentBuildsBusy(len(self._running))
        build: Build[T] = Build(name, self._new_progress())
        # In an empty context: it does not belong to the call that started it.
        build.task = asyncio.get_running_loop().create_task(
            self._run(build, work), name=f"build-{name}", context=Context()
        )
        self._running[name] = build
        build.task.add_done_callback(lambda task: self._on_done(build, task))
        return build

    async def _run(self, build: Build[T], work: Callable[[Progress], Awaitable[T]]) -> T:
        if self._slots.locked():
            build.progress.advance(0.0, "waiting for another build")
        async with self._slots:
            log.info("environment.build_started", environment=build.name)
            limit = asyncio.timeout(self._seconds)
            try:
                async with limit:
                    return await work(build.progress)
            except SandboxdError:
                raise
            except Exception as error:
                if limit.expired():
                    raise EnvironmentBuildFailed(
                        build.name, f"it took longer than {self._seconds:g} s."
                    ) from error
                log.error("environment.build_broke", environment=build.name, exc_info=error)
                raise EnvironmentBuildFailed(build.name, "see the daemon's log.") from error

    def _on_done(self, build: Build[T], task: asyncio.Task[T]) -> None:
        del self._running[build.name]
        build.progress.wake()
        elapsed = round(build.progress.now.elapsed_seconds, 1)
        if task.cancelled():
            log.info("environment.build_cancelled", environment=build.name, seconds=elapsed)
        elif (error := task.exception()) is not None:
            if isinstance(error, SandboxdError):
                self._on_failed(build.name, error)
            log.warning(
                "environment.build_failed",
                environment=build.name,
                seconds=elapsed,
                error=str(error),
            )
        else:
            log.info("environment.built", environment=build.name, seconds=elapsed)

    async def cancel(self, name: str) -> None:
        """End the build of this name, if there is one."""
        build = self._running.get(name)
        if build is not None and build.task is not None:
            build.task.cancel()
            await asyncio.wait([build.task])

    async def aclose(self) -> None:
        self._is_closed = True
        for name in tuple(self._running):
            await self.cancel(name)
