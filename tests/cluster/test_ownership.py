"""Who owns a session through every failure, on a real Redis with clocks of the test's own."""

from __future__ import annotations

import asyncio

import pytest

from sandboxd.cluster.contract import (
    ClaimWaits,
    Elsewhere,
    Fenced,
    Load,
    Mine,
    Origin,
    OwnershipUnknown,
    PlaceState,
    ReleaseState,
    WorkerIdTaken,
    WorkerState,
)
from sandboxd.cluster.directory import SharedDirectory
from sandboxd.cluster.session_ids import session_id_for, slot_of
from sandboxd.cluster.store import StoreUnavailable
from tests.cluster.model import KEY, LEASES, Wire, World, thread, worker


async def settle(world: World, *directories: SharedDirectory) -> None:
    """Join, and wait as long as a store that nobody knows has to be waited for."""
    for _ in range(8):
        for directory in directories:
            await directory.membership.beat()
        await world.pass_time(LEASES.renew_seconds)
    for directory in directories:
        await directory.membership.beat()


async def pass_time(world: World, seconds: float, *directories: SharedDirectory) -> None:
    """Time in which these renew."""
    while seconds > 0:
        step = min(seconds, LEASES.renew_seconds)
        await world.pass_time(step)
        seconds -= step
        for directory in directories:
            await directory.membership.beat()


@pytest.fixture
async def pair(world: World) -> tuple[SharedDirectory, SharedDirectory, Wire, Wire]:
    first, wire1 = worker(world, "w1")
    second, wire2 = worker(world, "w2")
    await settle(world, first, second)
    return first, second, wire1, wire2


async def own(directory: SharedDirectory, number: int = 1) -> Mine:
    mine = await directory.claim(thread(number))
    assert isinstance(mine, Mine), mine
    return mine


Pair = tuple[SharedDirectory, SharedDirectory, Wire, Wire]


async def test_one_of_many_claims_wins(pair: Pair) -> None:
    first, second, *_ = pair

    answers = await asyncio.gather(
        *(directory.claim(thread(1)) for _ in range(25) for directory in (first, second))
    )

    owners = {"w1" if directory is first else "w2" for directory in (first, second)}
    mine = [answer for answer in answers if isinstance(answer, Mine)]
    elsewhere = [answer for answer in answers if isinstance(answer, Elsewhere)]
    assert len(mine) == len(elsewhere) == 25
    named = {(answer.session_id, answer.epoch) for answer in mine}
    assert len(named | {(answer.session_id, answer.epoch) for answer in elsewhere}) == 1
    assert {answer.worker for answer in elsewhere} < owners
    assert [answer.origin for answer in mine].count(Origin.NEW) == 1


async def test_an_id_leads_to_the_record_of_its_thread(pair: Pair) -> None:
    first, second, *_ = pair
    mine = await own(first)

    assert slot_of(mine.session_id) == slot_of(session_id_for(KEY, thread(1)))
    assert slot_of(mine.session_id) != slot_of(session_id_for(KEY, thread(2)))
    place = await second.find(mine.session_id)
    assert place == await second.find_thread(thread(1)) == await first.find(mine.session_id)
    assert place is not None
    assert (place.worker, place.address, place.epoch) == ("w1", "w1:50051", mine.epoch)
    assert await second.find(session_id_for(KEY, thread(1))) is None
    assert await second.find(session_id_for(KEY, thread(2))) is None
    assert await second.find("ses_of_before") is None


async def test_an_id_of_another_thread_is_refused(pair: Pair) -> None:
    with pytest.raises(ValueError, match="not an id of a session of this thread"):
        await pair[0].claim(thread(1), wanted_session_id=session_id_for(KEY, thread(2)))


async def test_a_wanted_id_is_used_for_a_new_session_only(pair: Pair) -> None:
    first, second, *_ = pair
    wanted = session_id_for(KEY, thread(1))

    mine = await first.claim(thread(1), wanted_session_id=wanted)
    other = await second.claim(thread(1), wanted_session_id=session_id_for(KEY, thread(1)))

    assert isinstance(mine, Mine)
    assert isinstance(other, Elsewhere)
    assert mine.session_id == other.session_id == wanted


