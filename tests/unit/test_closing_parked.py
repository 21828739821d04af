"""A parked session is closed by a worker that knows an older state of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandboxd.cluster.contract import Mine, Origin
from sandboxd.errors import OwnershipNotKnown, SessionNotFound
from sandboxd.registry.contract import SessionRecord, SessionState
from sandboxd.sessions.ownership import head_of
from sandboxd.sessions.sessions import Sessions

PARKED = SessionRecord(
    session_id="ses_1",
    user_id="ada",
    thread_id="t",
    state=SessionState.PARKED,
    incarnation=1,
    created_at=1.0,
    changed_at=1.0,
    idle_seconds=60.0,
    epoch=3,
    parked_number=2,
)


class Ownership:
    """Gives what the directory has, and notes what is given back."""

    is_shared = True

    def __init__(self, mine: Mine) -> None:
        self._mine = mine
        self.given_back: list[Mine] = []

    async def claim(self, *_: object) -> Mine:
        return self._mine

    async def give_back(self, mine: Mine) -> None:
        self.given_back.append(mine)


def mine(session_id: str, head: str) -> Mine:
    return Mine(session_id=session_id, epoch=9, head=head, seq=1, origin=Origin.PARKED)


async def claimed(found: Mine) -> tuple[SessionRecord, Ownership]:
    session = SimpleNamespace(record=PARKED, thread=("ada", "t"))
    ownership = Ownership(found)
    sessions = SimpleNamespace(get=lambda _: session, ownership=ownership)
    try:
        await Sessions.claim_parked(cast("Any", sessions), "ses_1")
    except (SessionNotFound, OwnershipNotKnown):
        assert ownership.given_back == [found]
        raise
    return session.record, ownership


async def test_what_another_worker_has_made_of_it_is_closed() -> None:
    """It was opened and parked elsewhere since: that state is closed, with its snapshots."""
    later = replace(PARKED, incarnation=4, parked_number=7)
    record, ownership = await claimed(mine("ses_1", head_of(later, 7)))
    assert (record.incarnation, record.parked_number, record.epoch) == (4, 7, 9)
    assert ownership.given_back == []


async def test_another_session_of_the_thread_is_not_closed() -> None:
    """The session was closed elsewhere, and the thread has a new one, which stays as it is."""
    with pytest.raises(SessionNotFound):
        await claimed(mine("ses_2", head_of(replace(PARKED, session_id="ses_2"), 1)))


async def test_a_record_that_cannot_be_read_is_not_denied() -> None:
    """As of a later release: the session exists, and the worker that wrote it can close it."""
    with pytest.raises(OwnershipNotKnown):
        await claimed(mine("ses_1", "not a record"))
