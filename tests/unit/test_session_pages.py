"""Pages of sessions of several workers, made into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxd.errors import InvalidRequest
from sandboxd.service import page_tokens, wire
from sandboxd.service.session_pages import (
    Page,
    merged,
    page_of,
    parked_ids,
    response_of,
    without_moved,
)
from sandboxd_proto.v1 import session_pb2
from sandboxd_proto.v1 import session_service_pb2 as pb

ACTIVE = session_pb2.SESSION_STATE_ACTIVE
PARKED = session_pb2.SESSION_STATE_PARKED
CLOSED = session_pb2.SESSION_STATE_CLOSED
NOW = 1_760_000_000.0
ROOMY = 1 << 30

times = st.floats(min_value=1e9, max_value=4e9, allow_nan=False)


def session(
    number: int,
    *,
    created_at: float | None = None,
    state: session_pb2.SessionState.ValueType = ACTIVE,
    incarnation: int = 1,
) -> session_pb2.Session:
    return session_pb2.Session(
        session_id=f"ses_{number:03}",
        create_time=wire.timestamp(NOW + number if created_at is None else created_at),
        state=state,
        incarnation=incarnation,
    )


class Worker:
    """Lists its sessions as a daemon does."""

    def __init__(self, sessions: Mapping[tuple[float, str], session_pb2.Session]) -> None:
        self._sessions = sessions

    def list(self, size: int, token: str) -> pb.ListSessionsResponse:
        after = page_tokens.SESSIONS.decode(token)
        rest = sorted(place for place in self._sessions if after is None or place > after)
        page = rest[:size]
        return pb.ListSessionsResponse(
            sessions=[self._sessions[place] for place in page],
            next_page_token=page_tokens.SESSIONS.encode(page[-1] if len(rest) > size else None),
        )


def listed(
    workers: Sequence[Worker], size: int, *, max_bytes: int = ROOMY
) -> list[session_pb2.Session]:
    """All pages; parts of a page are merged one by one, each time in another order."""
    found: list[session_pb2.Session] = []
    token = ""
    for turn in range(1000):
        order = [(turn + n) % len(workers) for n in range(len(workers))]
        page = Page((), None)
        for number in order:
            part = page_of(workers[number].list(size, token), str(number))
            page = merged([page, part], size=size, max_bytes=max_bytes)
        response = response_of(page, ())
        assert len(response.sessions) <= size
        found += response.sessions
        token = response.next_page_token
        if not token:
            return found
    raise AssertionError("the listing does not end")


@given(times)
def test_a_place_survives_its_message(created_at: float) -> None:
    """A token that is made from a message names the same place as the record does: nothing is
    listed twice or left out for a rounded time."""
    assert wire.moment(wire.timestamp(created_at)) == created_at


@given(
    st.lists(st.lists(st.integers(0, 40), unique=True, max_size=20), min_size=1, max_size=5),
    st.lists(times, min_size=41, max_size=41),
    st.integers(1, 9),
    st.sampled_from([1, 60, 200, ROOMY]),
)
def test_every_session_is_listed_once_in_order(
    known: list[list[int]], created: list[float], size: int, max_bytes: int
) -> None:
    """Whatever the workers know, also of the same sessions, and however small the pages are."""
    workers = [
        Worker(
            {
                (created[number], f"ses_{number:03}"): session(
                    number, created_at=created[number], incarnation=worker + 1
                )
                for number in numbers
            }
        )
        for worker, numbers in enumerate(known)
    ]
    everything = {number for numbers in known for number in numbers}
    expected = sorted((created[number], f"ses_{number:03}") for number in everything)
    found = listed(workers, size, max_bytes=max_bytes)
    assert [one.session_id for one in found] == [session_id for _, session_id in expected]
    for one in found:
        number = int(one.session_id.removeprefix("ses_"))
        owner = max(worker for worker, numbers in enumerate(known) if number in numbers)
        assert one.incarnation == owner + 1


@pytest.mark.parametrize(
    ("stale", "current"),
    [
        (session(1, state=PARKED, incarnation=3), session(1, state=ACTIVE, incarnation=3)),
        (session(1, state=PARKED, incarnation=3), session(1, state=ACTIVE, incarnation=2)),
        (session(1, state=ACTIVE, incarnation=1), session(1, state=ACTIVE, incarnation=2)),
        (session(1, state=PARKED, incarnation=1), session(1, state=CLOSED, incarnation=2)),
        (session(1, created_at=NOW), session(1, created_at=NOW + 60)),
    ],
)
def test_a_session_is_as_its_owner_says(
    stale: session_pb2.Session, current: session_pb2.Session
) -> None:
    """Active before ended, then the higher incarnation, then the one that began later; in
    whichever order the answers come."""
    pages = [
        page_of(pb.ListSessionsResponse(sessions=[one]), worker)
        for one, worker in ((stale, "a"), (current, "b"))
    ]
    for order in (pages, pages[::-1]):
        (one,) = merged(order, size=10, max_bytes=ROOMY).listed
        assert (one.session, one.worker) == (current, "b")


def test_parked_sessions_that_moved_are_left_out() -> None:
    """Who parked a session does not learn that another worker has opened it: what it says of it is
    left out also where a filter hides what the other one says. The token stays."""
    sessions = [session(1, state=PARKED), session(2, state=PARKED), session(3)]
    token = page_tokens.SESSIONS.encode((NOW + 3, "ses_003"))
    page = page_of(pb.ListSessionsResponse(sessions=sessions, next_page_token=token), "a")
    assert parked_ids(page) == ["ses_001", "ses_002"]
    left = response_of(without_moved(page, {"ses_001": "b", "ses_002": "a"}), ())
    assert [one.session_id for one in left.sessions] == ["ses_002", "ses_003"]
    assert left.next_page_token == token
    assert len(without_moved(page, {}).listed) == 3  # nobody could say


def test_a_session_that_is_too_large_is_listed_alone() -> None:
    """A listing gets on, however small the bound is."""
    workers = [Worker({(NOW + n, f"ses_{n:03}"): session(n)}) for n in range(3)]
    assert len(listed(workers, 3, max_bytes=1)) == 3


def test_missing_workers_are_named_in_order() -> None:
    assert list(response_of(Page((), None), {"c", "a"}).missing_workers) == ["a", "c"]


def test_a_token_that_is_none_is_refused() -> None:
    """Of another worker too: where its page ends is not known."""
    with pytest.raises(InvalidRequest):
        page_of(pb.ListSessionsResponse(next_page_token="?"), "a")
