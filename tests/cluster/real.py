"""Workers on real servers and real clocks, with short leases."""

from __future__ import annotations

import asyncio

from sandboxd.cluster.contract import (
    ClaimWaits,
    Directory,
    Elsewhere,
    Mine,
    OwnershipUnknown,
    Place,
    ReleaseState,
)
from sandboxd.cluster.directory import SharedDirectory
from sandboxd.cluster.redis_directory import redis_directory
from sandboxd.cluster.settings import ClusterSettings, LeaseSettings, RedisSettings
from tests.cluster.model import KEY, thread

SHORT = LeaseSettings(
    renew_seconds=0.3, self_fence_seconds=1.5, write_seconds=2.0, lease_seconds=2.5
)
SHORTEST = LeaseSettings(
    renew_seconds=0.1, self_fence_seconds=0.3, write_seconds=0.4, lease_seconds=0.5
)
PATIENCE_SECONDS = 60


def real_worker(
    redis: RedisSettings,
    name: str,
    worker_id: str,
    *,
    instance: str = "",
    leases: LeaseSettings = SHORT,
) -> SharedDirectory:
    settings = ClusterSettings(
        worker_id=worker_id,
        address=f"{worker_id}:50051",
        instance=instance or f"host of {worker_id}",
        cluster_key=KEY,
        name=name,
        leases=leases,
    )
    return redis_directory(settings, redis)


async def answer(directory: Directory, number: int) -> Mine | Elsewhere:
    """What a claim says, as soon as it says something; as a caller does who tries again."""
    give_up_at = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while asyncio.get_running_loop().time() < give_up_at:
        try:
            found = await directory.claim(thread(number))
        except OwnershipUnknown:
            found = ClaimWaits(0.1)
        if not isinstance(found, ClaimWaits):
            return found
        await asyncio.sleep(min(found.retry_after_seconds, 0.1))
    raise AssertionError("no answer to a claim")


async def own(directory: Directory, number: int) -> Mine:
    """The same until it is this worker's own."""
    give_up_at = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while asyncio.get_running_loop().time() < give_up_at:
        if isinstance(found := await answer(directory, number), Mine):
            return found
        await asyncio.sleep(0.02)
    raise AssertionError("it stays with another worker")


async def found(directory: Directory, session_id: str) -> Place | None:
    """What is known of a session, as soon as that is certain."""
    give_up_at = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while asyncio.get_running_loop().time() < give_up_at:
        try:
            return await directory.find(session_id)
        except OwnershipUnknown:
            await asyncio.sleep(0.05)
    raise AssertionError("it stays unknown")


async def open_cluster(redis: RedisSettings, name: str) -> None:
    """Wait as long as for a store that nobody knows; workers of long leases need not then."""
    opener = real_worker(redis, name, "opener", leases=SHORTEST)
    await opener.start()
    mine = await own(opener, 0)
    await opener.release(mine.session_id, mine.epoch, ReleaseState.CLOSED, keep_seconds=0)
    await opener.stop(leaves=True)
