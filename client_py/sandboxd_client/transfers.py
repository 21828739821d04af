"""File transfers, across lost connections and restarts of the daemon."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import io
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import IO, Any, TypeAlias, TypeVar

from sandboxd_client.connection import BackOff, Connection
from sandboxd_client.errors import ChecksumMismatchError, ConnectionLostError, SandboxError
from sandboxd_client.methods import Method, Request, Response
from sandboxd_client.methods.files import DOWNLOAD_FILE, DOWNLOAD_TAR, UPLOAD_FILE
from sandboxd_client.results import ProgressCallback
from sandboxd_client.session import SessionHold
from sandboxd_proto.v1 import file_service_pb2 as pb
from sandboxd_proto.v1 import files_pb2

CHUNK_BYTES = 1 << 20
T = TypeVar("T")
Where: TypeAlias = Mapping[str, Any]
"""The fields of a request that name its path."""


class Tries:
    """Number of attempts of a transfer, and the common deadline of all attempts."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._back_off = BackOff(connection.timeouts.reconnect)
        self._ends_at = asyncio.get_running_loop().time() + connection.timeouts.transfer
        self._may_have_begun = False
        self.before = 0

    @property
    def seconds_left(self) -> float:
        return self._ends_at - asyncio.get_running_loop().time()

    def got_further(self) -> None:
        """Note progress: the time to wait for the daemon's return starts again."""
        self._back_off.begin()

    async def after(self, error: SandboxError) -> None:
        """Wait before the next attempt, or raise the error if there is none."""
        error.may_have_begun = self._may_have_begun
        if not self._connection.may_repeat(error, is_repeatable=True):
            raise error
        self._may_have_begun = self._may_have_begun or isinstance(error, ConnectionLostError)
        self.before += 1
        try:
            async with asyncio.timeout_at(self._ends_at):
                await self._back_off.pause(error)
        except TimeoutError:
            raise error from None


async def until_through(connection: Connection, once: Callable[[Tries], Awaitable[T]]) -> T:
    """Repeat the work while only the connection fails and there is time."""
    tries = Tries(connection)
    while True:
        try:
            return await once(tries)
        except SandboxError as error:
            await tries.after(error)


class Progress:
    """Reports each byte to the caller once, however often it is transferred."""

    def __init__(self, callback: ProgressCallback | None) -> None:
        self._callback = callback
        self._told = 0

    async def reached(self, position: int) -> None:
        fresh = position - self._told
        if self._callback is None or fresh <= 0:
            return
        self._told = position
        answer = self._callback(fresh)
        if inspect.isawaitable(answer):
            await answer


async def send_file(
    hold: SessionHold, header: pb.UploadHeader, source: IO[bytes], progress: Progress
) -> pb.UploadFileResponse:
    """Write a file atomically; each attempt starts from its beginning."""
    first = pb.UploadFileRequest(header=header)
    return await send_content(
        hold.connection,
        UPLOAD_FILE,
        first,
        source,
        progress,
        sha256_of=lambda written: written.sha256,
        session_id=hold.id,
    )


async def send_content(
    connection: Connection,
    method: Method[Request, Response],
    first: Request,
    source: IO[bytes],
    progress: Progress,
    *,
    sha256_of: Callable[[Response], bytes],
    session_id: str = "",
) -> Response:
    """Send a message with the header of a file, then its bytes as chunks; each attempt starts from
    the beginning. `sha256_of` finds the checksum of what was received in the answer."""

    async def once(tries: Tries) -> Response:
        digest = hashlib.sha256()

        async def parts() -> AsyncGenerator[Request, None]:
            yield first
            position = 0
            async for chunk in chunks(source):
                yield method.request(chunk=chunk)
                # Only now: while it is computed, the daemon already works on the chunk.
                digest.update(chunk)
                position += len(chunk)
                await progress.reached(position)

        if tries.before:
            source.seek(0)
        async with aclosing(parts()) as requests:
            answer = await connection.send(
                method,
                requests,
                timeout=tries.seconds_left,
                earlier_tries=tries.before,
                session_id=session_id,
            )
        if sha256_of(answer) != digest.digest():
            raise ChecksumMismatchError("The file was not received correctly; send it again.")
        return answer

    return await until_through(connection, once)


