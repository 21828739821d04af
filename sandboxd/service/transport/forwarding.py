"""Calls that are answered by another worker: passed on as they are, with all that belongs to them.

Deadline, cancellation, metadata and the identity of the caller go with the call; its answers,
errors and their details come back unchanged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import grpc
import structlog
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2
from grpc import aio

from sandboxd.access import Caller
from sandboxd.access.vouching import vouch
from sandboxd.errors import OwnedElsewhere, OwnershipNotKnown
from sandboxd.service.transport.chunk_messages import CHUNK_FIELD, with_chunk
from sandboxd.service.transport.peer_watch import PeerWatch
from sandboxd.service.transport.routing import HOP_METADATA, REDIRECT_METADATA, Peer
from sandboxd.service.wire import Context
from sandboxd_client.sent_requests import ended, send_all

log = structlog.get_logger()

clock = time.time

VOUCHED_METADATA = "sandboxd-vouched-bin"
"""Metadata key of the statement who the caller of a forwarded call is."""
WORKER_TIME = "workerTime"
"""Key in the details of a refusal: the time of a worker whose clock differs."""
CLOSE_SECONDS = 5.0
MAX_CHANNELS = 256
"""Workers that this one keeps connections to."""
_NOT_PASSED_ON = ("authorization", HOP_METADATA, REDIRECT_METADATA, VOUCHED_METADATA)
_DETAILS = "grpc-status-details-bin"
_HEALTH = "/grpc.health.v1.Health/Check"
_HEALTH_SECONDS = 2.0
_OF_THE_CHANNEL = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
)
"""How gRPC ends a call whose connection breaks. Workers give details with these codes."""
_REPEATABLE = ("OpenSession",)
"""Methods that may be called again of another worker if what became of the first call is not
known: whoever opens a thread gets its session, whether it was there or not."""
_OPTIONS = [
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.max_send_message_length", 16 << 20),
    # A worker that stands still is noticed while its lease runs; servers allow no pings below 5 s.
    ("grpc.keepalive_time_ms", 6_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 4 << 20),
]


class Moved(Exception):
    """The other worker has not done what was asked: a third one has the session now, or it has to
    be asked again."""


class PeerLost(Exception):
    """The lease of the other worker is over, and it has not answered. What it did is not known."""


class NotAnswered(Exception):
    """The other worker has not answered in time, or not with what was asked for."""


class Forwarder:
    """Channels to other workers."""

    def __init__(
        self,
        key: bytes,
        *,
        ca_file: Path | None = None,
        is_lost: Callable[[str], Awaitable[bool]],
    ) -> None:
        """`ca_file`: the CA of the workers' certificates; without it they are called in the clear,
        which is for loopback and for networks that others protect. `is_lost`: whether the lease of
        a worker is over."""
        self._watch = PeerWatch(is_lost)
        self._key = key
        self._ca_file = ca_file
        self._channels: dict[str, aio.Channel] = {}
        self._clock_differences: dict[str, float] = {}
        """Seconds by which the clocks of workers are ahead of ours, by address."""

    async def aclose(self) -> None:
        await self._watch.aclose()
        channels, self._channels = self._channels, {}
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                for channel in channels.values():
                    await channel.close()

    async def unary(
        self, peer: Peer, method: str, request: Message, context: Context, caller: Caller
    ) -> bytes:
        """One request, one answer."""
        call = self._method(peer, "unary_unary", method)(
            request.SerializeToString(), **self._given(peer, method, context, caller)
        )
        try:
            with self._waits(peer, call):
                answer: bytes = await call
                return answer
        except aio.AioRpcError as error:
            await self._pass_on(error, context, peer)
        except PeerLost:
            if name_of(method) in _REPEATABLE:
                raise Moved from None
            await self._abort_lost(context, peer)
        finally:
            call.cancel()

    async def ask(
        self,
        peer: Peer,
        method: str,
        request: Message,
        context: Context,
        caller: Caller,
        *,
        seconds: float,
    ) -> bytes:
        """One request and its answer, for a call that can do without it; NotAnswered, whatever the
        reason."""
        end = time.monotonic() + seconds
        is_repeated = False
        while (left := end - time.monotonic()) > 0:
            try:
                given = self._given(peer, method, context, caller) | {"timeout": left}
                call = self._method(peer, "unary_unary", method)(
                    request.SerializeToString(), **given
                )
            except (OwnershipNotKnown, OSError) as error:
                raise NotAnswered(str(error)) from error
            try:
                answer: bytes = await call
                return answer
            except aio.AioRpcError as error:
                info = _info_of(error)
                if info is None or WORKER_TIME not in info.metadata or is_repeated:
                    raise NotAnswered(f"{error.code().name}: {error.details()}") from None
                self._learn_time(peer, info.metadata[WORKER_TIME])
                is_repeated = True
            finally:
                call.cancel()
        raise NotAnswered("there is no time left")

    async def stream(
        self, peer: Peer, method: str, request: Message, context: Context, caller: Caller
    ) -> AsyncIterator[bytes]:
        """One request, many answers."""
        call = self._method(peer, "unary_stream", method)(
            request.SerializeToString(), **self._given(peer, method, context, caller)
        )
        async for answer in self._answers(call, context, peer):
            yield answer

    async def upload(
        self,
        peer: Peer,
        method: str,
        requests: AsyncIterator[Any],
        context: Context,
        caller: Caller,
    ) -> bytes:
        """Many requests, one answer."""
        call = self._method(peer, "stream_unary", method)(
            **self._given(peer, method, context, caller)
        )
        writing = send_all(call, _serialised(requests))
        try:
            with self._waits(peer, call):
                answer: bytes = await call
                return answer
        except aio.AioRpcError as error:
            await self._pass_on(await ended(call, error) or error, context, peer)
        except PeerLost:
            await self._abort_lost(context, peer)
        finally:
            await _end(call, writing)

    async def conversation(
        self,
        peer: Peer,
        method: str,
        requests: AsyncIterator[Any],
        context: Context,
        caller: Caller,
    ) -> AsyncIterator[bytes]:
        """Many requests, many answers."""
        call = self._method(peer, "stream_stream", method)(
            **self._given(peer, method, context, caller)
        )
        writing = send_all(call, _serialised(requests))
        try:
            async for answer in self._answers(call, context, peer):
                yield answer
        finally:
            await _end(call, writing)

    def _method(self, peer: Peer, kind: str, method: str) -> Any:
        return getattr(self._channel(peer.address), kind)(method)

    def _channel(self, address: str) -> aio.Channel:
        channel = self._channels.get(address)
        if channel is None:
            if len(self._channels) >= MAX_CHANNELS:
                raise OwnershipNotKnown("too many workers", retry_after_seconds=5.0)
            channel = self._channels[address] = self._connected(address)
        return channel

    def _connected(self, address: str) -> aio.Channel:
        if self._ca_file is None:
            return aio.insecure_channel(address, _OPTIONS)
        credentials = grpc.ssl_channel_credentials(self._ca_file.read_bytes())
        return aio.secure_channel(address, credentials, _OPTIONS)

    def _given(self, peer: Peer, method: str, context: Context, caller: Caller) -> dict[str, Any]:
        """Deadline and metadata of the call that is passed on."""
        passed_on = [
            (key, value)
            for key, value in context.invocation_metadata() or ()
            if key not in _NOT_PASSED_ON and not key.startswith(("grpc-", ":"))
        ]
        name = name_of(method)
        now = clock() + self._clock_differences.get(peer.address, 0.0)
        own = [(HOP_METADATA, "1"), (VOUCHED_METADATA, vouch(self._key, caller, name, now))]
        return {"timeout": time_left(context), "metadata": (*passed_on, *own)}

    async def _answers(self, call: Any, context: Context, peer: Peer) -> AsyncIterator[bytes]:
        try:
            # Not read(): after a write that failed it returns nothing of what has arrived.
            async with aclosing(aiter(call)) as answers:
                while True:
                    with self._waits(peer, call):
                        answer = await anext(answers, None)
                    if answer is None:
                        return
                    yield answer
        except aio.AioRpcError as error:
            if (reason := await ended(call, error)) is not None:
                await self._pass_on(reason, context, peer)
        except PeerLost:
            await self._abort_lost(context, peer)
        finally:
            call.cancel()

    @contextmanager
    def _waits(self, peer: Peer, call: Any) -> Iterator[None]:
        """PeerLost if the other worker has lost its lease before the block ended."""

        def ask() -> Any:
            return self._method(peer, "unary_unary", _HEALTH)(b"", timeout=_HEALTH_SECONDS)

        with self._watch.waiting(peer.worker, call, ask):
            try:
                yield
            except asyncio.CancelledError:
                if not self._watch.has_ended(call):
                    raise
                raise PeerLost from None

    async def _abort_lost(self, context: Context, peer: Peer) -> NoReturn:
        # Without details, as a lost connection of the caller's own would be: nobody knows whether
        # the call has begun.
        await context.abort(grpc.StatusCode.UNAVAILABLE, f"Worker {peer.worker} is lost.")
        raise AssertionError("abort returned")

    async def _pass_on(self, error: aio.AioRpcError, context: Context, peer: Peer) -> NoReturn:
        """End a call as the other worker ended it. Moved if it has to be made again, perhaps of a
        third one."""
        details, info = _details(error), _info_of(error)
        if info is not None and info.reason == OwnedElsewhere.reason:
            raise Moved from None
        if info is not None and WORKER_TIME in info.metadata:
            self._learn_time(peer, info.metadata[WORKER_TIME])
            raise Moved from None
        code, message = error.code(), error.details() or ""
        if code in _OF_THE_CHANNEL and not details:
            # Without details, as a lost connection of the caller's own would be: nobody knows
            # whether the call has begun.
            code = grpc.StatusCode.UNAVAILABLE
            message = f"Worker {peer.worker} cannot be reached: {message}"
        await context.abort(code, message, tuple(details))
        raise AssertionError("abort returned")

    def _learn_time(self, peer: Peer, told: str) -> None:
        """The clock of another worker differs: statements for it are dated by its own."""
        with suppress(ValueError):
            self._clock_differences[peer.address] = float(told) - clock()
        log.warning("cluster.clocks_differ", worker=peer.worker)


def name_of(method: str) -> str:
    return method.rpartition("/")[2]


def time_left(context: Context) -> float | None:
    """Seconds until the caller gives up; None if it waits for as long as it takes."""
    left = getattr(context, "time_remaining", None)
    seconds = left() if left is not None else None
    # gRPC reports a call without a deadline as one that ends in centuries.
    return seconds if seconds is not None and seconds < 1e8 else None


async def _serialised(requests: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    async for request in requests:
        yield _bytes(request)


async def _end(call: Any, writing: asyncio.Future[None]) -> None:
    call.cancel()
    writing.cancel()
    # A write to a call that has ended fails; the status of the call says why it ended.
    await asyncio.gather(writing, return_exceptions=True)


def _bytes(request: Any) -> bytes:
    if isinstance(request, Message):
        return request.SerializeToString()
    return with_chunk(CHUNK_FIELD, request)


def _details(error: aio.AioRpcError) -> list[tuple[str, str | bytes]]:
    return [(key, value) for key, value in error.trailing_metadata() or () if key == _DETAILS]


def _info_of(error: aio.AioRpcError) -> error_details_pb2.ErrorInfo | None:
    details = _details(error)
    return _info(details[0][1]) if details else None


def _info(packed: str | bytes) -> error_details_pb2.ErrorInfo | None:
    try:
        status = status_pb2.Status.FromString(packed)
    except (DecodeError, TypeError):
        return None
    for detail in status.details:
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return info
    return None