async def test_a_parked_session_goes_on_elsewhere_from_its_head(pair: Pair) -> None:
    first, second, *_ = pair
    mine = await own(first)
    await first.commit(mine.session_id, mine.epoch, "snapshot 4", 4)
    await first.release(
        mine.session_id, mine.epoch, ReleaseState.PARKED, keep_seconds=60, head="snapshot 5", seq=5
    )
    place = await second.find(mine.session_id)
    assert place is not None
    assert (place.state, place.head, place.worker) == (PlaceState.PARKED, "snapshot 5", "w1")

    there = await own(second)

    assert (there.session_id, there.origin) == (mine.session_id, Origin.PARKED)
    assert (there.head, there.seq) == ("snapshot 5", 5)
    assert there.epoch > mine.epoch
    assert not first.holds(mine.session_id)
    assert second.holds(mine.session_id)


async def test_a_closed_session_is_followed_by_another(pair: Pair) -> None:
    first, second, *_ = pair
    mine = await own(first)
    await first.commit(mine.session_id, mine.epoch, "snapshot", 1)
    await first.release(mine.session_id, mine.epoch, ReleaseState.CLOSED, keep_seconds=60)

    new = await own(second)

    assert new.session_id != mine.session_id
    assert (new.origin, new.head, new.seq) == (Origin.NEW, "", 0)
    assert new.epoch > mine.epoch


async def test_a_lost_worker_s_session_is_taken_only_after_the_fence(
    world: World, pair: Pair
) -> None:
    """It ceases to serve by its own clock first; the other goes on from what was committed."""
    first, second, *_ = pair
    mine = await own(first)
    await first.commit(mine.session_id, mine.epoch, "snapshot", 7)
    await first.membership.beat()

    await pass_time(world, LEASES.self_fence_seconds - 1, second)
    assert first.holds(mine.session_id)
    await pass_time(world, 1, second)
    assert not first.holds(mine.session_id)
    assert isinstance(await second.claim(thread(1)), Elsewhere)
    await pass_time(world, LEASES.lease_seconds - LEASES.self_fence_seconds - 1, second)
    assert isinstance(await second.claim(thread(1)), Elsewhere)
    await pass_time(world, 1, second)
    assert isinstance(await second.claim(thread(1), takes_from_lost=False), Elsewhere)
    place = await second.find(mine.session_id)
    assert place is not None
    assert place.state is PlaceState.LOST
    taken = await own(second)

    assert (taken.session_id, taken.head, taken.seq) == (mine.session_id, "snapshot", 7)
    assert taken.origin is Origin.TAKEN
    assert taken.epoch > mine.epoch
    states = {worker.id: worker.state for worker in await second.workers()}
    assert states == {"w1": WorkerState.LOST, "w2": WorkerState.READY}


async def test_a_stale_owner_s_writes_are_refused(world: World, pair: Pair) -> None:
    """Even if it believes that it serves, as after a pause between its check and its write."""
    first, second, *_ = pair
    mine = await own(first)
    await pass_time(world, LEASES.lease_seconds, second)
    taken = await own(second)
    lost: list[str] = []
    first.when_lost(lost.extend)
    first.membership._valid_until = world.now + 1000

    with pytest.raises(Fenced):
        await first.commit(mine.session_id, mine.epoch, "stale", 99)
    first.membership._is_up, first.membership._era = True, "stale"
    first.membership._generation = 1
    with pytest.raises(Fenced):
        await first.release(
            mine.session_id, mine.epoch, ReleaseState.CLOSED, keep_seconds=0, head="stale", seq=99
        )
    place = await second.find_thread(thread(1))
    assert place is not None
    assert (place.worker, place.head, place.epoch) == ("w2", "", taken.epoch)

    await settle(world, first, second)
    assert lost == [mine.session_id]
    assert first.is_serving
    with pytest.raises(Fenced):
        await first.commit(mine.session_id, mine.epoch, "stale", 99)
    with pytest.raises(Fenced):
        await second.commit(mine.session_id, mine.epoch, "older epoch", 99)


async def test_a_worker_that_returns_keeps_what_nobody_took(world: World, pair: Pair) -> None:
    first, second, wire, _ = pair
    kept, lost_one = await own(first, 1), await own(first, 2)
    events: list[object] = []
    first.when_fenced(lambda: events.append("fenced"))
    first.when_lost(events.append)
    first.when_serving(lambda: events.append("serving"))
    wire.is_cut = True
    await pass_time(world, LEASES.lease_seconds, second)
    with pytest.raises(StoreUnavailable):
        await first.membership.beat()
    assert events == ["fenced"]
    assert (await own(second, 2)).session_id == lost_one.session_id

    wire.is_cut = False
    await pass_time(world, 3, first, second)

    assert events == ["fenced", [lost_one.session_id], "serving"]
    assert first.holds(kept.session_id)
    assert not first.holds(lost_one.session_id)
    await first.commit(kept.session_id, kept.epoch, "goes on", 1)
    workers = {found.id: found for found in await second.workers()}
    assert workers["w1"].state is WorkerState.READY
    assert workers["w1"].generation == 2


