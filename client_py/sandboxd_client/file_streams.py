"""Bytes of a file, and changes of a directory, as they arrive."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import TracebackType

from sandboxd_client.errors import ConnectionLostError, FileChangedError
from sandboxd_client.file_arguments import where
from sandboxd_client.methods.files import WATCH_FILES
from sandboxd_client.results import FileEvent, FileInfo, SandboxPath
from sandboxd_client.session import SessionHold
from sandboxd_client.transfers import Download, OtherFile, Tries
from sandboxd_proto.v1 import file_service_pb2 as pb

_KINDS = {
    pb.FILE_CHANGE_KIND_CREATED: "created",
    pb.FILE_CHANGE_KIND_MODIFIED: "modified",
    pb.FILE_CHANGE_KIND_REMOVED: "removed",
    pb.FILE_CHANGE_KIND_MOVED: "moved",
}


class AsyncFileStream:
    """The bytes of a file as they arrive, in chunks of up to 1 MiB; see `files.read`.

    If the connection is lost, the stream continues at the next byte; FileChangedError if size or
    modification time show that the file has changed. Close a stream that is not read to its end.

    Example:
        await sandbox.files.write("big.bin", b"x" * 3_000_000)
        async with await sandbox.files.read("big.bin", format="stream") as chunks:
            async for chunk in chunks:
                print(len(chunk))
    """

    def __init__(self, download: Download) -> None:
        self._download = download
        self._chunks = download.chunks()
        self._first = b""

    @property
    def info(self) -> FileInfo:
        """The file as it was when the stream began."""
        return FileInfo.of(self._download.entry)

    async def __aenter__(self) -> AsyncFileStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncFileStream:
        return self

    async def _begin(self) -> None:
        """Wait for the first bytes."""
        self._first = await anext(self._chunks, b"")

    async def __anext__(self) -> bytes:
        first, self._first = self._first, b""
        if first:
            return first
        try:
            return await anext(self._chunks)
        except OtherFile:
            raise FileChangedError(
                f"{self.info.path} changed while it was read; read it again."
            ) from None

    async def aclose(self) -> None:
        """End the stream.

        Example:
            await sandbox.files.write("data.bin", b"x")
            stream = await sandbox.files.read("data.bin", format="stream")
            await stream.aclose()
        """
        await self._chunks.aclose()


async def open_stream(
    hold: SessionHold, path: SandboxPath, *, offset: int, length: int
) -> AsyncFileStream:
    """A stream whose first bytes have arrived, so that a missing file is reported at once."""
    tries = Tries(hold.connection)
    stream = AsyncFileStream(Download(hold, where(path), tries, offset=offset, length=length))
    await stream._begin()
    return stream


class AsyncFileWatch:
    """Changes below a directory as they happen; see `files.watch_dir`.

    Example:
        async with sandbox.files.watch_dir() as changes:
            await sandbox.files.write("new.txt", "hello")
            print((await anext(changes)).path)
    """

    def __init__(self, hold: SessionHold, path: SandboxPath, *, recursive: bool) -> None:
        request = pb.WatchFilesRequest(session_id=hold.id, recursive=recursive, **where(path))
        self._responses = hold.connection.stream(WATCH_FILES, request)
        self._changes = self._translated()

    async def __aenter__(self) -> AsyncFileWatch:
        """Start the watch; from here on no change is missed."""
        first = await anext(self._responses, None)
        if first is None or not first.watching:
            raise ConnectionLostError("The watch failed before it began; watch again.")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    def __aiter__(self) -> AsyncFileWatch:
        return self

    async def __anext__(self) -> FileEvent:
        return await anext(self._changes)

    async def aclose(self) -> None:
        """End the watch.

        Example:
            changes = sandbox.files.watch_dir()
            await changes.aclose()
        """
        await self._changes.aclose()
        await self._responses.aclose()

    async def _translated(self) -> AsyncGenerator[FileEvent, None]:
        async for response in self._responses:
            if response.overflow:
                yield FileEvent("overflow", "")
            for change in response.changes:
                yield FileEvent(
                    _KINDS[change.kind], change.path, change.old_path, change.is_directory
                )
        raise ConnectionLostError("The watch was interrupted; list the directory and watch again.")
