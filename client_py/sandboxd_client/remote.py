"""Calls over a gRPC channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import grpc
from grpc import aio

from sandboxd_client.call_metadata import Metadata
from sandboxd_client.cancellation import CLEAN_UP_SECONDS, outlast
from sandboxd_client.errors import (
    ClientClosedError,
    ConnectionLostError,
    InvalidRequestError,
    SandboxError,
)
from sandboxd_client.methods import Method, Request, Response
from sandboxd_client.sent_requests import ended, send_all
from sandboxd_client.settings import Settings
from sandboxd_client.status import TRAILER, error_of

MAX_MESSAGE_BYTES = 16 << 20
_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # Detect a daemon that disappeared without closing the connection.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # Reconnect soon after a restart of the daemon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # How long an attempt to connect may take, in spite of its name: a busy daemon is not gone.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # A separate connection, so that closing the channel closes the socket.
    ("grpc.use_local_subchannel_pool", 1),
    # No bandwidth probes: they would add a ping to every short call.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 4 << 20),
]
_LONGEST_LOOK = 0.05
_LARGE_BLOCK_BYTES = 4 << 20
"""Twice as much, which glibc then keeps, is more than the copies of a chunk of 1 MiB take."""


class RemoteTransport:
    """A channel to a daemon. It belongs to the event loop that starts it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._token: Metadata = (
            (("authorization", f"Bearer {settings.token}"),) if settings.token else ()
        )
        self._was_reached = False
        self._is_closed = False
        self._callables: dict[str, Any] = {}

    async def start(self) -> None:
        # glibc gives the memory of a sent chunk back to the kernel and takes it anew, page by page,
        # for the next one, until it has seen a larger block freed. This one is never written to.
        bytes(_LARGE_BLOCK_BYTES)
        if self._settings.is_secure:
            credentials = self._credentials()
            self._channel = aio.secure_channel(self._settings.target, credentials, _OPTIONS)
        else:
            self._channel = aio.insecure_channel(self._settings.target, _OPTIONS)

    def _credentials(self) -> grpc.ChannelCredentials:
        settings = self._settings
        files = (settings.ca_file, settings.client_key, settings.client_cert)
        try:
            roots, key, chain = (Path(file).read_bytes() if file else None for file in files)
        except OSError as error:
            raise InvalidRequestError(
                f"{error.filename} cannot be read ({error.strerror}); check SANDBOXD_CA_FILE, "
                "SANDBOXD_CLIENT_KEY and SANDBOXD_CLIENT_CERT"
            ) from error
        return grpc.ssl_channel_credentials(roots, key, chain)

    @property
    def can_come_back(self) -> bool:
        return self._was_reached

    async def ready(self, timeout: float, session_id: str = "") -> None:
        # Before the first connection, the first call reports at once if there is no daemon.
        if not self._was_reached or self._is_ready():
            return
        look_again = 0.001
        try:
            async with asyncio.timeout(timeout):
                while not self._is_ready():
                    self._check_open()
                    await asyncio.sleep(look_again)
                    look_again = min(2 * look_again, _LONGEST_LOOK)
        except TimeoutError:
            raise ConnectionLostError(
                f"The daemon at {self._settings.target} stopped answering and did not return "
                f"within {timeout:.0f} s; check that it runs."
            ) from None

    async def reaches(self, timeout: float) -> bool:
        """Connect, if it is not; False if that fails or takes too long. Sends no call."""
        look_again = 0.001
        until = asyncio.get_running_loop().time() + timeout
        while not self._is_ready():
            self._check_open()
            # One that was reached before is perhaps being restarted.
            has_failed = self._channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
            if has_failed and not self._was_reached:
                return False
            if asyncio.get_running_loop().time() >= until:
                return False
            await asyncio.sleep(look_again)
            look_again = min(2 * look_again, _LONGEST_LOOK)
        return True

    def _is_ready(self) -> bool:
        return self._channel.get_state(True) is grpc.ChannelConnectivity.READY

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float,
        metadata: Metadata = (),
    ) -> Response:
        self._check_open()
        call = self._callable(method, "unary_unary")(
            request, timeout=timeout, metadata=self._token + metadata
        )
        response: Response = await self._answer(call)
        return response

    async def stream(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float | None,
        metadata: Metadata = (),
    ) -> AsyncGenerator[Response, None]:
        self._check_open()
        call = self._callable(method, "unary_stream")(
            request, timeout=timeout, metadata=self._token + metadata
        )
        async with aclosing(self._responses(call)) as responses:
            async for response in responses:
                yield response

    async def converse(
        self,
        method: Method[Request, Response],
        requests: AsyncIterator[Request],
        *,
        timeout: float | None,
        metadata: Metadata = (),
        session_id: str = "",
    ) -> AsyncGenerator[Response, None]:
        self._check_open()
        call = self._callable(method, "stream_stream")(
            timeout=timeout, metadata=self._token + metadata
        )
        writing = send_all(call, requests)
        try:
            async with aclosing(self._responses(call)) as responses:
                async for response in responses:
                    yield response
        finally:
            writing.cancel()
            # A write to a call that has ended fails; the status of the call says why it ended.
            await asyncio.gather(writing, return_exceptions=True)

    async def _responses(self, call: Any) -> AsyncGenerator[Any, None]:
        """The responses of a call; it is cancelled when this ends."""
        try:
            # Not read(): after a write that failed it returns nothing of what has arrived.
            async with aclosing(aiter(call)) as responses:
                async for response in responses:
                    self._was_reached = True
                    yield response
        except aio.AioRpcError as error:
            if (reason := await ended(call, error)) is not None:
                raise self._translated(reason) from None
        except asyncio.CancelledError:
            self._check_not_closed_meanwhile()
            raise
        finally:
            call.cancel()

    async def send(
        self,
        method: Method[Request, Response],
        requests: AsyncIterator[Request],
        *,
        timeout: float,
        metadata: Metadata = (),
        session_id: str = "",
    ) -> Response:
        self._check_open()
        call = self._callable(method, "stream_unary")(
            timeout=timeout, metadata=self._token + metadata
        )
        writing = send_all(call, requests)
        # Without the rest of its requests the daemon would not end it.
        writing.add_done_callback(lambda _: call.cancel() if _failure(writing) else None)
        try:
            await _end_of(call)
            if not writing.done():
                await asyncio.wait([writing])  # it may be reading what would come next
            if (failure := _failure(writing)) is not None:
                raise failure
            response: Response = await self._answer(call)
            return response
        except asyncio.CancelledError:
            self._check_not_closed_meanwhile()
            raise
        finally:
            call.cancel()
            if not writing.done():
                writing.cancel()
                # Only then may the caller close what is read from.
                await outlast(writing, CLEAN_UP_SECONDS)

    async def aclose(self) -> None:
        self._is_closed = True
        await self._channel.close()

    async def _answer(self, call: Any) -> Any:
        """The response of a call.

        To await the call itself would lose the exception that cancels this task: gRPC raises one
        of its own, without the message by which a cancel scope of anyio knows that it is meant.
        """
        try:
            await _end_of(call)
        except asyncio.CancelledError:
            call.cancel()
            raise
        try:
            response = await call  # at once, since it has ended
        except asyncio.CancelledError:
            raise ClientClosedError from None
        except aio.AioRpcError as error:
            raise self._translated(error) from None
        self._was_reached = True
        return response

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError

    def _check_not_closed_meanwhile(self) -> None:
        """Closing a channel cancels its calls, as if their callers were cancelled."""
        task = asyncio.current_task()
        if self._is_closed and task is not None and not task.cancelling():
            raise ClientClosedError from None

    def _callable(self, method: Method[Any, Any], kind: str) -> Any:
        found = self._callables.get(method.name)
        if found is None:
            found = self._callables[method.name] = getattr(self._channel, kind)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        return found

    def _translated(self, error: aio.AioRpcError) -> SandboxError:
        packed = next((v for k, v in error.trailing_metadata() if k == TRAILER), None)
        assert packed is None or isinstance(packed, bytes)
        found = error_of(error.code(), error.details() or "", packed)
        if not isinstance(found, ConnectionLostError):
            self._was_reached = True
        elif not self._was_reached:
            why = str(found).rpartition(": ")[2].rstrip("]")  # before it gRPC tells where it looked
            return ConnectionLostError(
                f"There is no daemon at {self._settings.target} ({why}); start one, or set "
                "SANDBOXD_URL to its address."
            )
        return found


def _failure(task: asyncio.Task[None]) -> BaseException | None:
    return None if task.cancelled() else task.exception()


async def _end_of(call: Any) -> None:
    """Wait until the call has ended, without a task: each costs turns of the event loop."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def end(_: object) -> None:
        if not ended.done():  # its waiter may be gone, and a write that fails ends a call again
            ended.set_result(None)

    call.add_done_callback(end)
    await ended
