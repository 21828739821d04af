"""Ports that programs in a sandbox listen on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from types import TracebackType

from sandboxd_client.arguments import checked
from sandboxd_client.cancellation import run_to_end
from sandboxd_client.door_results import PortInfo, PreviewInfo
from sandboxd_client.errors import SandboxError
from sandboxd_client.methods.ports import CREATE_PREVIEW, DELETE_PREVIEWS, FORWARD_PORT, LIST_PORTS
from sandboxd_client.session import SessionHold, duration
from sandboxd_proto.v1 import port_service_pb2 as pb

MAX_CONNECTIONS = 64
_LOOPBACK = "127.0.0.1"
_CHUNK = 64 << 10


@checked
class AsyncPortForward:
    """A port of this host that leads to a port of the sandbox, until it is closed.

    Example:
        async with await sandbox.ports.forward(8080) as forward:
            print(forward.local_port, forward.port)
    """

    def __init__(self, hold: SessionHold, port: int, local_port: int) -> None:
        self._hold = hold
        self._port = port
        self._local_port = local_port
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._last_error = ""

    async def __aenter__(self) -> AsyncPortForward:
        await self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await run_to_end(self.aclose())

    @property
    def port(self) -> int:
        """Port in the sandbox."""
        return self._port

    @property
    def local_port(self) -> int:
        """Port on 127.0.0.1 of this host."""
        return self._local_port

    @property
    def last_error(self) -> str:
        """Why the last connection that failed did; empty if none did."""
        return self._last_error

    async def aclose(self) -> None:
        """Stop listening, and end all connections.

        Example:
            forward = await sandbox.ports.forward(8080)
            await forward.aclose()
        """
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        if self._connections:
            await asyncio.wait(self._connections)

    async def _start(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(
                self._on_connected, _LOOPBACK, self._local_port, limit=_CHUNK
            )
            self._local_port = self._server.sockets[0].getsockname()[1]

    def _on_connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._relay(reader, writer)
            writer.close()
        except (SandboxError, OSError) as error:
            self._last_error = str(error)
            writer.transport.abort()
        except BaseException:
            writer.transport.abort()
            raise

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        responses = self._hold.connection.converse(
            FORWARD_PORT, self._requests(reader), session_id=self._hold.id
        )
        async with aclosing(responses):
            async for response in responses:
                if response.HasField("data"):
                    writer.write(response.data)
                    await writer.drain()
                elif response.HasField("end") and writer.can_write_eof():
                    writer.write_eof()

    async def _requests(self, reader: asyncio.StreamReader) -> AsyncIterator[pb.ForwardPortRequest]:
        hold = self._hold
        target = pb.PortTarget(session_id=hold.id, port=self._port, incarnation=hold.incarnation)
        yield pb.ForwardPortRequest(target=target)
        while data := await reader.read(_CHUNK):
            yield pb.ForwardPortRequest(data=data)


@checked
class AsyncPorts:
    """Ports that programs in the sandbox listen on. Bytes that move count as use of the session.

    Example:
        server = await sandbox.commands.run("python3 -m http.server 8080", background=True)
        async with await sandbox.ports.forward(8080) as forward:
            print(f"http://127.0.0.1:{forward.local_port}/")
    """

    def __init__(self, hold: SessionHold) -> None:
        self._hold = hold

    async def list(self) -> Sequence[PortInfo]:
        """Ports that programs listen on, sorted.

        Example:
            for port in await sandbox.ports.list():
                print(port.port, port.address)
        """
        request = pb.ListPortsRequest(session_id=self._hold.id, incarnation=self._hold.incarnation)
        answer = await self._hold.connection.call(LIST_PORTS, request)
        return [PortInfo.of(port) for port in answer.ports]

    async def forward(self, port: int, *, local_port: int = 0) -> AsyncPortForward:
        """Listen on a port of this host, and pass connections on to a port of the sandbox.

        A `local_port` of 0 lets the system choose. OSError if it is in use.

        Example:
            async with await sandbox.ports.forward(8080) as forward:
                print(forward.local_port)
        """
        made = AsyncPortForward(self._hold, port, local_port)
        await made._start()
        return made

    async def preview(self, port: int, *, ttl: float | None = None) -> PreviewInfo:
        """URLs for a browser on the daemon's host, valid for `ttl` seconds (1 hour by default).

        Example:
            preview = await sandbox.ports.preview(8080, ttl=600)
            print(preview.path_url, preview.expires_at)
        """
        request = pb.CreatePreviewRequest(
            session_id=self._hold.id, port=port, incarnation=self._hold.incarnation
        )
        if ttl is not None:
            request.ttl.CopyFrom(duration(ttl))
        return PreviewInfo.of(await self._hold.connection.call(CREATE_PREVIEW, request))

    async def url(self, port: int, *, ttl: float | None = None) -> str:
        """The URL of a new preview, with an origin of its own.

        Example:
            print(await sandbox.ports.url(8080))
        """
        return (await self.preview(port, ttl=ttl)).url

    async def delete_previews(self, port: int = 0) -> int:
        """Delete the URLs of a port, or of all ports; returns how many.

        Example:
            await sandbox.ports.delete_previews(8080)
        """
        request = pb.DeletePreviewsRequest(session_id=self._hold.id, port=port)
        answer = await self._hold.connection.call(DELETE_PREVIEWS, request)
        return answer.deleted
