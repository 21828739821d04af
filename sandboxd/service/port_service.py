"""PortService."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sandboxd.doors.previews import PortUse
from sandboxd.errors import InvalidRequest
from sandboxd.service import wire
from sandboxd.service.wire import Context
from sandboxd.sessions.ports import SessionPorts
from sandboxd_proto.v1 import port_service_pb2 as pb
from sandboxd_proto.v1 import port_service_pb2_grpc as pb_grpc

MAX_DATA = 1 << 20
CHUNK = 64 << 10
FIRST_SECONDS = 20.0
"""How long a caller may take to name its port."""
DEFAULT_TTL, MAX_TTL = 3600.0, 24 * 3600.0


class PortServicer(pb_grpc.PortServiceServicer):
    def __init__(self, ports: SessionPorts) -> None:
        self._ports = ports

    async def ListPorts(
        self, request: pb.ListPortsRequest, context: Context
    ) -> pb.ListPortsResponse:
        found = await self._ports.list(request.session_id, incarnation=request.incarnation)
        ports = [pb.ListeningPort(port=one.port, address=one.address) for one in found]
        return pb.ListPortsResponse(ports=ports)

    async def ForwardPort(
        self, requests: AsyncIterator[pb.ForwardPortRequest], context: Context
    ) -> AsyncIterator[pb.ForwardPortResponse]:
        target = await _target(requests)
        async with self._ports.reach(
            target.session_id, target.port, incarnation=target.incarnation
        ) as use:
            sending = asyncio.create_task(_send(requests, use), name="forward-port")
            try:
                yield pb.ForwardPortResponse(connected=pb.PortConnected())
                async for data in _received(use):
                    yield pb.ForwardPortResponse(data=data)
                yield pb.ForwardPortResponse(end=pb.PortEnd())
                await sending
            except OSError:
                pass  # the sandbox or its program is gone: so is the connection
            finally:
                sending.cancel()
                await asyncio.wait([sending])
                if not sending.cancelled():
                    sending.exception()

    async def CreatePreview(
        self, request: pb.CreatePreviewRequest, context: Context
    ) -> pb.CreatePreviewResponse:
        created = await self._ports.create_preview(
            request.session_id,
            request.port,
            seconds=wire.seconds(request, "ttl", low=1.0, high=MAX_TTL) or DEFAULT_TTL,
            incarnation=request.incarnation,
        )
        return pb.CreatePreviewResponse(
            url=created.url,
            path_url=created.path_url,
            expire_time=wire.timestamp(created.preview.expires_at),
        )

    async def DeletePreviews(
        self, request: pb.DeletePreviewsRequest, context: Context
    ) -> pb.DeletePreviewsResponse:
        deleted = await self._ports.delete_previews(request.session_id, request.port)
        return pb.DeletePreviewsResponse(deleted=deleted)


async def _target(requests: AsyncIterator[pb.ForwardPortRequest]) -> pb.PortTarget:
    try:
        async with asyncio.timeout(FIRST_SECONDS):
            first = await anext(requests)
    except (StopAsyncIteration, TimeoutError):
        raise InvalidRequest("target", "the first message names the port") from None
    if first is None or not first.HasField("target"):
        raise InvalidRequest("target", "the first message names the port")
    return first.target


async def _send(requests: AsyncIterator[pb.ForwardPortRequest], use: PortUse) -> None:
    """Pass the caller's data on, and its end."""
    writer = use.connection.writer
    try:
        async for request in requests:
            if request is None or not request.HasField("data") or len(request.data) > MAX_DATA:
                raise InvalidRequest("data", f"a message has at most {MAX_DATA} bytes of data")
            use.touch()
            writer.write(request.data)
            await writer.drain()
        writer.write_eof()
    except BaseException:
        writer.transport.abort()  # so that the other direction ends, too
        raise


async def _received(use: PortUse) -> AsyncIterator[bytes]:
    while data := await use.connection.reader.read(CHUNK):
        use.touch()
        yield data
