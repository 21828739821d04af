"""Calls over a gRPC channel."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any
from weakref import WeakSet

import grpc
from google.protobuf.message import Message
from grpc import aio

from sandboxd_client.call_metadata import Metadata
from sandboxd_client.cancellation import CLEAN_UP_SECONDS, outlast
from sandboxd_client.errors import (
    ClientClosedError,
    ConnectionLostError,
    ForkedError,
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
_REST_SECONDS = 1.0
"""How long a fork waits for calls to end that other threads make."""
_LOOK_SECONDS = 0.002
_POLLER = "_poll_wrapper"
"""In the name of the thread that gRPC has while a channel for asyncio is open, whosever it is."""


class RemoteTransport:
    """A channel to a daemon. It belongs to the event loop that starts it.

    Forks find it without a channel: threads of gRPC that one leaves behind cannot be replaced.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._token: Metadata = (
            (("authorization", f"Bearer {settings.token}"),) if settings.token else ()
        )
        self._was_reached = False
        self._is_closed = False
        self._opened: aio.Channel | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._callables: dict[str, Any] = {}
        self._calls: set[Any] = set()

    async def start(self) -> None:
        # glibc gives the memory of a sent chunk back to the kernel and takes it anew, page by page,
        # for the next one, until it has seen a larger block freed. This one is never written to.
        bytes(_LARGE_BLOCK_BYTES)
        self._open()

    def _open(self) -> aio.Channel:
        self._check_open()
        target = self._settings.target
        credentials = self._credentials() if self._settings.is_secure else None
        with _forks.opening:
            self._opened = (
                aio.insecure_channel(target, _OPTIONS)
                if credentials is None
                else aio.secure_channel(target, credentials, _OPTIONS)
            )
            self._loop = asyncio.get_running_loop()
            _forks.note_opened(self)
        return self._opened

    @property
    def _channel(self) -> aio.Channel:
        return self._opened or self._open()

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    def rest(self) -> None:
        """Let go of the channel, unless a call is under way. The next call opens another one."""
        if not self._calls:
            self._opened = None
            self._callables.clear()

    def let_rest(self) -> None:
        """The same from any thread."""
        loop = self._loop
        assert loop is not None
        if not loop.is_running() or loop is asyncio._get_running_loop():
            self.rest()
            return

        def rest() -> bool:
            rested = threading.Event()
            loop.call_soon_threadsafe(self.rest)
            loop.call_soon_threadsafe(rested.set)
            return rested.wait(_REST_SECONDS) and not self.is_open

        # Again, since a call may have begun that was allowed just before.
        _wait(lambda: not self._calls and rest())

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
        await self._let_fork()
        # Before the first connection, the first call reports at once if there is no daemon.
        if not self._was_reached or self._is_ready():
            return
        look_again = 0.001
        try:
            async with asyncio.timeout(timeout):
                while not self._is_ready():
                    await self._let_fork()
                    await asyncio.sleep(look_again)
                    look_again = min(2 * look_again, _LONGEST_LOOK)
        except TimeoutError:
            raise ConnectionLostError(
                f"The daemon at {self._settings.target} stopped answering and did not return "
                f"within {timeout:.0f} s; check that it runs."
            ) from None

    async def reaches(self, timeout: float) -> bool:
        """Connect, if it is not; False if that fails or takes too long. Sends no call."""
        self._check_open()
        look_again = 0.001
        until = asyncio.get_running_loop().time() + timeout
        while not self._is_ready():
            await self._let_fork()
            # One that was reached before is perhaps being restarted.
            has_failed = self._channel.get_state() is grpc.ChannelConnectivity.TRANSIENT_FAILURE
            if has_failed and not self._was_reached:
                return False
            if asyncio.get_running_loop().time() >= until:
                return False
            await asyncio.sleep(look_again)
            look_again = min(2 * look_again, _LONGEST_LOOK)
        return True

    async def _let_fork(self) -> None:
        """Open no channel while a fork is about to happen."""
        self._check_open()
        while _forks.is_near:
            await asyncio.sleep(_LOOK_SECONDS)
            self._check_open()

    def _is_ready(self) -> bool:
        # Asking opens a channel.
        return not _forks.is_near and (
            self._channel.get_state(True) is grpc.ChannelConnectivity.READY
        )

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float,
        metadata: Metadata = (),
    ) -> Response:
        self._check_open()
        call = self._begin(method, "unary_unary", timeout, metadata, request)
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
        call = self._begin(method, "unary_stream", timeout, metadata, request)
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
        call = self._begin(method, "stream_stream", timeout, metadata)
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
        call = self._begin(method, "stream_unary", timeout, metadata)
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
        if self._opened is not None and not _forks.is_broken:
            await self._opened.close()
            self._calls.clear()
            self.rest()

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
        if _forks.is_broken:
            raise ForkedError  # a new channel would take events from the parent's

    def _check_not_closed_meanwhile(self) -> None:
        """Closing a channel cancels its calls, as if their callers were cancelled."""
        task = asyncio.current_task()
        if self._is_closed and task is not None and not task.cancelling():
            raise ClientClosedError from None

    def _begin(
        self,
        method: Method[Any, Any],
        kind: str,
        timeout: float | None,
        metadata: Metadata,
        *request: Message,
    ) -> Any:
        metadata = self._token + metadata
        call = self._callable(method, kind)(*request, timeout=timeout, metadata=metadata)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        return call

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
            return ConnectionLostError(_unreachable(self._settings, str(found)))
        return found


