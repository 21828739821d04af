"""Archives in and out."""

from __future__ import annotations

from collections.abc import AsyncIterator

from sandboxd.errors import WorkspaceFull
from sandboxd.files.archive import MAX_TOLD, Compression, TarMade, TarSpec, TarUnpacked
from sandboxd.files.compression import packed, unpacked
from sandboxd.files.entries import LeftOut
from sandboxd.files.failures import why_text
from sandboxd.files.requests import FileSettings
from sandboxd.files.worker import Worker, WorkerGone, believed
from sandboxd.guest.files import codec
from sandboxd.guest.files.codec import CHUNK, Kind

SLACK_BYTES = 64 << 20
"""What an archive may hold beyond twice the workspace, in headers and padding."""


async def _left_out_and_end(worker: Worker) -> tuple[list[LeftOut], tuple[int, ...]]:
    members: list[LeftOut] = []
    while True:
        kind, payload = await worker.next((Kind.LEFT_OUT, Kind.DONE))
        with believed():
            if kind == Kind.DONE:
                return members, codec.decode_done(payload)
            fresh = [
                LeftOut(name=told.name, why=why_text(told.why))
                for told in codec.decode_left_out(payload)
            ]
        members += fresh
        if not fresh or len(members) > MAX_TOLD:
            raise WorkerGone("it left out more than can be")


class TarUpload:
    def __init__(self, spec: TarSpec, chunks: AsyncIterator[bytes], settings: FileSettings) -> None:
        self._spec = spec
        self._chunks = chunks
        self._limit = 2 * settings.workspace_bytes + SLACK_BYTES

    async def send(self, worker: Worker) -> TarUnpacked:
        await worker.expect(Kind.READY)
        count = 0
        async for data in unpacked(self._chunks, self._spec.compression):
            count += len(data)
            if count > self._limit:
                raise WorkspaceFull(str(self._spec.path), limitBytes=self._limit)
            await worker.data(data)
        await worker.end()
        refused, (extracted, size, refused_count, *_) = await _left_out_and_end(worker)
        return TarUnpacked(
            extracted=extracted,
            extracted_bytes=size,
            refused=refused,
            refused_count=refused_count,
        )


class TarDownload:
    """An archive on its way out: iterate it once, to the end; then `made` says what is in it."""

    def __init__(self, worker: Worker, compression: Compression) -> None:
        self.made = TarMade(members=0, skipped=(), skipped_count=0)
        self._worker = worker
        self._compression = compression

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in packed(self._tar(), self._compression):
            yield data
        skipped, (members, skipped_count, *_) = await _left_out_and_end(self._worker)
        self.made = TarMade(members=members, skipped=skipped, skipped_count=skipped_count)

    async def _tar(self) -> AsyncIterator[bytes]:
        """Whole chunks, and a last one that is not: then comes what was left out."""
        while True:
            data = await self._worker.expect(Kind.DATA)
            if data:
                yield data
            if len(data) < CHUNK:
                return
