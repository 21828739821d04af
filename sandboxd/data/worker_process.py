"""The daemon's side of a worker: its process, and the channel to it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import suppress

import structlog

from sandboxd.data.frames import HEADER, MAX_FRAME_BYTES, Kind, frame
from sandboxd.data.source import WorkerSettings
from sandboxd.lost_connections import ConnectionClosed, closed_as_lost

log = structlog.get_logger()

START_SECONDS = 60.0
STOP_SECONDS = 10.0
READ_BYTES = 256 << 10
_KINDS = frozenset(map(int, Kind))
PYTHONPATH = ""
"""Where workers look for modules first; only tests set it."""
_LAST = frozenset({Kind.END, Kind.ERROR})


class WorkerLost(Exception):
    """The process is gone, or does not do what it should; the text says why."""


class WorkerProcess:
    """One worker, which runs one query at a time."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._received = bytearray()
        self.is_broken = False
        self.is_fresh = True
        """Whether its first query has to connect first."""

    @classmethod
    async def start(cls, settings: WorkerSettings) -> WorkerProcess:
        """WorkerLost if it does not start, or cannot check statements."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.to_thread(_start, theirs)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        worker = cls(process, reader, writer)
        try:
            writer.write(frame(Kind.SETTINGS, settings.encode()))
            kind, payload = await worker.receive(START_SECONDS)
        except BaseException as error:
            await asyncio.shield(worker.stop())
            if isinstance(error, TimeoutError):
                raise WorkerLost("its worker did not start in time") from error
            raise
        if kind != Kind.READY:
            await worker.stop()
            raise WorkerLost(payload.decode(errors="replace"))
        return worker

    def send(self, kind: Kind, payload: bytes = b"") -> None:
        # Nothing to drain to: a worker reads before it answers, and requests are bounded. What is
        # read tells that it is gone.
        with suppress(ConnectionClosed), closed_as_lost():
            self._writer.write(frame(kind, payload))

    async def receive(self, seconds: float) -> tuple[Kind, bytes]:
        """The next frame; WorkerLost, TimeoutError. One that has arrived takes no wait."""
        found = self._next()
        if found is not None:
            return found
        async with asyncio.timeout(seconds):
            while found is None:
                await self._read_on()
                found = self._next()
        return found

    async def _read_on(self) -> None:
        try:
            data = await self._reader.read(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self.is_broken = True
            raise WorkerLost("its worker ended")
        self._received += data

    def _next(self) -> tuple[Kind, bytes] | None:
        """The next frame, if all of it has arrived."""
        if len(self._received) < HEADER.size:
            return None
        number, size = HEADER.unpack_from(self._received)
        if size > MAX_FRAME_BYTES or number not in _KINDS:
            self.is_broken = True
            raise WorkerLost("its worker sent what is no frame")
        end = HEADER.size + size
        if len(self._received) < end:
            return None
        payload = bytes(self._received[HEADER.size : end])
        del self._received[:end]
        if number == Kind.LAST_ERROR:
            self.is_broken = True
            return Kind.ERROR, payload
        return Kind(number), payload

    async def finish(self, seconds: float) -> None:
        """Cancel the query that runs, and drop the rest of its answer; WorkerLost if that takes
        too long."""
        self.send(Kind.CANCEL)
        try:
            async with asyncio.timeout(seconds):
                while (await self.receive(seconds))[0] not in _LAST:
                    pass
        except TimeoutError:
            raise WorkerLost("its worker did not cancel the query") from None

    def kill(self) -> None:
        self.is_broken = True
        self._process.kill()

    async def stop(self) -> None:
        self.kill()
        self._writer.transport.abort()
        try:
            await asyncio.to_thread(self._process.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            log.error("data.worker_not_ended", pid=self._process.pid)

    @property
    def pid(self) -> int:
        return self._process.pid


def _start(channel: socket.socket) -> subprocess.Popen[bytes]:
    """Not by the event loop, whose fork has other threads in it. Nothing of the daemon's
    variables is passed on: libpq reads some."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    found = {"PYTHONPATH": PYTHONPATH} if PYTHONPATH else {}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "sandboxd.data.worker", str(channel.fileno())],
        pass_fds=[channel.fileno()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**kept, **found, "PGSERVICEFILE": "/dev/null", "PGPASSFILE": "/dev/null"},
        start_new_session=True,
    )
