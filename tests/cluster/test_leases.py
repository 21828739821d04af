"""Leases on real servers and clocks: what is lost, taken over, and comes back by itself."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable

import pytest

from sandboxd.cluster.contract import Elsewhere, Holding, Mine, OwnershipUnknown, WorkerIdTaken
from sandboxd.cluster.directory import SharedDirectory
from sandboxd.cluster.session_ids import session_id_for
from sandboxd.cluster.settings import RedisSettings
from tests.cluster.model import KEY, thread
from tests.cluster.real import PATIENCE_SECONDS, SHORT, answer, found, own, real_worker
from tests.cluster.servers import RedisServer, running_redis, running_sentinels
from tests.fakes.waiting import eventually

Make = Callable[..., SharedDirectory]
_names = (f"leases{number}" for number in itertools.count())


@pytest.fixture
async def make(redis_server: RedisServer) -> AsyncIterator[Make]:
    name, made = next(_names), []

    def make_one(
        worker_id: str, *, instance: str = "", redis: RedisSettings | None = None
    ) -> SharedDirectory:
        redis = redis or RedisSettings(port=redis_server.port, call_seconds=1)
        made.append(real_worker(redis, name, worker_id, instance=instance))
        return made[-1]

    yield make_one
    for directory in made:
        await directory.stop()


async def test_the_sessions_of_a_dead_worker_are_taken_over(make: Make) -> None:
    """Not before it has ceased to serve by its own clock, and from what it committed."""
    first, second = make("w1"), make("w2")
    await first.start()
    await second.start()
    mine = await own(first, 1)
    await first.commit(mine.session_id, mine.epoch, "head", 3)
    await answer(second, 1)
    await first.membership.stop()  # as killed: nobody renews, nobody says goodbye
    died_at = time.monotonic()
    is_over = False

    while not isinstance(taken := await answer(second, 1), Mine):
        is_over = not first.is_serving
        await asyncio.sleep(0.02)

    assert is_over
    took = time.monotonic() - died_at
    print(f"takeover of a session: {took:.2f} s, with a lease of {SHORT.lease_seconds:g} s")
    assert (taken.session_id, taken.head, taken.seq) == (mine.session_id, "head", 3)
    assert taken.epoch > mine.epoch


async def test_a_worker_without_redis_stops_serving_and_comes_back(make: Make) -> None:
    """It serves what it knows until its own fence; nothing is lost to it."""
    with running_redis() as server:
        directory = make("w1", redis=RedisSettings(port=server.port, call_seconds=0.5))
        events: list[object] = []
        directory.when_fenced(lambda: events.append("fenced"))
        directory.when_serving(lambda: events.append("serving"))
        directory.when_lost(events.append)
        await directory.start()
        mine = await own(directory, 1)
        server.pause()
        with pytest.raises(OwnershipUnknown):
            await directory.claim(thread(2))
        await eventually(lambda: not directory.is_serving, timeout_seconds=PATIENCE_SECONDS)
        await eventually(lambda: events[-1] == "fenced", timeout_seconds=PATIENCE_SECONDS)
        with pytest.raises(OwnershipUnknown):
            await directory.commit(mine.session_id, mine.epoch, "head", 1)
        server.resume()

        await eventually(lambda: directory.holds(mine.session_id), timeout_seconds=PATIENCE_SECONDS)
        await eventually(
            lambda: directory.membership.standing is not None, timeout_seconds=PATIENCE_SECONDS
        )
        assert [event for event in events if isinstance(event, list)] == []
        assert events[0] == events[-1] == "serving"


async def test_a_worker_starts_before_redis_does(make: Make) -> None:
    with running_redis() as server:
        server.kill()
        directory = make("w1", redis=RedisSettings(port=server.port, call_seconds=0.5))
        await directory.start()
        assert not directory.is_serving
        with pytest.raises(OwnershipUnknown):
            await directory.claim(thread(1))
        server.start()

        assert (await own(directory, 1)).epoch > 0


async def test_a_redis_that_forgot_everything_gets_no_second_owner(make: Make) -> None:
    """It is killed and comes back empty: the owner asserts, the other is told where it is."""
    with running_redis() as server:
        redis = RedisSettings(port=server.port, call_seconds=0.5)
        first, second = make("w1", redis=redis), make("w2", redis=redis)
        await first.start()
        await second.start()
        mine = await own(first, 1)
        server.kill()
        server.start()

        other = await answer(second, 1)

        assert isinstance(other, Elsewhere)
        assert (other.worker, other.session_id) == ("w1", mine.session_id)
        assert other.epoch == mine.epoch


async def test_two_workers_of_one_id(make: Make) -> None:
    """The second is refused, unless the state directory proves that the first is dead."""
    first = make("w1")
    await first.start()
    mine = await own(first, 1)
    with pytest.raises(WorkerIdTaken):
        await make("w1", instance="another host").start()
    assert first.is_serving
    await first.membership.stop()

    restarted = make("w1")
    await restarted.start([_holding(mine.session_id, mine.epoch)])

    await eventually(lambda: restarted.holds(mine.session_id), timeout_seconds=PATIENCE_SECONDS)
    assert (await own(restarted, 1)).epoch == mine.epoch


async def test_cancelled_calls_leave_the_store_usable(make: Make) -> None:
    """No connection keeps the answer of a call that nobody waits for."""
    directory = make("w1")
    await directory.start()
    await own(directory, 0)
    for number in range(40):
        running = asyncio.ensure_future(answer(directory, number))
        await asyncio.sleep(0.0005 * (number % 5))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    for number in range(40):
        mine = await own(directory, number)
        place = await directory.find_thread(thread(number))
        assert place is not None
        assert (place.session_id, place.epoch) == (mine.session_id, mine.epoch)


async def test_a_primary_without_replicas_denies_no_session(make: Make) -> None:
    """Others may have written to another primary since it lost touch: what it knows of a session
    that is held is used, for its owner is asked anyway; that there is none is not believed."""
    with (
        running_redis() as primary,
        running_redis("--replicaof", f"127.0.0.1 {primary.port}") as replica,
    ):
        redis = RedisSettings(port=primary.port, call_seconds=0.5, replicas=1)
        first, second = make("w1", redis=redis), make("w2", redis=redis)
        await first.start()
        await second.start()
        mine = await own(first, 1)
        unknown = session_id_for(KEY, thread(2))
        assert await found(second, unknown) is None
        replica.pause()

        with pytest.raises(OwnershipUnknown):
            await second.find(unknown)
        place = await second.find(mine.session_id)
        replica.resume()

        assert place is not None
        assert place.worker == "w1"


@pytest.mark.timeout(300)
async def test_a_failover_by_sentinels(make: Make) -> None:
    """The primary is killed: sessions keep their owners, and claims work again by themselves."""
    with running_sentinels() as replicated:
        redis = RedisSettings(sentinels=replicated.addresses, call_seconds=0.5)
        first, second = make("w1", redis=redis), make("w2", redis=redis)
        await first.start()
        await second.start()
        held = [await own((first, second)[number % 2], number) for number in range(20)]
        replicated.primary.kill()
        killed_at = time.monotonic()

        new = await answer(first, 100)

        print(f"claims after the kill of the primary: {time.monotonic() - killed_at:.1f} s later")
        assert new.epoch > max(mine.epoch for mine in held)
        for number, mine in enumerate(held):
            found = await asyncio.gather(answer(first, number), answer(second, number))
            assert {(one.session_id, one.epoch) for one in found} == {(mine.session_id, mine.epoch)}
            assert sorted(isinstance(one, Elsewhere) for one in found) == [False, True]


def _holding(session_id: str, epoch: int) -> Holding:
    return Holding(session_id=session_id, thread=thread(1), epoch=epoch)
