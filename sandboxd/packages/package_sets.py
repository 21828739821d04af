"""Sets of packages for sessions: found, or built once for everyone who asks for the same."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import structlog

from sandboxd.access.shares import PACKAGE_BUILDS, NoPlace, Places
from sandboxd.environments.builds import Build, Builds
from sandboxd.environments.progress import Progress
from sandboxd.errors import (
    Draining,
    EnvironmentBuildsBusy,
    PackageCacheFull,
    PackagesBuildFailed,
    PackagesNotReady,
    SandboxdError,
    TooManyRequests,
)
from sandboxd.packages import tree
from sandboxd.packages.build import STEPS, Builder
from sandboxd.packages.installer import Order
from sandboxd.packages.lock import request_key
from sandboxd.packages.store import PackageSet, PackageStore, superfluous
from sandboxd.tasks import Tasks
from sandboxd.workspaces.disks import DisksUnusable

log = structlog.get_logger()

FAILURE_SECONDS = 60.0
"""How long a failure is the answer to the same request: those who come back learn of it."""
BUILDS_AT_ONCE = 1
RETRY_SECONDS = 2.0
SWEEP_SECONDS = 3600.0
_HOUR = 3600.0
_SWEEP, _DELETE = "package-sweep", "package-delete"


@dataclass(frozen=True, kw_only=True)
class PackageSetSettings:
    build_seconds: float
    """Time of one build, after which something is wrong with its own limits."""
    total_bytes: int
    """Size of all sets together."""
    keep_seconds: float
    """How long a set is kept that nobody uses."""
    fresh_seconds: float
    """How long the versions of a request are taken for the newest."""
    builds_per_user_and_hour: int


@dataclass
class _Failure:
    error: SandboxdError
    at: float = field(default_factory=time.monotonic)

    @property
    def is_recent(self) -> bool:
        return time.monotonic() - self.at < FAILURE_SECONDS


class PackageSets:
    """All sets of this daemon. A build belongs to the daemon, not to a caller."""

    def __init__(self, settings: PackageSetSettings, store: PackageStore, builder: Builder) -> None:
        self._settings = settings
        self._store = store
        self._builder = builder
        self._builds: Builds[PackageSet] = Builds(
            at_once=BUILDS_AT_ONCE,
            seconds=settings.build_seconds,
            steps=lambda: Progress(STEPS),
            on_failed=self._on_failed,
        )
        """By the key of their request."""
        self._failures: dict[str, _Failure] = {}
        self._places = Places(PACKAGE_BUILDS)
        self._started: defaultdict[str, deque[float]] = defaultdict(deque)
        """When each user started builds within the last hour."""
        self._holds: Counter[str] = Counter()
        """Sets that are about to be attached."""
        self._keys_of_sessions: Callable[[], Collection[str]] = frozenset
        self._tasks = Tasks()

    async def aclose(self) -> None:
        """End every build, and finish deletions."""
        self._tasks.cancel(_SWEEP)
        await self._builds.aclose()
        await self._tasks.finish()

    def start_sweeping(self, keys_of_sessions: Callable[[], Collection[str]]) -> None:
        """From now on delete sets that nobody has used for long; with the keys of those that open
        and kept sessions have."""
        self._keys_of_sessions = keys_of_sessions
        self._tasks.spawn(self._keep_swept(), _SWEEP)

    # --- sets ---

    @property
    def size_bytes(self) -> int:
        return self._store.size_bytes

    @property
    def sets(self) -> Collection[PackageSet]:
        return self._store.sets

    def path(self, found: PackageSet) -> Path:
        return self._store.path(found.key)

    def get(self, key: str) -> PackageSet | None:
        """A set by its key; None if there is none, or none any more."""
        return self._store.get(key)

    @contextmanager
    def held(self, found: PackageSet) -> Iterator[None]:
        """Keep a set while it is attached, until a session is known to have it."""
        self._holds[found.key] += 1
        self._store.use(found.key)
        try:
            yield
        finally:
            self._holds[found.key] -= 1
            if not self._holds[found.key]:
                del self._holds[found.key]

    # --- requests ---

    async def ensure(self, order: Order, *, user_id: str, wait_seconds: float) -> PackageSet:
        """The set for a request, built if there is none.

        PackagesNotReady if that takes longer than the caller waits; the build goes on.
        """
        found = self.find_or_build(order, user_id=user_id)
        if isinstance(found, PackageSet):
            return found
        if not await found.wait(wait_seconds):
            now = found.progress.now
            raise PackagesNotReady(
                ", ".join(map(str, order.packages)),
                step=now.step,
                fraction=now.fraction,
                retry_after_seconds=RETRY_SECONDS,
            )
        return await found.result()

    def find_or_build(self, order: Order, *, user_id: str) -> PackageSet | Build[PackageSet]:
        """The set for a request, or its build, started if it does not run. Without a user, it
        counts toward no limit.

        A set whose versions may no longer be the newest is good enough for this caller; the newest
        are looked up for the next one.
        """
        key = request_key(order.packages, order.target)
        resolved = self._store.recall(key)
        found = self._store.get(resolved.lock.key(order.target)) if resolved else None
        if found is None:
            return self._build(key, order, user_id)
        if resolved and time.time() - resolved.at > self._settings.fresh_seconds:
            self._refresh(key, order)
        return found

    def _build(self, key: str, order: Order, user_id: str) -> Build[PackageSet]:
        if (running := self._builds.get(key)) is not None:
            return running
        if (failure := self._failures.get(key)) is not None and failure.is_recent:
            raise failure.error.with_traceback(None)
        if not user_id:
            return self._start(key, order)
        self._take_place(user_id)
        try:
            self._count_build(user_id)
            build = self._start(key, order)
        except SandboxdError:
            self._places.free(user_id)
            raise
        assert build.task is not None
        build.task.add_done_callback(lambda _: self._places.free(user_id))
        return build

    def _take_place(self, user_id: str) -> None:
        try:
            self._places.take(user_id)
        except NoPlace:
            raise EnvironmentBuildsBusy(PACKAGE_BUILDS.per_user, whose=" of this user") from None

    def _refresh(self, key: str, order: Order) -> None:
        """Look for newer versions in the background, unless that has just failed."""
        failure = self._failures.get(key)
        if failure is None or not failure.is_recent:
            try:
                self._start(key, order)
            except (Draining, EnvironmentBuildsBusy):
                pass  # the next request looks again

    def _start(self, key: str, order: Order) -> Build[PackageSet]:
        return self._builds.start(key, partial(self._run, key, order))

    async def _run(self, key: str, order: Order, progress: Progress) -> PackageSet:
        try:
            lock, found = await self._builder.build(order, progress, make_room=self._make_room)
            self._store.remember(key, lock)
        except (OSError, DisksUnusable) as error:
            log.error("packages.build_failed", exc_info=error)
            raise PackagesBuildFailed("the host failed; see the daemon's log.") from error
        log.info(
            "packages.built",
            key=found.key,
            packages=len(found.packages),
            size_bytes=found.size_bytes,
            seconds=round(progress.now.elapsed_seconds, 1),
        )
        return found

    def _on_failed(self, key: str, error: SandboxdError) -> None:
        self._failures = {
            key: failure for key, failure in self._failures.items() if failure.is_recent
        }
        self._failures[key] = _Failure(error)

    def _count_build(self, user_id: str) -> None:
        now, limit = time.monotonic(), self._settings.builds_per_user_and_hour
        for user in list(self._started):
            while self._started[user] and now - self._started[user][0] > _HOUR:
                self._started[user].popleft()
            if not self._started[user]:
                del self._started[user]
        started = self._started[user_id]
        if len(started) >= limit:
            wait = started[0] + _HOUR - now
            raise TooManyRequests(
                f"This user has had {limit} sets of packages built within an hour, the most that "
                f"are allowed; try again in {wait / 60:.0f} minutes, or ask for packages that are "
                "there already.",
                retry_after_seconds=wait,
            )
        started.append(now)

    # --- deletion ---

    @property
    def in_use(self) -> Collection[str]:
        """Keys of the sets that are not deleted: of sessions, and about to be attached."""
        return {*self._holds, *self._keys_of_sessions()}

    def _make_room(self, size_bytes: int) -> None:
        """Delete sets until another one fits; PackageCacheFull if sessions need the others."""
        limit = self._settings.total_bytes
        unwanted = list(
            superfluous(
                self._store.in_order_of_use(),
                self.in_use,
                size_bytes=self._store.size_bytes + size_bytes,
                max_bytes=limit,
            )
        )
        freed = sum(found.size_bytes for found in unwanted)
        if self._store.size_bytes + size_bytes - freed > limit:
            raise PackageCacheFull(limit)
        self._remove(unwanted)

    async def _keep_swept(self) -> None:
        while True:
            oldest = time.time() - self._settings.keep_seconds
            in_use = self.in_use
            self._remove(
                [
                    found
                    for found in self._store.in_order_of_use()
                    if self._store.used_at(found.key) < oldest and found.key not in in_use
                ]
            )
            try:
                self._make_room(0)
            except PackageCacheFull:
                log.warning("packages.above_limit", size_bytes=self._store.size_bytes)
            await asyncio.sleep(SWEEP_SECONDS)

    def _remove(self, unwanted: Sequence[PackageSet]) -> None:
        for found in unwanted:
            log.info("packages.removed", key=found.key, size_bytes=found.size_bytes)
            trash = self._store.remove(found.key)
            self._tasks.spawn(asyncio.to_thread(tree.delete, trash), _DELETE)
