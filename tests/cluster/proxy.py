"""A TCP proxy that can be cut, as a network would be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from sandboxd.doors import relay

BYTES = 1 << 16


class Proxy:
    """Passes connections on. While it is cut, nothing gets through: what was connected hears
    nothing more, and new connections are accepted and hear nothing either."""

    def __init__(self, port: int, rewrite: Callable[[bytes], bytes] = lambda data: data) -> None:
        """`port`: of the server behind it; `rewrite`: what becomes of a piece of its answers."""
        self._target = port
        self._rewrite = rewrite
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._passes = asyncio.Event()
        self._passes.set()

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        await self.reset()

    def cut(self) -> None:
        self._passes.clear()

    async def mend(self) -> None:
        """What was connected meanwhile is reset: it would get what was sent long ago."""
        self._passes.set()
        await self.reset()

    async def reset(self) -> None:
        """Reset what is connected, which is not the same as to close it: no end is read."""
        connections = tuple(self._connections)
        for one in connections:
            relay.reset(self._connections[one])
            one.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)
        # Also if it is cancelled before it begins.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            await self._passes.wait()
            behind, to_behind = await asyncio.open_connection("127.0.0.1", self._target)
            with _aborted(to_behind):
                there = asyncio.ensure_future(self._pump(reader, to_behind, lambda data: data))
                back = asyncio.ensure_future(self._pump(behind, writer, self._rewrite))
                try:
                    await asyncio.wait([there, back], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    there.cancel()
                    back.cancel()
                    await asyncio.gather(there, back, return_exceptions=True)

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        rewrite: Callable[[bytes], bytes],
    ) -> None:
        while data := await reader.read(BYTES):
            await self._passes.wait()
            writer.write(rewrite(data))
            await writer.drain()


@asynccontextmanager
async def proxied(port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(port)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()


class _aborted:  # noqa: N801 - used as a function
    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._writer.transport.abort()
