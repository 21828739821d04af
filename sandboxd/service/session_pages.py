"""Pages of sessions that several workers list, made into one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from sandboxd.service import page_tokens, wire
from sandboxd_proto.v1 import session_pb2
from sandboxd_proto.v1 import session_service_pb2 as pb

Place: TypeAlias = tuple[float, str]
"""Place in a listing: creation time and session id."""


class Listed(NamedTuple):
    """A session, as one worker describes it."""

    session: session_pb2.Session
    worker: str


class Page(NamedTuple):
    """What follows a place in a listing, oldest first."""

    listed: Sequence[Listed]
    until: Place | None
    """Nothing is left out up to here; None if nothing is left out at all."""


def page_of(response: pb.ListSessionsResponse, worker: str) -> Page:
    """The page that a worker has answered with. InvalidRequest if its token is not one."""
    listed = [Listed(session, worker) for session in response.sessions]
    return Page(listed, page_tokens.SESSIONS.decode(response.next_page_token))


def merged(pages: Iterable[Page], *, size: int, max_bytes: int) -> Page:
    """One page of all, with at most so many sessions, and bytes unless it has one session only.

    A session that several workers know is as its current owner describes it.
    """
    pages = tuple(pages)
    best: dict[str, Listed] = {}
    for one in (one for page in pages for one in page.listed):
        known = best.get(one.session.session_id)
        if known is None or _currency(one.session) > _currency(known.session):
            best[one.session.session_id] = one
    # Beyond the end of a page that was cut, its worker may have sessions that come first.
    until = min((page.until for page in pages if page.until is not None), default=None)
    ordered = sorted(best.values(), key=_order)
    within = [one for one in ordered if until is None or _order(one) <= until]
    kept = within[: _fitting(within[:size], max_bytes)]
    return Page(kept, until if len(kept) == len(within) else _order(kept[-1]))


def parked_ids(page: Page) -> Sequence[str]:
    """Sessions that another worker may have opened, without those that parked them knowing."""
    return [one.session.session_id for one in page.listed if _is_parked(one)]


def without_moved(page: Page, last_owners: Mapping[str, str]) -> Page:
    """Leave out what a worker says of sessions that it parked, and another has had since: the
    other one says what became of them. `last_owners`: workers by session, as far as known."""
    current = [
        one
        for one in page.listed
        if not _is_parked(one) or last_owners.get(one.session.session_id, one.worker) == one.worker
    ]
    return Page(current, page.until)


def response_of(page: Page, missing: Iterable[str]) -> pb.ListSessionsResponse:
    return pb.ListSessionsResponse(
        sessions=[one.session for one in page.listed],
        next_page_token=page_tokens.SESSIONS.encode(page.until),
        missing_workers=sorted(missing),
    )


def _order(listed: Listed) -> Place:
    return wire.moment(listed.session.create_time), listed.session.session_id


def _currency(session: session_pb2.Session) -> tuple[bool, int, float]:
    """Higher for the description by the current owner: it has the session open, or was the last to
    open it, which begins another incarnation. One that had nothing to continue from began anew."""
    is_active = session.state == session_pb2.SESSION_STATE_ACTIVE
    return is_active, session.incarnation, wire.moment(session.create_time)


def _is_parked(listed: Listed) -> bool:
    return listed.session.state == session_pb2.SESSION_STATE_PARKED


def _fitting(listed: Sequence[Listed], max_bytes: int) -> int:
    """How many of them fit; at least one, so that a listing gets on."""
    total = 0
    for count, one in enumerate(listed):
        total += one.session.ByteSize()
        if total > max_bytes and count:
            return count
    return len(listed)