async def test_known_sessions_are_served_while_redis_is_down(world: World, pair: Pair) -> None:
    """Until the self-fence; opens fail at once. Afterwards it is back by itself, nothing lost."""
    first, second, *_ = pair
    mine = await own(first)
    await first.membership.beat()
    world.is_down = True
    await world.pass_time(LEASES.self_fence_seconds - 1)
    with pytest.raises(OwnershipUnknown) as unknown:
        await first.claim(thread(2))
    assert unknown.value.retry_after_seconds > 0
    assert first.holds(mine.session_id)
    assert await first.find(mine.session_id) is not None
    await world.pass_time(1)
    first.membership.check()
    assert not first.holds(mine.session_id)
    with pytest.raises(OwnershipUnknown):
        await first.commit(mine.session_id, mine.epoch, "head", 1)
    await world.pass_time(60)

    world.is_down = False
    await second.membership.beat()
    assert not isinstance(await second.claim(thread(1)), Mine), "taken although nobody was heard"
    await first.membership.beat()
    await pass_time(world, 3, first, second)

    assert first.holds(mine.session_id)
    await first.commit(mine.session_id, mine.epoch, "head", 1)


async def test_a_second_worker_of_the_same_id_is_refused(world: World, pair: Pair) -> None:
    """While the lease may run, unless it is on the same host, where the first one is dead."""
    first, second, *_ = pair
    mine = await own(first)
    impostor, _ = worker(world, "w1", instance="another host")
    with pytest.raises(WorkerIdTaken):
        await impostor.membership.beat()
    assert first.holds(mine.session_id)
    await first.commit(mine.session_id, mine.epoch, "head", 1)

    restarted, _ = worker(world, "w1")
    held = first._holdings.get(mine.session_id)
    assert held is not None
    restarted._holdings.add(held)
    await restarted.membership.beat()
    assert restarted.holds(mine.session_id)
    await restarted.commit(mine.session_id, mine.epoch, "head", 2)
    with pytest.raises(Fenced):
        await first.commit(mine.session_id, mine.epoch, "of a dead one", 3)

    await pass_time(world, LEASES.lease_seconds, second)
    await impostor.membership.beat()
    assert impostor.is_serving
    assert isinstance(await impostor.claim(thread(1)), ClaimWaits), "a new host is not known yet"
    await pass_time(world, LEASES.renew_seconds, second, impostor)
    assert (await own(impostor)).origin is Origin.TAKEN


async def test_a_claim_that_a_failover_forgot_is_not_given_to_another(
    world: World, pair: Pair
) -> None:
    first, second, *_ = pair
    mine = await own(first)
    await world.fail_over(forgotten=1)
    assert await second.find_thread(thread(1)) is None

    with pytest.raises(OwnershipUnknown):
        await second.claim(thread(1))
    await second.membership.beat()
    assert isinstance(await second.claim(thread(1)), ClaimWaits)
    assert first.holds(mine.session_id), "known sessions are served meanwhile"
    with pytest.raises(OwnershipUnknown):
        await first.commit(mine.session_id, mine.epoch, "head", 1)
    await first.membership.beat()

    answer = await second.claim(thread(1))
    assert isinstance(answer, Elsewhere)
    assert (answer.worker, answer.epoch) == ("w1", mine.epoch)
    await first.commit(mine.session_id, mine.epoch, "head", 1)


async def test_a_session_that_a_failover_forgot_is_not_denied(world: World, pair: Pair) -> None:
    """Nobody says that a session does not exist, or that its last state is its state, before all
    workers have reported what they hold."""
    first, second, *_ = pair
    parked = await own(first, 2)
    await first.release(parked.session_id, parked.epoch, ReleaseState.PARKED, keep_seconds=60)
    await own(first, 1)
    mine = await own(first, 2)
    await world.fail_over(forgotten=2)

    for forgotten in (session_id_for(KEY, thread(1)), mine.session_id):
        with pytest.raises(OwnershipUnknown):
            await second.find(forgotten)
    await second.membership.beat()
    with pytest.raises(OwnershipUnknown):
        await second.find(mine.session_id)
    await first.membership.beat()

    place = await second.find(mine.session_id)
    assert place is not None
    assert (place.worker, place.state) == ("w1", PlaceState.HELD)
    assert await second.find(session_id_for(KEY, thread(1))) is None


