"""Where a call about a session goes, if the session is on its way to this worker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from sandboxd.cluster.contract import OwnershipUnknown, Place, PlaceState, Worker, WorkerState
from sandboxd.daemon.cluster import FINDS_AT_ONCE, SessionOwners
from sandboxd.errors import OwnershipNotKnown, SandboxLost, SessionParked
from sandboxd.service.transport.routing import Peer

SESSION = "ses_1"
FORGOTTEN = "ses_0"


def _worker(
    name: str, *, state: WorkerState = WorkerState.READY, lease_seconds: float = 5.0
) -> Worker:
    return Worker(
        id=name, address=f"{name}:1", generation=1, state=state, lease_seconds=lease_seconds
    )


class Known:
    """Sessions of a worker that may remember one, and has none."""

    def __init__(self, *, knows: bool) -> None:
        self._knows = knows

    def has(self, session_id: str) -> bool:
        return False

    def knows(self, session_id: str) -> bool:
        return self._knows


class Directory:
    worker_id = "w1"

    def __init__(self, state: PlaceState, worker: str) -> None:
        self._state = state
        self._worker = worker
        self.is_silent = False
        self.finds = 0

    async def workers(self) -> Sequence[Worker]:
        self._check_answers()
        return [
            _worker("w1"),
            _worker("w2"),
            _worker("w3", state=WorkerState.DRAINING),
            _worker("w4", state=WorkerState.LOST),
            _worker("w5", lease_seconds=0.0),
        ]

    def _check_answers(self) -> None:
        if self.is_silent:
            raise OwnershipUnknown("Redis did not answer in time", 1.0)

    async def find(self, session_id: str, *, is_certain: bool = True) -> Place | None:
        self.finds += 1
        self._check_answers()
        if session_id == FORGOTTEN:
            return None
        return Place(
            session_id=session_id, worker=self._worker, address="", epoch=2, state=self._state
        )


class Ownership:
    def __init__(self, state: PlaceState, worker: str = "w1") -> None:
        self.directory = Directory(state, worker)


def owners(state: PlaceState, *, knows: bool, worker: str = "w1") -> SessionOwners:
    return SessionOwners(cast("Any", Known(knows=knows)), cast("Any", Ownership(state, worker)))


async def test_a_session_that_is_being_taken_over_can_be_opened() -> None:
    """It exists: its worker was lost, and this one has claimed it and not opened it yet."""
    with pytest.raises(SandboxLost):
        await owners(PlaceState.HELD, knows=False).owner(SESSION)


async def test_a_session_that_could_not_be_taken_over_is_parked() -> None:
    """It was given back, and only the directory knows it."""
    with pytest.raises(SessionParked):
        await owners(PlaceState.PARKED, knows=False).owner(SESSION)


@pytest.mark.parametrize("state", [PlaceState.HELD, PlaceState.PARKED])
async def test_a_session_that_this_worker_remembers_is_its_own(state: PlaceState) -> None:
    """It says itself what became of it."""
    assert await owners(state, knows=True).owner(SESSION) is None


@pytest.mark.parametrize(
    ("worker", "knows", "exists"), [("w1", False, True), ("w1", True, False), ("w2", False, True)]
)
async def test_a_session_that_was_not_found_here(worker: str, knows: bool, exists: bool) -> None:
    """It exists if another worker has it, or this one is about to; one that this worker knows was
    not found because its caller may not see it."""
    assert await owners(PlaceState.HELD, knows=knows, worker=worker).is_elsewhere(SESSION) is exists


async def test_a_closed_session_does_not_exist() -> None:
    assert not await owners(PlaceState.CLOSED, knows=False, worker="w2").is_elsewhere(SESSION)


async def test_workers_without_a_lease_are_lost() -> None:
    """They are not to be asked: others may have their sessions. One that drains is."""
    found = await owners(PlaceState.HELD, knows=True).workers()
    assert found.own == "w1"
    assert found.others == [Peer("w2", "w2:1", 0), Peer("w3", "w3:1", 0)]
    assert found.lost == ["w4", "w5"]


async def test_workers_are_remembered() -> None:
    """While the directory is silent; before it has answered once, nobody can say who is there."""
    directory = Ownership(PlaceState.HELD)
    directory.directory.is_silent = True
    seeing = SessionOwners(cast("Any", Known(knows=True)), cast("Any", directory))
    with pytest.raises(OwnershipNotKnown):
        await seeing.workers()
    directory.directory.is_silent = False
    found = await seeing.workers()
    directory.directory.is_silent = True
    seeing.forget_view()
    assert await seeing.workers() == found


async def test_last_owners() -> None:
    """Of all sessions that the directory knows; one that is silent is not asked for each."""
    directory = Ownership(PlaceState.PARKED)
    seeing = SessionOwners(cast("Any", Known(knows=True)), cast("Any", directory))
    asked = [FORGOTTEN, *(f"ses_{number}" for number in range(1, 3 * FINDS_AT_ONCE))]
    found = [one async for one in seeing.last_owners(asked)]
    assert found == [(session_id, "w1") for session_id in asked[1:]]
    directory.directory.is_silent, directory.directory.finds = True, 0
    assert [one async for one in seeing.last_owners(asked)] == []
    assert directory.directory.finds == FINDS_AT_ONCE
