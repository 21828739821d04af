"""Calls about a session that leaves a worker while it answers them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandboxd.errors import OwnershipNotKnown, SessionNotFound
from sandboxd.service.transport.cluster import Cluster
from sandboxd.service.transport.routing import Peer
from sandboxd_proto.v1 import exec_service_pb2

REQUEST = exec_service_pb2.ExecRequest(session_id="ses_1")
CONTEXT = cast("Any", SimpleNamespace(invocation_metadata=tuple))


class Routing:
    """Takes the session for one of this worker at first."""

    def __init__(self, *, is_elsewhere: bool) -> None:
        self._is_elsewhere = is_elsewhere
        self._peers: list[Peer | None] = [None, Peer("b", "127.0.0.1:1", 2)]

    async def peer(self, request: object, context: object) -> Peer | None:
        return self._peers.pop(0)

    async def is_elsewhere(self, request: object) -> bool:
        return self._is_elsewhere

    def forget_view(self) -> None:
        pass


class Forwarder:
    async def unary(self, peer: Peer, *_: object) -> str:
        return f"from {peer.worker}"


def cluster(*, is_elsewhere: bool) -> Cluster:
    routing = cast("Any", Routing(is_elsewhere=is_elsewhere))
    return Cluster(routing, cast("Any", Forwarder()), cast("Any", None))


async def gone(request: Any, context: object) -> None:
    raise SessionNotFound(request.session_id)


async def gone_in_a_stream(request: Any, context: object) -> Any:
    raise SessionNotFound(request.session_id)
    yield


async def test_call_goes_on_where_the_session_is() -> None:
    """It was taken over while this worker stood still."""
    serve = cluster(is_elsewhere=True)._unary("/S/M", gone)
    assert await serve(REQUEST, CONTEXT) == "from b"


async def test_stream_is_to_be_begun_again() -> None:
    """The caller is told that the session moves, not that there is none."""
    serve = cluster(is_elsewhere=True)._stream("/S/M", gone_in_a_stream)
    with pytest.raises(OwnershipNotKnown):
        _ = [answer async for answer in serve(REQUEST, CONTEXT)]


async def test_session_that_nobody_has_is_not_found() -> None:
    """As without a cluster."""
    serve = cluster(is_elsewhere=False)._unary("/S/M", gone)
    with pytest.raises(SessionNotFound):
        await serve(REQUEST, CONTEXT)
