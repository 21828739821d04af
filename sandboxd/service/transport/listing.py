"""The sessions of all workers of a cluster, listed by any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import structlog
from google.protobuf.message import DecodeError

from sandboxd.access import current_caller
from sandboxd.errors import InvalidRequest
from sandboxd.service import session_pages, session_wire
from sandboxd.service.session_pages import Page
from sandboxd.service.transport.forwarding import Forwarder, NotAnswered, time_left
from sandboxd.service.transport.routing import Owners, Peer, is_forwarded
from sandboxd.service.wire import Context
from sandboxd_proto.v1 import session_service_pb2 as pb

log = structlog.get_logger()

AT_ONCE = 16
"""Workers that are asked at the same time."""
WORKER_SECONDS = 3.0
"""How long a worker may take to answer."""
TOTAL_SECONDS = 10.0
"""How long all of them may take, together with the directory."""
SHARE = 0.8
"""Part of the caller's time that is used for that, so that the answer still arrives."""
ASKING_SHARE = 0.75
"""Part of that in which workers are asked; the rest is for the directory."""
MAX_BYTES = 12 << 20
"""Size of the sessions in a page; a message has at most 16 MiB."""


class Listing:
    """Asks the other workers for their part of a page, and makes one of all parts."""

    def __init__(self, owners: Owners, forwarder: Forwarder) -> None:
        self._owners = owners
        self._forwarder = forwarder

    def of_all(self, path: str, behaviour: Any) -> Any:
        """A method that lists the sessions of this worker, as one that lists those of all. When
        another worker asks, it answers for this one only."""

        async def serve(request: pb.ListSessionsRequest, context: Context) -> Any:
            own = await behaviour(request, context)  # first: it refuses what is not valid
            if is_forwarded(context):
                return own
            return await self._with_others(own, path, request, context)

        return serve

    async def _with_others(
        self,
        own: pb.ListSessionsResponse,
        path: str,
        request: pb.ListSessionsRequest,
        context: Context,
    ) -> pb.ListSessionsResponse:
        ends = _ends(context)
        workers = await self._owners.workers()
        if not workers.others and not workers.lost:
            return own
        parts = _Parts(
            session_pages.page_of(own, workers.own), session_wire.page_size(request), workers.lost
        )
        places = asyncio.Semaphore(AT_ONCE)

        async def ask(peer: Peer) -> None:
            async with places:
                seconds = min(WORKER_SECONDS, ends.asking - _now())
                try:
                    answer = await self._forwarder.ask(
                        peer, path, request, context, current_caller(), seconds=seconds
                    )
                    parts.add(pb.ListSessionsResponse.FromString(answer), peer.worker)
                except (NotAnswered, DecodeError, InvalidRequest) as error:
                    log.info("listing.not_answered", worker=peer.worker, error=str(error))
                    parts.missing.add(peer.worker)

        async with asyncio.TaskGroup() as asking:
            for peer in workers.others:
                asking.create_task(ask(peer))
        last_owners = await self._last_owners(session_pages.parked_ids(parts.page), ends.all)
        page = session_pages.without_moved(parts.page, last_owners)
        return session_pages.response_of(page, parts.missing)

    async def _last_owners(self, session_ids: Sequence[str], end: float) -> Mapping[str, str]:
        """As far as the directory says so in time."""
        found: dict[str, str] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout_at(end):
                async for session_id, worker in self._owners.last_owners(session_ids):
                    found[session_id] = worker
        return found


class _Parts:
    """What has arrived of a page. Parts are merged as they come, so that one of them is kept."""

    def __init__(self, own: Page, size: int, lost: Sequence[str]) -> None:
        self._size = size
        self.page = self._merged(own)
        self.missing = set(lost)
        """Workers without an answer."""

    def add(self, answer: pb.ListSessionsResponse, worker: str) -> None:
        self.page = self._merged(self.page, session_pages.page_of(answer, worker))

    def _merged(self, *pages: Page) -> Page:
        return session_pages.merged(pages, size=self._size, max_bytes=MAX_BYTES)


class _Ends(NamedTuple):
    """Times on the clock of the event loop."""

    asking: float
    """When no worker is waited for any longer."""
    all: float


def _ends(context: Context) -> _Ends:
    left = time_left(context)
    seconds = TOTAL_SECONDS if left is None else min(TOTAL_SECONDS, left * SHARE)
    return _Ends(_now() + seconds * ASKING_SHARE, _now() + seconds)


def _now() -> float:
    return asyncio.get_running_loop().time()
