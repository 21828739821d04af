"""What every directory promises: that of a single daemon, Redis, and Redis behind sentinels.

A node of a Redis Cluster refuses what is not in one slot.
"""

from __future__ import annotations

import ast
import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack

import pytest

from sandboxd.cluster.alone import Alone
from sandboxd.cluster.contract import (
    Directory,
    Elsewhere,
    Fenced,
    Load,
    Origin,
    ReleaseState,
    WorkerState,
)
from sandboxd.cluster.settings import RedisSettings
from tests.cluster.model import thread
from tests.cluster.real import answer, found, own, real_worker
from tests.cluster.servers import running_node_of_a_cluster, running_redis, running_sentinels

Make = Callable[[str], Directory]
_names = (f"contract{number}" for number in itertools.count())


@pytest.fixture(scope="module", params=["alone", "redis", "socket", "slots", "sentinels"])
def place(request: pytest.FixtureRequest) -> Iterator[RedisSettings | None]:
    with ExitStack() as stack:
        match request.param:
            case "alone":
                yield None
            case "redis":
                server = stack.enter_context(running_redis())
                yield RedisSettings(port=server.port)
            case "socket":
                server = stack.enter_context(running_redis("--unixsocket", "redis.sock"))
                yield RedisSettings(socket_path=str(server.directory / "redis.sock"))
            case "slots":
                server = stack.enter_context(running_node_of_a_cluster())
                yield RedisSettings(port=server.port)
            case _:
                replicated = stack.enter_context(running_sentinels())
                yield RedisSettings(sentinels=replicated.addresses, replicas=1)


@pytest.fixture
async def make(place: RedisSettings | None) -> AsyncIterator[Make]:
    name, made = next(_names), []

    def make_one(worker_id: str) -> Directory:
        made.append(Alone(worker_id) if place is None else real_worker(place, name, worker_id))
        return made[-1]

    yield make_one
    for directory in made:
        await directory.stop()


async def test_a_worker_owns_what_it_claims(make: Make) -> None:
    """Until it releases it: the same id and epoch each time, and its commits are accepted."""
    directory = make("w1")
    await directory.start()
    mine = await own(directory, 1)
    assert directory.is_serving
    assert directory.holds(mine.session_id)
    assert mine.session_id.startswith("ses_")
    assert len(mine.session_id) == 28
    again = await directory.claim(thread(1), wanted_session_id=mine.session_id)
    await directory.commit(mine.session_id, mine.epoch, "head", 1)

    assert again.epoch == mine.epoch  # type: ignore[union-attr]
    assert again.session_id == mine.session_id  # type: ignore[union-attr]
    assert again.origin is Origin.KNOWN  # type: ignore[union-attr]
    await directory.release(mine.session_id, mine.epoch, ReleaseState.CLOSED, keep_seconds=1)
    assert (await own(directory, 1)).session_id != mine.session_id


async def test_a_worker_is_listed_with_its_load(make: Make) -> None:
    directory = make("w1")
    await directory.start()
    load = Load(warm=1, used=2, starting=3, capacity=4)
    directory.announce(load)
    await directory.set_state(WorkerState.DRAINING)

    (found,) = await directory.workers()

    assert (found.id, found.state, found.load.used) == ("w1", WorkerState.DRAINING, 2)
    assert found.lease_seconds > 0


async def test_what_nobody_has_is_not_found(make: Make) -> None:
    directory = make("w1")
    await directory.start()

    assert await found(directory, "ses_" + "0" * 24) is None
    assert await directory.find_thread(thread(77)) is None


async def test_a_stopped_directory_leaves_nothing_running(make: Make) -> None:
    before = asyncio.all_tasks()
    directory = make("w1")
    await directory.start()
    await directory.stop()

    assert asyncio.all_tasks() == before


async def test_workers_agree_on_the_owner(make: Make, place: RedisSettings | None) -> None:
    """Where they share a store: one owns, the others are told where; a stale epoch is refused."""
    first, second = make("w1"), make("w2")
    await first.start()
    await second.start()
    mine = await own(first, 2)
    other = await answer(second, 2)
    if place is None:
        assert mine.epoch == 0
        return

    assert isinstance(other, Elsewhere)
    assert (other.session_id, other.worker, other.epoch) == (mine.session_id, "w1", mine.epoch)
    await first.release(mine.session_id, mine.epoch, ReleaseState.PARKED, keep_seconds=60)
    there = await own(second, 2)
    assert there.session_id == mine.session_id
    assert there.epoch > mine.epoch
    for directory in (first, second):
        with pytest.raises(Fenced):
            await directory.commit(mine.session_id, mine.epoch, "stale", 9)


async def test_a_failing_callback_keeps_nobody_else_from_being_told(make: Make) -> None:
    directory = make("w1")
    told: list[str] = []

    def fail() -> None:
        raise RuntimeError("of the test")

    directory.when_serving(fail)
    directory.when_serving(lambda: told.append("serving"))
    await directory.start()
    await own(directory, 3)

    assert directory.is_serving
    assert told == ([] if isinstance(directory, Alone) else ["serving"])


def test_a_daemon_alone_imports_nothing_of_a_cluster() -> None:
    program = (
        "import sys, sandboxd.cluster.alone\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'redis'\n"
        "       or name.startswith('sandboxd.cluster.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )

    assert sorted(ast.literal_eval(done.stdout)) == [
        "sandboxd.cluster.alone",
        "sandboxd.cluster.contract",
    ]
