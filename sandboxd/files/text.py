"""Text files: reading, writing and editing."""

from __future__ import annotations

from dataclasses import dataclass

from sandboxd.errors import FileTooLarge, TextNotFound
from sandboxd.files.answers import receive_entry, receive_last_entry
from sandboxd.files.entries import Edited, Entry, TextRead
from sandboxd.files.requests import EditSpec, FileSettings, TextSpec
from sandboxd.files.worker import FileWorker, WorkerFailed, believed
from sandboxd.guest.files import codec
from sandboxd.guest.files.codec import CHUNK, Failure, Kind
from sandboxd.link.workers import WorkerGone


async def read(worker: FileWorker, max_bytes: int) -> TextRead:
    entry = await receive_entry(worker)
    data = bytearray()
    while True:
        kind, payload = await worker.next((Kind.DATA, Kind.DONE))
        if kind == Kind.DONE:
            break
        is_in_order = len(data) % CHUNK == 0 and 0 < len(payload) <= CHUNK
        data += payload
        if not is_in_order or len(data) > max_bytes:
            raise WorkerGone("it sent more text than was asked for")
    with believed():
        first, count, total, is_cut, *_ = codec.decode_done(payload)
    try:
        text, is_valid = data.decode(), True
    except UnicodeDecodeError:
        text, is_valid = data.decode(errors="replace"), False
    return TextRead(
        text=text,
        first_line=first,
        line_count=count,
        total_lines=total,
        truncated=bool(is_cut),
        invalid_utf8=not is_valid,
        entry=entry,
    )


@dataclass(frozen=True)
class TextWrite:
    spec: TextSpec
    settings: FileSettings

    @property
    def data(self) -> bytes:
        return self.spec.text.encode(errors="surrogatepass")

    def check(self) -> None:
        limit = self.settings.max_file_bytes
        if len(self.data) > limit:
            path = str(self.spec.path)
            raise FileTooLarge(path, limit_bytes=limit, size_bytes=len(self.data))

    async def send(self, worker: FileWorker) -> Entry:
        await worker.expect(Kind.READY)
        await worker.data(self.data)
        await worker.end()
        return (await receive_last_entry(worker))[0]


@dataclass(frozen=True)
class TextEdit:
    spec: EditSpec

    @property
    def old(self) -> bytes:
        return self.spec.old_text.encode(errors="surrogatepass")

    async def send(self, worker: FileWorker) -> Edited:
        await worker.expect(Kind.READY)
        await worker.data(self.old)
        await worker.data(self.spec.new_text.encode(errors="surrogatepass"))
        await worker.end()
        try:
            entry, (count, *_) = await receive_last_entry(worker)
        except WorkerFailed as error:
            failed = error.failed
            if failed.failure != Failure.TEXT_NOT_FOUND:
                raise
            expected = self.spec.expected_count
            raise TextNotFound(
                str(self.spec.path), count=failed.first, expected=expected
            ) from error
        return Edited(replaced=count, entry=entry)
