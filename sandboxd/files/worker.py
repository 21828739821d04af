"""The conversation with a worker about one operation."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from sandboxd.files.requests import Chunk
from sandboxd.guest import worker_frames
from sandboxd.guest.files import codec
from sandboxd.guest.files.codec import Failed, Kind, Malformed
from sandboxd.link.workers import Worker, WorkerGone, WorkerHungUp

MAX_SIGNS_OF_LIFE = 10_000


class WorkerFailed(Exception):
    """It could not do what was asked, and reported why."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.failure.name)
        self.failed = failed


def encoded(request: Mapping[str, object]) -> bytes:
    """A request as a frame."""
    return worker_frames.frame(Kind.REQUEST, json.dumps(dict(request)).encode())


class FileWorker:
    """Sends a request and its data, and receives the answers. WorkerFailed may come at any time."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def request(self, request: bytes) -> None:
        """Send an encoded request, unless it was sent."""
        if not self._worker.is_asked:
            await self._or_failure(self._worker.send_frames(request))

    async def data(self, data: Chunk) -> None:
        view = memoryview(data)
        for begin in range(0, len(view), codec.MAX_DATA):
            await self._send(Kind.DATA, view[begin : begin + codec.MAX_DATA])

    async def end(self, data: Chunk = b"") -> None:
        """Send the last data, which is short, and the end in one piece."""
        last = worker_frames.frame(Kind.DATA, bytes(data)) if data else b""
        await self._or_failure(self._worker.send_frames(last + worker_frames.frame(Kind.END)))

    async def _send(self, kind: Kind, payload: bytes | memoryview = b"") -> None:
        await self._or_failure(self._worker.send(kind, payload))

    async def _or_failure(self, sending: Awaitable[None]) -> None:
        try:
            await sending
        except WorkerHungUp:
            await self._raise_failure()
            raise

    async def _raise_failure(self) -> None:
        """Read what it sent before it stopped reading, which may end with its failure."""
        for _ in range(MAX_SIGNS_OF_LIFE):
            await self.next((Kind.READY, Kind.DONE, Kind.ENTRIES))

    async def expect(self, kind: Kind) -> bytes:
        return (await self.next((kind,)))[1]

    async def next(
        self, expected: Sequence[Kind], *, patience: float | None = None
    ) -> tuple[Kind, bytes]:
        """The next answer, which has to be of one of these kinds; `patience` is for operations that
        answer late."""
        kind, payload = await self._worker.receive((*expected, Kind.FAILED), patience=patience)
        self._worker.has_finished = kind in (Kind.FAILED, Kind.DONE)
        if kind == Kind.FAILED:
            with believed():
                raise WorkerFailed(codec.decode_failed(payload))
        return Kind(kind), payload

    async def done(self) -> tuple[int, ...]:
        payload = await self.expect(Kind.DONE)
        with believed():
            return codec.decode_done(payload)


@contextmanager
def believed() -> Iterator[None]:
    """Treat a worker that sends what cannot be as one that is gone."""
    try:
        yield
    except Malformed as error:
        raise WorkerGone(str(error)) from error
