"""Builds that run or wait: shared, bounded, and nobody's but the daemon's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sandboxd.environments import builds as builds_module
from sandboxd.environments.builds import Builds
from sandboxd.environments.progress import Progress
from sandboxd.errors import (
    Draining,
    EnvironmentBuildFailed,
    EnvironmentBuildsBusy,
    EnvironmentUnavailable,
    SandboxdError,
)
from tests.fakes.waiting import eventually


class Work:
    """Work that goes on until it is let go."""

    def __init__(self, result: str = "done") -> None:
        self.begun = 0
        self.gate = asyncio.Event()
        self._result = result
        self.error: Exception | None = None

    async def __call__(self, progress: Progress) -> str:
        self.begun += 1
        progress.begin("one", "working")
        await self.gate.wait()
        if self.error is not None:
            raise self.error
        return self._result


@pytest.fixture
def failures() -> list[tuple[str, SandboxdError]]:
    return []


@pytest.fixture
async def builds(failures: list[tuple[str, SandboxdError]]) -> AsyncIterator[Builds[str]]:
    made = make_builds(failures)
    yield made
    await made.aclose()


def make_builds(
    failures: list[tuple[str, SandboxdError]], *, seconds: float = 60.0, at_once: int = 1
) -> Builds[str]:
    return Builds(
        at_once=at_once,
        seconds=seconds,
        steps=lambda: Progress({"one": 0.5, "two": 0.5}),
        on_failed=lambda name, error: failures.append((name, error)),
    )


async def test_builds_of_one_name_are_the_same(builds: Builds[str]) -> None:
    """However many ask for it, the work is done once, and all get its result."""
    work = Work()
    first, second = builds.start("a", work), builds.start("a", Work("other"))
    results = [asyncio.ensure_future(build.result()) for build in (first, second)]
    work.gate.set()

    assert await asyncio.gather(*results) == ["done", "done"]
    assert work.begun == 1
    assert builds.get("a") is None


async def test_build_goes_on_when_its_callers_leave(builds: Builds[str]) -> None:
    """It belongs to the daemon: a caller that gives up neither ends nor delays it."""
    work = Work()
    build = builds.start("a", work)
    leaving = asyncio.ensure_future(build.result())
    await eventually(lambda: work.begun == 1)
    leaving.cancel()
    await asyncio.wait([leaving])
    assert builds.get("a") is build
    work.gate.set()

    assert await build.result() == "done"


async def test_only_so_many_run_at_once_and_the_others_wait(builds: Builds[str]) -> None:
    """A build that waits says so, and begins when another has ended."""
    first, second = Work("1"), Work("2")
    builds.start("a", first)
    waiting = builds.start("b", second)
    await eventually(lambda: first.begun == 1)
    assert second.begun == 0
    assert waiting.progress.now.detail == "waiting for another build"
    first.gate.set()
    await eventually(lambda: second.begun == 1)
    second.gate.set()

    assert await waiting.result() == "2"


async def test_number_of_builds_that_wait_is_bounded(
    builds: Builds[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more is refused, with a time to try again; those that are there can still be joined."""
    monkeypatch.setattr(builds_module, "MAX_WAITING", 2)
    for name in ("a", "b", "c"):
        builds.start(name, Work())
    with pytest.raises(EnvironmentBuildsBusy) as caught:
        builds.start("d", Work())

    assert caught.value.retry_after_seconds
    assert builds.start("c", Work()) is builds.get("c")


async def test_follower_gets_the_progress_until_the_end(
    builds: Builds[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, at changes, and from time to time without any."""
    monkeypatch.setattr(builds_module, "REPORT_SECONDS", 0.01)
    work = Work()
    build = builds.start("a", work)
    seen = []
    async for snapshot in build.follow():
        seen.append(snapshot)
        if len(seen) == 5:
            work.gate.set()

    assert len(seen) >= 5
    assert seen[-1].step == "one"
    assert seen[-1].detail == "working"
    assert await build.result() == "done"


async def test_failure_is_raised_for_all_and_remembered(
    builds: Builds[str], failures: list[tuple[str, SandboxdError]]
) -> None:
    """A failure that says what is wrong is passed on; another keeps its text for the log."""
    work = Work()
    work.error = EnvironmentUnavailable("a", "no source.")
    work.gate.set()
    with pytest.raises(EnvironmentUnavailable, match="no source"):
        await builds.start("a", work).result()
    work.error = RuntimeError("/secret/path")
    with pytest.raises(EnvironmentBuildFailed, match="see the daemon's log") as caught:
        await builds.start("a", work).result()

    assert "/secret" not in caught.value.message
    assert [name for name, _ in failures] == ["a", "a"]


async def test_build_has_a_deadline(failures: list[tuple[str, SandboxdError]]) -> None:
    """One that hangs fails by itself."""
    builds = make_builds(failures, seconds=0.02)
    with pytest.raises(EnvironmentBuildFailed, match=r"longer than 0\.02 s"):
        await builds.start("a", Work()).result()
    await builds.aclose()


async def test_cancelled_build_is_reported_as_that(builds: Builds[str]) -> None:
    """Those who wait for it learn that it was cancelled, and another can be started."""
    build = builds.start("a", Work())
    result = asyncio.ensure_future(build.result())
    await asyncio.sleep(0)
    await builds.cancel("a")
    await builds.cancel("a")
    with pytest.raises(EnvironmentBuildFailed, match="cancelled"):
        await result

    work = Work()
    work.gate.set()
    assert await builds.start("a", work).result() == "done"


async def test_closing_ends_all_builds_and_takes_no_more(builds: Builds[str]) -> None:
    """A daemon that stops leaves no build behind."""
    running = [builds.start(name, Work()) for name in ("a", "b")]
    await builds.aclose()

    assert all(build.task is not None and build.task.cancelled() for build in running)
    with pytest.raises(Draining):
        builds.start("c", Work())
