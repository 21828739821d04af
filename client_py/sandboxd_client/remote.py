"""Calls over a gRPC channel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc import aio

from sandboxd_client.call_metadata import Metadata
from sandboxd_client.cancellation import abandon
from sandboxd_client.errors import (
    ClientClosedError,
    ConnectionLostError,
    InvalidRequestError,
    SandboxError,
)
from sandboxd_client.methods import Method, Request, Response
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
        writing = asyncio.create_task(_write_all(call, requests), name="requests of a call")
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
            while (response := await call.read()) is not aio.EOF:
                self._was_reached = True
                yield response
        except aio.AioRpcError as error:
            raise self._translated(error) from None
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
        try:
            # An ended call accepts no more requests; its status says why it ended.
            with suppress(aio.AioRpcError, asyncio.InvalidStateError):
                await _write_all(call, requests)
            response: Response = await self._answer(call)
            return response
        except asyncio.CancelledError:
            self._check_not_closed_meanwhile()
            raise
        finally:
            call.cancel()

    async def aclose(self) -> None:
        self._is_closed = True
        await self._channel.close()

    async def _answer(self, call: Any) -> Any:
        """The response of a call.

        To await the call itself would lose the exception that cancels this task: gRPC raises one
        of its own, without the message by which a cancel scope of anyio knows that it is meant.
        """
        answering = asyncio.ensure_future(call)
        try:
            await asyncio.wait([answering])
        except asyncio.CancelledError:
            call.cancel()
            abandon(answering)
            raise
        if answering.cancelled():
            raise ClientClosedError
        try:
            response = answering.result()
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


async def _write_all(call: Any, requests: AsyncIterator[Message]) -> None:
    """The requests, until the call ends."""
    writing: asyncio.Task[None] | None = None

    def stop(_: object) -> None:
        # Stop before a write fails: a failed write replaces the status of a call that has ended
        # with an internal error.
        if writing is not None:
            writing.cancel()

    call.add_done_callback(stop)
    async for request in requests:
        writing = asyncio.create_task(call.write(request))
        await asyncio.wait([writing])
        if writing.cancelled():
            return
        writing.result()
    await call.done_writing()
