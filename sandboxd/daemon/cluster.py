"""Daemons that share sessions: the directory of owners, and the way to the owner of each."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path

import structlog

from sandboxd import __version__
from sandboxd.cluster.alone import Alone
from sandboxd.cluster.contract import (
    Load,
    OwnershipUnknown,
    Place,
    PlaceState,
    ThreadKey,
    Worker,
    WorkerIdTaken,
    WorkerState,
)
from sandboxd.cluster.placement import Wish, candidates
from sandboxd.cluster.settings import ClusterSettings, LeaseSettings, RedisSettings
from sandboxd.config import Config
from sandboxd.daemon.instance import StartRefused
from sandboxd.errors import OwnedElsewhere, OwnershipNotKnown, SandboxLost, SessionParked
from sandboxd.pool.pools import Pools
from sandboxd.registry.contract import SessionRecord
from sandboxd.service.transport.cluster import Cluster
from sandboxd.service.transport.forwarding import Forwarder
from sandboxd.service.transport.listing import Listing
from sandboxd.service.transport.routing import Peer, Routing, Workers
from sandboxd.sessions.ownership import Ownership
from sandboxd.sessions.sessions import Sessions
from sandboxd.tasks import Tasks

log = structlog.get_logger()

LOAD_SECONDS = 2.0
"""How often this worker notes down its load, for the next renewal of its lease."""
WATCH_SECONDS = 10.0
"""How often the workers are counted."""
MOVED_SECONDS = 600.0
"""How often parked sessions are looked for that other workers have had since."""
VIEW_SECONDS = 1.0
"""How long a list of workers is used for placement."""
FINDS_AT_ONCE = 8
"""Sessions that are looked up at the same time: half of the connections to the directory, so that
nothing else has to wait."""
MIN_KEY = 32
DAY_SECONDS = 86400.0
_TASK = "cluster"


def open_ownership(config: Config, instance: str) -> Ownership:
    """What is shared with other daemons. StartRefused if the settings cannot be used."""
    if not config.is_worker:
        return Ownership(Alone(config.worker_id, version=__version__))
    try:
        # On demand: a daemon alone needs neither the module nor the package.
        from sandboxd.cluster.redis_directory import redis_directory
    except ImportError as error:
        raise StartRefused(
            "REDIS_HOST is set, but the client of Redis is not installed; install sandboxd with "
            "the extra `cluster`: pip install 'sandboxd[daemon,cluster]'"
        ) from error
    directory = redis_directory(
        ClusterSettings(
            worker_id=config.worker_id,
            address=config.advertise or f"{config.host}:{config.port}",
            instance=instance,
            cluster_key=cluster_key(config),
            version=__version__,
            leases=LeaseSettings.of(config.lease_seconds),
        ),
        RedisSettings(
            host=config.redis_host,
            port=config.redis_port,
            sentinels=_addresses(config.redis_sentinels),
            primary_name=config.redis_primary,
            password=_secret(config),
            is_tls=config.redis_tls,
            replicas=1 if config.redis_sentinels else 0,
        ),
    )
    return Ownership(directory, parked_seconds=(config.parked_days + 1) * DAY_SECONDS)


async def _join(
    ownership: Ownership, records: Sequence[SessionRecord], stack: AsyncExitStack
) -> None:
    try:
        await ownership.start(records)
    except WorkerIdTaken as error:
        raise StartRefused(
            f"{error}; set another WORKER_ID, or wait until the lease of the other has ended"
        ) from error
    stack.push_async_callback(ownership.stop)


async def open_cluster(
    config: Config,
    sessions: Sessions,
    pools: Pools,
    records: Sequence[SessionRecord],
    stack: AsyncExitStack,
    counts: Counter[str],
) -> Cluster | None:
    """Join the cluster with these sessions. Returns how calls about sessions of other daemons reach
    them, and are counted; None for a daemon alone."""
    ownership = sessions.ownership
    if ownership.is_shared:
        await _join(ownership, records, stack)
    tasks = Tasks()
    stack.push_async_callback(tasks.end)
    tasks.spawn(_report_load(config, ownership, pools), f"{_TASK}-load")
    if not ownership.is_shared:
        return None
    owners = SessionOwners(sessions, ownership)
    forwarder = Forwarder(
        cluster_key(config), ca_file=config.cluster_ca_file, is_lost=owners.is_lost
    )
    stack.push_async_callback(forwarder.aclose)
    tasks.spawn(sessions.keep_committing(config.commit_seconds), f"{_TASK}-commits")
    tasks.spawn(sessions.keep_forgetting(MOVED_SECONDS), f"{_TASK}-moved")
    tasks.spawn(_watch_workers(ownership), f"{_TASK}-workers")
    cluster = Cluster(Routing(owners, counts), forwarder, Listing(owners, forwarder))
    ownership.directory.when_fenced(cluster.here.end_all)
    return cluster


async def _report_load(config: Config, ownership: Ownership, pools: Pools) -> None:
    while True:
        figures = pools.figures
        ownership.directory.announce(
            Load(
                warm=sum(pool.warm for pool in figures),
                used=sum(pool.in_use for pool in figures),
                starting=sum(pool.waiting for pool in figures),
                capacity=config.max_pool_size,
                environments=[pool.environment for pool in figures],
            )
        )
        await asyncio.sleep(LOAD_SECONDS)


async def _watch_workers(ownership: Ownership) -> None:
    """Count the workers, for metrics and the status."""
    while True:
        # Without Redis the counts stay as they were; that it is lost is another figure.
        with suppress(OwnershipUnknown):
            found = await ownership.directory.workers()
            ownership.workers = Counter(worker.state.value for worker in found)
        await asyncio.sleep(WATCH_SECONDS)


class SessionOwners:
    """See routing.Owners."""

    def __init__(self, sessions: Sessions, ownership: Ownership) -> None:
        self._sessions = sessions
        self._directory = ownership.directory
        self._workers: Sequence[Worker] = ()
        self._seen_at = -VIEW_SECONDS
        self._random = random.Random()
        self._sent: Counter[str] = Counter()
        """Sessions that were placed since the workers reported."""

    async def owner(self, session_id: str) -> Peer | None:
        if self._sessions.has(session_id):
            return None
        try:
            place = await self._directory.find(session_id)
            if place is None or place.state is PlaceState.CLOSED:
                return None
            if place.state is PlaceState.PARKED:
                return await self._last_owner(place)
        except OwnershipUnknown as error:
            raise OwnershipNotKnown(str(error), error.retry_after_seconds) from error
        if place.state is PlaceState.LOST:
            raise SandboxLost(f"worker {place.worker}, which had it, is lost")
        if self._is_taken_over(place):
            raise SandboxLost("the worker that had it was lost, and this one takes it over")
        return self._peer(place)

    async def owner_of_thread(
        self, user_id: str, thread_id: str, environment: str, *, may_place: bool
    ) -> Peer | None:
        if self._sessions.has_thread(user_id, thread_id):
            return None
        try:
            place = await self._directory.find_thread(ThreadKey(user_id, thread_id))
            if place is not None and place.state is PlaceState.HELD:
                return self._peer(place)
            if may_place:
                return await self._placed(place, environment)
            if self._directory.state is WorkerState.READY:
                return None
            # Whoever sent it here does not know yet that this worker gets nothing new.
            self.forget_view()
            if (better := await self._placed(place, environment)) is None:
                return None
            raise OwnedElsewhere(better.worker, better.address, better.epoch)
        except OwnershipUnknown as error:
            raise OwnershipNotKnown(str(error), error.retry_after_seconds) from error

    async def is_elsewhere(self, session_id: str) -> bool:
        try:
            place = await self._directory.find(session_id)
        except OwnershipUnknown as error:
            raise OwnershipNotKnown(str(error), error.retry_after_seconds) from error
        if place is None or place.state is PlaceState.CLOSED:
            return False
        # One that is known here was not found because its caller may not see it.
        is_here = place.worker == self._directory.worker_id
        return not (is_here and self._sessions.knows(session_id))

    async def workers(self) -> Workers:
        try:
            found = await self._view()
        except OwnershipUnknown as error:
            if not self._workers:
                raise OwnershipNotKnown(str(error), error.retry_after_seconds) from error
            found = self._workers  # they are there without the directory, too
        own = self._directory.worker_id
        others = [worker for worker in found if worker.id != own]
        return Workers(
            own,
            [Peer(worker.id, worker.address, 0) for worker in others if _is_up(worker)],
            [worker.id for worker in others if not _is_up(worker)],
        )

    async def last_owners(self, session_ids: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
        for start in range(0, len(session_ids), FINDS_AT_ONCE):
            batch = session_ids[start : start + FINDS_AT_ONCE]
            answers = [self._directory.find(one, is_certain=False) for one in batch]
            for found in await asyncio.gather(*answers, return_exceptions=True):
                if isinstance(found, OwnershipUnknown):
                    return
                if isinstance(found, BaseException):
                    raise found
                if found is not None:
                    yield found.session_id, found.worker

    def forget_view(self) -> None:
        self._seen_at = -VIEW_SECONDS

    async def is_lost(self, worker_id: str) -> bool:
        """Whether others may have the sessions of a worker."""
        with suppress(OwnershipUnknown):
            found = await self._directory.workers()
            return any(one.id == worker_id and one.state is WorkerState.LOST for one in found)
        return False

    async def _last_owner(self, place: Place) -> Peer | None:
        """Of a parked session: it alone has the record. SessionParked if it is lost."""
        if self._is_taken_over(place):
            raise SessionParked(place.session_id)
        if place.worker == self._directory.worker_id:
            return None
        if any(worker.id == place.worker and _is_up(worker) for worker in await self._view()):
            return self._peer(place)
        raise SessionParked(place.session_id)

    async def _view(self) -> Sequence[Worker]:
        """The workers, as they were a moment ago."""
        if time.monotonic() - self._seen_at > VIEW_SECONDS:
            self._workers, self._seen_at = await self._directory.workers(), time.monotonic()
            self._sent.clear()
        return self._workers

    def _is_taken_over(self, place: Place) -> bool:
        """Whether this worker has claimed a session that it has not opened yet, or could not."""
        is_own = place.worker == self._directory.worker_id
        return is_own and not self._sessions.knows(place.session_id)

    def _peer(self, place: Place) -> Peer | None:
        if place.worker == self._directory.worker_id:
            return None  # it is about to know, or to forget
        return Peer(place.worker, place.address, place.epoch)

    async def _placed(self, place: Place | None, environment: str) -> Peer | None:
        """The worker that should open a session which nobody has; None if it is this one."""
        workers = await self._view()
        wish = Wish(
            last_owner=place.worker if place is not None else "",
            environment=environment or "default",
        )
        workers = [self._as_known(worker) for worker in workers]
        found = candidates(workers, wish, self._random)
        if not found:
            return None
        self._sent[found[0].id] += 1
        if found[0].id == self._directory.worker_id:
            return None
        return Peer(found[0].id, found[0].address, place.epoch if place is not None else 0)

    def _as_known(self, worker: Worker) -> Worker:
        """With what was placed there since it reported, and the state that this one knows of."""
        more = worker.load.starting + self._sent[worker.id]
        is_self = worker.id == self._directory.worker_id
        state = self._directory.state if is_self else worker.state
        return replace(worker, state=state, load=replace(worker.load, starting=more))


def _is_up(worker: Worker) -> bool:
    return worker.state is not WorkerState.LOST and worker.lease_seconds > 0


def cluster_key(config: Config) -> bytes:
    assert config.cluster_key_file is not None
    key = _read(config.cluster_key_file)
    if len(key) < MIN_KEY:
        raise StartRefused(
            f"{config.cluster_key_file} has a secret of {len(key)} characters, and at least "
            f"{MIN_KEY} are needed; make one with `openssl rand -hex 32`"
        )
    return key


def _secret(config: Config) -> str:
    return _read(config.redis_password_file).decode() if config.redis_password_file else ""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes().strip()
    except OSError as error:
        raise StartRefused(f"{path} cannot be read: {error.strerror}") from error


def _addresses(text: str) -> Sequence[tuple[str, int]]:
    pairs = [one.rpartition(":") for one in text.split(",") if one]
    return [(host, int(port)) for host, _, port in pairs]
