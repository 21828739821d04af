"""Sets for sessions: built once for everyone, and kept while a session has them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from sandboxd.environments import builds
from sandboxd.environments.builds import Build
from sandboxd.environments.environment import PackageKind
from sandboxd.environments.progress import Progress
from sandboxd.errors import (
    EnvironmentBuildFailed,
    EnvironmentBuildsBusy,
    PackageCacheFull,
    PackagesBuildFailed,
    PackagesNotReady,
    PackagesUnsafe,
    TooManyRequests,
)
from sandboxd.packages import package_sets
from sandboxd.packages.installer import Order
from sandboxd.packages.lock import Archive, Lock
from sandboxd.packages.package_sets import PackageSets, PackageSetSettings
from sandboxd.packages.requests import parse_all
from sandboxd.packages.store import PackageSet, PackageStore
from sandboxd.packages.target import Target
from sandboxd.packages.tree import TreeSize
from tests.fakes.settings import of_environment
from tests.fakes.waiting import eventually

TARGET = Target(PackageKind.PYTHON, "3.11", "x86_64-manylinux_2_36", "/packages")
DIGEST = "sha256:" + "ab" * 32
SET_BYTES = 100
DAY = 86400.0


class FakeBuilder:
    """Builds sets that are nearly empty, when it is let."""

    def __init__(self, store: PackageStore) -> None:
        self.store = store
        self.version = "1.0"
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.started: list[str] = []
        self.at_once = self.most_at_once = 0

    async def build(
        self, order: Order, progress: Progress, *, make_room: Callable[[int], None]
    ) -> tuple[Lock, PackageSet]:
        self.started.append(",".join(map(str, order.packages)))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            progress.begin("download", "numpy")
            await self.gate.wait()
            if self.failure is not None:
                raise self.failure
            return self._built(order, make_room)
        finally:
            self.at_once -= 1

    def _built(self, order: Order, make_room: Callable[[int], None]) -> tuple[Lock, PackageSet]:
        names = [package.name for package in order.packages]
        lock = Lock([Archive(name, self.version, "https://x", DIGEST) for name in names])
        key = lock.key(order.target)
        if (known := self.store.get(key)) is not None:
            return lock, known
        make_room(SET_BYTES)
        made = self.store.new_path()
        made.mkdir()
        size = TreeSize(SET_BYTES, 1)
        return lock, self.store.add(key, made, order.target, lock, size)


class Rig:
    def __init__(self, directory: Path, *, sweeps: bool = True, **settings: Any) -> None:
        self.directory = directory
        store = PackageStore(directory)
        store.open()
        self.builder = FakeBuilder(store)
        self.of_sessions: Collection[str] = ()
        usual = {
            "build_seconds": 60.0,
            "total_bytes": 10 * SET_BYTES,
            "keep_seconds": 30 * DAY,
            "fresh_seconds": DAY,
            "builds_per_user_and_hour": 100,
        }
        settings = PackageSetSettings(**{**usual, **settings})
        self.sets = PackageSets(settings, store, self.builder)  # type: ignore[arg-type]
        if sweeps:
            self.sets.start_sweeping(lambda: self.of_sessions)

    async def ensure(self, *packages: str, wait: float = 5.0, user_id: str = "ada") -> PackageSet:
        return await self.sets.ensure(an_order(*packages), user_id=user_id, wait_seconds=wait)

    def age(self, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
        """Let time go by."""
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + seconds)


def an_order(*packages: str) -> Order:
    return Order(parse_all(PackageKind.PYTHON, packages or ["numpy"]), of_environment(), TARGET)


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.builder.gate.set()
    await made.sets.aclose()


# --- building once ---


async def test_second_request_waits_for_nothing(rig: Rig) -> None:
    """A set that is there is returned at once, whoever asked for it first."""
    built = await rig.ensure("numpy", user_id="ada")
    rig.builder.gate.clear()

    found = rig.sets.find_or_build(an_order("NumPy"), user_id="bob")

    assert found == built
    assert rig.builder.started == ["numpy"]


async def test_racing_requests_share_one_build(rig: Rig) -> None:
    rig.builder.gate.clear()
    waiting = [asyncio.create_task(rig.ensure("numpy", user_id=f"u{n}")) for n in range(20)]
    await eventually(lambda: bool(rig.builder.started))
    rig.builder.gate.set()

    sets = await asyncio.gather(*waiting)

    assert len({found.key for found in sets}) == 1
    assert rig.builder.started == ["numpy"]


async def test_caller_who_does_not_wait_gets_the_progress(rig: Rig) -> None:
    """With step, fraction and when to come back; the build goes on."""
    rig.builder.gate.clear()
    with pytest.raises(PackagesNotReady):
        await rig.ensure("numpy", wait=0.0)
    await eventually(lambda: bool(rig.builder.started))

    with pytest.raises(PackagesNotReady) as refused:
        await rig.ensure("numpy", wait=0.0)

    assert refused.value.metadata == {"packages": "numpy", "step": "download", "fraction": "0.100"}
    assert refused.value.retry_after_seconds
    rig.builder.gate.set()
    assert dict((await rig.ensure("numpy")).packages) == {"numpy": "1.0"}
    assert rig.builder.started == ["numpy"]


async def test_caller_who_leaves_does_not_end_the_build(rig: Rig) -> None:
    rig.builder.gate.clear()
    leaving = asyncio.create_task(rig.ensure("numpy"))
    await eventually(lambda: bool(rig.builder.started))
    leaving.cancel()
    await asyncio.wait([leaving])
    rig.builder.gate.set()

    await rig.ensure("numpy")

    assert rig.builder.started == ["numpy"]


async def test_builds_run_one_after_the_other(rig: Rig) -> None:
    await asyncio.gather(*(rig.ensure(f"p{n}") for n in range(5)))

    assert rig.builder.most_at_once == 1
    assert len(rig.builder.started) == 5


async def test_two_requests_for_the_same_wheels_share_a_set(rig: Rig) -> None:
    one, other = await asyncio.gather(rig.ensure("numpy"), rig.ensure("numpy<2"))

    assert one == other


# --- failures ---


async def test_failure_is_the_answer_for_a_while(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """One who came back for a build that failed meanwhile learns of it; later it is tried again."""
    rig.builder.failure = PackagesUnsafe("numpy", "it has a symbolic link")
    with pytest.raises(PackagesUnsafe):
        await rig.ensure("numpy")
    rig.builder.failure = None

    with pytest.raises(PackagesUnsafe, match="symbolic link"):
        await rig.ensure("numpy", wait=0.0)

    monkeypatch.setattr(package_sets, "FAILURE_SECONDS", 0.0)
    assert await rig.ensure("numpy")


async def test_failure_of_the_host_is_reported_without_its_text(rig: Rig) -> None:
    rig.builder.failure = OSError(28, "No space left on device", "/host/path")

    with pytest.raises(PackagesBuildFailed) as failed:
        await rig.ensure("numpy")

    assert "/host" not in str(failed.value)


async def test_end_of_the_daemon_ends_builds(rig: Rig) -> None:
    rig.builder.gate.clear()
    found = rig.sets.find_or_build(an_order(), user_id="ada")
    assert isinstance(found, Build)
    waiting = asyncio.create_task(rig.ensure("numpy"))
    await eventually(lambda: bool(rig.builder.started))

    await rig.sets.aclose()

    with pytest.raises(EnvironmentBuildFailed, match="cancelled"):
        await waiting
    with pytest.raises(EnvironmentBuildFailed, match="cancelled"):
        await found.result()


# --- limits ---


async def test_builds_that_wait_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "MAX_WAITING", 2)
    rig.builder.gate.clear()
    for name in ("a", "b", "c"):
        rig.sets.find_or_build(an_order(name), user_id="ada")

    with pytest.raises(EnvironmentBuildsBusy) as refused:
        rig.sets.find_or_build(an_order("d"), user_id="ada")

    assert refused.value.retry_after_seconds
    assert isinstance(rig.sets.find_or_build(an_order("c"), user_id="ada"), Build)


async def test_builds_of_a_user_are_limited(tmp_path: Path) -> None:
    """Others can go on, and so can the user with sets that are there."""
    rig = Rig(tmp_path, builds_per_user_and_hour=2)
    await rig.ensure("a")
    await rig.ensure("b")

    with pytest.raises(TooManyRequests, match="2 sets of packages") as refused:
        await rig.ensure("c")

    assert refused.value.retry_after_seconds
    await rig.ensure("a")
    await rig.ensure("c", user_id="bob")
    await rig.sets.aclose()


# --- newer versions ---


async def test_old_versions_are_good_enough_until_newer_ones_are_there(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the look at the index."""
    old = await rig.ensure("numpy")
    rig.age(monkeypatch, 2 * DAY)
    rig.builder.version = "2.0"

    assert rig.sets.find_or_build(an_order(), user_id="ada") == old
    await eventually(lambda: len(rig.builder.started) == 2)
    await eventually(lambda: rig.sets.size_bytes == 2 * SET_BYTES)

    assert dict((await rig.ensure("numpy")).packages) == {"numpy": "2.0"}


