"""The daemon's end of the socket to one worker, which is not believed."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from sandboxd.files.requests import Chunk
from sandboxd.guest.files import codec
from sandboxd.guest.files.codec import Failed, Kind, Malformed

BUFFER_BYTES = 2 << 20
READ_BYTES = 64 << 10
_SO_SNDBUFFORCE, _SO_PASSRIGHTS = 32, 83
"""Not in the socket module; the second since Linux 6.16."""


class WorkerGone(Exception):
    """It ended too early, says nothing any more, or said what cannot be."""


class WorkerFailed(Exception):
    """It could not do what was asked, and says why."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.failure.name)
        self.failed = failed


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """The daemon's end and the worker's."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    # A worker is not to send descriptors along; an older kernel lacks this.
    with suppress(OSError):
        ours.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
    for end in (ours, its):
        try:
            end.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, BUFFER_BYTES)
        except PermissionError:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
    ours.setblocking(False)
    return ours, its


class Worker:
    """Speaks with one worker, from its request to its end. A frame, once waited for, has to be
    whole within `idle_seconds`; everything that it says has to be what is expected."""

    def __init__(self, ours: socket.socket, idle_seconds: float) -> None:
        self._socket = ours
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._ahead = b""
        """Read already, and not looked at yet."""
        self.has_ended = False
        """Whether it said how it ended."""

    # --- what the daemon says ---

    async def request(self, request: Mapping[str, object]) -> None:
        payload = json.dumps(dict(request)).encode()
        await self._send(codec.frame(Kind.REQUEST, payload))

    async def data(self, data: Chunk) -> None:
        view = memoryview(data)
        for begin in range(0, len(view), codec.MAX_DATA):
            piece = view[begin : begin + codec.MAX_DATA]
            await self._send(codec.header(Kind.DATA, len(piece)))
            await self._send(piece)

    async def end(self) -> None:
        await self._send(codec.frame(Kind.END))

    def no_more(self) -> None:
        """Let it see that nothing will come any more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def _send(self, data: bytes | memoryview) -> None:
        try:
            async with asyncio.timeout(self._idle_seconds):
                await self._loop.sock_sendall(self._socket, data)
        except (BrokenPipeError, ConnectionResetError) as error:
            await self._hear_why()
            raise WorkerGone("it listens no more") from error
        except TimeoutError as error:
            raise WorkerGone("it takes nothing") from error

    async def _hear_why(self) -> None:
        """It does not listen any more; maybe it has said why."""
        while True:
            await self.next((Kind.READY, Kind.DONE, Kind.ENTRIES))

    # --- what the worker says ---

    async def expect(self, kind: Kind) -> bytes:
        return (await self.next((kind,)))[1]

    async def next(
        self, expected: Sequence[Kind], *, patience: float | None = None
    ) -> tuple[Kind, bytes]:
        """The next frame, which has to be of one of these kinds; WorkerFailed if it says that it
        could not do it. `patience`: for one that has nothing to say for long."""
        try:
            async with asyncio.timeout(patience or self._idle_seconds):
                kind, size = codec.HEADER.unpack(await self._exactly(codec.HEADER.size))
                if size > codec.MAX_ANSWER or kind not in (*expected, Kind.FAILED):
                    raise WorkerGone(f"it said {kind} with {size} bytes")
                payload = await self._exactly(size)
        except TimeoutError as error:
            raise WorkerGone("it is silent") from error
        if kind == Kind.FAILED:
            self.has_ended = True
            with believed():
                raise WorkerFailed(codec.decode_failed(payload))
        self.has_ended = kind == Kind.DONE
        return Kind(kind), payload

    async def done(self) -> tuple[int, ...]:
        payload = await self.expect(Kind.DONE)
        with believed():
            return codec.decode_done(payload)

    async def _exactly(self, size: int) -> bytes:
        if size <= len(self._ahead):
            taken, self._ahead = self._ahead[:size], self._ahead[size:]
            return taken
        if size < READ_BYTES:
            parts, held = [self._ahead], len(self._ahead)
            while held < size:
                parts.append(await self._receive())
                held += len(parts[-1])
            joined = b"".join(parts)
            self._ahead = joined[size:]
            return joined[:size]
        buffer = bytearray(size)
        view = memoryview(buffer)
        position = len(self._ahead)
        view[:position] = self._ahead
        self._ahead = b""
        while position < size:
            count = await self._receive_into(view[position:])
            position += count
        return bytes(buffer)

    async def _receive(self) -> bytes:
        try:
            data = await self._loop.sock_recv(self._socket, READ_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            raise WorkerGone("it has ended")
        return data

    async def _receive_into(self, view: memoryview) -> int:
        try:
            count = await self._loop.sock_recv_into(self._socket, view)
        except ConnectionResetError:
            count = 0
        if not count:
            raise WorkerGone("it has ended")
        return count

    async def gone(self, seconds: float) -> None:
        """Until it has closed its end, or time is up; what it still says is not read."""
        with suppress(WorkerGone, TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await self._receive()

    def close(self) -> None:
        self._socket.close()


@contextmanager
def believed() -> Iterator[None]:
    """A worker that says what cannot be is treated as one that is gone."""
    try:
        yield
    except Malformed as error:
        raise WorkerGone(str(error)) from error
