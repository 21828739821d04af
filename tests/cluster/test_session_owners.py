"""Where a call about a session goes, if the session is on its way to this worker."""

from __future__ import annotations

from typing import Any, cast

import pytest

from sandboxd.cluster.contract import Place, PlaceState
from sandboxd.daemon.cluster import SessionOwners
from sandboxd.errors import SandboxLost, SessionParked

SESSION = "ses_1"


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

    async def find(self, session_id: str) -> Place:
        return Place(
            session_id=session_id, worker=self._worker, address="", epoch=2, state=self._state
        )


class Ownership:
    def __init__(self, state: PlaceState, worker: str) -> None:
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