async def test_index_that_is_down_does_not_take_sets_away(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await rig.ensure("numpy")
    rig.age(monkeypatch, 2 * DAY)
    rig.builder.failure = PackagesBuildFailed("the index is down")

    for _ in range(3):
        assert rig.sets.find_or_build(an_order(), user_id="ada") == old
        await eventually(lambda: rig.builder.at_once == 0)

    await eventually(lambda: len(rig.builder.started) == 2)


# --- deletion ---


async def test_sets_stay_within_their_limit(rig: Rig) -> None:
    """The one used longest ago goes first, and its files with it."""
    for number in range(20):
        await rig.ensure(f"p{number}")
        assert rig.sets.size_bytes <= 10 * SET_BYTES

    names = {name for found in rig.sets.sets for name, _ in found.packages}
    assert names == {f"p{number}" for number in range(10, 20)}
    await eventually(lambda: len(list((rig.directory / "sets").glob("*"))) == 20)
    await eventually(lambda: not list((rig.directory / "trash").iterdir()))


async def test_use_keeps_a_set(rig: Rig) -> None:
    first = await rig.ensure("first")
    for number in range(20):
        await rig.ensure(f"p{number}")
        with rig.sets.held(first):
            pass

    assert rig.sets.get(first.key) == first


async def test_set_of_a_session_is_never_deleted(rig: Rig) -> None:
    first = await rig.ensure("first")
    rig.of_sessions = {first.key}

    for number in range(20):
        await rig.ensure(f"p{number}")

    assert rig.sets.path(first).is_dir()


async def test_set_that_is_being_attached_is_not_deleted(rig: Rig) -> None:
    first = await rig.ensure("first")
    with rig.sets.held(first), rig.sets.held(first):
        for number in range(20):
            await rig.ensure(f"p{number}")
        assert rig.sets.path(first).is_dir()


async def test_set_that_does_not_fit_beside_those_of_sessions_is_refused(rig: Rig) -> None:
    """And leaves the others alone."""
    sets = [await rig.ensure(f"p{number}") for number in range(10)]
    rig.of_sessions = {found.key for found in sets}

    with pytest.raises(PackageCacheFull) as refused:
        await rig.ensure("another")

    assert refused.value.retry_after_seconds
    assert len(rig.sets.sets) == 10


async def test_sets_that_nobody_uses_expire(tmp_path: Path) -> None:
    rig = Rig(tmp_path, sweeps=False, keep_seconds=0.0)
    of_session, unused = await rig.ensure("a"), await rig.ensure("b")

    rig.sets.start_sweeping(lambda: {of_session.key})

    await eventually(lambda: rig.sets.get(unused.key) is None)
    assert rig.sets.get(of_session.key) == of_session
    await rig.sets.aclose()


async def test_sets_above_a_limit_that_was_lowered_are_deleted_at_start(tmp_path: Path) -> None:
    before = Rig(tmp_path)
    for number in range(10):
        await before.ensure(f"p{number}")
    await before.sets.aclose()

    after = Rig(tmp_path, sweeps=False, total_bytes=3 * SET_BYTES)
    after.sets.start_sweeping(frozenset)

    await eventually(lambda: after.sets.size_bytes == 3 * SET_BYTES)
    await after.sets.aclose()
