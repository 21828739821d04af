"""Whole files in and out."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandboxd.errors import ChecksumMismatch, FileTooLarge
from sandboxd.files.answers import entry_and_end
from sandboxd.files.checksum import Checksum
from sandboxd.files.entries import Entry, Uploaded
from sandboxd.files.requests import Chunk, FileSettings, UploadSpec
from sandboxd.files.worker import Worker, WorkerGone
from sandboxd.guest.files.codec import CHUNK, Kind


class Upload:
    """The bytes of one file on their way in."""

    def __init__(
        self, spec: UploadSpec, chunks: AsyncIterator[Chunk], settings: FileSettings
    ) -> None:
        self._spec = spec
        self._chunks = chunks
        self._limit = settings.max_file_bytes
        self._checksum = Checksum()

    def check(self) -> None:
        """Before anyone is asked."""
        if self._spec.size is not None:
            self._refuse_over_limit(self._spec.size)

    async def send(self, worker: Worker) -> Uploaded:
        await worker.expect(Kind.READY)
        async for chunk in self._chunks:
            self._refuse_over_limit(self._checksum.count + len(chunk))
            self._refuse_other_size(self._checksum.count + len(chunk), is_all=False)
            await self._checksum.add(chunk)
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
        await worker.end()
        entry, _ = await entry_and_end(worker)
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
    """A file on its way out: iterate it once, to the end; then `sent_bytes` and `sha256` are of
    what was sent. FileChanged if it became shorter meanwhile."""

    def __init__(self, worker: Worker, entry: Entry, *, offset: int, length: int) -> None:
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
                raise WorkerGone("it sent another size than belongs there")
            self._left -= len(data)
            await checksum.add(data)
            yield data
        await self._worker.done()
        self.sent_bytes, self.sha256 = checksum.count, await checksum.digest()
