"""Calls to a daemon in this process: the same parts and the same handlers, without a server."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import (
    AbstractAsyncContextManager,
    ExitStack,
    aclosing,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

from sandboxd_client.call_metadata import Metadata
from sandboxd_client.cancellation import CLEAN_UP_SECONDS, abandon, outlast
from sandboxd_client.errors import (
    CallTimeoutError,
    ClientClosedError,
    ForkedError,
    InvalidRequestError,
    LocalModeError,
    SandboxError,
)
from sandboxd_client.methods import Method, Request, Response
from sandboxd_client.status import TRAILER, error_of

if TYPE_CHECKING:
    from sandboxd.config import Config
    from sandboxd.daemon.composition import Daemon

STOP_SECONDS = 60.0
"""Limit for a daemon to end its sandboxes."""
_MODEST = {"pool_size": 2, "min_pool_size": 0, "examine": False}
"""Defaults for a daemon inside another program: a small pool, and no attacks on a sandbox at
start."""
_IN_PROCESS = {"host": "", "http_address": "", "console_port": 0}
"""Settings that are always so in a process: other programs do not reach it."""

Composed = Callable[[], AbstractAsyncContextManager["Daemon"]]


class LocalTransport:
    """A daemon in this process, on the event loop that starts it."""

    can_come_back = False

    def __init__(self, composed: Composed) -> None:
        self._composed = composed
        self._stop = asyncio.Event()
        self._calls: set[asyncio.Task[Any]] = set()
        self._method = cache(self._find_method)

    async def start(self) -> None:
        started: asyncio.Future[Sequence[Any]] = asyncio.get_running_loop().create_future()
        self._pid = os.getpid()
        self._keeper = asyncio.create_task(self._keep(started), name="sandboxd in this process")
        try:
            self._handlers = await started
        except BaseException:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            raise

    @property
    def is_of_parent(self) -> bool:
        """Whether the daemon runs in the process that this one was forked from."""
        return os.getpid() != self._pid

    async def _keep(self, started: asyncio.Future[Sequence[Any]]) -> None:
        """Start and stop the daemon in one task, as its nested contexts require."""
        try:
            async with self._composed() as daemon:
                if not started.done():
                    started.set_result(daemon.server.handlers)
                    await self._stop.wait()
        except Exception as error:
            if started.done():
                raise
            started.set_exception(error)

    async def ready(self, timeout: float, session_id: str = "") -> None:
        if self.is_of_parent:
            raise ForkedError(
                "The daemon of local mode runs in the process that this one was forked from, so "
                'calls must be made there; a daemon for several processes needs mode="remote".'
            )

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float,
        metadata: Metadata = (),
    ) -> Response:
        handler = self._method(method).unary_unary
        response: Response = await self._answer(handler, request, metadata, timeout)
        return response

    async def stream(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float | None,
        metadata: Metadata = (),
    ) -> AsyncGenerator[Response, None]:
        handled = self._method(method).unary_stream(request, _Context(metadata))
        async with aclosing(self._responses(method, handled, timeout)) as responses:
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
        handled = self._method(method).stream_stream(requests, _Context(metadata))
        async with aclosing(self._responses(method, handled, timeout)) as responses:
            async for response in responses:
                yield response

    async def _responses(
        self, method: Method[Any, Response], responses: Any, timeout: float | None
    ) -> AsyncGenerator[Response, None]:
        ends_at = None if timeout is None else asyncio.get_running_loop().time() + timeout
        try:
            while True:
                with _told():
                    async with asyncio.timeout_at(ends_at):
                        try:
                            response = await anext(responses)
                        except StopAsyncIteration:
                            return
                # To save a copy, a handler may return the bytes that would go over the wire.
                is_packed = isinstance(response, bytes)
                yield method.response.FromString(response) if is_packed else response
        finally:
            await responses.aclose()

    async def send(
        self,
        method: Method[Request, Response],
        requests: AsyncIterator[Request],
        *,
        timeout: float,
        metadata: Metadata = (),
        session_id: str = "",
    ) -> Response:
        handler = self._method(method).stream_unary
        response: Response = await self._answer(handler, requests, metadata, timeout)
        return response

    async def _answer(self, handler: Any, request: Any, metadata: Metadata, timeout: float) -> Any:
        """The response of a handler, in a separate task as in a server: it is cancelled once,
        however often its caller is, and the caller waits until it has cleaned up."""

        async def handle() -> Any:
            with _told():
                async with asyncio.timeout(timeout):
                    return await handler(request, _Context(metadata))

        task = asyncio.create_task(handle(), name="call of sandboxd in this process")
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            abandon(task)
            await outlast(task, CLEAN_UP_SECONDS)
            raise
        if task.cancelled():
            raise ClientClosedError
        return task.result()

    async def aclose(self) -> None:
        if self.is_of_parent:
            return
        async with asyncio.timeout(STOP_SECONDS):
            for call in self._calls:
                call.cancel()
            if self._calls:
                await asyncio.wait(self._calls)
            self._stop.set()
            await self._keeper

    def _find_method(self, method: Method[Any, Any]) -> Any:
        asked = _Asked(method.path)
        for handler in self._handlers:
            if (found := handler.service(asked)) is not None:
                return found
        raise error_of(
            grpc.StatusCode.UNIMPLEMENTED, f"this daemon has no method {method.name}", None
        )


@asynccontextmanager
async def daemon_in_process(config: Config) -> AsyncIterator[Daemon]:
    """A daemon without listeners."""
    with explained():
        from sandboxd.daemon.composition import running

        _be_quiet()
        async with running(config, listen=False) as daemon:
            yield daemon


@contextmanager
def explained() -> Iterator[None]:
    """Convert what keeps a daemon from starting here to LocalModeError."""
    try:
        from sandboxd.config import ConfigInvalid
        from sandboxd.daemon.instance import StartRefused
    except ImportError as error:
        raise LocalModeError(
            f"local mode needs the daemon ({error}); install sandboxd[daemon], or use "
            'mode="remote" with a daemon that runs elsewhere'
        ) from error
    try:
        yield
    except (StartRefused, ConfigInvalid) as error:
        raise LocalModeError(
            f'the daemon cannot run in this process: {error}. Or use mode="remote".'
        ) from error


def local_config(settings: Mapping[str, object]) -> Config:
    """Settings from the caller, then environment and settings file, then our defaults.

    Those that only mean something to a server are neither read nor accepted: the environment of a
    web service has HOST and PORT for itself.
    """
    with explained():
        from pydantic import ValidationError

        from sandboxd.config import BY_VARIABLE, OF_A_SERVER, Config, load

        loaded = load(without=OF_A_SERVER)
    for warning in loaded.warnings:
        logging.getLogger("sandboxd").warning("setting.ignored: %s", warning)
    for name in settings:
        if (BY_VARIABLE[name].name if name in BY_VARIABLE else name) in OF_A_SERVER:
            raise InvalidRequestError(
                f"local_settings: {name} means nothing to a daemon in this process; start one with "
                '`sandboxd serve` for it, and use mode="remote"'
            )
    given = {
        name: getattr(loaded.config, name)
        for name, origin in loaded.origins.items()
        if origin.kind != "default"
    }
    try:
        return Config(**{**_MODEST, **given, **_IN_PROCESS, **settings})
    except ValidationError as error:
        raise InvalidRequestError(f"local_settings: {error}") from error


def shown(config: Config) -> Mapping[str, str]:
    """The settings of a daemon, for comparison with those of another process."""
    from sandboxd.config import SETTINGS

    return {
        name: str(setting.shown(getattr(config, name)))
        for name, setting in SETTINGS.items()
        if name != "worker_id"
    }


def lock(path: Path, stack: ExitStack) -> bool:
    """Hold a file until the stack unwinds; False if another process does."""
    with explained():
        from sandboxd.daemon import instance

        return instance.lock(path, stack)


def _be_quiet() -> None:
    """Send the daemon's log to the program's own logging, not to standard output."""
    import structlog

    if structlog.is_configured():
        return
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            structlog.stdlib.add_log_level,
            structlog.processors.format_exc_info,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        logger_factory=lambda *_: logging.getLogger("sandboxd"),
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    logging.getLogger("sandboxd").addHandler(logging.NullHandler())


@dataclass(frozen=True)
class _Asked:
    """The details of a call that a server would give to find its handler."""

    method: str
    invocation_metadata: Sequence[tuple[str, str]] = ()


class _Refused(Exception):
    """The handler ended the call with a status."""

    def __init__(self, error: SandboxError) -> None:
        self.error = error


class _Context:
    """The context that handlers see for a call inside the process."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def invocation_metadata(self) -> Metadata:
        return self._metadata

    def peer(self) -> str:
        return "local"

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """Nobody waits for it: the caller gets the answer as a whole."""

    async def abort_with_status(self, status: grpc.Status) -> NoReturn:
        trailers = dict(status.trailing_metadata or ())
        packed = trailers.get(TRAILER)
        assert packed is None or isinstance(packed, bytes)
        raise _Refused(error_of(status.code, status.details, packed))


@contextmanager
def _told() -> Iterator[None]:
    """Convert refusals and deadlines to the errors that a remote caller gets."""
    try:
        yield
    except _Refused as refused:
        raise refused.error from None
    except SandboxError:
        raise
    except TimeoutError:
        raise CallTimeoutError("The daemon did not answer in time.") from None