async def test_a_commit_that_a_failover_forgot_is_asserted_again(world: World, pair: Pair) -> None:
    first, second, *_ = pair
    mine = await own(first)
    await first.commit(mine.session_id, mine.epoch, "head 1", 1)
    await first.commit(mine.session_id, mine.epoch, "head 2", 2)
    await world.fail_over(forgotten=2)

    await first.membership.beat()
    await second.membership.beat()

    place = await second.find_thread(thread(1))
    assert place is not None
    assert (place.head, place.seq) == ("head 2", 2)


async def test_an_emptied_store_is_waited_for_one_lease(world: World, pair: Pair) -> None:
    """Whoever is not known may still serve what nobody knows of."""
    first, second, *_ = pair
    mine = await own(first)
    await world.begin()
    await second.membership.beat()
    await second.membership.beat()
    waits = await second.claim(thread(1))
    assert isinstance(waits, ClaimWaits)
    assert waits.retry_after_seconds > LEASES.self_fence_seconds
    await pass_time(world, LEASES.lease_seconds, second)

    assert not first.holds(mine.session_id)
    assert (await own(second)).origin is Origin.NEW
    lost: list[str] = []
    first.when_lost(lost.extend)
    await settle(world, first, second)
    assert lost == [mine.session_id]


async def test_a_step_of_the_store_s_clock_fences_nobody(world: World, pair: Pair) -> None:
    first, second, *_ = pair
    mine = await own(first)
    for step in (3600.0, -7200.0):
        world.offset += step  # the clocks of the workers make none
        await world.pass_time(0)

        await second.membership.beat()
        assert not isinstance(await second.claim(thread(1)), Mine)
        await first.membership.beat()
        await second.membership.beat()
        assert isinstance(await second.claim(thread(1)), Elsewhere)
        assert first.holds(mine.session_id)
        await first.commit(mine.session_id, mine.epoch, "head", int(step) + 10_000)


async def test_few_workers_are_fenced_within_one_lease(world: World) -> None:
    """If many seem to be lost the reason is elsewhere; an operator knows."""
    lost = [worker(world, f"lost{number}")[0] for number in range(4)]
    left, _ = worker(world, "left")
    await settle(world, left, *lost)
    for number, directory in enumerate(lost):
        await own(directory, number)
    await pass_time(world, LEASES.lease_seconds, left)

    answers = [await left.claim(thread(number)) for number in range(4)]
    assert [type(answer) for answer in answers] == [Mine, Mine, ClaimWaits, ClaimWaits]
    await left.fence("lost2")
    assert isinstance(await left.claim(thread(2)), Mine)
    assert isinstance(await left.claim(thread(3)), ClaimWaits)
    await pass_time(world, LEASES.lease_seconds, left)
    assert isinstance(await left.claim(thread(3)), Mine)


async def test_an_operator_cannot_fence_a_worker_that_may_serve(pair: Pair) -> None:
    with pytest.raises(OwnershipUnknown, match="may still run"):
        await pair[1].fence("w1")


async def test_workers_report_their_load_and_state(world: World, pair: Pair) -> None:
    first, second, *_ = pair
    load = Load(
        warm=3,
        used=2,
        starting=1,
        capacity=10,
        environments=frozenset({"default", "data"}),
        package_sets=frozenset({"abc"}),
    )
    first.announce(load)
    await first.set_state(WorkerState.DRAINING)

    found, _ = await second.workers()

    assert found.load == load
    assert (found.id, found.state, found.generation) == ("w1", WorkerState.DRAINING, 1)
    assert 0 < found.lease_seconds <= LEASES.lease_seconds


async def test_a_lost_answer_to_a_claim_loses_no_session(world: World, pair: Pair) -> None:
    """The store has given it to the worker that does not know; its next claim gets it."""
    first, second, wire, _ = pair
    wire.loses_answers = True
    with pytest.raises(OwnershipUnknown):
        await first.claim(thread(1))
    wire.loses_answers = False
    assert isinstance(await second.claim(thread(1)), Elsewhere)

    mine = await own(first)

    assert first.holds(mine.session_id)
    await first.commit(mine.session_id, mine.epoch, "head", 1)


