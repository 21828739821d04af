"""Workers in a guest, each a process with a socket to the daemon.

What a worker says is not believed: its frames are bounded, whole within a deadline, and of a kind
that is expected.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Container
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import TypeAlias

from sandboxd.errors import SandboxLost
from sandboxd.guest import worker_frames
from sandboxd.guest.frames import Purpose
from sandboxd.link.connection import GuestLink, LinkClosed
from sandboxd.tasks import Tasks

BUFFER_BYTES = 2 << 20
READ_BYTES = 64 << 10
_SO_SNDBUFFORCE, _SO_PASSRIGHTS = 32, 83
"""Not in the socket module; the second since Linux 6.16."""

Start: TypeAlias = Callable[[socket.socket], Awaitable[Callable[[], None]]]
"""Starts a worker with its end of a pair of sockets, which it takes over; returns what kills it."""


class WorkerGone(Exception):
    """It ended too early, fell silent, or sent what cannot be."""


class WorkerHungUp(WorkerGone):
    """It no longer reads; what it sent before may say why."""


class TooManyWorkers(Exception):
    """No worker ended in time to make place for another."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} workers are running")
        self.limit = limit


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """The daemon's end and the worker's."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    # A worker must not send descriptors; an older kernel cannot forbid it.
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
    """The daemon's end of the socket to one worker.

    A frame has to be whole within `idle_seconds` after it is waited for, and to be read within
    that time after it is sent.
    """

    def __init__(self, ours: socket.socket, kill: Callable[[], None], idle_seconds: float) -> None:
        self._socket = ours
        self._kill = kill
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._ahead = b""
        """Bytes that were read with the frame before."""
        self.has_finished = False
        """Whether it reported its outcome, as its user found, and so has nothing to clean up."""

    async def send(self, kind: int, payload: bytes | memoryview = b"") -> None:
        """Send a frame; WorkerHungUp if the worker no longer reads."""
        head = worker_frames.header(kind, len(payload))
        pieces = (head + payload,) if len(payload) < READ_BYTES else (head, payload)
        try:
            async with asyncio.timeout(self._idle_seconds):
                for piece in pieces:
                    await self._loop.sock_sendall(self._socket, piece)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerHungUp("it stopped reading") from error
        except TimeoutError as error:
            raise WorkerGone("it does not read") from error

    async def receive(
        self, expected: Container[int], *, patience: float | None = None
    ) -> tuple[int, bytes]:
        """The next frame, which has to be of an expected kind. `patience` replaces `idle_seconds`
        where a worker may be silent for longer."""
        try:
            async with asyncio.timeout(patience or self._idle_seconds):
                head = await self._exactly(worker_frames.HEADER.size)
                kind, size = worker_frames.HEADER.unpack(head)
                if size > worker_frames.MAX_PAYLOAD or kind not in expected:
                    raise WorkerGone(f"it sent a frame of kind {kind} with {size} bytes")
                return kind, await self._exactly(size)
        except TimeoutError as error:
            raise WorkerGone("it is silent") from error

    def finish_sending(self) -> None:
        """Let the worker see that nothing more will come."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def wait_closed(self, seconds: float) -> None:
        """Wait until it has closed its end, but not longer than this; what it sends is dropped."""
        with suppress(WorkerGone, TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    await self._receive()

    def close(self) -> None:
        """Close the socket, and kill the worker if it has not ended."""
        self._socket.close()
        self._kill()

    async def _exactly(self, size: int) -> bytes:
        if size <= len(self._ahead):
            wanted, self._ahead = self._ahead[:size], self._ahead[size:]
            return wanted
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
            position += await self._receive_into(view[position:])
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


class WorkerLimit:
    """A number of workers at once; another is waited for at most `wait_seconds`."""

    def __init__(self, count: int, *, wait_seconds: float) -> None:
        self._count = count
        self._wait_seconds = wait_seconds
        self._free = asyncio.Semaphore(count)

    async def acquire(self) -> None:
        """TooManyWorkers if none ends in time."""
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise TooManyWorkers(self._count) from None

    def release(self) -> None:
        self._free.release()

    @asynccontextmanager
    async def acquired(self) -> AsyncIterator[None]:
        await self.acquire()
        try:
            yield
        finally:
            self.release()


class Workers:
    """Starts the workers of one sandbox for one purpose, and ends each."""

    def __init__(
        self, link: GuestLink, purpose: Purpose, limit: WorkerLimit, *, idle_seconds: float
    ) -> None:
        self._link = link
        self._purpose = purpose
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._endings = Tasks()

    def in_guest(self, *, clean_up_seconds: float = 0.0) -> AbstractAsyncContextManager[Worker]:
        """A worker that the guest forks."""
        return self.started(self._start_in_guest, clean_up_seconds=clean_up_seconds)

    @asynccontextmanager
    async def started(
        self, start: Start, *, clean_up_seconds: float = 0.0
    ) -> AsyncIterator[Worker]:
        """A worker for as long as the block lasts. One that has not finished by then is killed
        after `clean_up_seconds`, in which it can remove what it has begun; nobody waits for that.

        Raises TooManyWorkers, SandboxLost if the link is closed, and otherwise WorkerGone.
        """
        await self._limit.acquire()
        try:
            worker = await self._connect(start)
        except BaseException:
            self._limit.release()
            raise
        try:
            yield worker
        except WorkerGone as error:
            if self._link.closed_because is not None:
                raise SandboxLost(self._link.closed_because) from error
            raise
        finally:
            if worker.has_finished or not clean_up_seconds:
                self._end(worker)
            else:
                self._endings.spawn(self._clean_up(worker, clean_up_seconds), "worker.clean_up")

    async def aclose(self) -> None:
        """Wait for workers that clean up."""
        await self._endings.finish()

    async def _connect(self, start: Start) -> Worker:
        ours, its = socket_pair()
        try:
            kill = await start(its)
        except BaseException:
            ours.close()
            its.close()
            raise
        return Worker(ours, kill, self._idle_seconds)

    async def _start_in_guest(self, its_end: socket.socket) -> Callable[[], None]:
        if not self._link.knows(self._purpose):
            raise WorkerGone("its guest is too old for this purpose")
        with its_end:
            try:
                number = await self._link.start_worker(its_end, self._purpose)
            except LinkClosed as error:
                raise SandboxLost(str(error)) from error
            except TimeoutError as error:
                raise WorkerGone("its guest does not read") from error
        return partial(self._link.end_worker, number)

    async def _clean_up(self, worker: Worker, seconds: float) -> None:
        try:
            worker.finish_sending()
            await worker.wait_closed(seconds)
        finally:
            self._end(worker)

    def _end(self, worker: Worker) -> None:
        worker.close()
        self._limit.release()