async def fetch_file(
    hold: SessionHold,
    where: Where,
    target: IO[bytes],
    progress: Progress,
    *,
    offset: int = 0,
    length: int = 0,
) -> None:
    """Read a file, or up to `length` bytes of it. An interrupted download resumes if the file is
    unchanged, and otherwise begins anew."""
    tries = Tries(hold.connection)
    while True:
        download = Download(hold, where, tries, offset=offset, length=length)
        try:
            async with aclosing(download.chunks()) as received:
                async for chunk in received:
                    target.write(chunk)
                    await progress.reached(download.received)
            return
        except OtherFile:
            target.seek(0)
            target.truncate()


async def fetch_bytes(
    hold: SessionHold, where: Where, *, offset: int = 0, length: int = 0
) -> bytes:
    """Read a file as `fetch_file` does, without a copy of what arrives in one chunk."""
    tries = Tries(hold.connection)
    while True:
        download = Download(hold, where, tries, offset=offset, length=length)
        try:
            async with aclosing(download.chunks()) as received:
                return b"".join([chunk async for chunk in received])
        except OtherFile:
            pass  # begin anew


class OtherFile(Exception):
    """The file is no longer the one whose beginning was received."""


class Download:
    """A download, in one attempt or several."""

    def __init__(
        self, hold: SessionHold, where: Where, tries: Tries, *, offset: int = 0, length: int = 0
    ) -> None:
        """A length of 0 means all."""
        self._hold = hold
        self._where = where
        self._tries = tries
        self._offset = offset
        self._length = length
        self.entry = files_pb2.FileEntry()
        self.received = 0

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The bytes, once. OtherFile if the file has changed when the download resumes."""
        while not self._length or self.received < self._length:
            try:
                async with aclosing(self._attempt()) as chunks:
                    async for chunk in chunks:
                        yield chunk
                return
            except SandboxError as error:
                await self._tries.after(error)

    async def _attempt(self) -> AsyncGenerator[bytes, None]:
        digest = hashlib.sha256()
        end: pb.DownloadEnd | None = None
        request = pb.DownloadFileRequest(
            session_id=self._hold.id,
            offset=self._offset + self.received,
            length=self._length - self.received if self._length else 0,
            **self._where,
        )
        responses = self._hold.connection.stream(
            DOWNLOAD_FILE,
            request,
            timeout=self._tries.seconds_left,
            earlier_tries=self._tries.before,
        )
        async with aclosing(responses):
            async for response in responses:
                match response.WhichOneof("part"):
                    case "entry":
                        self._begin(response.entry)
                    case "chunk":
                        chunk = response.chunk  # once: each time it is a new copy
                        digest.update(chunk)
                        self.received += len(chunk)
                        self._tries.got_further()
                        yield chunk
                    case "end":
                        end = response.end
        if end is None:
            raise ConnectionLostError(
                "The download was interrupted before its end; download it again."
            )
        if end.sha256 != digest.digest():
            raise ChecksumMismatchError(
                f"{self.entry.path} was not received correctly; download it again."
            )

    def _begin(self, entry: files_pb2.FileEntry) -> None:
        if self.received and not _is_same(self.entry, entry):
            raise OtherFile
        self.entry = entry


async def fetch_archive(
    hold: SessionHold, where: Where, target: IO[bytes], progress: Progress
) -> pb.DownloadTarEnd:
    """Read a directory as an archive; each attempt starts anew, since archives may differ."""
    request = pb.DownloadTarRequest(session_id=hold.id, **where)

    async def once(tries: Tries) -> pb.DownloadTarEnd:
        target.seek(0)
        target.truncate()
        end: pb.DownloadTarEnd | None = None
        received = 0
        responses = hold.connection.stream(
            DOWNLOAD_TAR,
            request,
            timeout=tries.seconds_left,
            earlier_tries=tries.before,
        )
        async with aclosing(responses):
            async for response in responses:
                if response.HasField("end"):
                    end = response.end
                else:
                    await asyncio.to_thread(target.write, response.chunk)
                    received += len(response.chunk)
                    await progress.reached(received)
        if end is None:
            raise ConnectionLostError(
                "The download was interrupted before its end; download it again."
            )
        return end

    return await until_through(hold.connection, once)


def _is_same(before: files_pb2.FileEntry, now: files_pb2.FileEntry) -> bool:
    """Whether the content is unchanged, judged by size and modification time."""
    return (before.size_bytes, before.modify_time) == (now.size_bytes, now.modify_time)


async def chunks(source: IO[bytes]) -> AsyncGenerator[bytes, None]:
    is_in_memory = isinstance(source, io.BytesIO)
    while True:
        if is_in_memory:
            chunk = source.read(CHUNK_BYTES)
        else:
            chunk = await asyncio.to_thread(source.read, CHUNK_BYTES)
        if not chunk:
            return
        yield chunk
