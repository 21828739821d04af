"""Which worker of a cluster answers a call: this one, or the owner of the session it is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple, Protocol

from google.protobuf.message import Message

from sandboxd.errors import OwnedElsewhere
from sandboxd.service.wire import Context

HOP_METADATA = "sandboxd-hop"
"""Metadata key of calls that a worker has forwarded: they are not forwarded again."""
REDIRECT_METADATA = "sandboxd-accept-redirect"
"""Metadata key of callers that want to be told the owner, and then call it themselves."""
_DEPTH = 3
"""How deep in a request its session may be named: in the first message of a conversation it is in
what starts it."""


class Peer(NamedTuple):
    """Another worker."""

    worker: str
    address: str
    epoch: int


class Workers(NamedTuple):
    """The workers of a cluster, as one of them sees them."""

    own: str
    """The one that sees them."""
    others: Sequence[Peer]
    """Those whose lease runs."""
    lost: Sequence[str]
    """Those whose lease is over."""


class Owners(Protocol):
    """Knows where sessions are. OwnershipNotKnown if nobody can say."""

    async def owner(self, session_id: str) -> Peer | None:
        """The worker that has this session; None if it is this one, or if nobody has it."""
        ...

    async def owner_of_thread(
        self, user_id: str, thread_id: str, environment: str, *, may_place: bool
    ) -> Peer | None:
        """The worker that has the session of a thread or, if it may be placed, should open it.

        OwnedElsewhere if it may not be placed, and this worker gets no new sessions.
        """
        ...

    async def is_elsewhere(self, session_id: str) -> bool:
        """Whether a session that was not found here exists all the same: another worker has it or
        may take it, or this one is about to."""
        ...

    async def workers(self) -> Workers:
        """All that are known; those that were known last if nobody can say."""
        ...

    def last_owners(self, session_ids: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
        """These sessions, each with the worker that has it or had it last; it leaves out those of
        which nobody can say."""
        ...

    def forget_view(self) -> None:
        """What is remembered of the workers was wrong: ask again."""
        ...


class Routing:
    """Finds the worker for a request."""

    def __init__(self, owners: Owners, counts: Counter[str]) -> None:
        """`counts`: calls that are FORWARDED, and REDIRECTED."""
        self._owners = owners
        self._counts = counts

    async def peer(self, request: Any, context: Context) -> Peer | None:
        """Whom to forward this request to; None if this worker answers it.

        OwnedElsewhere if the caller wants to call the owner itself, or the call was forwarded
        before: the owner has changed meanwhile.
        """
        given = {key for key, _ in context.invocation_metadata() or ()}
        found = await self._find(request, may_place=HOP_METADATA not in given)
        if found is None:
            return None
        if is_direct(context):
            self._counts["REDIRECTED"] += 1
            raise OwnedElsewhere(found.worker, found.address, found.epoch)
        self._counts["FORWARDED"] += 1
        return found

    async def is_elsewhere(self, request: Any) -> bool:
        """Whether another worker has the session of a request that was not found here."""
        session_id = named_session(request) if isinstance(request, Message) else ""
        return bool(session_id) and await self._owners.is_elsewhere(session_id)

    def forget_view(self) -> None:
        """A worker refused what it was sent."""
        self._owners.forget_view()

    async def _find(self, request: Any, *, may_place: bool) -> Peer | None:
        if not isinstance(request, Message):
            return None
        if session_id := named_session(request):
            return await self._owners.owner(session_id)
        user_id = getattr(request, "user_id", "")
        thread_id = getattr(request, "thread_id", "")
        if request.DESCRIPTOR.name in _OPENS and user_id and thread_id:
            environment = getattr(request, "environment", "")
            return await self._owners.owner_of_thread(
                user_id, thread_id, environment, may_place=may_place
            )
        return None


def is_direct(context: Context) -> bool:
    """Whether the call is answered here or refused, and never forwarded."""
    given = {key for key, _ in context.invocation_metadata() or ()}
    return bool(given & {HOP_METADATA, REDIRECT_METADATA})


def is_forwarded(context: Context) -> bool:
    """Whether another worker has forwarded the call to this one."""
    return any(key == HOP_METADATA for key, _ in context.invocation_metadata() or ())


_OPENS = ("OpenSessionRequest",)
"""Requests that are about the session of a thread."""


def named_session(request: Message, depth: int = _DEPTH) -> str:
    """The session that a request is about; empty if it names none."""
    if session_id := getattr(request, "session_id", ""):
        return str(session_id)
    if depth == 0:
        return ""
    for _, value in request.ListFields():
        if isinstance(value, Message) and (found := named_session(value, depth - 1)):
            return found
    return ""
