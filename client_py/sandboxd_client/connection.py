"""A connection to a daemon, shared by all clients of an event loop with the same settings.

This module decides which calls are repeated: only those that were refused before anything was done,
or that have the same effect when done twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

from sandboxd_client.call_metadata import metadata_of
from sandboxd_client.cancellation import (
    CLEAN_UP_SECONDS,
    CLOSING_SECONDS,
    outlast,
    run_to_end,
)
from sandboxd_client.errors import (
    ClientClosedError,
    ConnectionLostError,
    DrainingError,
    OwnedElsewhereError,
    OwnershipUnknownError,
    SandboxError,
    SessionReturningError,
    TooManyRequestsError,
)
from sandboxd_client.methods import Method, Request, Response
from sandboxd_client.settings import Settings, Timeouts
from sandboxd_client.transport import Transport
from sandboxd_client.workers import ClusterTransport, follows, session_of

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0


class BackOff:
    """Growing pauses, up to a total time; progress resets them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.begin()

    def begin(self) -> None:
        self._pause = _FIRST_PAUSE
        self._until: float | None = None

    async def pause(self, error: SandboxError) -> None:
        """Wait a little, or raise the error if the total time has passed."""
        now = asyncio.get_running_loop().time()
        self._until = self._until or now + self._seconds
        if now >= self._until:
            raise error
        wanted = min(error.retry_after_seconds or self._pause, _LONGEST_PAUSE)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        import random  # takes longer to load than most programs need it

        # Jitter: many clients were cut off by the same restart.
        await asyncio.sleep(min(wanted * random.uniform(0.5, 1.0), self._until - now))


class Use:
    """One use of a transport, from `acquire` to `release`."""

    def __init__(self, shared: _Shared | None = None) -> None:
        self.shared = shared
        self.is_over = False
        self.clean_ups: set[asyncio.Task[None]] = set()
        """Calls that undo what a cancelled call has begun."""

    async def end(self) -> None:
        """Wait for the clean-ups, up to a limit; from then on every call is refused."""
        try:
            async with asyncio.timeout(CLOSING_SECONDS / 2):
                while self.clean_ups:
                    await asyncio.wait(self.clean_ups)
        except TimeoutError:
            pass  # the daemon does not answer
        finally:
            self.is_over = True


class Connection:
    """Calls over one transport, with deadlines and safe repetition."""

    def __init__(
        self,
        transport: Transport,
        timeouts: Timeouts,
        use: Use | None = None,
        *,
        earlier_tries: int = 0,
    ) -> None:
        """`earlier_tries`: how often the work on this connection was attempted before."""
        self._transport = transport
        self.timeouts = timeouts
        self._earlier_tries = earlier_tries
        self.use = use or Use()

    def repeating(self) -> Connection:
        """The same connection for repeated work, whose calls the daemon counts as retries."""
        tries = self._earlier_tries + 1
        return Connection(self._transport, self.timeouts, self.use, earlier_tries=tries)

    async def clean_up(self, work: Coroutine[Any, Any, object]) -> None:
        """Undo what a call has begun whose caller fails or is cancelled; failures are ignored.

        The caller waits for it; if it is cancelled, up to a limit. So does the release of the
        connection.
        """
        task = asyncio.create_task(_ignoring_errors(work), name="clean-up of a call")
        self.use.clean_ups.add(task)
        task.add_done_callback(self.use.clean_ups.discard)
        if (cancel := await outlast(task, CLEAN_UP_SECONDS)) is not None:
            raise cancel

    def _check_open(self) -> None:
        if self.use.is_over:
            raise ClientClosedError

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float | None = None,
        earlier_tries: int = 0,
    ) -> Response:
        """One request, one response; repeated if that is safe."""
        tries = self._earlier_tries + earlier_tries
        back_off = BackOff(self.timeouts.reconnect)
        may_have_begun = False
        while True:
            try:
                self._check_open()
                await self._transport.ready(self.timeouts.reconnect, session_of(request))
                metadata = metadata_of(tries)
                tries += 1
                return await self._transport.call(
                    method, request, timeout=timeout or self.timeouts.call, metadata=metadata
                )
            except SandboxError as error:
                error.may_have_begun = may_have_begun
                if not self.may_repeat(error, is_repeatable=method.is_repeatable):
                    raise
                may_have_begun = may_have_begun or isinstance(error, ConnectionLostError)
                await back_off.pause(error)

    def may_repeat(self, error: SandboxError, *, is_repeatable: bool) -> bool:
        """Whether to try again; `is_repeatable`: doing it twice has the same effect as once."""
        if isinstance(error, TooManyRequestsError | SessionReturningError):
            return True
        if isinstance(error, OwnedElsewhereError | OwnershipUnknownError):
            return True  # nothing was done, and a worker will know soon
        if not self._transport.can_come_back:
            return False
        if isinstance(error, DrainingError):
            return True
        return isinstance(error, ConnectionLostError) and is_repeatable

    async def stream(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float | None = None,
        earlier_tries: int = 0,
    ) -> AsyncGenerator[Response, None]:
        """One request, many responses, once. Closing it cancels the call."""
        self._check_open()
        await self._transport.ready(self._patience(timeout), session_of(request))
        metadata = metadata_of(self._earlier_tries + earlier_tries)
        responses = self._transport.stream(method, request, timeout=timeout, metadata=metadata)
        try:
            async for response in responses:
                yield response
        finally:
            await responses.aclose()

    async def converse(
        self,
        method: Method[Request, Response],
        requests: AsyncIterator[Request],
        *,
        timeout: float | None = None,
        session_id: str = "",
    ) -> AsyncGenerator[Response, None]:
        """Many requests, many responses, once. Closing it cancels the call.

        `session_id`: what it is about, so that it goes straight to a worker that is known.
        """
        self._check_open()
        await self._transport.ready(self._patience(timeout), session_id)
        metadata = metadata_of(self._earlier_tries)
        responses = self._transport.converse(
            method, requests, timeout=timeout, metadata=metadata, session_id=session_id
        )
        try:
            async for response in responses:
                yield response
        finally:
            await responses.aclose()

    async def send(
        self,
        method: Method[Request, Response],
        requests: AsyncIterator[Request],
        *,
        timeout: float | None = None,
        earlier_tries: int = 0,
        session_id: str = "",
    ) -> Response:
        """Many requests, one response, once; `session_id` as in `converse`."""
        seconds = self.timeouts.transfer if timeout is None else timeout
        self._check_open()
        await self._transport.ready(self._patience(seconds), session_id)
        metadata = metadata_of(self._earlier_tries + earlier_tries)
        return await self._transport.send(
            method, requests, timeout=seconds, metadata=metadata, session_id=session_id
        )

    def _patience(self, timeout: float | None) -> float:
        """How long to wait for a daemon that stopped answering."""
        reconnect = self.timeouts.reconnect
        return reconnect if timeout is None else min(reconnect, timeout)


