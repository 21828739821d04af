"""Whole files uploaded and downloaded."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator

from sandboxd.errors import ChecksumMismatch, FileTooLarge
from sandboxd.files.answers import receive_last_entry
from sandboxd.files.entries import Entry, Uploaded
from sandboxd.files.requests import Chunk, FileSettings, UploadSpec
from sandboxd.files.worker import FileWorker
from sandboxd.guest.files.codec import CHUNK, Kind
from sandboxd.link.workers import WorkerGone

INLINE_BYTES = 32 << 10
"""Bytes that are hashed sooner than a thread would start."""


class Checksum:
    """SHA-256 of what passes through, computed beside the event loop."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._pending: asyncio.Future[None] | None = None
        self.count = 0

    async def add(self, data: Chunk) -> None:
        """Returns while `data` is still being hashed; the next call waits for that."""
        self.count += len(data)
        await self._finish_pending()
        if len(data) <= INLINE_BYTES:
            self._hash.update(data)
        else:
            loop = asyncio.get_running_loop()
            self._pending = loop.run_in_executor(None, self._hash.update, data)

    async def digest(self) -> bytes:
        await self._finish_pending()
        return self._hash.digest()

    async def _finish_pending(self) -> None:
        if self._pending is not None:
            await asyncio.shield(self._pending)
            self._pending = None


class Upload:
    """A file to be sent to a worker."""

    def __init__(
        self, spec: UploadSpec, chunks: AsyncIterator[Chunk], settings: FileSettings
    ) -> None:
        self._spec = spec
        self._chunks = chunks
        self._limit = settings.max_file_bytes
        self._checksum = Checksum()

    def check(self) -> None:
        """Raise what is known without a worker."""
        if self._spec.size is not None:
            self._refuse_over_limit(self._spec.size)

    async def send(self, worker: FileWorker) -> Uploaded:
        await worker.expect(Kind.READY)
        held: Chunk = b""
        """A short chunk waits for what comes next: a file that is one costs a single message."""
        async for chunk in self._chunks:
            self._refuse_over_limit(self._checksum.count + len(chunk))
            self._refuse_other_size(self._checksum.count + len(chunk), is_all=False)
            await self._checksum.add(chunk)
            if held:
                await worker.data(held)
            held = chunk if len(chunk) <= INLINE_BYTES else b""
            if not held:
                await worker.data(chunk)
        self._refuse_other_size(self._checksum.count, is_all=True)
        digest = await self._checksum.digest()
        if self._spec.sha256 is not None and digest != self._spec.sha256:
            raise ChecksumMismatch(
                str(self._spec.path),
                what="checksum",
                announced=self._spec.sha256.hex(),
                arrived=digest.hex(),
            )
        await worker.end(held)
        entry, _ = await receive_last_entry(worker)
        return Uploaded(entry=entry, sha256=digest)

    def _refuse_over_limit(self, size: int) -> None:
        if size > self._limit:
            raise FileTooLarge(str(self._spec.path), limit_bytes=self._limit, size_bytes=size)

    def _refuse_other_size(self, count: int, *, is_all: bool) -> None:
        size = self._spec.size
        if size is not None and (count > size or (is_all and count < size)):
            raise ChecksumMismatch(
                str(self._spec.path), what="size", announced=str(size), arrived=str(count)
            )


class Download:
    """A file to be iterated once, to its end; then `sent_bytes` and `sha256` describe what was
    sent. FileChanged if it became shorter meanwhile."""

    def __init__(self, worker: FileWorker, entry: Entry, *, offset: int, length: int) -> None:
        self.entry = entry
        self.sent_bytes = 0
        self.sha256 = b""
        self._worker = worker
        self._left = max(0, entry.size - offset)
        if length:
            self._left = min(self._left, length)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        checksum = Checksum()
        while self._left:
            data = await self._worker.expect(Kind.DATA)
            if len(data) != min(CHUNK, self._left):
                raise WorkerGone("it sent a chunk of the wrong size")
            self._left -= len(data)
            await checksum.add(data)
            yield data
        await self._worker.done()
        self.sent_bytes, self.sha256 = checksum.count, await checksum.digest()