def _unreachable(settings: Settings, details: str) -> str:
    """What to do, by what gRPC says about an address that was never reached."""
    target = settings.target
    if "Failed parsing HTTP/2" in details:
        return (
            f"The server at {target} is not the API of a daemon; it may be a web console, or the "
            "API over HTTP. Set SANDBOXD_URL to the address of the API, whose port is "
            "SANDBOXD_PORT of the daemon."
        )
    if settings.is_secure and "WRONG_VERSION_NUMBER" in details:
        return f"The server at {target} does not use TLS; write http://{target} in place of https."
    why = details.rpartition(": ")[2].rstrip("]")  # before it gRPC says where it looked
    return (
        f"There is no daemon at {target} ({why}); start one, or set SANDBOXD_URL to its address. "
        "Over HTTP, for curl, a daemon is at http://127.0.0.1:8000 unless SANDBOXD_HTTP_ADDRESS "
        "says otherwise."
    )


class _Forks:
    """gRPC works in a forked child only if no thread of it ran in the parent at that moment.

    So channels without calls are dropped before a fork; both processes open new ones.
    """

    def __init__(self) -> None:
        self.transports: WeakSet[RemoteTransport] = WeakSet()
        self.opening = threading.Lock()
        self.is_near = False
        """No new calls for now: one is about to happen."""
        self.is_broken = False
        """This is a child in which gRPC does not work."""
        self._was_used = False
        self._has_poller = False
        self._lost: list[RemoteTransport] = []
        """Kept, since freeing a channel waits for a thread that only the parent has."""

    def note_opened(self, transport: RemoteTransport) -> None:
        self.transports.add(transport)
        self._was_used = True

    def before(self) -> None:
        self.is_near = True
        _wait(lambda: not _is_importing())
        for transport in list(self.transports):
            transport.let_rest()
        if self._was_used:
            gc.collect()  # channels end with their destructors, and may be in cycles
        if self._was_used and not any(one.is_open for one in self.transports):
            _wait(lambda: not _has_poller())  # calls that have ended hold it until they are read
        self.opening.acquire()
        self._has_poller = _has_poller()
        self._was_used = self._has_poller

    def after_in_parent(self) -> None:
        self.is_near = False
        self.opening.release()

    def after_in_child(self) -> None:
        self.is_near = False
        self.opening = threading.Lock()
        self.is_broken = self.is_broken or self._has_poller
        self._lost += self.transports
        self.transports.clear()  # of loops that run no more; one that is used comes back


def _has_poller() -> bool:
    return any(_POLLER in thread.name for thread in threading.enumerate())


def _is_importing() -> bool:
    """Whether a thread imports a module of ours, whose lock nobody would release in the child."""
    ours = (module for name, module in list(sys.modules.items()) if name.startswith("sandboxd_"))
    return any(getattr(module.__spec__, "_initializing", False) for module in ours)


def _wait(condition: Callable[[], bool]) -> None:
    """Before a fork, up to a limit."""
    until = time.monotonic() + _REST_SECONDS
    while not condition() and time.monotonic() < until:
        time.sleep(_LOOK_SECONDS)


_forks = _Forks()
os.register_at_fork(
    before=_forks.before,
    after_in_parent=_forks.after_in_parent,
    after_in_child=_forks.after_in_child,
)


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
