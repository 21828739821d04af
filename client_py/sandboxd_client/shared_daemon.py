"""Local mode: one daemon for all processes that use the same directories.

The first process that needs it runs it (local.py) and opens a door for the others: who connects
there gets the address of the daemon's socket and its settings. When that process ends, one of the
others runs the next daemon.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakSet

from sandboxd_client.call_metadata import Metadata
from sandboxd_client.errors import LocalModeError
from sandboxd_client.local import Composed, LocalTransport, daemon_in_process, lock, shown
from sandboxd_client.methods import Method, Request, Response
from sandboxd_client.remote import RemoteTransport
from sandboxd_client.settings import UNIX_SCHEME, Settings

if TYPE_CHECKING:
    from sandboxd.config import Config
    from sandboxd.daemon.composition import Daemon

START_SECONDS = 60.0
"""Limit for the start of the daemon, here or in another process."""
ASK_SECONDS = 20.0
"""Limit for the answer at the door: a program may block its event loop for a while."""
REACH_SECONDS = 5.0
GLANCE_SECONDS = 0.25
"""How long a lost connection may take to return before the door is asked again."""
PAUSE_SECONDS = 0.05
MAX_ANSWER_BYTES = 1 << 20


class SharedTransport:
    """Calls to the daemon of local mode, wherever it runs."""

    def __init__(self, config: Config, composed: Composed | None = None) -> None:
        self._config = config
        self._composed = composed or (lambda: daemon_in_process(config))
        self._door = config.run_dir / "local.sock"
        self._inner: LocalTransport | RemoteTransport | None = None
        self._joining = asyncio.Lock()

    @property
    def can_come_back(self) -> bool:
        return not isinstance(self._inner, LocalTransport)

    @property
    def _joined(self) -> LocalTransport | RemoteTransport:
        assert self._inner is not None
        return self._inner

    async def start(self) -> None:
        await self._join()

    async def ready(self, timeout: float, session_id: str = "") -> None:
        if isinstance(self._inner, LocalTransport):
            await self._inner.ready(timeout, session_id)
        elif not await self._reaches(GLANCE_SECONDS):
            await self._join()

    async def call(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float,
        metadata: Metadata = (),
    ) -> Response:
        return await self._joined.call(method, request, timeout=timeout, metadata=metadata)

    async def stream(
        self,
        method: Method[Request, Response],
        request: Request,
        *,
        timeout: float | None,
        metadata: Metadata = (),
    ) -> AsyncGenerator[Response, None]:
        answers = self._joined.stream(method, request, timeout=timeout, metadata=metadata)
        async with aclosing(answers):
            async for answer in answers:
                yield answer

    async def send(
        self,
        method: Method[Request, Response],
        requests: AsyncIterator[Request],
        *,
        timeout: float,
        metadata: Metadata = (),
        session_id: str = "",
    ) -> Response:
        return await self._joined.send(method, requests, timeout=timeout, metadata=metadata)

    async def converse(
        self,
        method: Method[Request, Response],
        requests: AsyncIterator[Request],
        *,
        timeout: float | None,
        metadata: Metadata = (),
        session_id: str = "",
    ) -> AsyncGenerator[Response, None]:
        answers = self._joined.converse(method, requests, timeout=timeout, metadata=metadata)
        async with aclosing(answers):
            async for answer in answers:
                yield answer

    async def aclose(self) -> None:
        if self._inner is not None:
            await self._inner.aclose()

    async def _join(self) -> None:
        """Reach the daemon that another process runs, or run it here."""
        try:
            async with asyncio.timeout(START_SECONDS), self._joining:
                while True:
                    if await self._is_joined() or await self._follow() or await self._lead():
                        return
                    await asyncio.sleep(PAUSE_SECONDS)
        except TimeoutError:
            raise LocalModeError(
                f"The process that runs the daemon of local mode in {self._config.state_dir} did "
                f"not answer within {START_SECONDS:.0f} s; its event loop may be blocked."
            ) from None

    async def _is_joined(self) -> bool:
        """Whether another call has joined meanwhile."""
        return isinstance(self._inner, LocalTransport) or await self._reaches(GLANCE_SECONDS)

    async def _reaches(self, timeout: float) -> bool:
        return isinstance(self._inner, RemoteTransport) and await self._inner.reaches(timeout)

    async def _follow(self) -> bool:
        settings = await _asked(self._door)
        if settings is None:
            return False
        self._compare(settings)
        if self._inner is None:
            address = f"{UNIX_SCHEME}{self._config.api_socket}"
            self._inner = RemoteTransport(Settings("remote", address))
            await self._inner.start()
        return await self._reaches(REACH_SECONDS)

    def _compare(self, theirs: Mapping[str, str]) -> None:
        ours = shown(self._config)
        differing = sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))
        if differing:
            raise LocalModeError(
                f"Another process runs the daemon of local mode in {self._config.state_dir} with "
                f"another {', '.join(differing)}. Use the same settings in both, or give this one "
                "a state_dir and a run_dir (local_settings, or SANDBOXD_STATE_DIR and "
                "SANDBOXD_RUN_DIR)."
            )

    async def _lead(self) -> bool:
        """Run the daemon here; False if another process is about to start or to stop it."""
        inner = LocalTransport(self._alone)
        try:
            await inner.start()
        except _Taken:
            return False
        earlier, self._inner = self._inner, inner
        if earlier is not None:
            await earlier.aclose()  # its calls have failed with the process that had the daemon
        return True

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[Daemon]:
        """The daemon of this process, which others find at the door; _Taken if they have one."""
        with ExitStack() as stack:
            if not lock(self._config.state_dir / "local.lock", stack):
                raise _Taken
            async with (
                self._composed() as daemon,
                _open_door(self._door, daemon, shown(self._config)),
            ):
                yield daemon


class _Taken(Exception):
    """Another process holds the directories."""


@asynccontextmanager
async def _open_door(
    path: Path, daemon: Daemon, settings: Mapping[str, str]
) -> AsyncIterator[None]:
    opening = asyncio.Lock()

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(ASK_SECONDS), opening:
                if not daemon.server.is_serving:
                    await daemon.server.start()
                writer.write(json.dumps(settings).encode() + b"\n")
                await writer.drain()
        writer.close()

    with _listening(path) as listening:
        server = await asyncio.start_unix_server(answer, sock=listening)
        yield
        server.close()


async def _asked(door: Path) -> Mapping[str, str] | None:
    """The settings of a daemon that other processes may call; None if nobody is at the door."""
    try:
        async with asyncio.timeout(ASK_SECONDS):
            reader, writer = await asyncio.open_unix_connection(str(door), limit=MAX_ANSWER_BYTES)
            try:
                settings: Mapping[str, str] = json.loads(await reader.readline())
                return settings
            finally:
                writer.close()
    except (OSError, TimeoutError, ValueError):
        return None


@contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    """A socket at this path for processes of this user."""
    path.unlink(missing_ok=True)  # left by a process that was killed: we hold the lock
    with socket.socket(socket.AF_UNIX) as listening:
        os.fchmod(listening.fileno(), 0o600)  # becomes the mode of the path
        listening.bind(str(path))
        _doors.add(listening)
        try:
            yield listening
        finally:
            path.unlink(missing_ok=True)


_doors: WeakSet[socket.socket] = WeakSet()


def _close_doors() -> None:
    """In a forked child, which would keep callers waiting when its parent has ended."""
    for listening in list(_doors):
        listening.close()


os.register_at_fork(after_in_child=_close_doors)
