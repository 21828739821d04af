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
from typing import NamedTuple, TypeAlias

from sandboxd.errors import SandboxLost
from sandboxd.guest import worker_frames
from sandboxd.guest.frames import Purpose
from sandboxd.link.connection import GuestLink, LinkClosed
from sandboxd.tasks import Tasks

BUFFER_BYTES = 2 << 20
READ_BYTES = 64 << 10
_SO_SNDBUFFORCE, _SO_PASSRIGHTS = 32, 83
"""Not in the socket module; the second since Linux 6.16."""

KEPT_WORKERS = 2
"""Workers that stay without work."""
KEPT_SECONDS = 2.0
"""How long they do; requests come in bunches."""
WAKE_SECONDS = 0.1
"""Silence of a worker that has stayed after which the guest is asked whether it was stopped."""


def _nothing() -> None: ...


class Controls(NamedTuple):
    """What can be done to a worker that does not answer."""

    kill: Callable[[], None]
    wake: Callable[[], None] = _nothing
    """Continues it if it was stopped."""


Start: TypeAlias = Callable[[socket.socket], Awaitable[Controls]]
"""Starts a worker with its end of a pair of sockets, which it takes over."""


class WorkerGone(Exception):
    """It ended too early, fell silent, or sent what cannot be."""


class WorkerEnded(WorkerGone):
    """It closed its end."""


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

    def __init__(self, ours: socket.socket, controls: Controls, idle_seconds: float) -> None:
        self._socket = ours
        self._controls = controls
        self._idle_seconds = idle_seconds
        self._loop = asyncio.get_running_loop()
        self._ahead = b""
        """Bytes that were read with the frame before."""
        self.has_finished = False
        """Whether it reported its outcome, as its user found, and so has nothing to clean up."""
        self.is_asked = False
        """Whether its request was sent, and its answer has begun to arrive."""

    @property
    def is_quiet(self) -> bool:
        """Whether it is there and says nothing, as one does that waits for a request."""
        if self._ahead:
            return False
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    async def ask_again(self, request: bytes, *, patience: float | None = None) -> None:
        """Give it another request, and wait for the beginning of the answer; `patience` as in
        `receive`. WorkerEnded or WorkerHungUp if it ended before: then it has changed nothing."""
        self.has_finished = self.is_asked = False
        wake = self._loop.call_later(WAKE_SECONDS, self._controls.wake)
        try:
            async with asyncio.timeout(patience or self._idle_seconds):
                await self._loop.sock_sendall(self._socket, request)
                self._ahead = await self._receive()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerHungUp("it stopped reading") from error
        except TimeoutError as error:
            raise WorkerGone("it is silent") from error
        finally:
            wake.cancel()
        self.is_asked = True

    async def send(self, kind: int, payload: bytes | memoryview = b"") -> None:
        """Send a frame; WorkerHungUp if the worker no longer reads."""
        head = worker_frames.header(kind, len(payload))
        if len(payload) < READ_BYTES:
            await self.send_frames(head + payload)
        else:
            await self.send_frames(head, payload)

    async def send_frames(self, *pieces: bytes | memoryview) -> None:
        """Send whole frames, in pieces; WorkerHungUp if the worker no longer reads."""
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
        self._controls.kill()

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
            raise WorkerEnded("it has ended")
        return data

    async def _receive_into(self, view: memoryview) -> int:
        try:
            count = await self._loop.sock_recv_into(self._socket, view)
        except ConnectionResetError:
            count = 0
        if not count:
            raise WorkerEnded("it has ended")
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


class _Kept(NamedTuple):
    """A worker that waits for its next request."""

    worker: Worker
    moves: int
    until: float


