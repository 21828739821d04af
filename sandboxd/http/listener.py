"""A listener of HTTP with bounds: connections, silence, handshakes."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from pathlib import Path
from typing import NamedTuple

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from sandboxd_client.site_names import bracketed

MAX_CONNECTIONS = 1024
SILENT_SECONDS = 30.0
"""How long a connection may wait between requests, or with one that is not complete."""
HANDSHAKE_SECONDS = 10.0
CLOSE_SECONDS = 1.0


class AddressInUse(Exception):
    """The address could not be opened."""


class Address(NamedTuple):
    host: str
    port: int
    socket: Path | None = None
    """A unix socket in place of host and port."""

    @classmethod
    def read(cls, text: str) -> Address:
        """`HOST:PORT`, `[::1]:PORT` or `unix:/PATH`."""
        if text.startswith("unix:"):
            return cls("", 0, Path(text.removeprefix("unix:")))
        host, _, port = text.rpartition(":")
        return cls(host.removeprefix("[").removesuffix("]"), int(port))

    def __str__(self) -> str:
        return f"unix:{self.socket}" if self.socket else f"{bracketed(self.host)}:{self.port}"


class Listener:
    """Serves an application while it is open as a context manager."""

    def __init__(
        self,
        application: web.Application,
        address: Address,
        tls: ssl.SSLContext | None = None,
        *,
        ends_with_caller: bool = False,
    ) -> None:
        """`ends_with_caller`: a request is cancelled when its connection is lost."""
        self.admitted: set[asyncio.BaseTransport | None] = set()
        """Connections with a request that has shown a right to be served. One too many ends the
        oldest of the others."""
        self._runner = web.AppRunner(
            application,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=CLOSE_SECONDS,
            keepalive_timeout=SILENT_SECONDS,
            handler_cancellation=ends_with_caller,
            auto_decompress=False,
            logger=_log,
        )
        self._address = address
        self._tls = tls
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> Listener:
        await self._runner.setup()
        try:
            self._server = await (self._open_unix() if self._address.socket else self._open_tcp())
        except OSError as error:
            await self._runner.cleanup()
            raise AddressInUse(f"{self._address} cannot be opened: {error.strerror}") from error
        if not self._address.socket:
            self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _open_tcp(self) -> asyncio.Server:
        return await asyncio.get_running_loop().create_server(
            self._accept,
            self._address.host or None,
            self._address.port,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_SECONDS,
        )

    async def _open_unix(self) -> asyncio.Server:
        path = self._address.socket
        assert path is not None
        path.unlink(missing_ok=True)  # left by an earlier daemon: we hold the instance lock
        before = os.umask(0o117)  # created as 0660; a later chmod would leave a gap
        try:
            return await asyncio.get_running_loop().create_unix_server(self._accept, path)
        finally:
            os.umask(before)

    def _accept(self) -> asyncio.BaseProtocol:
        server = self._runner.server
        if server is None:
            return _Refused()
        if len(server.connections) >= MAX_CONNECTIONS:
            known = (connection.transport for connection in server.connections)
            oldest = next((one for one in known if one and one not in self.admitted), None)
            if oldest is None:
                return _Refused()
            oldest.abort()
        return server()

    def close(self) -> None:
        """Accept no more connections."""
        if self._server is not None:
            self._server.close()

    async def __aexit__(self, *_: object) -> None:
        self.close()
        await self._runner.cleanup()
        if self._address.socket:
            self._address.socket.unlink(missing_ok=True)


def _is_fault(record: logging.LogRecord) -> bool:
    """Not what is malformed: strangers could fill a disk with the stacks that aiohttp logs."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


_log = logging.getLogger("sandboxd.http")
_log.addFilter(_is_fault)


class _Refused(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.WriteTransport):
            transport.abort()
