"""Stands between a client and a daemon, and cuts connections when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

PIECE_BYTES = 16 << 10


@dataclass
class CuttingProxy:
    """Each entry of the two lists cuts one connection, after so many bytes in that direction."""

    path: Path
    daemon: Path
    to_client: list[int] = field(default_factory=list)
    to_daemon: list[int] = field(default_factory=list)
    connections: int = 0
    is_open: asyncio.Event = field(default_factory=asyncio.Event)
    """While it is not set, a new connection leads nowhere yet."""
    _open: set[asyncio.Transport] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"unix:{self.path}"

    def cut(self) -> None:
        """Cut all connections now."""
        for transport in self._open:
            transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await self.is_open.wait()
        from_daemon, towards_daemon = await asyncio.open_unix_connection(str(self.daemon))
        both = {writer.transport, towards_daemon.transport}
        self._open |= both
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._forward(from_daemon, writer, self.to_client, both))
                tasks.create_task(self._forward(reader, towards_daemon, self.to_daemon, both))
        finally:
            self._open -= both
            for transport in both:
                transport.abort()

    async def _forward(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        limits: list[int],
        both: set[asyncio.Transport],
    ) -> None:
        passed = 0
        try:
            while piece := await source.read(PIECE_BYTES):
                passed += len(piece)
                target.write(piece)
                await target.drain()
                if limits and passed >= limits[0]:
                    limits.pop(0)
                    break
        except OSError:
            pass  # the other direction was cut, and this one with it
        for transport in both:
            transport.abort()


@asynccontextmanager
async def cutting_proxy(directory: Path, daemon: Path) -> AsyncIterator[CuttingProxy]:
    """One in front of the daemon's socket."""
    proxy = CuttingProxy(directory / "proxy.sock", daemon)
    proxy.is_open.set()
    server = await asyncio.start_unix_server(proxy.serve, str(proxy.path))
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        await server.wait_closed()