async def test_a_worker_that_leaves_is_not_waited_for(world: World, pair: Pair) -> None:
    first, second, *_ = pair
    mine = await own(first)
    await first.release(mine.session_id, mine.epoch, ReleaseState.PARKED, keep_seconds=60)
    await first.stop(leaves=True)
    await world.fail_over(forgotten=0)

    await second.membership.beat()

    assert (await own(second)).session_id == mine.session_id
    assert [found.id for found in await second.workers()] == ["w2"]


async def test_a_late_answer_to_a_claim_that_was_forgotten_is_void(
    world: World, pair: Pair
) -> None:
    """When it comes, the worker has asserted all it knew of, and another may be the owner."""
    first, second, wire, _ = pair
    wire.slow = asyncio.Event()
    late = asyncio.ensure_future(first.claim(thread(1)))
    while await second.find_thread(thread(1)) is None:
        await asyncio.sleep(0.001)
    await world.fail_over(forgotten=1)
    await first.membership.beat()
    await second.membership.beat()
    mine = await own(second)
    wire.slow.set()

    with pytest.raises(OwnershipUnknown, match="anew"):
        await late
    assert not first.holds(mine.session_id)
    assert first._holdings.of_thread(thread(1)) is None


async def forgotten_takeover(world: World, pair: Pair) -> tuple[Mine, Mine]:
    """The second takes a session of the first, which was paused; the store forgets that."""
    first, second, *_ = pair
    before = await own(first)
    await pass_time(world, LEASES.lease_seconds, second)
    taken = await own(second)
    await world.fail_over(forgotten=1)
    place = await second._steps.find(taken.session_id[4:20])
    assert place is not None
    assert (place.place.worker, place.place.epoch) == ("w1", before.epoch)
    return before, taken


async def test_a_worker_that_returns_waits_for_takeovers_that_were_forgotten(
    world: World, pair: Pair
) -> None:
    first, second, *_ = pair
    before, taken = await forgotten_takeover(world, pair)
    lost: list[str] = []
    first.when_lost(lost.extend)

    await first.membership.beat()
    assert second.holds(taken.session_id)
    assert not first.holds(before.session_id), "the record names it, but it is not its own"
    assert isinstance(await first.claim(thread(1)), ClaimWaits)
    await second.membership.beat()
    assert second.holds(taken.session_id)
    await pass_time(world, LEASES.renew_seconds, first, second)

    assert lost == [before.session_id]
    assert first.is_serving
    assert second.holds(taken.session_id)
    await second.commit(taken.session_id, taken.epoch, "head", 1)


async def test_who_asserts_too_late_has_lost(world: World, pair: Pair) -> None:
    """Its epoch is higher, but when the barrier went up another one began to serve."""
    first, second, *_ = pair
    before, taken = await forgotten_takeover(world, pair)
    await pass_time(world, LEASES.lease_seconds + LEASES.renew_seconds, first)
    assert first.holds(before.session_id)
    assert not second.is_serving

    await second.membership.beat()

    assert second.is_serving
    assert not second.holds(taken.session_id)
    assert first.holds(before.session_id)
    await first.commit(before.session_id, before.epoch, "head", 1)


async def test_a_worker_does_not_get_back_what_it_released(world: World, pair: Pair) -> None:
    """The store forgot the release and the other's claim, and names the first as the owner."""
    first, second, *_ = pair
    mine = await own(first)
    await first.release(mine.session_id, mine.epoch, ReleaseState.PARKED, keep_seconds=60)
    there = await own(second)
    await world.fail_over(forgotten=2)
    await first.membership.beat()

    assert isinstance(await first.claim(thread(1)), ClaimWaits)
    assert second.holds(there.session_id)
    await second.membership.beat()

    answer = await first.claim(thread(1))
    assert isinstance(answer, Elsewhere)
    assert (answer.worker, answer.epoch) == ("w2", there.epoch)


async def test_a_store_whose_clock_is_behind_forgets_no_owner(world: World, pair: Pair) -> None:
    """Epochs come from its clock: a later grant can have a lower one, if the record was lost."""
    first, second, *_ = pair
    before = await own(first)
    world.offset = -1000
    await world.begin()
    await pass_time(world, LEASES.lease_seconds + LEASES.renew_seconds, second)
    after = await own(second)
    assert after.epoch < before.epoch

    await pass_time(world, LEASES.renew_seconds, first, second)

    assert first.is_serving
    assert not first.holds(before.session_id)
    assert second.holds(after.session_id)