async def _ignoring_errors(work: Coroutine[Any, Any, object]) -> None:
    with suppress(SandboxError):
        await work


class _Shared:
    """A transport and the number of its users."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.starting = asyncio.create_task(_start(settings), name="connection to sandboxd")
        self.closing: asyncio.Task[None] | None = None
        self.holders = 0

    async def close(self) -> None:
        if not self.starting.done():
            self.starting.cancel()
            await asyncio.wait([self.starting])
        # Not awaited: after a fork it belongs to the loop of the parent.
        if not self.starting.cancelled() and self.starting.exception() is None:
            await self.starting.result().aclose()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Settings, _Shared]] = WeakKeyDictionary()


async def acquire(settings: Settings, timeouts: Timeouts) -> Connection:
    """A connection with these settings, over the transport shared by this event loop."""
    of_loop = _shared.setdefault(asyncio.get_running_loop(), {})
    # A daemon in this process must have ended before the next one can start.
    while (shared := of_loop.get(settings)) is not None and shared.closing is not None:
        await asyncio.wait([shared.closing])
    if shared is None:
        shared = of_loop[settings] = _Shared(settings)
    shared.holders += 1
    try:
        # Shielded: a cancelled caller must not take the transport away from the others.
        return Connection(await asyncio.shield(shared.starting), timeouts, Use(shared))
    except BaseException:
        await run_to_end(_leave(shared))
        raise


@asynccontextmanager
async def connected(settings: Settings, timeouts: Timeouts) -> AsyncIterator[Connection]:
    """A connection until the block ends."""
    connection = await acquire(settings, timeouts)
    try:
        yield connection
    finally:
        await release(connection)


async def release(connection: Connection) -> None:
    """Return a connection; the last user closes its transport.

    Calls that are still made with it are refused.
    """
    shared = connection.use.shared
    assert shared is not None

    async def leave() -> None:
        await connection.use.end()
        await _leave(shared)

    await run_to_end(leave())


async def _leave(shared: _Shared) -> None:
    shared.holders -= 1
    if shared.holders:
        return
    shared.closing = asyncio.create_task(shared.close(), name="closing a connection to sandboxd")
    shared.closing.add_done_callback(lambda _: _forget(shared))
    # Shielded: it must not be left half closed, even if it takes longer than its caller waits.
    await asyncio.shield(shared.closing)


def _forget(shared: _Shared) -> None:
    of_loop = _shared.get(asyncio.get_running_loop(), {})
    if of_loop.get(shared.settings) is shared:  # else it is the parent's, from before a fork
        del of_loop[shared.settings]


async def close_all() -> None:
    """Close the transports that clients of this loop left open, at the end of the process."""
    of_loop = _shared.get(asyncio.get_running_loop(), {})
    await asyncio.gather(*(shared.close() for shared in of_loop.values()), return_exceptions=True)


async def _start(settings: Settings) -> Transport:
    transport = _transport(settings)
    await transport.start()
    return transport


def _transport(settings: Settings) -> Transport:
    if settings.mode == "local":
        # Imported on demand: a remote client does not need it.
        from sandboxd_client.local import local_config
        from sandboxd_client.shared_daemon import SharedTransport

        return SharedTransport(local_config(dict(settings.local)))
    from sandboxd_client.remote import RemoteTransport

    if follows(settings):
        return ClusterTransport(settings, RemoteTransport)
    return RemoteTransport(settings)