class Workers:
    """Starts the workers of one sandbox for one purpose, keeps those that stay, and ends each."""

    def __init__(
        self,
        link: GuestLink,
        purpose: Purpose,
        limit: WorkerLimit,
        *,
        idle_seconds: float,
        moves: Callable[[], int] = lambda: 0,
    ) -> None:
        """`moves` counts how often workers were moved under limits of commands: those stay there,
        so they are not used again."""
        self._link = link
        self._purpose = purpose
        self._limit = limit
        self._idle_seconds = idle_seconds
        self._moves = moves
        self._endings = Tasks()
        self._kept: list[_Kept] = []
        """The one that was used last is at the end."""
        self._giving_up: asyncio.TimerHandle | None = None
        self._is_known_to_link = False

    def in_guest(
        self,
        *,
        clean_up_seconds: float = 0.0,
        request: bytes = b"",
        patience: float | None = None,
    ) -> AbstractAsyncContextManager[Worker]:
        """A worker that the guest forks; with a `request`, which asks it to stay, it is kept
        afterwards. One that was kept is asked, with this `patience`, so that the answer is there to
        be received."""
        return self._used(self._start_in_guest, clean_up_seconds, request, patience)

    def started(
        self, start: Start, *, clean_up_seconds: float = 0.0
    ) -> AbstractAsyncContextManager[Worker]:
        """A worker that is started in another way."""
        return self._used(start, clean_up_seconds)

    @asynccontextmanager
    async def _used(
        self,
        start: Start,
        clean_up_seconds: float,
        request: bytes = b"",
        patience: float | None = None,
    ) -> AsyncIterator[Worker]:
        """A worker for as long as the block lasts. One that has not finished by then is killed
        after `clean_up_seconds`, in which it can remove what it has begun; nobody waits for that.

        Raises TooManyWorkers, SandboxLost if the link is closed, and otherwise WorkerGone.
        """
        await self._limit.acquire()
        moves = self._moves()
        try:
            worker = (await self._asked_again(request, patience) if request else None) or (
                await self._connect(start)
            )
        except BaseException as error:
            self._limit.release()
            if isinstance(error, WorkerGone) and self._link.closed_because is not None:
                raise SandboxLost(self._link.closed_because) from error
            raise
        try:
            yield worker
        except WorkerGone as error:
            if self._link.closed_because is not None:
                raise SandboxLost(self._link.closed_because) from error
            raise
        finally:
            if worker.has_finished or not clean_up_seconds:
                if request and worker.has_finished and moves == self._moves():
                    self._keep(worker, moves)
                else:
                    worker.close()
                self._limit.release()
            else:
                self._endings.spawn(self._clean_up(worker, clean_up_seconds), "worker.clean_up")

    async def aclose(self) -> None:
        """End those that were kept, and wait for workers that clean up."""
        self._give_up(float("inf"))
        await self._endings.finish()

    async def _asked_again(self, request: bytes, patience: float | None) -> Worker | None:
        """A kept worker that has begun to answer this request; None if there is none."""
        while self._kept:
            worker, moves, _ = self._kept.pop()
            if not worker.is_quiet or moves != self._moves():
                worker.close()
                continue
            try:
                await worker.ask_again(request, patience=patience)
            except (WorkerEnded, WorkerHungUp):
                worker.close()
            except BaseException:
                worker.close()
                raise
            else:
                return worker
        return None

    def _keep(self, worker: Worker, moves: int) -> None:
        if not self._link.is_open or not worker.is_quiet:
            worker.close()
            return
        if not self._is_known_to_link:
            self._is_known_to_link = True
            self._link.at_end(partial(self._give_up, float("inf")))
        loop = asyncio.get_running_loop()
        self._kept.append(_Kept(worker, moves, loop.time() + KEPT_SECONDS))
        if len(self._kept) > KEPT_WORKERS:
            self._kept.pop(0).worker.close()
        if self._giving_up is None:
            self._giving_up = loop.call_later(KEPT_SECONDS, self._give_up_idle)

    def _give_up_idle(self) -> None:
        self._giving_up = None
        loop = asyncio.get_running_loop()
        self._give_up(loop.time())
        if self._kept:
            first = min(kept.until for kept in self._kept)
            self._giving_up = loop.call_at(first, self._give_up_idle)

    def _give_up(self, now: float) -> None:
        """End those that have been kept long enough."""
        over = [kept for kept in self._kept if kept.until <= now]
        self._kept = [kept for kept in self._kept if kept.until > now]
        for kept in over:
            kept.worker.close()
        if not self._kept and self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None

    async def _connect(self, start: Start) -> Worker:
        ours, its = socket_pair()
        try:
            controls = await start(its)
        except BaseException:
            ours.close()
            its.close()
            raise
        return Worker(ours, controls, self._idle_seconds)

    async def _start_in_guest(self, its_end: socket.socket) -> Controls:
        if not self._link.knows(self._purpose):
            raise WorkerGone("its guest is too old for this purpose")
        with its_end:
            try:
                number = await self._link.start_worker(its_end, self._purpose)
            except LinkClosed as error:
                raise SandboxLost(str(error)) from error
            except TimeoutError as error:
                raise WorkerGone("its guest does not read") from error
        return Controls(
            partial(self._link.end_worker, number), partial(self._link.wake_worker, number)
        )

    async def _clean_up(self, worker: Worker, seconds: float) -> None:
        try:
            worker.finish_sending()
            await worker.wait_closed(seconds)
        finally:
            worker.close()
            self._limit.release()
