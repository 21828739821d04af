"""Calls to a cluster of daemons: those about a session go to the worker that has it.

A worker that is asked about a session of another one either passes the call on or, if the caller
says that it can follow, refuses it with the address of that worker. A refused call has done
nothing, so that any call may be repeated there.

Whoever is called gets the token. So an address is followed only where the certificate of the peer
is checked against the CA that was set for the first one, or to the same host.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace
from math import inf
from typing import NamedTuple, Protocol

from google.protobuf.message import Message

from sandboxd_client.call_metadata import Metadata
from sandboxd_client.errors import (
    ClientClosedError,
    ConnectionLostError,
    DrainingError,
    OwnedElsewhereError,
    OwnershipUnknownError,
    SandboxError,
    UnauthenticatedError,
)
from sandboxd_client.methods import Method, Request, Response
from sandboxd_client.settings import UNIX_SCHEME, Settings
from sandboxd_client.transport import Transport

FOLLOWS: Metadata = (("sandboxd-accept-redirect", "1"),)
"""Metadata of calls whose caller wants to be told the worker that has the session."""
MAX_WORKERS = 64
"""Workers besides the first that are connected at once."""
MAX_PLACES = 10_000
"""Sessions whose worker is remembered."""
MAX_FOLLOWED = 3
"""Addresses that one call follows; then a worker has to pass it on."""
REACH_SECONDS = 2.0
"""How long to wait for a connection to a worker, before the first one is asked again."""
PASSED_ON_SECONDS = 60.0
"""How long the calls of a session whose worker cannot be called are passed on."""
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[0-9]{1,5}")


class WorkerTransport(Transport, Protocol):
    """A transport that can tell whether its daemon can be reached."""

    async def reaches(self, timeout: float) -> bool:
        """Connect, if it is not; False if that fails or takes too long. Sends no call."""


class Place(NamedTuple):
    """Where the calls of a session go."""

    address: str
    """Empty if they are to be passed on by the first worker."""
    until: float
    """On the clock of the event loop; then the first worker is asked again."""


class _Worker:
    def __init__(self, transport: WorkerTransport) -> None:
        self.transport = transport
        self.calls = 0
        """Calls under way."""


class _Way:
    """The transport for one attempt of a call; within a block its connection is not closed."""

    def __init__(
        self, transport: Transport, metadata: Metadata = (), worker: _Worker | None = None
    ) -> None:
        self.transport = transport
        self.metadata = metadata
        self.worker = worker

    def __enter__(self) -> None:
        if self.worker is not None:
            self.worker.calls += 1

    def __exit__(self, *_: object) -> None:
        if self.worker is not None:
            self.worker.calls -= 1


class ClusterTransport:
    """The first worker, and those that it has named."""

    def __init__(self, settings: Settings, connect: Callable[[Settings], WorkerTransport]) -> None:
        self._settings = settings
        self._connect = connect
        self._first = connect(settings)
        self._to_first = _Way(self._first)
        self._asking_first = _Way(self._first, FOLLOWS)
        self._follows = follows(settings)
        self._is_closed = False
        self._workers: OrderedDict[str, _Worker] = OrderedDict()
        """By address, the least recently used first."""
        self._places: OrderedDict[str, Place] = OrderedDict()
        """By session, the least recently used first."""

    async def start(self) -> None:
        await self._first.start()

    async def aclose(self) -> None:
        self._is_closed = True
        workers, self._workers = self._workers, OrderedDict()
        for worker in workers.values():
            await worker.transport.aclose()
        await self._first.aclose()

    @property
    def can_come_back(self) -> bool:
        return self._first.can_come_back

    async def ready(self, timeout: float, session_id: str = "") -> None:
        place = self._place(session_id)
        if place is None or not place.address:
            await self._first.ready(timeout)

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float,
        metadata: Metadata = (),
    ) -> Response:
        session_id = session_of(request)
        followed = 0
        while True:
            way = await self._way(session_id, followed)
            try:
                with way:
                    return await way.transport.call(
                        method, request, timeout=timeout, metadata=metadata + way.metadata
                    )
            except SandboxError as error:
                if not self._goes_on(session_id, way, error):
                    raise
            followed += 1

    async def stream(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float | None,
        metadata: Metadata = (),
    ) -> AsyncGenerator[Response, None]:
        session_id = session_of(request)
        followed, has_begun = 0, False
        while True:
            way = await self._way(session_id, followed)
            responses = way.transport.stream(
                method, request, timeout=timeout, metadata=metadata + way.metadata
            )
            try:
                with way:
                    async with aclosing(responses):
                        async for response in responses:
                            has_begun = True
                            yield response
                return
            except SandboxError as error:
                if not self._goes_on(session_id, way, error) or has_begun:
                    raise
            followed += 1

    async def send(
        self,
        method: Method[Request, Response],
        requests: AsyncIterator[Request],
        *,
        timeout: float,
        metadata: Metadata = (),
        session_id: str = "",
    ) -> Response:
        way = await self._way_of_stream(session_id)
        try:
            with way:
                return await way.transport.send(
                    method, requests, timeout=timeout, metadata=metadata
                )
        except SandboxError as error:
            self._goes_on(session_id, way, error)
            raise

    async def converse(
        self,
        method: Method[Request, Response],
        requests: AsyncIterator[Request],
        *,
        timeout: float | None,
        metadata: Metadata = (),
        session_id: str = "",
    ) -> AsyncGenerator[Response, None]:
        way = await self._way_of_stream(session_id)
        responses = way.transport.converse(method, requests, timeout=timeout, metadata=metadata)
        try:
            with way:
                async with aclosing(responses):
                    async for response in responses:
                        yield response
        except SandboxError as error:
            self._goes_on(session_id, way, error)
            raise

    # --- which way ---

    async def _way(self, session_id: str, followed: int) -> _Way:
        """For a request that can be sent again."""
        if not self._follows or not session_id or followed > MAX_FOLLOWED:
            return self._to_first
        place = self._place(session_id)
        if place is None:
            return self._asking_first
        worker = await self._reached(session_id, place)
        if worker is None:
            return self._to_first
        return _Way(worker.transport, FOLLOWS, worker)

    async def _way_of_stream(self, session_id: str) -> _Way:
        """For requests that are gone once they are sent: a worker passes them on if need be."""
        place = self._place(session_id)
        worker = await self._reached(session_id, place) if place is not None else None
        return self._to_first if worker is None else _Way(worker.transport, worker=worker)

    async def _reached(self, session_id: str, place: Place) -> _Worker | None:
        """The worker that has the session; None if its calls are to be passed on."""
        if not place.address:
            return None
        worker = await self._worker(place.address)
        if worker is not None:
            worker.calls += 1  # so that it is not closed meanwhile
            try:
                if await worker.transport.reaches(REACH_SECONDS):
                    return worker
            finally:
                worker.calls -= 1
        self._pass_on(session_id)
        return None

    async def _worker(self, address: str) -> _Worker | None:
        """None if all connections that may be open are in use."""
        worker = self._workers.get(address)
        if worker is not None:
            self._workers.move_to_end(address)
            return worker
        unused: _Worker | None = None
        if len(self._workers) >= MAX_WORKERS:
            oldest = next((key for key, one in self._workers.items() if not one.calls), None)
            if oldest is None:
                return None
            unused = self._workers.pop(oldest)
        transport = self._connect(replace(self._settings, target=address))
        await transport.start()
        if self._is_closed:
            await transport.aclose()
            raise ClientClosedError
        if (other := self._workers.get(address)) is not None:
            await transport.aclose()  # another call was first
            return other
        worker = self._workers[address] = _Worker(transport)
        if unused is not None:
            await unused.transport.aclose()
        return worker

    # --- what is known of sessions ---

    def _place(self, session_id: str) -> Place | None:
        place = self._places.get(session_id)
        if place is None:
            return None
        if _now() >= place.until:
            del self._places[session_id]
            return None
        self._places.move_to_end(session_id)
        return place

    def _goes_on(self, session_id: str, way: _Way, error: SandboxError) -> bool:
        """Note what an error says about the place of the session; whether to try another way."""
        if isinstance(error, OwnedElsewhereError) and way.metadata:
            self._learn(session_id, error.metadata.get("address", ""))
            return True
        if way.worker is None:
            return False
        if isinstance(error, UnauthenticatedError):
            self._pass_on(session_id)  # it knows other tokens, or none
            return bool(way.metadata)
        lost = ConnectionLostError | OwnershipUnknownError | OwnedElsewhereError | DrainingError
        if isinstance(error, lost):
            self._places.pop(session_id, None)
        return False

    def _learn(self, session_id: str, address: str) -> None:
        if may_follow(self._settings, address):
            self._note(session_id, Place(address, inf))
        else:
            self._pass_on(session_id)

    def _pass_on(self, session_id: str) -> None:
        self._note(session_id, Place("", _now() + PASSED_ON_SECONDS))

    def _note(self, session_id: str, place: Place) -> None:
        self._places[session_id] = place
        self._places.move_to_end(session_id)
        while len(self._places) > MAX_PLACES:
            self._places.popitem(last=False)


def _now() -> float:
    return asyncio.get_running_loop().time()


def session_of(request: Message) -> str:
    """The session that a request is about; empty if it names none."""
    return str(getattr(request, "session_id", ""))


def follows(settings: Settings) -> bool:
    """Whether any other address may be followed from the first one."""
    if settings.is_secure:
        return settings.ca_file is not None
    if settings.target.startswith(UNIX_SCHEME):
        # Without a token the socket itself says who calls, and no other address does.
        return settings.token is not None
    return _is_loopback(settings.target)


def may_follow(settings: Settings, address: str) -> bool:
    """Whether this address may get the token."""
    if not follows(settings) or _ADDRESS.fullmatch(address) is None:
        return False
    return settings.is_secure or _is_loopback(address)


def _is_loopback(address: str) -> bool:
    parts = _ADDRESS.fullmatch(address)
    if parts is None:
        return False
    host = parts["host"].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
