"""Archives uploaded and downloaded."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from sandboxd.errors import WorkspaceFull
from sandboxd.files.compression import Compression, packed, unpacked
from sandboxd.files.entries import LeftOut
from sandboxd.files.error_mapping import why_text
from sandboxd.files.paths import FilePath
from sandboxd.files.requests import FileSettings
from sandboxd.files.worker import FileWorker, believed
from sandboxd.guest.files import codec
from sandboxd.guest.files.codec import CHUNK, Kind
from sandboxd.link.workers import WorkerGone

MAX_LISTED = 1000
"""Members left out that are named; further ones are only counted."""
SLACK_BYTES = 64 << 20
"""Bytes of headers and padding that an archive may have beyond twice the workspace."""


@dataclass(frozen=True, kw_only=True)
class TarSpec:
    path: FilePath
    compression: Compression = Compression.NONE
    replace: bool = True


@dataclass(frozen=True, kw_only=True)
class TarUnpacked:
    extracted: int
    extracted_bytes: int
    refused: Sequence[LeftOut]
    refused_count: int


@dataclass(frozen=True, kw_only=True)
class TarMade:
    members: int
    skipped: Sequence[LeftOut]
    skipped_count: int


class TarUpload:
    def __init__(self, spec: TarSpec, chunks: AsyncIterator[bytes], settings: FileSettings) -> None:
        self._spec = spec
        self._chunks = chunks
        self._limit = 2 * settings.workspace_bytes + SLACK_BYTES

    async def send(self, worker: FileWorker) -> TarUnpacked:
        await worker.expect(Kind.READY)
        count = 0
        async for data in unpacked(self._chunks, self._spec.compression):
            count += len(data)
            if count > self._limit:
                raise WorkspaceFull(str(self._spec.path), limitBytes=self._limit)
            await worker.data(data)
        await worker.end()
        refused, (extracted, size, refused_count, *_) = await _receive_left_out(worker)
        return TarUnpacked(
            extracted=extracted,
            extracted_bytes=size,
            refused=refused,
            refused_count=refused_count,
        )


class TarDownload:
    """An archive to be iterated once, to its end; then `made` describes it."""

    def __init__(self, worker: FileWorker, compression: Compression) -> None:
        self.made = TarMade(members=0, skipped=(), skipped_count=0)
        self._worker = worker
        self._compression = compression

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in packed(self._tar(), self._compression):
            yield data
        skipped, (members, skipped_count, *_) = await _receive_left_out(self._worker)
        self.made = TarMade(members=members, skipped=skipped, skipped_count=skipped_count)

    async def _tar(self) -> AsyncIterator[bytes]:
        """The bytes of the archive: a chunk that is not full is the last."""
        while True:
            data = await self._worker.expect(Kind.DATA)
            if data:
                yield data
            if len(data) < CHUNK:
                return


async def _receive_left_out(worker: FileWorker) -> tuple[list[LeftOut], tuple[int, ...]]:
    """The members that were left out, and the figures of DONE."""
    members: list[LeftOut] = []
    while True:
        kind, payload = await worker.next((Kind.LEFT_OUT, Kind.DONE))
        with believed():
            if kind == Kind.DONE:
                return members, codec.decode_done(payload)
            batch = [
                LeftOut(name=member.name, why=why_text(member.why))
                for member in codec.decode_left_out(payload)
            ]
        members += batch
        if not batch or len(members) > MAX_LISTED:
            raise WorkerGone("it left out more members than can be")
